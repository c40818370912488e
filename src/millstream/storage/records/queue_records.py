"""The facts of queues as bodies of log records, and the record of a message in a queue.

A record is the same bytes in the log and in a segment:

    queue, offset, time, not before (nanoseconds of the wall clock, 0: at once), priority, size of the producer's name,
    producer, sequence of the producer (only with a producer), then the message as in `facts`

Queues and groups are named by numbers given once.
"""

from __future__ import annotations

import struct
from typing import Final, final

from librt.strings import BytesWriter, write_i64_le
from mypy_extensions import i64, u8

from millstream.model.message import Message
from millstream.model.message_batch import MessageBatch
from millstream.storage.little_endian import read_u32, read_u64, write_u32
from millstream.storage.records.session_records import FactFault, Reader, decode_message, write_message_start

LARGE: Final[i64] = 256 * 1024  # bytes of a payload
QUEUE_SAVED: Final = 20
QUEUE_REMOVED: Final = 21
RECORD_APPENDED: Final = 22
GROUP_SAVED: Final = 23
GROUP_REMOVED: Final = 24
RECORDS_SETTLED: Final = 25
RECORD_RETURNED: Final = 26
QUEUE_TRIMMED: Final = 27
FIRST_KIND: Final = QUEUE_SAVED
LAST_KIND: Final = QUEUE_TRIMMED

_NUMBER: Final = struct.Struct("<Q")
_RECORD: Final = struct.Struct("<QQQQBB")
HEAD_SIZE: Final[i64] = 34
_PAIR: Final = struct.Struct("<QQ")
_GROUP: Final = struct.Struct("<QQQ")
_SETTLED: Final = struct.Struct("<QQQQ")
_RETURNED: Final = struct.Struct("<QQQIQ")


@final
class QueueRecord:
    """A message in a queue, with what the queue knows about it."""

    def __init__(
        self,
        offset: i64,
        time_wall_ns: i64,
        not_before_wall_ns: i64,
        priority: i64,
        producer: bytes,
        producer_sequence: i64,
    ) -> None:
        self.offset: i64 = offset
        self.time_wall_ns: i64 = time_wall_ns
        self.not_before_wall_ns: i64 = not_before_wall_ns
        self.priority: i64 = priority
        self.producer = producer
        self.producer_sequence: i64 = producer_sequence

    def has_priority_or_delay(self) -> bool:
        """Whether it may be handed out of turn: later than others, or before them."""
        return self.not_before_wall_ns != 0 or self.priority != 0


def encode_record(queue: i64, record: QueueRecord, message: Message, expires_wall_ns: i64) -> bytes:
    out = BytesWriter()
    write_i64_le(out, queue)
    write_i64_le(out, record.offset)
    _write_rest(out, record, message, expires_wall_ns)
    write_u32(out, len(message.payload))
    if len(message.payload) >= LARGE:
        return out.getvalue() + message.payload  # one copy of it, where a writer makes two
    out.write(message.payload)
    return out.getvalue()


def _write_rest(out: BytesWriter, record: QueueRecord, message: Message, expires_wall_ns: i64) -> None:
    """What stands between the offset and the payload with its size."""
    producer = record.producer
    write_i64_le(out, record.time_wall_ns)
    write_i64_le(out, record.not_before_wall_ns)
    out.append(u8(record.priority))
    out.append(u8(len(producer)))
    if producer:
        out.write(producer)
        write_i64_le(out, record.producer_sequence)
    write_message_start(out, message, expires_wall_ns)


@final
class BatchEncoder:
    """The records of a batch: all but offset and payload is the same in each of them."""

    def __init__(self, queue: i64, time_wall_ns: i64, batch: MessageBatch, expires_wall_ns: i64) -> None:
        self._queue: i64 = queue
        self._burst = batch
        self._out = BytesWriter()
        record = QueueRecord(0, time_wall_ns, 0, 0, b"", 0)
        _write_rest(self._out, record, batch.message, expires_wall_ns)
        self._rest = self._out.getvalue()

    def encode(self, index: i64, offset: i64) -> bytes:
        out = self._out
        payload = self._burst.get_payload(index)
        out.truncate(0)
        write_i64_le(out, self._queue)
        write_i64_le(out, offset)
        out.write(self._rest)
        write_u32(out, len(payload))
        out.write(payload)
        return out.getvalue()


