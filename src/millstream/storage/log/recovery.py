"""Reads the log after a start: every whole batch in order, what was cut short at the end, what is damaged.

A batch that is not whole at the very end was being written when the power went: it was never confirmed, it is cut. A
batch that is damaged with anything valid behind it was confirmed once: that is corruption. It is named and left out,
never guessed and never cut in silence.

In a file that was not synced after every batch (format 2) the same holds of the last mark: what is damaged before the
place it speaks of was safe once; behind it the first batch that is not whole ends the file, whatever lies behind that.
So what comes back is always all facts up to one of them.
"""

from __future__ import annotations

from typing import Final, final

from millstream.storage.disk import Disk
from millstream.storage.log.files import FOLDER, file_number, is_log_name
from millstream.storage.log.format import (
    BATCH_HEAD_SIZE,
    BATCH_MAGIC,
    FILE_HEADER_SIZE,
    MARKED_FORMAT,
    BatchHead,
    Record,
    decode_batch_head,
    decode_records,
    file_version,
    find_file_header_fault,
    find_salt,
)

UNKNOWN_SALT: Final = -1
_MAGIC_BYTES = BATCH_MAGIC.to_bytes(4, "little")


@final
class Damage:
    """A range of a file that cannot be trusted."""

    def __init__(self, name: str, start: int, end: int, text: str) -> None:
        self.name = name
        self.start = start
        self.end = end
        self.text = text

    def sentence(self) -> str:
        return f"{self.name}, bytes {self.start} to {self.end}: {self.text}"


@final
class RecoveredFile:
    def __init__(self, name: str, number: int) -> None:
        self.name = name
        self.number = number
        self.records: list[Record] = []
        self.damage: list[Damage] = []
        self.end = FILE_HEADER_SIZE  # behind the last batch that is whole
        self.cut_at = -1  # where a batch that was never confirmed began; -1: none
        self.is_unused = False  # made, but its header never became safe
        self.is_newer = False  # a later release has written it: this one must not touch it
        self.salt = 0
        self.size = 0
        self.header_fault = ""
        self.read_fault = ""  # of the disk: nobody knows what is in it
        self.has_marks = False  # it was synced now and then only
        self.synced_end = -1  # and this far at least; -1: not looked yet
        # the facts that its batches were to hold, whether they can be read or not; 0: no head of a batch says
        self.told_first = 0
        self.told_last = 0

    def note_batch(self, head: BatchHead) -> None:
        if head.count:  # else it is a mark
            self.told_first = self.told_first or int(head.first)
            self.told_last = int(head.first) + int(head.count) - 1


def log_names(disk: Disk) -> list[str]:
    """Others in the folder are not ours."""
    return [name for name in disk.names(FOLDER) if is_log_name(name)]


def read_file(disk: Disk, name: str, is_last: bool, known_salt: int = UNKNOWN_SALT) -> RecoveredFile:
    """`known_salt`: what the manifest says, for a file whose header is damaged."""
    number = file_number(name)
    recovered = RecoveredFile(name, number)
    file = disk.open(name)
    try:
        data = file.read_at(0, file.size())
    finally:
        file.close()
    recovered.size = len(data)
    fault = find_file_header_fault(data, number)
    recovered.salt = find_salt(data, number, fault is None)
    recovered.has_marks = fault is None and file_version(data) == MARKED_FORMAT
    if fault is not None:
        recovered.header_fault = fault
        if known_salt != UNKNOWN_SALT:
            recovered.salt = known_salt
        recovered.is_newer = "format" in fault
        if recovered.is_newer or "says it is number" in fault:
            recovered.damage.append(Damage(name, 0, len(data), fault))
            return recovered
        if is_last and _find_batch(data, FILE_HEADER_SIZE, recovered) < 0:
            recovered.is_unused = True  # torn before anything was written behind it
        else:
            recovered.damage.append(Damage(name, 0, FILE_HEADER_SIZE, fault))
    if not recovered.is_unused:
        _read_batches(recovered, data, is_last)
    return recovered


def _read_batches(recovered: RecoveredFile, data: bytes, is_last: bool) -> None:
    position = FILE_HEADER_SIZE
    while position < len(data):
        head = decode_batch_head(data, position, recovered.number, recovered.salt)
        if head is not None:
            end = position + BATCH_HEAD_SIZE + int(head.size)
            records, bad_at = decode_records(data, position + BATCH_HEAD_SIZE, head)
            if bad_at < 0:
                recovered.note_batch(head)
                recovered.records.extend(records)
                position = recovered.end = end
                continue
            if is_last and _was_never_safe(recovered, data, position):
                recovered.cut_at = position
                return
            # its head is good, so is its size: what its records hold is never searched for batches
            following = _find_batch(data, end, recovered)
            if following < 0 and is_last:
                recovered.cut_at = position
                return
            recovered.note_batch(head)
            _keep_whole(recovered, data, position, head, records, bad_at)
            position = recovered.end = end
            continue
        if is_last and _was_never_safe(recovered, data, position):
            if data[position:].strip(b"\0"):
                recovered.cut_at = position
            return
        if not data[position : position + BATCH_HEAD_SIZE].strip(b"\0"):
            following = _find_batch(data, position, recovered)
            if following < 0:
                return  # the rest was never used
        else:
            following = _find_batch(data, position + 1, recovered)
        if following < 0:
            if is_last:
                recovered.cut_at = position
            else:
                text = "the end of the file is not a batch"
                recovered.damage.append(Damage(recovered.name, position, len(data), text))
            return
        text = "the head of a batch is damaged; its records cannot be read"
        recovered.damage.append(Damage(recovered.name, position, following, text))
        position = following


def _was_never_safe(recovered: RecoveredFile, data: bytes, position: int) -> bool:
    """Whether what is not whole at `position` lies behind all that is known to have been synced."""
    if not recovered.has_marks:
        return False  # what lies behind it decides
    if recovered.synced_end < 0:
        recovered.synced_end = FILE_HEADER_SIZE
        at = _find_batch(data, FILE_HEADER_SIZE, recovered)
        while at >= 0:
            head = decode_batch_head(data, at, recovered.number, recovered.salt)
            if head is not None and head.count == 0:
                recovered.synced_end = max(recovered.synced_end, int(head.first))
            at = _find_batch(data, at + 1, recovered)
    return position >= recovered.synced_end


def _keep_whole(
    recovered: RecoveredFile, data: bytes, position: int, head: BatchHead, records: list[Record], bad_at: int
) -> None:
    """A confirmed batch with a damaged record: the others are still good, as far as they can be found."""
    recovered.records.extend(records)
    lost_first = int(head.first) + len(records)
    lost_last = int(head.first) + int(head.count) - 1
    end = position + BATCH_HEAD_SIZE + int(head.size)
    text = f"damaged; the facts {lost_first} to {lost_last} cannot be trusted and are left out"
    recovered.damage.append(Damage(recovered.name, bad_at, end, text))


def _find_batch(data: bytes, position: int, recovered: RecoveredFile) -> int:
    """Where the next unharmed head of this file begins, -1 if there is none."""
    while True:
        position = data.find(_MAGIC_BYTES, position)
        if position < 0:
            return -1
        if decode_batch_head(data, position, recovered.number, recovered.salt) is not None:
            return position
        position += 1
