"""The files of the log: where the next batch goes, when a new file begins, which ones can go.

Runs where blocking is allowed (a thread, or a test). A file is reserved to its full size before it is used, so that
appending changes no metadata and a full disk shows when a file is made, not in the middle of a batch.

Reserved is not written: a sync of a block that is used for the first time has to change the file system's books as well,
which takes as long again as the sync itself. So where batches are small and each is synced, the blocks behind one are
written through, with zeros as they are anyway, and the syncs of the next ones find them so.

The next file is made under a name that no recovery looks at, perhaps ahead: only the last file of a log may end in the
middle of a batch, so it gets its own name when the one before it has ended.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final, final

from mypy_extensions import mypyc_attr

from millstream.storage.disk import Disk, DiskFault, DiskFile, Failpoints
from millstream.storage.log.format import (
    BATCH_HEAD_SIZE,
    FILE_HEADER_SIZE,
    MARKED_FORMAT,
    SYNCED_FORMAT,
    encode_batch_head,
    encode_file_header,
    encode_mark,
)
from millstream.storage.log.write_ahead_log import Batch

FOLDER: Final = "log"
SUFFIX: Final = ".log"
NUMBER_MAX: Final = 1 << 62  # far more than there will ever be, and there is room behind it
PREPARED: Final = f"{FOLDER}/next.part"
FILL_SIZE: Final = 256 * 1024  # that much is written through at once
SMALL_BATCH: Final = 16 * 1024  # a larger one fills blocks of its own, and would write most of them twice


def file_name(number: int) -> str:
    return f"{FOLDER}/{number:012d}{SUFFIX}"


def file_number(name: str) -> int:
    return int(name[len(FOLDER) + 1 : -len(SUFFIX)])


def is_log_name(name: str) -> bool:
    """Whether a file of this folder has a name that `file_name` gives."""
    stem, suffix = name[len(FOLDER) + 1 : -len(SUFFIX)], name[-len(SUFFIX) :]
    if suffix != SUFFIX or not (stem.isascii() and stem.isdecimal()):
        return False
    return int(stem) <= NUMBER_MAX and file_name(int(stem)) == name


@mypyc_attr(allow_interpreted_subclasses=True)
class LogRegister(ABC):
    """Who writes down which files there must be. For good when a call returns; a DiskFault changes nothing."""

    @abstractmethod
    def begin_log(self, number: int, salt: int, size: int, ended: int, last: int) -> None:
        """A file that is made and empty; the one before it (0: none of this run) ends with the fact `last` (0: it holds none)."""


@final
class LogFiles:
    def __init__(
        self,
        disk: Disk,
        failpoints: Failpoints,
        file_size: int,
        next_number: int,
        epoch: int,
        with_sync: bool = True,
        salt: int = 0,
        fill_size: int = FILL_SIZE,
        register: LogRegister | None = None,
    ) -> None:
        self._disk = disk
        self._register = register
        self._failpoints = failpoints
        self._file_size = file_size
        self._number = next_number - 1
        self._epoch = epoch
        self.with_sync = with_sync  # False: `sync` is called now and then instead
        self._salt = salt  # chance: every file has its own, made of it and its number
        self.is_unsynced = False
        self._file: DiskFile | None = None
        self._offset = 0
        self._end = 0
        self._zeros = bytes(fill_size if with_sync else 0)
        self._used_end = 0  # up to here blocks were written before, or it does not matter
        self._prepared: DiskFile | None = None
        self._next: DiskFile | None = None  # it has its name, and is not in the register for certain
        self._next_size = 0
        self.sealed: list[tuple[int, int]] = []  # files that will not be written again, last sequence in each
        self._last_sequence = 0
        self._fault = ""  # of a sync: nothing may be written behind what it has lost
        # without a sync per batch: up to where the file was synced, and up to where a mark in it says so
        self._synced_end = FILE_HEADER_SIZE
        self._marked_end = FILE_HEADER_SIZE

    def write(self, batch: Batch) -> None:
        """Append and sync. DiskFault with `is_full` leaves everything as it was."""
        self._check_sound()
        if not self.fits(batch):
            self._roll(self._room_for(batch))
        file = self.put(batch)
        if self.with_sync:
            file.sync()
            self.on_synced()
        else:
            self.is_unsynced = True

    def is_sound(self) -> bool:
        """Whether no sync has failed on its own: those of single batches tell the log themselves."""
        return not self._fault

    def _check_sound(self) -> None:
        if self._fault:
            raise DiskFault(self._fault, is_sync=True)

    def fits(self, batch: Batch) -> bool:
        """Whether it needs no new file."""
        return self._file is not None and self._offset + self._room_for(batch) <= self._end

    def _room_for(self, batch: Batch) -> int:
        """A mark may go before it."""
        heads = 1 if self.with_sync else 2
        return heads * BATCH_HEAD_SIZE + len(batch.records)

    def put(self, batch: Batch) -> DiskFile:
        """Append one that fits, and give the file that is to be synced."""
        self._check_sound()
        file = self._file
        assert file is not None
        head = encode_batch_head(
            len(batch.records),
            int(batch.count),
            self._number,
            int(batch.first),
            self._epoch,
            self._salt_of(self._number),
        )
        synced_end = self._synced_end
        if synced_end > self._marked_end:
            head = encode_mark(synced_end, self._number, self._epoch, self._salt_of(self._number)) + head
        hit = self._failpoints.hit
        hit("log.before_write")
        file.write_parts(self._offset, head, batch.records)
        hit("log.after_write")
        end = self._offset + len(head) + len(batch.records)
        if end > self._used_end:
            self._write_through(file, end, len(batch.records))
        self._offset = end
        self._marked_end = synced_end
        self._last_sequence = int(batch.last())
        return file

    def _write_through(self, file: DiskFile, end: int, size: int) -> None:
        """The blocks behind a batch of that size, the first that ends in blocks never used before."""
        self._used_end = min(end + len(self._zeros), self._end) if size <= SMALL_BATCH else end
        if self._used_end > end:
            file.write_at(end, self._zeros[: self._used_end - end])

    def descriptor(self) -> int:
        """Of the file that is written now; -1: it has none."""
        return -1 if self._file is None else int(self._file.descriptor())

    def place(self) -> tuple[int, int]:
        return (self._offset, self._last_sequence)

    def go_back(self, place: tuple[int, int]) -> None:
        """What was put behind that place is written again."""
        self._offset, self._last_sequence = place

    def on_synced(self) -> None:
        self._failpoints.hit("log.after_sync")

    def sync(self) -> None:
        if self.is_unsynced and self._file is not None:
            self.is_unsynced = False
            end = self._offset  # batches that are put meanwhile lie behind it
            try:
                self._file.sync()
            except DiskFault as fault:
                self._fault = fault.text
                raise
            self._synced_end = end

    def _salt_of(self, number: int) -> int:
        return (self._salt * (2 * number + 1)) & 0xFFFF_FFFF if self._salt else 0

    def current(self) -> int:
        return self._number

    def last_in_file(self) -> int:
        """The last fact in the current file, also after it was closed; 0: it holds none, or there is none of this run."""
        return self._last_sequence if self._offset > FILE_HEADER_SIZE else 0

    def prepare(self) -> None:
        """Make the next file ready, beside the one that is written; a fault changes nothing."""
        if self._prepared is None and self._next is None:
            self._prepared = self._make(self._number + 1, self._file_size)

    def end_file(self) -> None:
        """Seal the current file if it holds anything, and go on in the next. Between two batches only."""
        if self._file is not None and self._offset > FILE_HEADER_SIZE:
            self._roll(0)

    def _roll(self, needed: int) -> None:
        """A fault leaves the rest of the way to the next call."""
        # Only the last file may end in what was never synced: this one is whole before another has its name.
        self.sync()
        number = self._number + 1
        size = max(self._file_size, FILE_HEADER_SIZE + needed)
        if self._next is None or size > self._next_size:
            self._name_next(number, size)
        self._disk.sync_folder(FOLDER)
        self._failpoints.hit("log.after_folder_sync")
        if self._register is not None:
            ended = 0 if self._file is None else self._number
            self._register.begin_log(
                number, self._salt_of(number), self._next_size, ended, self.last_in_file()
            )
            self._failpoints.hit("log.after_register")
        if self._file is not None:
            self._file.close()
            self.sealed.append((self._number, self._last_sequence))
        self._file = self._next
        self._next = None
        self._number = number
        self._offset = self._synced_end = self._marked_end = FILE_HEADER_SIZE
        self._end = self._next_size
        self._used_end = FILE_HEADER_SIZE if self._zeros else self._end

    def _name_next(self, number: int, size: int) -> None:
        """Give the next file its name. It may be in the register from then on, so it is only ever replaced, in one step, by a
        larger one. And nothing is written any more to the one before, which is not the last."""
        if self._prepared is not None and size > self._file_size:
            self._drop_prepared()
        if self._prepared is None:
            self._prepared = self._make(number, size)
        try:
            self._disk.rename(PREPARED, file_name(number))
        except DiskFault:
            self._drop_prepared()
            raise
        if self._next is not None:
            self._next.close()
        self._next = self._prepared
        self._next_size = size
        self._prepared = None
        self._end = self._offset

    def _make(self, number: int, size: int) -> DiskFile:
        hit = self._failpoints.hit
        self._disk.remove(PREPARED)  # of one that was killed
        hit("log.before_create")
        file = self._disk.create(PREPARED, size)
        hit("log.after_create")
        try:
            version = SYNCED_FORMAT if self.with_sync else MARKED_FORMAT
            file.write_at(0, encode_file_header(number, self._epoch, self._salt_of(number), version))
            hit("log.after_header")
            file.sync()
            hit("log.after_header_sync")
        except DiskFault:
            file.close()
            self._disk.remove(PREPARED)
            raise
        return file

    def _drop_prepared(self) -> None:
        if self._prepared is not None:
            self._prepared.close()
            self._prepared = None
            self._disk.remove(PREPARED)

    def close(self) -> None:
        if self._file is not None:
            self.sync()
            self._file.close()
            self._file = None
        if self._next is not None:
            self._next.close()
            self._next = None
        self._drop_prepared()
