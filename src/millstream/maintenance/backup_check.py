"""What a data directory must hold and a backup of it would lack, or would take from another one.

The same comparisons as those of a start, but a broker may be running: its log gets new files meanwhile, and its manifest names them
as they come. So a file of the log is only said to be wrong if it was so before and after a look at the manifest.
"""

from __future__ import annotations

from typing import final

from millstream.storage.directory import check_queues, read_manifest
from millstream.storage.disk import Disk
from millstream.storage.log.inventory import read_log
from millstream.storage.manifest import FOREIGN, NAME, Incomplete, Manifest
from millstream.storage.segments.format import SEGMENT_SUFFIX
from millstream.storage.table.checkpoint import IDENTITY
from millstream.storage.table.port import Table


@final
class BackupCheck:
    def __init__(self) -> None:
        self.damage: list[str] = []
        self.foreign: dict[str, None] = {}  # files that must not be taken along
        self._manifest: Manifest | None = None

    def check_table(self, disk: Disk, table: Table) -> None:
        """The segments, and the manifest as it is before the log is taken. Checkpoints must be held off."""
        inventory = check_queues(disk, table)
        for found in inventory.faults:
            self._blame(found.fault)
        self.damage += [
            damage.sentence() for damage in inventory.damage if damage.name.endswith(SEGMENT_SUFFIX)
        ]
        try:
            self._manifest = read_manifest(disk)
        except Incomplete as fault:
            self._blame(fault)
            return
        if self._manifest is None and table.get(IDENTITY) is not None:
            self._blame(Incomplete(NAME, "is missing"))

    def check_log(self, disk: Disk, taken: Disk, folded: int, folded_sequence: int) -> None:
        """`taken`: where the files of the log are that belong into the backup."""
        if self._manifest is None:
            return
        before = read_log(taken, folded, folded_sequence, self._manifest).faults
        if not before:
            return
        try:
            manifest = read_manifest(disk)
        except Incomplete:
            return  # it was whole a moment ago: the next look at the directory tells
        after = {fault.name for fault in read_log(taken, folded, folded_sequence, manifest).faults}
        for fault in before:
            if fault.name in after:
                self._blame(fault)

    def _blame(self, fault: Incomplete) -> None:
        self.damage.append(fault.text)
        if fault.kind == FOREIGN:
            self.foreign[fault.name] = None
