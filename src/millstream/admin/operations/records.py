"""Records of queues as the control channel shows and moves them.

A move loses nothing at a kill: a record enters its new queue before it is settled in the old one, both within one turn of
the loop, so the log gets them in one batch.
"""

from __future__ import annotations

import asyncio
import base64
from datetime import UTC, datetime
from typing import Final

from millstream.admin.context import AdminContext, read_whole
from millstream.model.errors import Reason
from millstream.model.message import Message
from millstream.model.native_properties import (
    AMQP_091,
    address_end,
    canonical_part,
    carried_end,
    find_address,
    has_carried,
    native_part,
    with_address,
)
from millstream.model.queue_topic import queue_topic, split_queue_topic
from millstream.model.reserved_words import DEAD_LETTER_WORDS
from millstream.protocols.amqp091.json_values import plain_properties
from millstream.protocols.mqtt.mapping import encode_block
from millstream.protocols.mqtt.wire.kinds import PUBLISH
from millstream.protocols.mqtt.wire.primitives import encode_varint
from millstream.protocols.mqtt.wire.properties import Properties, decode_properties
from millstream.queues.publish_options import DELAY, PRODUCER, SEQUENCE
from millstream.queues.queue import Queue
from millstream.runtime.control.server import ControlRefusal, Conversation, Fields
from millstream.storage.records.queue_records import decode_record, decode_record_message, record_place

SLICE: Final = 256  # records looked at before others get their turn
SLICE_BYTES: Final = 4 * 1024 * 1024
READ_AT_ONCE: Final = 64  # from segments; the largest message times this is the memory it takes
PEEK_MAX: Final = 1000
PEEK_BYTES: Final = 8 * 1024 * 1024
COUNT_MAX: Final = 1 << 53
BLOCK_PROPERTIES_MAX: Final = 1 << 20  # what is stored was bounded when it came in


class RecordWalk:
    """The records of a queue in order of their offsets, a portion at a time, from memory or from segments."""

    def __init__(self, queue: Queue, first: int, end: int) -> None:
        self._queue = queue
        self.offset = first  # the next one to look at
        self.end = end

    def is_done(self) -> bool:
        return self.offset >= self.end or self._queue.is_removed

    def take(self) -> list[tuple[int, bytes]]:
        """(offset, record) of some; an empty portion does not mean that it was the last."""
        queue = self._queue
        memtable = queue.memtable
        self.offset = max(self.offset, int(queue.first))
        found: list[tuple[int, bytes]] = []
        if self.offset < memtable.first:
            stop = min(self.end, int(memtable.first))
            for body in queue.source.read(queue.number, self.offset, stop, READ_AT_ONCE):
                found.append((record_place(body)[1], body))
            self.offset = found[-1][0] + 1 if found else stop
            return found
        stop = min(self.end, self.offset + SLICE)
        size = 0
        while self.offset < stop and size < SLICE_BYTES:
            body = queue.find_record(self.offset)
            if body:
                found.append((self.offset, body))
                size += len(body)
            self.offset += 1
        return found


def is_needed(queue: Queue, offset: int) -> bool:
    """Whether somebody has still to settle it; of a stream every record is."""
    if queue.is_stream or not queue.groups:
        return True
    return any(not group.is_settled(offset) for group in queue.groups.values())


def is_handed_out(queue: Queue, offset: int) -> bool:
    return any(group.find_pending(offset) is not None for group in queue.groups.values())


def view_record(queue: Queue, offset: int, body: bytes) -> dict[str, object]:
    record = decode_record(body)
    message = decode_record_message(body, -int(queue.clock.wall_offset_ns))
    view = view_message(queue, offset, int(record.time_wall_ns), message)
    if record.priority:
        view["priority"] = int(record.priority)
    if record.not_before_wall_ns:
        view["not_before"] = iso_time(int(record.not_before_wall_ns))
    return view


def view_message(queue: Queue, offset: int, time_wall_ns: int, message: Message) -> dict[str, object]:
    """As JSON can carry it: the payload as base64, and as text if it is one."""
    properties = decode_block(message.properties)
    view: dict[str, object] = {
        "offset": offset,
        "message_id": f"{queue.name}:{offset}",
        "time": iso_time(time_wall_ns),
        "topic": message.topic.decode(errors="replace"),
        "key": queue.routing_key(message.topic).decode(errors="replace"),
        "payload": text_of(message.payload),
        "payload_base64": base64.b64encode(message.payload).decode(),
        "properties": [
            [name.decode(errors="replace"), value.decode(errors="replace")]
            for name, value in properties.user_properties
        ],
    }
    if properties.content_type is not None:
        view["content_type"] = properties.content_type.decode(errors="replace")
    if has_carried(message.properties):
        view.update(view_amqp(message))
    if message.expires_ns:
        view["expires"] = iso_time(int(message.expires_ns + queue.clock.wall_offset_ns))
    return view


def view_amqp(message: Message) -> dict[str, object]:
    """What its AMQP publisher said, and where it was published to last."""
    carried = native_part(message.properties)
    address = find_address(message.properties)
    assert address is not None
    view: dict[str, object] = {
        "exchange": address[0].decode(errors="replace"),
        "routing_key": address[1].decode(errors="replace"),
    }
    if carried[0] == AMQP_091:
        view["amqp_properties"] = plain_properties(carried[address_end(carried) :])
    return view


