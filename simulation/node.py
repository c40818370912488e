"""A broker's storage on a simulated disk: started, told facts, stopped at any moment, started again."""

from __future__ import annotations

from millstream.model.outbox import Wakeup
from millstream.runtime.processes.checkpoint_process import run as run_checkpoint
from millstream.storage.directory import check_queues, open_directory
from millstream.storage.disk import DiskFault, Failpoints
from millstream.storage.log.files import FOLDER, LogFiles
from millstream.storage.log.write_ahead_log import Batch, BatchWriter, Log
from millstream.storage.log_store import LogStore
from millstream.storage.marks.stop_mark import StopMark, find_unsure, remove_mark, write_mark
from millstream.storage.recovery import recover
from millstream.storage.table.checkpoint import read_meta
from simulation.disk import SimulatedDisk
from simulation.table import SimulatedTable
from simulation.workload import Teller

SALT = 99
IDENTITY = "5a" * 16
WALL_OFFSET_NS = 1_700_000_000_000_000_000


class SilentWakeup(Wakeup):
    """The simulation flushes by itself."""

    def request(self) -> None:
        pass


class HeldWriter(BatchWriter):
    """Takes a batch as the thread does, and writes it when the simulation says so."""

    def __init__(self, files: LogFiles) -> None:
        self._files = files
        self._held: tuple[Batch, Log] | None = None

    def submit(self, batch: Batch, log: Log) -> None:
        assert self._held is None
        self._held = (batch, log)

    def work(self) -> None:
        if self._held is None:
            return
        batch, log = self._held
        try:
            self._files.write(batch)
        except DiskFault as fault:
            if not fault.is_sync:
                log.on_full()  # it stays held: the thread tries again
                return
            self._held = None
            log.on_failed(fault.text)
            return
        self._held = None
        log.on_written(batch)


class HastyWriter(HeldWriter):
    """The planted bug: it confirms before anything is written."""

    def submit(self, batch: Batch, log: Log) -> None:
        super().submit(batch, log)
        log.durable = batch.last()


class Node:
    """One run of the broker: from a start to the moment it stops."""

    def __init__(
        self,
        disk: SimulatedDisk,
        table: SimulatedTable,
        failpoints: Failpoints,
        file_size: int,
        with_sync: bool = True,
        is_hasty: bool = False,
        segment_size: int = 1500,  # a few records
        is_packed: bool = False,
    ) -> None:
        self.disk = disk
        self.table = table
        self._failpoints = failpoints
        self._segment_size = segment_size
        self._is_packed = is_packed
        disk.make_folder(FOLDER)
        directory = open_directory(disk, table, IDENTITY)
        inventory = check_queues(disk, table)
        if inventory.faults:
            raise inventory.faults[0].fault
        self._keeper = directory.keeper
        self.notices = directory.notices
        self.recovered = recover(disk, table, WALL_OFFSET_NS, failpoints, self._keeper)
        directory.mark_table(disk, table)
        fold, next_number = self.recovered.fold, self.recovered.next_number
        self.files = LogFiles(
            disk, failpoints, file_size, next_number, 0, with_sync, SALT, register=self._keeper
        )
        self.writer = HastyWriter(self.files) if is_hasty else HeldWriter(self.files)
        self.log = Log(self.writer, SilentWakeup(), fold.last_sequence + 1)
        self.state = fold.state()
        self.store = LogStore(self.log, self.state, fold.numbers(), WALL_OFFSET_NS)
        self.teller = Teller(self.store)
        self.teller.adopt(self.state)
        self._old_file = (next_number - 1, int(fold.last_sequence))
        self.maybe_delivered_below = find_unsure(disk, self.recovered)
        self._keeper.open()
        remove_mark(disk)  # from here on records may be handed out

    def stop(self) -> bool:
        """A clean stop: all that was told is safe, and a mark says so. False: the disk does not allow it."""
        while self.log.durable < self.log.position and not self.log.fault and not self.log.is_full:
            self.log.flush()
            self.writer.work()
        if self.log.fault or self.log.is_full:
            return False
        try:
            self.files.close()
            write_mark(self.disk, StopMark(int(self.log.position), self.maybe_delivered_below))
            self._keeper.stop(int(self.log.position), self.files.last_in_file())
        except DiskFault:
            return False
        return True

    def checkpoint(self) -> None:
        """Fold what is sealed: files of this run, or at first those of the runs before."""
        last, sequence = self.files.sealed[-1] if self.files.sealed else self._old_file
        if not last:
            return
        self.files.sealed.clear()
        self._old_file = (0, 0)
        try:
            run_checkpoint(
                self.disk,
                self.table,
                last,
                self._failpoints,
                self._segment_size,
                is_packed=self._is_packed,
                last_sequence=sequence,
            )
            sequence, file = read_meta(self.table)
            self._keeper.note_folded(file, sequence)
        except DiskFault:
            self.table = self.table.crash()  # that process ended; the next one does it all again
