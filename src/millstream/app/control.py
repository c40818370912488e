"""The control channel of a broker: its operations, its socket, and the hook by which answers wait for the disk."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from millstream.admin.context import AdminContext
from millstream.admin.operations.batches import make_stage_operations
from millstream.admin.operations.consume import ConsumeOperations
from millstream.admin.operations.definitions import make_definition_operations
from millstream.admin.operations.exchanges import make_exchange_operations
from millstream.admin.operations.queues import QueueOperations
from millstream.admin.operations.records import RecordOperations
from millstream.admin.operations.status import make_status_operations
from millstream.admin.operations.streams import Decide, Seal, StreamOperations
from millstream.batches.commits import StageCommits
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
        self._context = AdminContext(broker, policies)
        line_bytes_max = broker.limits.message_size_max * 4 // 3 + LINE_OVERHEAD
        self._server = ControlServer(
            folder,
            {
                **make_operations(self._context),
                **stream_operations(self._context, seal, decide, seal_interval_s),
                **make_stage_operations(self._context, commits),
                **make_status_operations(self._context),
            },
            line_bytes_max,
        )

    async def start(self) -> None:
        """A broker without this channel still does its work: what is in the way is told, not fatal."""
        try:
            await self._server.start()
        except ControlFault as fault:
            self._context.broker.health.begin(
                CONTROL_DOWN, str(fault), f"{fault.hint}; then restart the broker"
            )

    async def stop(self) -> None:
        await self._server.stop()

    def on_durable(self) -> None:
        self._context.on_durable()


def stream_operations(
    context: AdminContext, seal: Seal | None, decide: Decide, seal_interval_s: float
) -> dict[str, Operation]:
    streams = StreamOperations(context, seal, decide, seal_interval_s)
    return {
        "stream.list": streams.list_streams,
        "stream.show": streams.show,
        "stream.seal": streams.seal,
        "stream.commit": streams.commit,
        "stream.admit": streams.admit,
        "stream.busy": streams.tell_busy,
    }


def make_operations(context: AdminContext) -> dict[str, Operation]:
    queues = QueueOperations(context)
    records = RecordOperations(context)
    consuming = ConsumeOperations(context)
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
        **make_exchange_operations(context),
        **make_definition_operations(context),
    }
