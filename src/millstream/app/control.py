"""The control channel of a broker: its operations, its socket, and the hook by which answers wait for the disk."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from millstream.app.control_consume import ConsumeOperations
from millstream.app.control_definitions import make_definition_operations
from millstream.app.control_desk import Desk
from millstream.app.control_exchanges import make_exchange_operations
from millstream.app.control_queues import QueueOperations
from millstream.app.control_records import RecordOperations
from millstream.app.control_stages import make_stage_operations
from millstream.app.control_status import make_status_operations
from millstream.app.control_streams import Decide, Seal, StreamOperations
from millstream.app.stage_commits import StageCommits
from millstream.broker.broker import Broker
from millstream.broker.conditions import CONTROL_DOWN
from millstream.protocols.amqp091.policies import Policies
from millstream.runtime.control.server import ControlFault, ControlServer, Operation

LINE_OVERHEAD: Final = 1024 * 1024  # beside the largest payload in base64


class Control:
    """`seal`, `decide` and `seal_interval_s` are for the reader: see `StreamOperations`."""

    def __init__(
        self,
        broker: Broker,
        folder: Path,
        commits: StageCommits,
        seal: Seal | None,
        decide: Decide,
        seal_interval_s: float,
        policies: Policies,
    ) -> None:
        self._desk = Desk(broker, policies)
        line_bytes_max = broker.limits.message_size_max * 4 // 3 + LINE_OVERHEAD
        self._server = ControlServer(
            folder,
            {
                **make_operations(self._desk),
                **stream_operations(self._desk, seal, decide, seal_interval_s),
                **make_stage_operations(self._desk, commits),
                **make_status_operations(self._desk),
            },
            line_bytes_max,
        )

    async def start(self) -> None:
        """A broker without this channel still does its work: what is in the way is told, not fatal."""
        try:
            await self._server.start()
        except ControlFault as fault:
            self._desk.broker.health.begin(CONTROL_DOWN, str(fault), f"{fault.hint}; then restart the broker")

    async def stop(self) -> None:
        await self._server.stop()

    def on_durable(self) -> None:
        self._desk.on_durable()


def stream_operations(
    desk: Desk, seal: Seal | None, decide: Decide, seal_interval_s: float
) -> dict[str, Operation]:
    streams = StreamOperations(desk, seal, decide, seal_interval_s)
    return {
        "stream.list": streams.list_streams,
        "stream.show": streams.show,
        "stream.seal": streams.seal,
        "stream.commit": streams.commit,
        "stream.admit": streams.admit,
        "stream.busy": streams.tell_busy,
    }


def make_operations(desk: Desk) -> dict[str, Operation]:
    queues = QueueOperations(desk)
    records = RecordOperations(desk)
    consuming = ConsumeOperations(desk)
    return {
        "queue.list": queues.list_queues,
        "queue.show": queues.show,
        "queue.create": queues.create,
        "queue.update": queues.update,
        "queue.delete": queues.delete,
        "queue.purge": queues.purge,
        "queue.bind": queues.bind,
        "queue.unbind": queues.unbind,
        "queue.groups": queues.groups,
        "queue.seek": queues.seek,
        "queue.remove_group": queues.remove_group,
        "queue.publish": queues.publish,
        "queue.peek": records.peek,
        "queue.move": records.move,
        "queue.take": consuming.take,
        "queue.settle": consuming.settle,
        **make_exchange_operations(desk),
        **make_definition_operations(desk),
    }
