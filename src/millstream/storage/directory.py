"""Opens a data directory: finds out whose it is, and that its table and its manifest belong together.

    new      no file of a broker is there: it gets an identity
    old      a release without manifests has left it: it gets an identity, once, and is said to; where it had one before, what
             that release wrote is taken over, and is said to
    known    manifest and table carry the same identity, and none of the two is older than the other says

Anything else is damage: a file is missing or of another directory, and nothing is changed.
"""

from __future__ import annotations

from typing import Final, final

from millstream.storage.disk import Disk
from millstream.storage.log.inventory import has_own_log
from millstream.storage.log.recovery import Damage, log_names
from millstream.storage.manifest import (
    FOREIGN,
    MISSING,
    OLDER,
    RUNNING,
    TABLE_FILE,
    Incomplete,
    Manifest,
    ManifestFault,
    ManifestKeeper,
    find_manifest,
)
from millstream.storage.manifest import NAME as MANIFEST_NAME
from millstream.storage.marks import doubt_mark, stop_mark
from millstream.storage.marks.doubt_mark import EVERY_SESSION, NO_SESSION
from millstream.storage.records.stored_queue import QueueFold
from millstream.storage.segments.inventory import (
    LISTED,
    SegmentInventory,
    check_segments,
    list_all,
    load_lists,
)
from millstream.storage.table.checkpoint import (
    IDENTITY,
    are_segments_listed,
    load_queues,
    note_listed,
    read_generation,
    read_meta,
)
from millstream.storage.table.port import Table

_ANOTHERS: Final = "belongs to another data directory"


@final
class Directory:
    """`is_adopted`: what it held, or part of it where it `is_known`, was not named by any manifest. `notices` are what is wrong and
    harms nobody."""

    def __init__(self, keeper: ManifestKeeper, is_adopted: bool, is_known: bool) -> None:
        self.keeper = keeper
        self.is_adopted = is_adopted
        self.is_known = is_known
        self.notices: list[Incomplete] = []
        self.damage: list[
            Damage
        ] = []  # in files of queues, as far as can be seen without reading all records

    def mark_table(self, disk: Disk, table: Table) -> None:
        """The manifest first, the table second: the other way round a crash would look like a manifest that was lost."""
        keeper = self.keeper
        manifest = keeper.manifest
        is_listed = are_segments_listed(table)
        if manifest.is_table_marked and is_listed:
            return
        if manifest.generation == 0:
            keeper.write(manifest.copy())
        table.put(IDENTITY, manifest.identity.encode())
        if not is_listed:
            queues = QueueFold()
            load_queues(table, queues)
            list_all(disk, table, queues.queues)
            note_listed(table)
        table.commit()
        if manifest.is_table_marked:
            return
        new = keeper.manifest.copy()
        new.is_table_marked = True
        keeper.write(new)


def open_directory(disk: Disk, table: Table, fresh_identity: str) -> Directory:
    """`fresh_identity` is for one that has none. Changes nothing."""
    manifest = read_manifest(disk)
    marked = table.get(IDENTITY)
    if manifest is None:
        if marked is not None:
            raise Incomplete(MANIFEST_NAME, "is missing", MISSING)
        is_adopted = bool(log_names(disk)) or read_meta(table) != (0, 0)
        manifest = Manifest(fresh_identity)
        last = doubt_mark.find_last_doubted(disk)
        manifest.doubted = NO_SESSION if last == EVERY_SESSION else last
        return Directory(ManifestKeeper(disk, manifest), is_adopted, is_known=False)
    is_adopted = table.get(LISTED) is not None and not are_segments_listed(table)  # one ran in between
    directory = Directory(ManifestKeeper(disk, manifest), is_adopted, is_known=True)
    _check_table(disk, table, manifest, marked)
    if read_generation(table) > manifest.generation:
        raise Incomplete(MANIFEST_NAME, "is older than the table beside it", OLDER)
    _check_marks(disk, directory)
    return directory


def check_queues(disk: Disk, table: Table) -> SegmentInventory:
    """The segments of all queues as of the last checkpoint. Changes nothing."""
    if not are_segments_listed(table):
        return SegmentInventory()  # of a release that named none
    queues = QueueFold()
    load_queues(table, queues)
    return check_segments(disk, queues.queues, load_lists(table))


def read_manifest(disk: Disk) -> Manifest | None:
    try:
        return find_manifest(disk)
    except ManifestFault:
        raise Incomplete(MANIFEST_NAME, "cannot be read: it is damaged") from None


def _check_table(disk: Disk, table: Table, manifest: Manifest, marked: bytes | None) -> None:
    if marked is None:
        if manifest.is_table_marked:
            raise Incomplete(TABLE_FILE, f"{_ANOTHERS}, or is older than the manifest", FOREIGN)
    elif marked != manifest.identity.encode():
        if log_names(disk) and not has_own_log(disk, manifest):
            raise Incomplete(MANIFEST_NAME, f"{_ANOTHERS} than the table and the log do", FOREIGN)
        if not log_names(disk) and _has_own_segments(disk, table):
            raise Incomplete(MANIFEST_NAME, f"{_ANOTHERS} than the table and the segments do", FOREIGN)
        raise Incomplete(TABLE_FILE, f"{_ANOTHERS} than the manifest does", FOREIGN)
    sequence = read_meta(table)[0]
    if sequence < manifest.folded_sequence:
        text = f"is older than the rest: it holds the facts up to {sequence}, and {manifest.folded_sequence} were folded"
        raise Incomplete(TABLE_FILE, text, OLDER)


def _has_own_segments(disk: Disk, table: Table) -> bool:
    """Whether a segment is one that the table names."""
    listed = sum([len(segments) for segments in load_lists(table).values()])
    return listed > len(check_queues(disk, table).faults)


def _check_marks(disk: Disk, directory: Directory) -> None:
    """Without them more is delivered as redelivered, or more sessions are in doubt; nothing is lost."""
    manifest = directory.keeper.manifest
    if manifest.stopped_at != RUNNING:
        mark = stop_mark.find_mark(disk)
        if (
            mark is None or mark.last_sequence < manifest.stopped_at
        ):  # else of a release that wrote no manifest
            text = "is missing, damaged or of another stop: what queues hold is delivered as redelivered"
            directory.notices.append(Incomplete(stop_mark.NAME, text))
    last = doubt_mark.find_last_doubted(disk)  # more than the manifest says: it is written before that is
    if doubt_mark.is_unclear(disk) or last < manifest.doubted:
        text = (
            "is missing, damaged or of another time: every session counts as one whose client may know more"
        )
        directory.notices.append(Incomplete(doubt_mark.NAME, text))
