"""A connection of the control channel as a consumer: it takes so many records as it asks for, and settles them.

What it took and did not settle goes back as if it had never been handed out when the connection ends: looking at records
through a command must not bring them closer to the dead letters.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import Final

from millstream.admin.context import AdminContext, read_list, read_text, read_whole
from millstream.admin.operations.records import view_message
from millstream.broker.queue_access import find_start, pattern_title
from millstream.model.outcome import Outcome
from millstream.model.topic import find_filter_fault
from millstream.queues.consumers import Consumer
from millstream.queues.group import Group
from millstream.queues.pending import Pending
from millstream.queues.queue import Queue
from millstream.runtime.control.server import ControlRefusal, Conversation, Fields

TAKE_MAX: Final = 100
TAKE_BYTES: Final = 8 * 1024 * 1024
WAIT_MS_MAX: Final = 60_000
SETTLE_MAX: Final = 256
HELD: Final = "consumer"
OUTCOMES: Final = {
    "accepted": Outcome.ACCEPTED,
    "released": Outcome.RELEASED,
    "rejected": Outcome.REJECTED,
    "modified": Outcome.MODIFIED,
}


class ControlConsumer(Consumer):
    def __init__(self, name: str, group: Group) -> None:
        super().__init__(name, True)
        self.group = group
        self.credit = 0
        self.size = 0  # of what has come since it was last taken
        self.is_removed = False
        self.arrived = asyncio.Event()
        self._ready: list[Pending] = []

    def has_credit(self) -> bool:
        return self.open < self.credit and self.size < TAKE_BYTES

    def is_present(self) -> bool:
        return not self.is_removed

    def deliver(self, pending: Pending) -> None:
        self._ready.append(pending)
        self.size += int(pending.size)
        self.arrived.set()

    def on_removed(self) -> None:
        self.is_removed = True
        self.arrived.set()

    def take_ready(self) -> list[Pending]:
        """What was handed to it and is still its own."""
        ready = [pending for pending in self._ready if pending.consumer is self]
        self._ready = []
        self.size = 0
        self.arrived.clear()
        return ready

    def leave(self) -> None:
        group = self.group
        self.credit = 0
        for pending in [pending for pending in group.pending.values() if pending.consumer is self]:
            group.settle(pending, Outcome.RELEASED, "")
        group.leave(self)
        if not self.is_removed:
            group.queue.catalog.on_consumer_left(group.queue)


class ConsumeOperations:
    def __init__(self, context: AdminContext) -> None:
        self._context = context
        self._numbers = itertools.count(1)

    async def take(self, fields: Fields, conversation: Conversation) -> object:
        """Wait for records and hand out up to `count` of them to this connection; none came in time: an empty list."""
        context = self._context
        context.begin_change()
        queue = context.get_queue(fields)
        count = read_whole(fields, "count", 1, 1, TAKE_MAX)
        wait_ms = read_whole(fields, "wait_ms", 0, 0, WAIT_MS_MAX)
        consumer = self._get_consumer(fields, queue, conversation)
        consumer.credit = int(consumer.open) + count
        consumer.group.dispatch()
        try:
            async with asyncio.timeout(wait_ms / 1000):
                await consumer.arrived.wait()
        except TimeoutError:
            pass  # what came in the last moment is taken below
        finally:
            consumer.credit = 0
        if consumer.is_removed:
            if not queue.is_removed:
                raise ControlRefusal(
                    f"the group {consumer.group.title()!r} was removed",
                    f"millstream queue groups '{queue.name}'",
                )
            raise ControlRefusal(f"{queue.name!r} was deleted", "millstream queue list")
        records: list[dict[str, object]] = []
        for pending in consumer.take_ready():
            record = view_message(queue, int(pending.offset), int(pending.time_wall_ns), pending.message)
            record["attempts"] = int(pending.attempts)
            record["redelivered"] = pending.is_repeated()
            records.append(record)
        return {"records": records, "group": consumer.group.title()}

    async def settle(self, fields: Fields, conversation: Conversation) -> object:
        """Answer what this connection took."""
        context = self._context
        context.begin_change()
        consumer = conversation.held.get(HELD)
        if not isinstance(consumer, ControlConsumer):
            raise ControlRefusal("this connection has taken nothing", "millstream queue consume NAME")
        word = read_text(fields, "outcome", "accepted")
        if word not in OUTCOMES:
            raise ControlRefusal(f"an outcome is one of {', '.join(OUTCOMES)}, not {word!r}")
        settled = 0
        late = 0
        for offset in read_list(fields, "offsets", SETTLE_MAX):
            if not isinstance(offset, int) or isinstance(offset, bool) or not 0 <= offset < 1 << 62:
                raise ControlRefusal(f"an offset is a whole number, not {offset!r}")
            pending = consumer.group.find_pending(offset)
            if pending is None or pending.consumer is not consumer:
                late += 1  # it took too long, and somebody else has it
                continue
            consumer.group.settle(pending, OUTCOMES[word], "")
            settled += 1
        await context.wait_durable()
        return {"settled": settled, "late": late}

    def _get_consumer(self, fields: Fields, queue: Queue, conversation: Conversation) -> ControlConsumer:
        held = conversation.held.get(HELD)
        if isinstance(held, ControlConsumer):
            if held.group.queue is not queue:
                raise ControlRefusal(f"this connection consumes from {held.group.queue.name!r}")
            return held
        name = _read_group_name(fields, queue)
        filter = read_text(fields, "filter", "").encode()
        fault = find_filter_fault(filter, 4096, 128) if filter else None
        if fault is not None:
            raise ControlRefusal(f"the filter cannot be used: {fault}")
        if filter and "@" in name:
            raise ControlRefusal(
                f"the group {name!r} has a filter of its own", "millstream queue consume --help"
            )
        pattern = b"" if filter == b"#" else filter
        group = queue.groups.get(pattern_title(name, pattern))
        if group is None:
            start = read_text(fields, "from", "").encode()
            place = find_start(queue, start) if start and queue.is_stream else -1
            group = queue.get_group(name, pattern)
            if place >= 0:
                group.seek(place)
        consumer = ControlConsumer(f"command-{next(self._numbers)}", group)
        conversation.held[HELD] = consumer
        conversation.at_end(consumer.leave)
        group.join(consumer)
        return consumer


def _read_group_name(fields: Fields, queue: Queue) -> str:
    """The group that was named, or the only one there is; a new one keeps records from going, so it needs a name."""
    name = read_text(fields, "group", "")
    if name:
        if ("@" in name and name not in queue.groups) or len(name) > 256:
            raise ControlRefusal("a group is named by 1 to 256 characters without @")
        return name
    if len(queue.groups) > 1:
        raise ControlRefusal(
            f"{queue.name!r} has the groups {', '.join(list(queue.groups)[:10])}; name one with --group",
            f"millstream queue groups '{queue.name}'",
        )
    return next(iter(queue.groups), "default")
