"""The mark of a repair that is under way: written before its first change, removed after its last.

While it is there no broker starts. Part of what was damaged may look good already, so it also says what was found: a repair that
goes on after one that was killed cannot see that any more.
"""

from __future__ import annotations

import json
from typing import Final, final

from millstream.storage.disk import Disk
from millstream.storage.marks.mark_file import MarkFile, UnclearMark

NAME: Final = "repair.unfinished"
VERSION: Final = 1
MAGIC: Final = 0x5052534D  # MSRP
FILE: Final = MarkFile(NAME, MAGIC, VERSION, 4096)


@final
class RepairMark:
    def __init__(self, has_lost_facts: bool, has_lost_entries: bool, lost_facts: int) -> None:
        self.has_lost_facts = has_lost_facts  # of the log, or with a table as a whole
        self.has_lost_entries = has_lost_entries  # of the table
        self.lost_facts = lost_facts  # so many at most

    def join(self, other: RepairMark | None) -> RepairMark:
        """What either of them says."""
        if other is None:
            return self
        return RepairMark(
            self.has_lost_facts or other.has_lost_facts,
            self.has_lost_entries or other.has_lost_entries,
            max(self.lost_facts, other.lost_facts),
        )


def write_mark(disk: Disk, mark: RepairMark) -> None:
    fields = [mark.has_lost_facts, mark.has_lost_entries, mark.lost_facts]
    FILE.write(disk, json.dumps(fields).encode())


def find_mark(disk: Disk) -> RepairMark | None:
    """None where no repair is under way. One that cannot be read counts as one of everything."""
    try:
        body = FILE.find(disk)
        if body is None:
            return None
        has_lost_facts, has_lost_entries, lost_facts = json.loads(body)
        return RepairMark(bool(has_lost_facts), bool(has_lost_entries), int(lost_facts))
    except (UnclearMark, ValueError, TypeError):
        return RepairMark(True, True, 0)


def remove_mark(disk: Disk) -> None:
    FILE.remove(disk)
