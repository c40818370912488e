"""Appends the records of queues to their segments. One writer at a time, away from the loop.

Records gather in memory and are written in large pieces; after `finish` all of them are safe. A writer that dies before
that is followed by one that is told the same records again: those that are there already are skipped.

Invariants
- Offsets rise within a queue, over all its segments.
- An entry of an index is written after the data it speaks of, and the name of its file, are safe.
- What was cut short is cut off and that is synced before anything is written in its place, so that no power cut can
  mix the two.
- A fault of the disk ends a writer: make a new one, and tell it all since the last commit again.

With `resume` the writer knows what the last commit held. Everything behind it is then written anew, and not trusted
because it can be read: after a failed sync the cache shows what the disk does not have.
"""

from __future__ import annotations

from typing import Final, final

from librt.strings import BytesWriter

from millstream.storage.disk import Disk, DiskFault, DiskFile, Failpoints
from millstream.storage.little_endian import read_u64
from millstream.storage.log.recovery import Damage
from millstream.storage.segments.blocks import BlockPacker, open_records
from millstream.storage.segments.check import unpack_segment
from millstream.storage.segments.format import (
    BLOCK,
    FOLDER,
    HEADER_SIZE,
    INDEX_INTERVAL,
    INDEX_MAGIC,
    MARK,
    PLACE,
    RECORD_HEAD_SIZE,
    SEALED,
    SEGMENT_MAGIC,
    decode_names,
    encode_entry,
    encode_header,
    entry_seed,
    folder_name,
    index_name,
    segment_name,
    write_record,
)
from millstream.storage.segments.inventory import ListedSegment, update_list
from millstream.storage.segments.tail import FoundTail, find_tail
from millstream.storage.table.port import Table

BUFFER_SIZE_MAX: Final = 1024 * 1024  # of one queue
BUFFERS_SIZE_MAX: Final = 32 * 1024 * 1024  # of all
OPEN_FILES_MAX: Final = 64

FAILPOINTS: Final = (
    "segment.before_create",
    "segment.after_create",
    "segment.after_index_create",
    "segment.before_write",
    "segment.after_write",
    "segment.before_sync",
    "segment.after_sync",
    "segment.after_folder_sync",
    "segment.before_index",
    "segment.after_index",
    "segment.before_roll",
    "segment.after_roll",
    "segment.before_index_rewrite",
    "segment.after_index_rewrite",
    "segment.before_cut",
    "segment.after_cut",
    "segment.after_cut_sync",
    "segment.before_remove",
    "segment.after_remove_index",
    "segment.after_remove",
    "segment.after_remove_sync",
    "segment.after_finish",
)


@final
class _Tail:
    """Where the next record of a queue goes."""

    def __init__(self, queue: int, firsts: list[int], last: int) -> None:
        self.queue = queue
        self.firsts = firsts  # of all segments, the one that is written included
        self.last = last  # offset of the last record
        self.first = -1  # of the segment that is written; -1: the next record begins one
        self.seed = 0
        self.file: DiskFile | None = None
        self.is_made = False  # the segment has a file
        self.is_packed = False  # it is compressed
        self.written = 0  # bytes in the file, before they were compressed
        self.stored = 0  # bytes in the file
        self.end = 0  # position behind all, those in memory included
        self.out = BytesWriter()  # what is not in the file yet
        self.blocks: list[_Block] = []  # that begin among these
        self.latest = 0  # time of any record in the segment
        self.placed_at = 0  # position of the last place in the index
        self.index_end = 0
        self.entries: list[bytes] = []
        self.is_unsynced = False
        self.is_name_unsynced = False


@final
class _Block:
    """Where a block begins: in what is not written yet, and in the segment; its first offset, the latest time so far."""

    def __init__(self, at: int, position: int, first: int, latest: int) -> None:
        self.at = at
        self.position = position
        self.first = first
        self.latest = latest