def decode_record(body: bytes) -> QueueRecord:
    _, offset, time_ns, not_before, priority, size = _head(body)
    if not size:
        return QueueRecord(offset, time_ns, not_before, priority, b"", 0)
    end = _RECORD.size + size
    if end + 8 > len(body):
        raise FactFault("a producer is longer than the record")
    sequence: int = _NUMBER.unpack_from(body, end)[0]
    return QueueRecord(offset, time_ns, not_before, priority, body[_RECORD.size : end], sequence)


def decode_record_message(body: bytes, expires_ns_of: i64) -> Message:
    size: i64 = body[HEAD_SIZE - 1]
    start: i64 = HEAD_SIZE + size + 8 if size else HEAD_SIZE
    return decode_message(body, expires_ns_of, start)


def record_place(body: bytes) -> tuple[int, int]:
    """(queue, offset)"""
    return int(read_u64(body, 0)), int(read_u64(body, 8))


def record_time(body: bytes) -> i64:
    return read_u64(body, 16)


def record_payload_size(body: bytes) -> i64:
    size: i64 = body[HEAD_SIZE - 1]
    at: i64 = (HEAD_SIZE + size + 8 if size else HEAD_SIZE) + 10
    for _ in range(3):  # topic, properties, publisher
        at += 4 + read_u32(body, at)
    return read_u32(body, at)


def is_plain(body: bytes) -> bool:
    """Whether it says nothing but the message: no producer, no priority, no delay."""
    return body[HEAD_SIZE - 1] == 0 and body[HEAD_SIZE - 2] == 0 and read_u64(body, 24) == 0


def record_offset(body: bytes) -> i64:
    return read_u64(body, 8)


def _head(body: bytes) -> tuple[int, int, int, int, int, int]:
    if len(body) < _RECORD.size:
        raise FactFault("a record of a queue is too short")
    queue, offset, time_ns, not_before, priority, size = _RECORD.unpack_from(body)
    return queue, offset, time_ns, not_before, priority, size


# ------------------------------------------------------------------- queues


def encode_queue(number: int, account: str, name: str, definition: bytes) -> bytes:
    parts = [_NUMBER.pack(number)]
    for part in (account.encode(), name.encode(), definition):
        parts.append(len(part).to_bytes(4, "little"))
        parts.append(part)
    return b"".join(parts)


def decode_queue(body: bytes) -> tuple[int, str, str, bytes]:
    """(number, account, name, definition)"""
    reader = Reader(body, 8)
    account, name, definition = reader.take(), reader.take(), reader.take()
    return _NUMBER.unpack_from(body)[0], account.decode(), name.decode(), definition


def encode_number(number: int) -> bytes:
    return _NUMBER.pack(number)


def decode_number(body: bytes) -> int:
    return int(read_u64(body, 0))


def encode_pair(queue: int, other: int) -> bytes:
    return _PAIR.pack(queue, other)


def decode_pair(body: bytes) -> tuple[int, int]:
    queue, other = _PAIR.unpack_from(body)
    return queue, other


def encode_group(queue: int, group: int, committed: int, name: str, filter: bytes) -> bytes:
    """Also says where a group stands after a seek: everything below `committed` counts as settled, nothing above."""
    encoded = name.encode()
    return _GROUP.pack(queue, group, committed) + len(encoded).to_bytes(4, "little") + encoded + filter


def decode_group(body: bytes) -> tuple[int, int, int, str, bytes]:
    """(queue, group, committed, name, filter)"""
    queue, group, committed = _GROUP.unpack_from(body)
    name = Reader(body, _GROUP.size).take()
    return queue, group, committed, name.decode(), body[_GROUP.size + 4 + len(name) :]


def encode_settled(queue: int, group: int, first: int, last: int) -> bytes:
    return _SETTLED.pack(queue, group, first, last)


def decode_settled(body: bytes) -> tuple[int, int, int, int]:
    """(queue, group, first, last)"""
    queue, group, first, last = _SETTLED.unpack_from(body)
    return queue, group, first, last


def encode_returned(queue: int, group: int, offset: int, attempts: int, not_before_wall_ns: int) -> bytes:
    return _RETURNED.pack(queue, group, offset, attempts, not_before_wall_ns)


def decode_returned(body: bytes) -> tuple[int, int, int, int, int]:
    """(queue, group, offset, attempts, not before)"""
    queue, group, offset, attempts, not_before = _RETURNED.unpack_from(body)
    return queue, group, offset, attempts, not_before
