"""Publishers and subscribers of a pipelined scenario: whole batches in, whole batches out.

Invariants
- A publisher sends its pre-encoded cycle again and again and never leaves a packet half sent for another to follow.
- Confirms come in the order of the publishes, so they are compared with a pre-encoded cycle, byte for byte.
- A subscriber knows the length of every delivery; a delivery of another length is a fault, never a wrong count.
"""

from __future__ import annotations

import socket
from typing import Final

from benchmarks.load.frames import (
    ANSWER_LENGTH,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    FrameFault,
    answer_run,
    count_run,
    encode_answer_cycle,
)

READ_BYTES: Final = 1024 * 1024
SEND_BYTES: Final = 256 * 1024
CHECK_EVERY: Final = (
    64  # of the QoS 0 reads in the measured window, one in so many is looked at; all others are counted
)
FILL: Final = 0x01


def read_into(connection: socket.socket, view: memoryview, flags: int) -> int:
    """Bytes read; 0 when nothing is there. A closed connection is a fault."""
    try:
        count = connection.recv_into(view, 0, flags)
    except BlockingIOError:
        return 0
    if count == 0:
        raise FrameFault("the broker closed a connection")
    return count


def send_some(connection: socket.socket, part: memoryview) -> int:
    try:
        return connection.send(part)
    except BlockingIOError:
        return 0


class Publisher:
    """One publishing connection."""

    def __init__(self, connection: socket.socket, cycle: bytes, count: int, qos: int) -> None:
        self.connection = connection
        self.frame_bytes = len(cycle) // count
        self.sent_bytes = 0
        self.settled = 0
        self.is_blocked = False
        self._qos = qos
        self._cycle_bytes = len(cycle)
        self._cycle = memoryview(cycle)
        self._count = count
        self._recorded = 0
        self._confirms = encode_answer_cycle(PUBACK if qos == 1 else PUBCOMP, count) * 2
        self._records = encode_answer_cycle(PUBREC, count) * 2
        self._releases = encode_answer_cycle(PUBREL, count) * 2
        self._unsent_releases = bytearray()
        self._unread = b""

    def send_until(self, messages: int) -> bool:
        """Send until so many messages are out in all; true when only the size of one send stopped it."""
        if self._qos == 2 and not self._send_releases():
            return False
        limit = messages * self.frame_bytes
        if self.sent_bytes >= limit:
            return False
        place = self.sent_bytes % self._cycle_bytes
        wanted = min(limit - self.sent_bytes, self._cycle_bytes - place, SEND_BYTES)
        count = send_some(self.connection, self._cycle[place : place + wanted])
        self.sent_bytes += count
        if count < wanted:
            self.is_blocked = True
            return False
        return self.sent_bytes < limit

    def sent(self) -> int:
        """Messages sent, one in the middle of being sent included."""
        return (self.sent_bytes + self.frame_bytes - 1) // self.frame_bytes

    def has_unsent(self) -> bool:
        return len(self._unsent_releases) > 0 or self.sent_bytes % self.frame_bytes != 0

    def _send_releases(self) -> bool:
        """The PUBRELs that are due; false when they, or the packet before them, are not out yet."""
        if not self._unsent_releases:
            return True
        torn = self.sent_bytes % self.frame_bytes
        if torn:
            place = self.sent_bytes % self._cycle_bytes
            wanted = self.frame_bytes - torn
            count = send_some(self.connection, self._cycle[place : place + wanted])
            self.sent_bytes += count
            if count < wanted:
                self.is_blocked = True
                return False
        count = send_some(self.connection, memoryview(bytes(self._unsent_releases)))
        del self._unsent_releases[:count]
        if self._unsent_releases:
            self.is_blocked = True
            return False
        return True

    def on_readable(self, buffer: bytearray, view: memoryview) -> None:
        """Take confirms until none is left: the socket is watched for edges."""
        while True:
            kept = len(self._unread)
            buffer[:kept] = self._unread
            room = min(len(buffer), self._count * ANSWER_LENGTH)
            count = read_into(self.connection, view[kept:room], 0)
            if count == 0:
                return
            end = kept + count
            position = self._take_answers(buffer, end)
            self._unread = bytes(buffer[position:end])
            if end < room:
                return

    def _take_answers(self, buffer: bytearray, end: int) -> int:
        position = 0
        while end - position >= ANSWER_LENGTH:
            first_byte = buffer[position]
            run = count_run(buffer, position, end, ANSWER_LENGTH, first_byte)
            run_end = position + run * ANSWER_LENGTH
            answers = buffer[position:run_end]
            if self._qos == 2 and first_byte == PUBREC:
                start = (self._recorded % self._count) * ANSWER_LENGTH
                expected = self._records[start : start + len(answers)]
                self._unsent_releases += self._releases[start : start + len(answers)]
                self._recorded += run
            else:
                start = (self.settled % self._count) * ANSWER_LENGTH
                expected = self._confirms[start : start + len(answers)]
                self.settled += run
            if answers != expected:
                raise FrameFault(f"confirms out of order or refused: {bytes(answers[:8]).hex(' ')}")
            position = run_end
        return position


