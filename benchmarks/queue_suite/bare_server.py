"""The control of `bench queues`: the least server that confirms a durable publish (benchmarks/load/bare_server.c).

It tells what sockets, wake-ups and the generator take of a promise, whatever language a server is written in. It does not
read while it syncs, so with many publishers it is a comparison and no upper bound.
"""

from __future__ import annotations

from benchmarks.queue_suite.brokers import QueueBroker
from benchmarks.queue_suite.native import CompilerFault, build_native
from benchmarks.suite.brokers import BrokerFault, find_free_port


class BareServer(QueueBroker):
    """Speaks just enough MQTT for the publishers of the load generator; no broker, so it is not in `KINDS`."""

    name = "bare"
    title = "Bare server"
    protocol = "mqtt"
    durability = "fdatasync before the confirm"
    mark = "synced"

    def __init__(self, core: int, is_stream: bool = False) -> None:
        super().__init__(core, is_stream)

    def command(self) -> list[str]:
        try:
            program = build_native("bare_server.c", "bare_server")
        except CompilerFault as fault:
            raise BrokerFault(str(fault)) from None
        self.port = find_free_port()
        return [str(program), str(self.port), str(self.folder / "records")]

    def version(self) -> str:
        return "bare server"
