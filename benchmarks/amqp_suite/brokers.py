"""The two brokers of `bench amqp091`, both spoken to over AMQP 0.9.1."""

from __future__ import annotations

import json

from benchmarks.queue_suite.brokers import QueueBroker, Rabbit, SyncedMillstream
from benchmarks.suite.brokers import read_port

# Rules of every kind the authorizer knows, so that a benchmark pays for what an operator would use.
MILLSTREAM_ACL = """\
default: deny
rules:
  - {allow: all, topics: ["$queue/#", "bench/#"], users: [anonymous]}
  - {allow: all, topics: ["clients/%c/#", "users/%u/#"]}
  - {allow: publish, topics: ["telemetry/+/state"], clients: ["device-*"]}
  - {deny: all, topics: ["bench/secret/#", "$SYS/#"]}
"""


class AmqpMillstream(SyncedMillstream):
    """Access rules, counters and all listeners on; what is durable is synced before it is confirmed."""

    protocol = "amqp"

    def command(self) -> list[str]:
        command = super().command()
        (self.folder / "acl.yaml").write_text(MILLSTREAM_ACL)
        at = command.index("queues.bench.kind=work")  # the queue is declared by its clients here
        return [*command[: at - 1], *command[at + 3 :]]

    def is_ready(self) -> bool:
        if not super().is_ready():
            return False
        self.port = read_port(json.loads((self.folder / "ready.json").read_text()), "amqp")
        return self.port > 0


KINDS: dict[str, type[QueueBroker]] = {kind.name: kind for kind in (AmqpMillstream, Rabbit)}
