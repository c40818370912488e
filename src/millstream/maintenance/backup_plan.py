"""What of a data directory belongs into a backup: a consistent prefix of its facts, while a broker may be appending.

The table of the last checkpoint, the segments as far as that checkpoint reaches, and the whole batches of the log behind
it. All of that only grows at its end and is never written twice, so a length is enough to name a state of it. What is
being appended meanwhile is left out; it is as if it had come after the backup. The stages of batches that are decided and
not done belong to it as well.

Checkpoints must be held off while `plan_segments` runs and until the files it names are out of their reach.
"""

from __future__ import annotations

from typing import Final, final

from millstream.storage.disk import Disk
from millstream.storage.log.files import file_number
from millstream.storage.log.recovery import RecoveredFile, log_names, read_file
from millstream.storage.records.batch_records import FIRST_KIND, LAST_KIND, StageFold
from millstream.storage.segments.format import (
    MARK,
    decode_names,
    encode_entry,
    folder_name,
    index_name,
    segment_name,
)
from millstream.storage.segments.tail import find_tail

_LOOKS_MAX: Final = 10


@final
class PlannedFile:
    """`content` where the file must not be taken as it is; else its first `size` bytes."""

    def __init__(self, name: str, size: int, content: bytes | None = None) -> None:
        self.name = name
        self.size = size
        self.content = content


@final
class Plan:
    def __init__(self) -> None:
        self.files: list[PlannedFile] = []
        self.last_sequence = 0
        self.damage: list[str] = []
        self.stages = StageFold()  # as of the last sequence


def plan_segments(
    disk: Disk, plan: Plan, committed: dict[int, int], left_out: dict[str, None] | None = None
) -> None:
    """`committed`: the offset of the next record of every queue, as of the last checkpoint. Files that are `left_out` are those of
    another directory."""
    for queue in sorted(committed):
        firsts, indexes = decode_names(disk.names(folder_name(queue)))
        if left_out:
            firsts = [first for first in firsts if segment_name(queue, first) not in left_out]
        tail: list[PlannedFile] = []
        while firsts and not tail:
            tail = _plan_tail(disk, plan, queue, firsts.pop(), committed[queue])
        for first in firsts:
            plan.files.append(
                PlannedFile(segment_name(queue, first), _size_of(disk, segment_name(queue, first)))
            )
            if first in indexes:
                plan.files.append(
                    PlannedFile(index_name(queue, first), _size_of(disk, index_name(queue, first)))
                )
        plan.files.extend(tail)


def _plan_tail(disk: Disk, plan: Plan, queue: int, first: int, committed: int) -> list[PlannedFile]:
    """The last segment up to where the checkpoint reached, with an index that says so. None if it holds nothing."""
    found = find_tail(disk, queue, first, committed)
    if found.is_unused:
        return []
    plan.damage.extend([damage.sentence() for damage in found.damage])
    name = segment_name(queue, first)
    size = _size_of(disk, name) if found.is_closed or found.stored_end < 0 else found.stored_end
    mark = encode_entry(found.index.seed, MARK, found.last, found.index.latest, found.end)
    index = found.index.encode() + mark
    return [PlannedFile(name, size), PlannedFile(index_name(queue, first), len(index), index)]


def plan_log(disk: Disk, plan: Plan, folded: int, last_sequence: int) -> None:
    """The files behind the checkpoint, each up to its last whole batch."""
    plan.last_sequence = last_sequence
    names = [name for name in log_names(disk) if file_number(name) > folded]
    for name in names:
        found = read_settled(disk, name, name == names[-1])
        if found.is_unused:
            continue
        for record in found.records:
            if record.sequence > last_sequence and FIRST_KIND <= record.kind <= LAST_KIND:
                plan.stages.apply(int(record.kind), record.body)
        if found.records:
            plan.last_sequence = max(plan.last_sequence, int(found.records[-1].sequence))
        plan.damage.extend([damage.sentence() for damage in found.damage])
        # A damaged file stays as it is up to there: a restore must be able to name the damage as well.
        plan.files.append(PlannedFile(name, max([found.end] + [damage.end for damage in found.damage])))


def read_settled(disk: Disk, name: str, is_last: bool) -> RecoveredFile:
    """Read a file that may be written meanwhile. A batch seen half with a whole one behind it looks like damage; but
    the next look sees it whole, so only what is seen twice is damage."""
    found = read_file(disk, name, is_last)
    for _ in range(_LOOKS_MAX):
        if not found.damage:
            break
        again = read_file(disk, name, is_last)
        is_same = [damage.sentence() for damage in found.damage] == [
            damage.sentence() for damage in again.damage
        ]
        found = again
        if is_same:
            break
    return found


def _size_of(disk: Disk, name: str) -> int:
    file = disk.open(name)
    try:
        return int(file.size())
    finally:
        file.close()
