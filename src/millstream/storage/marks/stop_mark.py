"""The mark of a clean stop: what a start may be sure of.

Deliveries are not written down one by one. So after a crash everything a queue holds may have been with a consumer. After
a clean stop nothing of that is left to guess: what was open then came back as facts of the log. The mark tells the two
apart, and carries on which records of each queue are in doubt since an earlier crash.

    body    last sequence of the log, count; then for each queue its number and the first offset that certainly was
            not handed out before (mark_file.py has what is around it)

Invariants
- It is written behind the last fact, when the log is safe, and is gone for good before anything is handed out again.
- It speaks of one log only: one that ends at another sequence, or is damaged, has no mark.
- A mark that is torn, or of another version, is none. The worst that comes of it is doubt.

To change the format: raise VERSION. A start that does not know a version is in doubt, and nothing else is lost.
"""

from __future__ import annotations

import struct
from typing import Final, final

from millstream.storage.disk import Disk
from millstream.storage.marks.mark_file import MarkFile, UnclearMark
from millstream.storage.recovery import Recovery

NAME: Final = "stopped"
VERSION: Final = 1
MAGIC: Final = 0x5053534D  # MSSP
BODY_MAX: Final = 64 * 1024 * 1024

_HEAD: Final = struct.Struct("<QQ")
_ENTRY: Final = struct.Struct("<QQ")
FILE: Final = MarkFile(NAME, MAGIC, VERSION, BODY_MAX)


@final
class StopMark:
    def __init__(self, last_sequence: int, maybe_delivered_below: dict[int, int]) -> None:
        self.last_sequence = last_sequence
        self.maybe_delivered_below = maybe_delivered_below  # by number of the queue


def write_mark(disk: Disk, mark: StopMark) -> None:
    parts = [_HEAD.pack(mark.last_sequence, len(mark.maybe_delivered_below))]
    for number, offset in mark.maybe_delivered_below.items():
        parts.append(_ENTRY.pack(number, offset))
    FILE.write(disk, b"".join(parts))


def find_mark(disk: Disk) -> StopMark | None:
    try:
        body = FILE.find(disk)
    except UnclearMark:
        return None  # that is doubt enough
    if body is None or len(body) < _HEAD.size:
        return None
    last_sequence, count = _HEAD.unpack_from(body)
    if len(body) != _HEAD.size + count * _ENTRY.size:
        return None
    maybe_delivered_below: dict[int, int] = {}
    for at in range(_HEAD.size, len(body), _ENTRY.size):
        number, offset = _ENTRY.unpack_from(body, at)
        maybe_delivered_below[number] = offset
    return StopMark(last_sequence, maybe_delivered_below)


def remove_mark(disk: Disk) -> None:
    FILE.remove(disk)


def find_unsure(disk: Disk, found: Recovery) -> dict[int, int]:
    """By number of each queue that holds records which may have been handed out before without a fact that says so: the
    first offset behind them. Every queue found knows it after this."""
    mark = find_mark(disk)
    if mark is not None and (mark.last_sequence != found.fold.last_sequence or found.damage):
        mark = None
    maybe_delivered_below: dict[int, int] = {}
    for queue in found.fold.queues.queues.values():
        end = queue.next if mark is None else mark.maybe_delivered_below.get(queue.number, 0)
        if end > queue.low_mark():
            queue.maybe_delivered_below = maybe_delivered_below[queue.number] = end
    return maybe_delivered_below
