"""A data directory made by the parts of a broker, without one: queues in segments, sessions in the table, the rest in the log."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from librt.strings import BytesWriter

from millstream.maintenance.repair import repair_storage
from millstream.maintenance.survey import Finding, Survey, survey_storage
from millstream.model.message import Message
from millstream.runtime.disk.data_folder import STATE, open_folder, read_state
from millstream.runtime.disk.failpoints import NoFailpoints
from millstream.runtime.disk.files import RealDisk
from millstream.runtime.disk.lmdb_table import LmdbTable
from millstream.runtime.processes.checkpoint_process import run as run_checkpoint
from millstream.storage.disk import Failpoints
from millstream.storage.log.files import FOLDER, LogFiles
from millstream.storage.log.format import append_record
from millstream.storage.log.recovery import Damage
from millstream.storage.log.write_ahead_log import Batch
from millstream.storage.records import queue_records, session_records
from millstream.storage.records.fold import Fold
from millstream.storage.segments.reader import SegmentReader
from millstream.storage.table.checkpoint import read_meta

SEGMENT_SIZE = 600
LOG_SIZE = 65_536
STREAM = 1
WORK = 2
LOCKS = ("lock", "checkpoint.lock", "backup.lock", "lock.mdb")


def ignore(step: str, done: int, total: int) -> None:
    pass


class DataDirectory:
    """One run of a broker after the other: `start`, some facts, `fold` or not, `stop` or not."""

    def __init__(self, folder: Path, salt: int = 0) -> None:
        self.folder = folder
        self._salt = salt  # another one for files that are to be another broker's
        folder.mkdir(parents=True, exist_ok=True)
        self.disk = RealDisk(folder)
        self.disk.make_folder(FOLDER)

    def start(self) -> None:
        directory, found = open_folder(self.disk, self.folder)
        self._keeper = directory.keeper
        self._keeper.open()
        self._sequence = int(found.fold.last_sequence)
        self._next = {number: queue.next for number, queue in found.fold.queues.queues.items()}
        self._number = found.next_number
        salt = self._number + self._salt
        self._files = LogFiles(
            self.disk, NoFailpoints(), LOG_SIZE, self._number, 0, salt=salt, register=self._keeper
        )

    def tell(self, *told: tuple[int, bytes]) -> None:
        writer = BytesWriter()
        for kind, body in told:
            append_record(writer, kind, body)
        self._files.write(Batch(self._sequence + 1, len(told), writer.getvalue()))
        self._sequence += len(told)

    def declare(self, number: int, name: str, kind: str) -> None:
        definition = b'{"kind":"%s"}' % kind.encode()
        self.tell(
            (queue_records.QUEUE_SAVED, queue_records.encode_queue(number, "default", name, definition)),
        )
        self._next[number] = 0

    def append(self, number: int, count: int) -> None:
        for _ in range(count):
            offset = self._next[number]
            record = queue_records.QueueRecord(offset, 1000 + offset, 0, 0, b"", 0)
            message = Message(b"t", b"%d of %d" % (offset, number), 1, False, b"", 0, "p")
            self.tell(
                (queue_records.RECORD_APPENDED, queue_records.encode_record(number, record, message, 0))
            )
            self._next[number] = offset + 1

    def settle(self, number: int, end: int) -> None:
        """Everything below an offset, by the one group."""
        self.tell(
            (queue_records.GROUP_SAVED, queue_records.encode_group(number, 1, 0, "all", b"")),
            (queue_records.RECORDS_SETTLED, queue_records.encode_settled(number, 1, 0, end - 1)),
        )

    def trim(self, number: int, first: int) -> None:
        self.tell((queue_records.QUEUE_TRIMMED, queue_records.encode_pair(number, first)))

    def save_sessions(self, count: int) -> None:
        for number in range(1, count + 1):
            fact = session_records.SessionFact(number, "default", f"client-{number}", "", 3600, 0)
            self.tell((session_records.SESSION_SAVED, session_records.encode_session(fact)))

    def fold(self) -> None:
        """End the file of the log and fold it into table and segments."""
        self._files.close()
        last = self._number
        table = LmdbTable(self.folder / STATE)
        run_checkpoint(self.disk, table, last, NoFailpoints(), SEGMENT_SIZE)
        table.close()
        self._keeper.note_folded(last, self._sequence)
        self.start()

    def seal(self) -> None:
        """End the file of the log, and go on in the next."""
        self._files.end_file()

    def fold_sealed(self) -> list[Damage]:
        """As a broker does while it runs: what is damaged is told, and the run goes on."""
        damage: list[Damage] = []
        if not self._files.sealed:
            return damage
        file, sequence = self._files.sealed[-1]
        self._files.sealed.clear()
        table = LmdbTable(self.folder / STATE)
        run_checkpoint(
            self.disk, table, file, NoFailpoints(), SEGMENT_SIZE, damage.append, last_sequence=sequence
        )
        folded_sequence, folded_file = read_meta(table)
        table.close()
        self._keeper.note_folded(folded_file, folded_sequence)
        return damage

    def next_offset(self, number: int) -> int:
        """What the next record of a queue gets."""
        return self._next[number]

    def stop(self, is_clean: bool = True) -> None:
        self._files.close()
        if is_clean:
            self._keeper.stop(self._sequence, self._files.last_in_file())

    # -------------------------------------------------------------------- afterwards

    def open_table(self) -> LmdbTable:
        return LmdbTable(self.folder / STATE, is_lenient=True)

    def damaged(self) -> list[Finding]:
        return [found for found in self.survey().findings if found.is_damaged]

    def survey(self) -> Survey:
        return survey_storage(self.folder, ignore, self.disk)

    def repair(self, failpoints: Failpoints | None = None) -> list[str]:
        return repair_storage(self.folder, self.survey(), failpoints)

    def read(self) -> Fold:
        return read_state(self.disk, self.folder)

    def records(self, number: int) -> dict[int, bytes]:
        """By offset, of segments and log."""
        reader = SegmentReader(self.disk)
        bodies = reader.read(number, 0, 1 << 40, 1 << 20, 1 << 30).bodies
        reader.close()
        queue = self.read().queues.queues.get(number)
        bodies += [] if queue is None else [body for _, body in queue.tail]
        return {
            int(queue_records.record_offset(body)): queue_records.decode_record_message(body, 0).payload
            for body in bodies
        }

    def segments(self, number: int) -> list[Path]:
        return sorted((self.folder / "queues" / str(number)).glob("*.segment"))

    def digest(self) -> dict[str, str]:
        """Of every file but the locks."""
        return {
            str(path.relative_to(self.folder)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in self.folder.rglob("*")
            if path.is_file() and path.name not in LOCKS
        }


def make_directory(folder: Path, is_clean: bool = True, salt: int = 0) -> DataDirectory:
    """A stream and a work queue in several segments, ten more records of each in the log only."""
    made = DataDirectory(folder, salt)
    made.start()
    made.declare(STREAM, "history", "stream")
    made.declare(WORK, "jobs", "work")
    made.save_sessions(5)
    made.append(STREAM, 40)
    made.append(WORK, 40)
    made.fold()
    made.append(STREAM, 10)
    made.append(WORK, 10)
    made.stop(is_clean)
    assert len(made.segments(STREAM)) > 3
    assert made.damaged() == []
    return made


def copy_directory(made: DataDirectory, folder: Path) -> DataDirectory:
    """One that has been stopped."""
    shutil.copytree(made.folder, folder)
    return DataDirectory(folder)


def damage_entry(made: DataDirectory, key: bytes) -> None:
    """Flip one bit of an entry of the table."""
    table = made.open_table()
    transaction = table._transaction
    stored = bytearray(transaction.get(key))
    stored[0] ^= 1
    transaction.put(key, bytes(stored))
    transaction.commit()
    table._environment.close()