@final
class SegmentWriter:
    def __init__(
        self, disk: Disk, failpoints: Failpoints, segment_size: int, is_packed: bool = False
    ) -> None:
        self._disk = disk
        self._failpoints = failpoints
        self._segment_size = segment_size
        self._is_packed = is_packed  # new segments are compressed
        self._packer = BlockPacker()
        self._tails: dict[int, _Tail] = {}
        self._changed: dict[int, None] = {}  # queues with something to make safe
        self._opened: dict[int, None] = {}  # queues whose file is open, the one used longest ago first
        self._buffered = 0
        self._committed: dict[int, int] | None = None
        self._has_folder = False
        self.damage: list[Damage] = []  # seen while looking for the ends of segments

    def resume(self, committed: dict[int, int]) -> None:
        """The offset of the next record of every queue as of the last commit. Call it before anything else."""
        self._committed = committed

    def open(self, queue: int) -> None:
        """Cut what the last commit does not cover. Needed where facts of a queue bring no record to append."""
        self._tail_of(queue)

    def append(self, queue: int, body: bytes) -> None:
        """A record behind the last one of its queue; skipped if that one is not below it."""
        tail = self._tail_of(queue)
        number, offset, time_ns = int(read_u64(body, 0)), int(read_u64(body, 8)), int(read_u64(body, 16))
        assert number == queue, f"a record of queue {number} was given to queue {queue}"
        if offset <= tail.last:
            return
        size = RECORD_HEAD_SIZE + len(body)
        if tail.first >= 0 and tail.end + size > self._segment_size and tail.end > HEADER_SIZE:
            self._roll(tail)
        if tail.first < 0:
            _begin(tail, offset, self._is_packed)
            self._buffered += HEADER_SIZE
        if time_ns > tail.latest:
            tail.latest = time_ns
        begins_block = tail.is_packed and not tail.blocks
        if begins_block or tail.end - tail.placed_at >= INDEX_INTERVAL or tail.end == HEADER_SIZE:
            tail.entries.append(encode_entry(tail.seed, PLACE, offset, tail.latest, tail.end))
            tail.placed_at = tail.end
            tail.blocks.append(_Block(len(tail.out), tail.end, offset, tail.latest))
        write_record(tail.out, body)
        tail.end += size
        tail.last = offset
        self._changed[queue] = None
        self._buffered += size
        if tail.end - tail.written >= BUFFER_SIZE_MAX:
            self._write_out(tail)
        elif self._buffered >= BUFFERS_SIZE_MAX:
            for other in self._changed:
                self._write_out(self._tails[other])

    def finish(self) -> None:
        """Make everything appended so far safe."""
        tails = [self._tails[queue] for queue in self._changed]
        for tail in tails:
            self._write_out(tail)
            if tail.is_unsynced:
                self._sync(tail)
            self._close(tail)
        self._sync_names([tail for tail in tails if tail.is_name_unsynced])
        for tail in tails:
            if tail.first >= 0:
                self._write_index(tail, MARK)
        self._changed.clear()
        self._failpoints.hit("segment.after_finish")

    def drop_below(self, queue: int, offset: int) -> None:
        """Remove the segments that hold nothing from `offset` on."""
        tail = self._tail_of(queue)
        kept = self.kept_from(queue, offset)
        dropped = tail.firsts[: len(tail.firsts) - len(kept)]
        tail.firsts = kept
        if dropped and not kept:
            if tail.first >= 0 and not tail.is_made:
                dropped.pop()  # only in memory so far
            self._forget(tail)
        if dropped:
            self._remove_files(queue, dropped)

    def kept_from(self, queue: int, offset: int) -> list[int]:
        """First offsets of the segments that `drop_below` leaves."""
        tail = self._tail_of(queue)
        firsts = tail.firsts
        count = 0
        while count + 1 < len(firsts) and firsts[count + 1] <= offset:
            count += 1
        is_all = count + 1 == len(firsts) and tail.last < offset
        return [] if is_all else firsts[count:]

    def list_kept(self, table: Table, queue: int, offset: int, listed: dict[int, ListedSegment]) -> None:
        """Name them in the table, which lists those. After `finish`, before the commit."""
        update_list(self._disk, table, queue, self.kept_from(queue, offset), listed)

    def remove(self, queue: int) -> None:
        """Remove all a queue has."""
        if self._committed is not None:
            self._committed.pop(queue, None)
        tail = self._tails.pop(queue, None)
        if tail is not None:
            self._forget(tail)
        folder = folder_name(queue)
        names = self._disk.names(folder)
        if not names:
            return
        hit = self._failpoints.hit
        for name in names:
            hit("segment.before_remove")
            self._disk.remove(name)
            hit("segment.after_remove")
        self._disk.sync_folder(folder)
        hit("segment.after_remove_sync")
        if self._disk.remove_folder(folder):
            self._disk.sync_folder(FOLDER)

    # -------------------------------------------------------------- the end of a queue

    def _tail_of(self, queue: int) -> _Tail:
        tail = self._tails.get(queue)
        return tail if tail is not None else self._find_tail(queue)

    def _find_tail(self, queue: int) -> _Tail:
        committed = -1 if self._committed is None else self._committed.get(queue, 0)
        firsts, indexes = decode_names(self._disk.names(folder_name(queue)))
        known = dict.fromkeys(firsts)
        for first in indexes:
            if first not in known:  # a power cut took one of the two
                self._disk.remove(index_name(queue, first))
        unused: list[int] = []
        tail = _Tail(queue, firsts, -1)
        while firsts:
            found = find_tail(self._disk, queue, firsts[-1], committed)
            if found.stored_end < 0 and not found.is_closed:
                # Whoever committed had finished a block then; but nothing is lost if it was not so.
                unpack_segment(self._disk, queue, firsts[-1], found.end)
                found = find_tail(self._disk, queue, firsts[-1], committed)
            self.damage.extend(found.damage)
            if not found.is_unused:
                self._take(tail, found)
                break
            unused.append(firsts.pop())
        if unused:
            self._remove_files(queue, unused)
        if committed > 0 and tail.last < committed - 1:
            tail.last = committed - 1
        self._tails[queue] = tail
        return tail

    def _take(self, tail: _Tail, found: FoundTail) -> None:
        index = found.index
        file = self._disk.open(segment_name(tail.queue, index.first))
        try:
            file = open_records(file, file.read_at(0, HEADER_SIZE), index)
            if self._committed is None and found.end > index.safe_position:
                file.sync()  # written by one who died before this
                self._sync_names([tail])
            if index.is_damaged:
                self._rewrite_index(found)  # before the cut: it may point behind it
            is_left = index.is_packed != self._is_packed and not found.is_closed
            if found.cut_at >= 0 or is_left:
                # one that is left behind is cut anew: an earlier cut may be in the cache only, its sync having failed
                self._cut(file, found.cut_at if found.cut_at >= 0 else found.end)
        finally:
            file.close()
        tail.last = found.last
        if found.is_closed or is_left:
            return  # the next record begins a new one
        tail.first = index.first
        tail.seed = index.seed
        tail.is_made = True
        tail.is_packed = index.is_packed
        tail.written = tail.end = found.end
        tail.stored = found.stored_end
        tail.latest = index.latest
        tail.placed_at = index.positions[-1] if index.positions else 0
        tail.index_end = index.size

    def _rewrite_index(self, found: FoundTail) -> None:
        index = found.index
        mark = encode_entry(index.seed, MARK, found.last, index.latest, found.end)
        data = index.encode() + mark
        self._failpoints.hit("segment.before_index_rewrite")
        file = self._open_index(index_name(index.queue, index.first))
        try:
            file.truncate(0)
            file.write_at(0, data)
            file.sync()  # or a power cut could bring back what it said before
        finally:
            file.close()
        index.size = len(data)
        self._failpoints.hit("segment.after_index_rewrite")

    def _cut(self, file: DiskFile, position: int) -> None:
        hit = self._failpoints.hit
        hit("segment.before_cut")
        file.truncate(position)
        hit("segment.after_cut")
        file.sync()
        hit("segment.after_cut_sync")

    def _roll(self, tail: _Tail) -> None:
        self._failpoints.hit("segment.before_roll")
        self._write_out(tail)
        if tail.is_unsynced:
            self._sync(tail)
        self._close(tail)
        if tail.is_name_unsynced:
            self._sync_names([tail])
        self._write_index(tail, SEALED)
        tail.first = -1
        self._failpoints.hit("segment.after_roll")

    # ------------------------------------------------------------------------- files

    def _write_out(self, tail: _Tail) -> None:
        if not len(tail.out):
            return
        file = self._file_of(tail)
        data = tail.out.getvalue()
        if tail.is_packed:
            data = self._pack(tail, data)
        self._failpoints.hit("segment.before_write")
        file.write_at(tail.stored, data)
        self._failpoints.hit("segment.after_write")
        tail.out = BytesWriter()  # one that was full keeps its room
        tail.blocks.clear()
        tail.stored += len(data)
        self._buffered -= tail.end - tail.written
        tail.written = tail.end
        tail.is_unsynced = True

    def _pack(self, tail: _Tail, data: bytes) -> bytes:
        """What is in memory, as blocks."""
        blocks = tail.blocks
        packed = [data[: blocks[0].at]]  # the header, if there is none yet
        place = tail.stored + len(packed[0])
        for at in range(len(blocks)):
            block = blocks[at]
            end = blocks[at + 1].at if at + 1 < len(blocks) else len(data)
            records = data[block.at : end]
            packed.append(self._packer.pack(tail.seed, records, block.position, block.first, block.latest))
            tail.entries.append(encode_entry(tail.seed, BLOCK, block.position, 0, place))
            place += len(packed[-1])
        return b"".join(packed)

    def _sync(self, tail: _Tail) -> None:
        file = self._file_of(tail)
        self._failpoints.hit("segment.before_sync")
        file.sync()
        self._failpoints.hit("segment.after_sync")
        tail.is_unsynced = False

    def _sync_names(self, tails: list[_Tail]) -> None:
        if not tails:
            return
        for tail in tails:
            self._disk.sync_folder(folder_name(tail.queue))
        self._disk.sync_folder(FOLDER)
        self._failpoints.hit("segment.after_folder_sync")
        for tail in tails:
            tail.is_name_unsynced = False

    def _write_index(self, tail: _Tail, kind: int) -> None:
        tail.entries.append(encode_entry(tail.seed, kind, tail.last, tail.latest, tail.end))
        data = b"".join(tail.entries)
        tail.entries.clear()
        self._failpoints.hit("segment.before_index")
        file = self._open_index(index_name(tail.queue, tail.first))
        try:
            file.write_at(tail.index_end, data)
            if kind == SEALED:
                file.sync()  # nobody will look at this one again to mend it
        finally:
            file.close()
        tail.index_end += len(data)
        self._failpoints.hit("segment.after_index")

    def _open_index(self, name: str) -> DiskFile:
        try:
            return self._disk.open(name)
        except DiskFault:
            return self._disk.create(name, 0)  # it was lost; a fault of another kind shows here again

    def _file_of(self, tail: _Tail) -> DiskFile:
        queue = tail.queue
        file = tail.file
        if file is not None:
            del self._opened[queue]
            self._opened[queue] = None
            return file
        while len(self._opened) >= OPEN_FILES_MAX:
            oldest = self._tails[next(iter(self._opened))]
            if oldest.is_unsynced:
                self._sync(oldest)  # an error of the disk is told to those who have the file open
            self._close(oldest)
        file = self._disk.open(segment_name(queue, tail.first)) if tail.is_made else self._create(tail)
        tail.file = file
        self._opened[queue] = None
        return file

    def _create(self, tail: _Tail) -> DiskFile:
        hit = self._failpoints.hit
        queue = tail.queue
        if not self._has_folder:
            self._disk.make_folder(FOLDER)
            self._has_folder = True
        if len(tail.firsts) == 1:
            self._disk.make_folder(folder_name(queue))
        hit("segment.before_create")
        file = self._disk.create(segment_name(queue, tail.first), 0)
        hit("segment.after_create")
        tail.is_made = True
        tail.is_name_unsynced = True
        index = self._disk.create(index_name(queue, tail.first), 0)
        header = encode_header(INDEX_MAGIC, queue, tail.first, tail.is_packed)
        index.write_at(0, header)
        index.close()
        tail.index_end = len(header)
        hit("segment.after_index_create")
        return file

    def _close(self, tail: _Tail) -> None:
        if tail.file is not None:
            tail.file.close()
            tail.file = None
            del self._opened[tail.queue]

    def _forget(self, tail: _Tail) -> None:
        """Its segment goes, with what was not written yet."""
        self._close(tail)
        self._buffered -= tail.end - tail.written
        tail.out = BytesWriter()
        tail.blocks.clear()
        tail.entries.clear()
        tail.first = -1
        tail.end = tail.written = tail.stored = 0
        tail.is_unsynced = tail.is_name_unsynced = False
        self._changed.pop(tail.queue, None)

    def _remove_files(self, queue: int, firsts: list[int]) -> None:
        """Oldest first, and the index before its segment: what is left is always a whole end of the queue."""
        hit = self._failpoints.hit
        for first in firsts:
            hit("segment.before_remove")
            self._disk.remove(index_name(queue, first))
            hit("segment.after_remove_index")
            self._disk.remove(segment_name(queue, first))
            hit("segment.after_remove")
        self._disk.sync_folder(folder_name(queue))
        hit("segment.after_remove_sync")


def _begin(tail: _Tail, offset: int, is_packed: bool) -> None:
    header = encode_header(SEGMENT_MAGIC, tail.queue, offset, is_packed)
    tail.is_packed = is_packed
    tail.first = offset
    tail.seed = entry_seed(tail.queue, offset)
    tail.firsts.append(offset)
    tail.is_made = False
    tail.written = tail.stored = 0
    tail.end = len(header)
    tail.out.write(header)
    tail.latest = 0
    tail.placed_at = 0