def iso_time(wall_ns: int) -> str:
    return datetime.fromtimestamp(wall_ns // 1_000_000 / 1000, UTC).isoformat(timespec="milliseconds")


def text_of(payload: bytes) -> str | None:
    try:
        return payload.decode("utf-8")
    except UnicodeDecodeError:
        return None


def decode_block(block: bytes) -> Properties:
    block = canonical_part(block)
    if not block:
        return Properties()
    data = encode_varint(len(block)) + block
    return decode_properties(data, 0, len(data), PUBLISH, BLOCK_PROPERTIES_MAX)[0] or Properties()


def make_moved(message: Message, target: str) -> Message:
    """As it was published, to another queue. It is not a repeat there, it has waited already, and it is no dead letter."""
    properties = decode_block(message.properties)
    properties.user_properties = [
        (name, value)
        for name, value in properties.user_properties
        if name not in (PRODUCER, SEQUENCE, DELAY) and not name.startswith(DEAD_LETTER_WORDS)
    ]
    place = split_queue_topic(message.topic)
    topic = message.topic if place is None else queue_topic(target, place[1])
    block = message.properties[: carried_end(message.properties)] + encode_block(properties)
    if place is not None and has_carried(block):
        block = with_address(block, b"", target.encode())
    return Message(
        topic, message.payload, message.guarantee, False, block, message.expires_ns, message.publisher
    )


class RecordOperations:
    def __init__(self, context: AdminContext) -> None:
        self._context = context

    # ------------------------------------------------------------------- peek

    async def peek(self, fields: Fields, conversation: Conversation) -> object:
        """Records from an offset on, handed to nobody. Those of a work queue that all groups settled are left out."""
        context = self._context
        context.begin()
        queue = context.get_queue(fields)
        count = read_whole(fields, "count", 10, 1, PEEK_MAX)
        first = read_whole(fields, "offset", int(queue.low_mark()), 0, COUNT_MAX)
        walk = RecordWalk(queue, first, int(queue.visible))
        records: list[dict[str, object]] = []
        size = 0
        while not walk.is_done() and len(records) < count and size < PEEK_BYTES:
            for offset, body in walk.take():
                if is_needed(queue, offset):
                    records.append(view_record(queue, offset, body))
                    records[-1]["handed_out"] = is_handed_out(queue, offset)
                    size += len(body)
                if len(records) >= count or size >= PEEK_BYTES:
                    walk.offset = offset + 1
                    break
            await asyncio.sleep(0)
        is_more = not walk.is_done()
        return {"records": records, "next_offset": walk.offset, "more": is_more}

    # ------------------------------------------------------------------- move

    async def move(self, fields: Fields, conversation: Conversation) -> object:
        """Everything that waits in one queue, or so many records of it, into another. What a consumer has stays."""
        context = self._context
        context.begin_change()
        source = context.get_queue(fields, "source")
        target = context.get_queue(fields, "target")
        limit = read_whole(fields, "count", 0, 0, COUNT_MAX)
        if source is target:
            raise ControlRefusal("a queue cannot be moved into itself", "millstream queue list")
        if source.is_stream:
            raise ControlRefusal(
                f"{source.name!r} is a stream: its records stay; a group reads them again after a seek",
                f"millstream queue seek {source.name} GROUP first",
            )
        if source.is_durable and not target.is_durable:
            raise ControlRefusal(
                f"{target.name!r} lives in memory: what is moved there would not survive a restart",
                "millstream queue create NAME --kind work",
            )
        total = min(limit or COUNT_MAX, int(source.depth()))
        limit = limit or COUNT_MAX
        walk = RecordWalk(source, int(source.low_mark()), int(source.visible))
        moved = 0
        handed_out = 0
        while not walk.is_done() and moved < limit:
            context.begin_change()
            if target.is_removed:
                raise ControlRefusal(f"{target.name!r} was deleted; {moved} records were moved before")
            done = _move_portion(source, target, walk, limit - moved)
            moved += done.moved
            handed_out += done.handed_out
            await context.wait_durable()
            if done.refusal is not Reason.SUCCESS:
                raise ControlRefusal(
                    f"{target.name!r} takes no more; {moved} records were moved, the others are where they were",
                    f"millstream queue show '{target.name}'",
                )
            await conversation.tell({"done": moved, "total": max(total, moved)})
        return {"moved": moved, "handed_out": handed_out, "source": source.name, "target": target.name}


class _Portion:
    def __init__(self) -> None:
        self.moved = 0
        self.handed_out = 0
        self.refusal = Reason.SUCCESS


def _move_portion(source: Queue, target: Queue, walk: RecordWalk, limit: int) -> _Portion:
    """Without an `await`: nobody sees it half done, and the log takes it as one."""
    done = _Portion()
    last = -1
    for offset, body in walk.take():
        if done.moved >= limit:
            walk.offset = offset
            break
        if not is_needed(source, offset):
            continue
        if is_handed_out(source, offset):
            done.handed_out += 1
            continue
        message = make_moved(decode_record_message(body, -int(source.clock.wall_offset_ns)), target.name)
        done.refusal = target.find_refusal(message)
        if done.refusal is not Reason.SUCCESS:
            walk.offset = offset
            break
        appended = target.append(message)
        assert appended >= 0, "a moved record carries no sequence that could make it a repeat"
        _settle(source, offset)
        done.moved += 1
        last = offset
    if last >= 0 and not source.groups:
        # nobody reads it: it begins behind what was moved
        source.trim(last + 1)
    return done


def _settle(source: Queue, offset: int) -> None:
    for group in list(source.groups.values()):
        if not group.is_settled(offset):
            group.finish(offset, offset)
