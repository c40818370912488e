"""The durable store without a loop or a thread: every call is written and synced at once, and `load` recovers it."""

from __future__ import annotations

import tempfile
from pathlib import Path

from fakes import ManualWakeup

from millstream.model.delivery import Delivery
from millstream.model.message import Message
from millstream.runtime.disk.failpoints import NoFailpoints
from millstream.runtime.disk.files import RealDisk
from millstream.runtime.disk.lmdb_table import LmdbTable
from millstream.storage.log.files import FOLDER, LogFiles, file_number
from millstream.storage.log.recovery import log_names, read_file
from millstream.storage.log.write_ahead_log import Batch, BatchWriter, Log
from millstream.storage.log_store import LogStore
from millstream.storage.records.fold import Fold
from millstream.storage.segments.writer import SegmentWriter
from millstream.storage.store import SessionKey, Store, StoredState, StoredSubscription, StoredWill
from millstream.storage.table.checkpoint import Checkpoint, load_table

FILE_SIZE = 4096  # small, so that a few facts fill several files


class SyncedWriter(BatchWriter):
    def __init__(self, files: LogFiles) -> None:
        self._files = files

    def submit(self, batch: Batch, log: Log) -> None:
        self._files.write(batch)
        log.on_written(batch)


class LoggedStore(Store):
    """`with_checkpoint`: fold all but the last file into the table before loading."""

    def __init__(self, with_checkpoint: bool = False) -> None:
        self._keep = tempfile.TemporaryDirectory()
        self.folder = Path(self._keep.name)
        self.disk = RealDisk(self.folder)
        self.disk.make_folder(FOLDER)
        self.log = Log(SyncedWriter(LogFiles(self.disk, NoFailpoints(), FILE_SIZE, 1, 0)), ManualWakeup(), 1)
        self._store = LogStore(self.log, StoredState([], [], []), {}, 0)
        self._with_checkpoint = with_checkpoint

    def load(self) -> StoredState:
        self.log.flush()
        names = log_names(self.disk)
        fold = Fold(0)
        if self._with_checkpoint:
            table = LmdbTable(self.folder / "state")
            checkpoint = Checkpoint(table, SegmentWriter(self.disk, NoFailpoints(), 1 << 20))
            for name in names[:-1]:
                for record in read_file(self.disk, name, False).records:
                    checkpoint.apply(record)
                checkpoint.finish(file_number(name))
            load_table(table, fold)
            table.close()
            names = names[-1:]
        for name in names:
            recovered = read_file(self.disk, name, name == names[-1])
            assert not recovered.damage
            for record in recovered.records:
                if record.sequence > fold.last_sequence:
                    fold.apply(record)
        assert fold.orphans == 0
        return fold.state()

    def position(self) -> int:
        return self._store.position()

    def on_tick(self, now_ns: int) -> None:
        self._store.on_tick(now_ns)

    def queue_fact(self, kind: int, body: bytes) -> int:
        return self._store.queue_fact(kind, body)

    def exchange_fact(self, kind: int, body: bytes) -> int:
        return self._store.exchange_fact(kind, body)

    def durable(self) -> int:
        self.log.flush()
        return self._store.durable()

    def session_saved(self, key: SessionKey, principal: str, expiry_s: int, expires_ns: int) -> None:
        self._store.session_saved(key, principal, expiry_s, expires_ns)

    def session_removed(self, key: SessionKey) -> None:
        self._store.session_removed(key)

    def subscription_saved(self, key: SessionKey, subscription: StoredSubscription) -> None:
        self._store.subscription_saved(key, subscription)

    def subscription_removed(self, key: SessionKey, name: bytes) -> None:
        self._store.subscription_removed(key, name)

    def delivery_added(self, key: SessionKey, delivery: Delivery) -> None:
        self._store.delivery_added(key, delivery)

    def delivery_advanced(self, key: SessionKey, delivery: Delivery) -> None:
        self._store.delivery_advanced(key, delivery)

    def delivery_removed(self, key: SessionKey, delivery: Delivery) -> None:
        self._store.delivery_removed(key, delivery)

    def id_received(self, key: SessionKey, packet_id: int) -> None:
        self._store.id_received(key, packet_id)

    def id_released(self, key: SessionKey, packet_id: int) -> None:
        self._store.id_released(key, packet_id)

    def will_saved(self, key: SessionKey, will: StoredWill) -> None:
        self._store.will_saved(key, will)

    def will_removed(self, key: SessionKey) -> None:
        self._store.will_removed(key)

    def retained_saved(self, account: str, message: Message) -> None:
        self._store.retained_saved(account, message)

    def retained_removed(self, account: str, topic: bytes) -> None:
        self._store.retained_removed(account, topic)


def folded_store() -> LoggedStore:
    return LoggedStore(with_checkpoint=True)
