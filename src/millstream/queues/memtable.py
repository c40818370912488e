"""The newest records of a queue, in memory: everything the segments do not hold yet.

Records are kept as the bytes the log has, in blocks, so that one costs little more than its size and whole blocks can
be let go when they have been folded or settled. A queue that lives in memory has no log: it keeps the messages
themselves, and when it took them.
"""

from __future__ import annotations

from typing import Final, final

from librt.strings import BytesWriter, read_i64_le, write_i64_le
from mypy_extensions import i64

from millstream.model.message import Message
from millstream.storage.records.queue_records import record_payload_size

SHIFT: Final[i64] = 8  # of an offset: 256 records to a block
BLOCKS_PER_TURN: Final = 64  # whose records are freed at the end of a turn
NOTHING: Final = Message(b"", b"", 0, False, b"", 0, "")


@final
class Block:
    def __init__(self, first: i64) -> None:
        self.first: i64 = first
        self.bodies: list[bytes] = []
        self.bytes: i64 = 0  # of all of them
        self.messages: list[Message] = []  # instead of bodies, where there is no log
        self.times: list[int] = []  # of the messages
        self.last_sequence: i64 = 0
        self._empty: i64 = 0  # so many at the front are gone
        self.emptied: i64 = 0  # so many were taken out one by one
        self.sequences = BytesWriter()  # of each record, 64 bits; empty where nobody asks

    def end(self) -> i64:
        return self.first + len(self.bodies) + len(self.messages)

    def empty_below(self, offset: i64) -> None:
        """Let go of the messages below, however large; their places stay until all of them go."""
        last: i64 = offset if offset < self.end() else self.end()
        while self._empty < last - self.first:
            self.messages[self._empty] = NOTHING
            self._empty += 1

    def end_folded(self, sequence: i64) -> i64:
        """One past the last offset whose fact is not behind `sequence`."""
        sequences = self.sequences.getvalue()
        low: i64 = 0
        high: i64 = len(sequences) >> 3
        while low < high:
            middle: i64 = (low + high) >> 1
            if read_i64_le(sequences, middle << 3) <= sequence:
                low = middle + 1
            else:
                high = middle
        return self.first + low


@final
class Garbage:
    """Blocks nobody needs any more. Very many of them are freed a few at a time: to free a million records takes a while."""

    def __init__(self) -> None:
        self._blocks: list[Block] = []

    def add(self, block: Block) -> None:
        self._blocks.append(block)

    def count(self) -> i64:
        return len(self._blocks)

    def free_some(self) -> bool:
        """True while there are more."""
        if not self._blocks:
            return False
        del self._blocks[-BLOCKS_PER_TURN:]
        return len(self._blocks) > 0