class Shape:
    """How each delivery of a scenario looks: where it starts, how long it is, where its packet id stands."""

    def __init__(self, frame: bytes, topic: bytes, common_topic_bytes: int, qos: int) -> None:
        self.stride = len(frame)
        self.first_byte = PUBLISH | (qos << 1)
        self.qos = qos
        topic_start = frame.index(topic)
        self.head = frame[: topic_start + common_topic_bytes]
        self.id_offset = topic_start + len(topic)

    def check(self, buffer: bytearray, start: int, count: int) -> None:
        """First and last packet of a run: the same header and topic, and a payload that ends where it should."""
        for place in (start, start + (count - 1) * self.stride):
            if buffer[place : place + len(self.head)] != self.head or buffer[place + self.stride - 1] != FILL:
                raise FrameFault(f"an unexpected delivery: {bytes(buffer[place : place + 16]).hex(' ')}")


class Subscriber:
    """One subscribing connection."""

    def __init__(self, connection: socket.socket, shape: Shape) -> None:
        self.connection = connection
        self.received = 0
        self.completed = 0  # PUBRELs answered
        self.is_thorough = True  # look into every read; off only in the measured window
        self.captured: bytearray | None = None
        self.unsent = b""
        self._shape = shape
        self._received_bytes = 0
        self._reads = 0
        self._unread = b""

    def on_readable(self, buffer: bytearray, view: memoryview) -> None:
        if self._shape.qos == 0:
            self._count_frames(buffer, view)
        else:
            self._answer_frames(buffer, view)

    def _count_frames(self, buffer: bytearray, view: memoryview) -> None:
        self._reads += 1
        is_looking = self.is_thorough or self._reads % CHECK_EVERY == 0
        # MSG_TRUNC makes the kernel drop the bytes it counts: reading costs the generator no copy
        count = read_into(self.connection, view, 0 if is_looking else socket.MSG_TRUNC)
        if is_looking and count:
            stride = self._shape.stride
            start = -self._received_bytes % stride
            whole = (count - start) // stride
            if whole > 0:
                if count_run(buffer, start, count, stride, self._shape.first_byte) != whole:
                    raise FrameFault("a delivery of unexpected length or kind")
                self._shape.check(buffer, start, whole)
            if self.captured is not None:
                self.captured += buffer[:count]
        self._received_bytes += count
        self.received = self._received_bytes // self._shape.stride

    def _answer_frames(self, buffer: bytearray, view: memoryview) -> None:
        kept = len(self._unread)
        buffer[:kept] = self._unread
        count = read_into(self.connection, view[kept:], 0)
        if count == 0:
            return
        end = kept + count
        if self.captured is not None:
            self.captured += buffer[kept:end]
        position = 0
        shape = self._shape
        answers = bytearray()
        while True:
            run = count_run(buffer, position, end, shape.stride, shape.first_byte)
            if run:
                shape.check(buffer, position, run)
                answer = PUBACK if shape.qos == 1 else PUBREC
                answers += answer_run(buffer, position, run, shape.stride, shape.id_offset, answer)
                self.received += run
                position += run * shape.stride
            released = count_run(buffer, position, end, ANSWER_LENGTH, PUBREL)
            if released:
                answers += answer_run(buffer, position, released, ANSWER_LENGTH, 2, PUBCOMP)
                self.completed += released
                position += released * ANSWER_LENGTH
            if run == 0 and released == 0:
                break
        if position < end and buffer[position] not in (shape.first_byte, PUBREL):
            raise FrameFault(f"an unexpected packet: {bytes(buffer[position : position + 16]).hex(' ')}")
        self._unread = bytes(buffer[position:end])
        if len(self._unread) >= shape.stride:
            raise FrameFault("a delivery of unexpected length")
        self.send(bytes(answers))

    def send(self, answers: bytes) -> None:
        """Answers go out at once; what the socket does not take waits for `send(b"")`."""
        unsent = self.unsent + answers
        if unsent:
            count = send_some(self.connection, memoryview(unsent))
            self.unsent = unsent[count:]
