"""How many facts were lost, at most: so many offsets of a queue may have been given that nothing speaks of any more.

Facts are numbered without gaps, so that a loss between two of them, or before the end that a clean stop noted, is known. What a
broker wrote last before it was killed is not: there the room that its file had is the bound.
"""

from __future__ import annotations

from typing import Final

from millstream.storage.log.files import file_name
from millstream.storage.log.inventory import LogContent
from millstream.storage.manifest import FOREIGN, NOT_ENDED, RUNNING, Manifest

RECORD_SIZE_MIN: Final = 64  # of a record of a queue in the log, with the least it can hold
FILE_SIZE: Final = 16 * 1024 * 1024  # of a file of the log, where nothing says how large it was


def find_ended(manifest: Manifest | None) -> int:
    """The last fact in files of the log that were ended: 0 where none is named."""
    return 0 if manifest is None else max([0, *[file.last for file in manifest.logs.values()]])


def count_lost_facts(
    manifest: Manifest | None, content: LogContent, table_sequence: int, folded_sequence: int
) -> int:
    """The table has the facts up to `table_sequence`, and those up to `folded_sequence` are not in the log any more."""
    lost = max(0, folded_sequence - table_sequence)
    last = folded_sequence
    foreign = [fault.name for fault in content.faults if fault.kind == FOREIGN]
    for found in content.files:
        if found.name in foreign:
            continue
        for record in found.records:
            sequence = int(record.sequence)
            lost += max(0, sequence - last - 1)
            last = max(last, sequence)
    if manifest is None:  # a broker that has run leaves a file of the log
        return lost if content.files or not folded_sequence else lost + FILE_SIZE // RECORD_SIZE_MIN
    lost += max(0, max(manifest.stopped_at, find_ended(manifest)) - last)
    if manifest.stopped_at == RUNNING:
        lost += _bound_end(manifest, content, foreign)
    return lost


def _bound_end(manifest: Manifest, content: LogContent, foreign: list[str]) -> int:
    """Of files that had not ended, and are gone or lack something."""
    ends = {found.name: int(found.end) for found in content.files if found.name not in foreign}
    bad = [fault.name for fault in content.faults]
    lost = 0
    for number, listed in manifest.logs.items():
        name = file_name(number)
        if listed.last == NOT_ENDED and name in bad:
            lost += max(0, listed.size - ends.get(name, 0)) // RECORD_SIZE_MIN
    return lost