@final
class Memtable:
    """`first` is the oldest offset here; older ones are in segments or gone. All below `sealed` that are kept are in
    segments, and some of them still here; it is known to the record only where `is_exact`."""

    def __init__(self, first: i64, is_exact: bool = False, garbage: Garbage | None = None) -> None:
        self._garbage = garbage
        self.first: i64 = first
        self.end: i64 = first
        self.sealed: i64 = first
        self._is_exact = is_exact
        self.is_holed = False  # some were taken out of the middle
        self.counts_payload = False  # the size of a record is that of its payload
        self._blocks: dict[int, Block] = {}
        self._last: Block | None = None  # where records go
        self._time: int = 0  # many messages have one time: one object serves them all
        self._time_ns: i64 = 0

    def add(self, offset: i64, sequence: i64, body: bytes) -> None:
        """Append; a gap before it (damage) is filled with nothing, and has no blocks where it covers whole ones."""
        if self.end < offset:
            self._fill(offset, sequence)
        self._append(offset, sequence, body)

    def _fill(self, end: i64, sequence: i64) -> None:
        if self._last is None:
            self.end = max(self.end, end >> SHIFT << SHIFT)
        while self.end < end:
            self._append(self.end, sequence, b"")
            if self._is_whole(int((self.end - 1) >> SHIFT)):
                self.end = max(self.end, end >> SHIFT << SHIFT)

    def _append(self, offset: i64, sequence: i64, body: bytes) -> None:
        block = self._last
        if block is None or offset >> SHIFT != block.first >> SHIFT:
            block = self._blocks[int(offset >> SHIFT)] = self._last = Block(offset)
        block.bodies.append(body)
        block.bytes += len(body)
        block.last_sequence = sequence
        if self._is_exact:
            write_i64_le(block.sequences, sequence)
        self.end = offset + 1

    def add_message(self, offset: i64, message: Message, time_wall_ns: i64) -> None:
        block = self._last
        if block is None or offset >> SHIFT != block.first >> SHIFT:
            block = self._blocks[int(offset >> SHIFT)] = self._last = Block(offset)
        if time_wall_ns != self._time_ns:
            self._time_ns = time_wall_ns
            self._time = int(time_wall_ns)
        block.messages.append(message)
        block.times.append(self._time)
        self.end = offset + 1

    def empty(self, first: i64, last: i64) -> i64:
        """Let go of messages in the middle that nobody needs, however long those before them stay; gives their size."""
        size: i64 = 0
        self.is_holed = True
        while first <= last:
            key = int(first >> SHIFT)
            block = self._blocks.get(key)
            if block is None:
                first = ((first >> SHIFT) + 1) << SHIFT
                continue
            messages = block.messages
            end: i64 = min(last + 1, block.end())
            while first < end:
                message = messages[first - block.first]
                if message is not NOTHING:
                    size += message_size(message, self.counts_payload)
                    messages[first - block.first] = NOTHING
                    block.emptied += 1
                first += 1
            if block.emptied == len(messages) and self._is_whole(key):
                del self._blocks[key]
                if self._last is block:
                    self._last = None
        return size

    def is_emptied(self, offset: i64) -> bool:
        """Whether nobody needed this message, and it was let go of."""
        block = self._blocks.get(int(offset >> SHIFT)) if offset >= self.first else None
        return block is None or block.messages[offset - block.first] is NOTHING

    def get_message(self, offset: i64) -> Message:
        block = self._blocks[int(offset >> SHIFT)]
        return block.messages[offset - block.first]

    def get_time(self, offset: i64) -> i64:
        """When the message at `offset` came."""
        block = self._blocks[int(offset >> SHIFT)]
        return block.times[offset - block.first]

    def get(self, offset: i64) -> bytes:
        """The record at `first` <= offset < `end`; empty: it was lost to damage."""
        block = self._blocks.get(int(offset >> SHIFT))
        return b"" if block is None else block.bodies[offset - block.first]

    def size_between(self, first: i64, end: i64) -> i64:
        """Bytes of the records with first <= offset < end, all of which are here."""
        size: i64 = 0
        while first < end:
            stop: i64 = min(end, ((first >> SHIFT) + 1) << SHIFT)
            block = self._blocks.get(int(first >> SHIFT))
            if block is not None:  # else nothing is left of it: there may be very many of those
                while first < stop:
                    size += self._size_in(block, first)
                    first += 1
            first = stop
        return size

    def size_of(self, offset: i64) -> i64:
        block = self._blocks.get(int(offset >> SHIFT))
        return 0 if block is None else self._size_in(block, offset)

    def _size_in(self, block: Block, offset: i64) -> i64:
        if block.messages:
            message = block.messages[offset - block.first]
            return 0 if message is NOTHING else message_size(message, self.counts_payload)
        return body_size(block.bodies[offset - block.first], self.counts_payload)

    def forget_folded(self, sequence: i64, low: i64) -> i64:
        """All facts up to `sequence` are in segments: let go of whole blocks of them. Gives the bytes of those from
        `low` on."""
        size: i64 = 0
        while True:
            block = self._find_first()
            if block is None:
                break
            key = int(block.first >> SHIFT)
            if block.last_sequence > sequence or not self._is_whole(key):
                self._seal(block.end_folded(sequence))
                break
            end: i64 = block.end()
            self._seal(end)
            if low <= block.first and not self.counts_payload:
                size += block.bytes
            else:
                size += self.size_between(low if low > block.first else block.first, end)
            self._drop(key, block)
        return size

    def _seal(self, end: i64) -> None:
        if end > self.sealed:
            self.sealed = end

    def forget_below(self, offset: i64) -> None:
        """Nobody needs what is below any more."""
        while True:
            block = self._find_first()
            if block is None:
                return
            key = int(block.first >> SHIFT)
            if block.end() > offset or not self._is_whole(key):
                if block.messages:
                    block.empty_below(offset)
                return
            self._drop(key, block)

    def _find_first(self) -> Block | None:
        """The oldest block; what is missing before it was emptied."""
        while self.first < self.end:
            block = self._blocks.get(int(self.first >> SHIFT))
            if block is not None:
                return block
            self.first = min(self.end, ((self.first >> SHIFT) + 1) << SHIFT)
        return None

    def _is_whole(self, key: int) -> bool:
        """Whether nothing will be appended to it any more."""
        return self.end >> SHIFT != key

    def _drop(self, key: int, block: Block) -> None:
        del self._blocks[key]
        if self._garbage is not None:
            self._garbage.add(block)
        if self._last is block:
            self._last = None
        self.first = block.end()


def message_size(message: Message, counts_payload: bool) -> i64:
    return len(message.payload) if counts_payload else message.size_bytes()


def body_size(body: bytes, counts_payload: bool) -> i64:
    return record_payload_size(body) if counts_payload and body else len(body)
