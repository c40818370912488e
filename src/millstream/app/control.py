"""The control channel of a broker: its operations, its socket, and the hook by which answers wait for the disk."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import structlog

from millstream.app.control_consume import ConsumeOperations
from millstream.app.control_desk import Desk
from millstream.app.control_queues import QueueOperations
from millstream.app.control_records import RecordOperations
from millstream.broker.broker import Broker
from millstream.runtime.control import ControlFault, ControlServer, Operation

LINE_OVERHEAD: Final = 1024 * 1024  # beside the largest payload in base64


class Control:
    def __init__(self, broker: Broker, folder: Path) -> None:
        self._desk = Desk(broker)
        line_bytes_max = broker.limits.message_size_max * 4 // 3 + LINE_OVERHEAD
        self._server = ControlServer(folder, make_operations(self._desk), line_bytes_max)

    async def start(self) -> None:
        """A broker without this channel still does its work: what is in the way is told, not fatal."""
        try:
            await self._server.start()
        except ControlFault as fault:
            structlog.get_logger("millstream").warning(
                "control_unavailable", reason=str(fault), next=fault.hint
            )

    async def stop(self) -> None:
        await self._server.stop()

    def on_durable(self) -> None:
        self._desk.on_durable()


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
        "queue.publish": queues.publish,
        "queue.peek": records.peek,
        "queue.move": records.move,
        "queue.take": consuming.take,
        "queue.settle": consuming.settle,
    }
