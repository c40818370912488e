"""What a data directory must still give when some of its files are harmed: all that those files do not hold.

- Marks, locks, the manifest and indexes hold nothing: with one of them harmed everything must be there.
- A segment holds the records of its offsets. With it harmed all other records and everything else must be there.
- A file of the log holds its facts. With it harmed there must be what table, segments and the other files of the log make.
- The table holds everything that was folded, each entry its own part of it. With it harmed there must be what the entries that can still be
  reached make with the log (crash/table_layout.py); and no other file may be destroyed because of it.
"""

from __future__ import annotations

from bisect import bisect_right
from pathlib import Path

from crash.damage_world import Content, Key
from crash.table_layout import TableLayout
from millstream.runtime.disk.data_folder import STATE
from millstream.runtime.disk.files import RealDisk
from millstream.runtime.disk.lmdb_table import LmdbTable
from millstream.storage.log.files import file_number
from millstream.storage.log.recovery import log_names, read_file
from millstream.storage.manifest import TABLE_FILE
from millstream.storage.records.fold import Fold
from millstream.storage.records.queue_records import record_offset
from millstream.storage.recovery import QUARANTINE, load_folded
from millstream.storage.segments.format import decode_names, folder_name, segment_name
from millstream.storage.table.checkpoint import IDENTITY, META
from simulation.table import SimulatedTable

RECORD = "record"
GROUP = "group"


class Holdings:
    """Which file of a whole data directory holds what clients read from it."""

    def __init__(self, folder: Path, baseline: Content) -> None:
        self._folder = folder
        self._disk = RealDisk(folder)
        self._baseline = baseline
        queues = self._fold([]).queues.queues
        self._folded = {number: queue.next for number, queue in self._load()[0].queues.queues.items()}
        self._numbers = {queue.name: number for number, queue in queues.items()}
        self._firsts = {number: decode_names(self._disk.names(folder_name(number)))[0] for number in queues}

    def find_spared(self, harmed: list[str], folder: Path | None = None) -> list[Key]:
        """What clients must still read when these files are harmed. `folder`: where they are; None: they are not there any more."""
        left = self._fold(harmed, folder)
        tails = {
            (queue.name, int(record_offset(body)))
            for queue in left.queues.queues.values()
            for _, body in queue.tail
        }
        is_less = TABLE_FILE in harmed or any(name.startswith("log/") for name in harmed)
        known = find_content(left) if is_less else self._baseline
        return [key for key in self._baseline if self._is_spared(key, harmed, tails, known)]

    def _is_spared(self, key: Key, harmed: list[str], tails: set[tuple[str, int]], known: Content) -> bool:
        if key[0] != RECORD:
            return key in known and (key[0] == GROUP or known[key] == self._baseline[key])
        name, offset = key[1], int(key[2])
        if ("queue", name) not in known:
            return False
        number = self._numbers[name]
        if offset >= self._folded.get(number, 0):
            return (name, offset) in tails
        firsts = self._firsts[number]
        return segment_name(number, firsts[bisect_right(firsts, offset) - 1]) not in harmed

    def find_destroyed(self, harmed: list[str], folder: Path) -> list[str]:
        """Segments that were whole and are now neither in their place nor in quarantine. The last of a queue may have grown."""
        destroyed: list[str] = []
        for number, firsts in self._firsts.items():
            for first in firsts[:-1]:
                name = segment_name(number, first)
                whole = (self._folder / name).read_bytes()
                if name not in harmed and not is_kept(folder, name, whole):
                    destroyed.append(name)
        return destroyed

    def _load(self) -> tuple[Fold, int]:
        table = LmdbTable(self._folder / STATE)
        try:
            return load_folded(table, 0)
        finally:
            table.close()

    def _fold(self, harmed: list[str], folder: Path | None = None) -> Fold:
        """What the table and the files of the log that are not harmed make."""
        fold, folded = self._load()
        if TABLE_FILE in harmed:
            fold = self._load_left(folder)
        names = log_names(self._disk)
        for name in names:
            if file_number(name) > folded and name not in harmed:
                for record in read_file(self._disk, name, name == names[-1]).records:
                    if record.sequence > fold.last_sequence:
                        fold.apply(record)
        return fold

    def _load_left(self, folder: Path | None) -> Fold:
        """What the harmed table in this folder still holds, if it says that it is the same. How far it goes is not lost with it: other
        files tell."""
        layout = TableLayout((self._folder / TABLE_FILE).read_bytes())
        path = None if folder is None else folder / TABLE_FILE
        data = path.read_bytes() if path is not None and path.is_file() else b""
        entries = layout.find_readable(data)
        if IDENTITY not in entries:  # that of another broker may be alike in many places
            entries = {}
        entries[META] = layout.values[META]
        return load_folded(SimulatedTable(entries), 0)[0]


def is_kept(folder: Path, name: str, content: bytes) -> bool:
    path = folder / name
    if path.is_file() and path.read_bytes() == content:
        return True
    kept = (folder / QUARANTINE).rglob(f"*{path.name}*")
    return any(copy.is_file() and copy.read_bytes() == content for copy in kept)


def find_content(fold: Fold) -> Content:
    """As clients would read it, but for the records of queues."""
    state = fold.state()
    found: Content = {}
    for session in state.sessions:
        name = session.key.client_id
        found["session", name] = b""
        for delivery in session.deliveries.values():
            found["session", name, delivery.message.topic.decode()] = delivery.message.payload
    for _, message in state.retained:
        found["retained", message.topic.decode()] = message.payload
    for queue in state.queues:
        found["queue", queue.name] = b""
        for group in queue.groups.values():
            found[GROUP, queue.name, group.name] = str(group.committed).encode()
    for exchange in state.exchanges:
        found["exchange", exchange.name] = b""
    for binding in state.bindings:
        if ("exchange" if binding.to_exchange else "queue", binding.target) not in found:
            continue  # it binds nothing
        key = binding.key.decode() if isinstance(binding.key, bytes) else str(binding.key)
        found["binding", binding.source, key] = b""
    return found
