"""The mark of doubt: whose clients may know more than the broker.

A backup is of the past, a log that was not synced with every batch may lack its end, damage takes facts away, and so does its repair.
Clients that went on with what is missing hold packet ids, and are done with others, that nothing here speaks of. No later start
changes that: it holds for a session as long as there is that session. One begun afterwards has no such past. So the mark says which is the
last session in doubt; their numbers count up.

    body    number of a session (mark_file.py has what is around it)

Invariants
- It is there for good before anything is served that rests on what it speaks of. With a restored copy it comes into its place.
- It goes when a start finds no session up to its number any more. Should the removal not last, or a number be given again, a
  session is in doubt for nothing.
- A mark that is torn, or of another version, speaks of every session there is; the start that finds it writes down which.

To change the format: raise VERSION. A start that does not know a version doubts more than it must, and nothing is lost.
"""

from __future__ import annotations

import struct
from typing import Final

from millstream.storage.disk import Disk
from millstream.storage.marks.mark_file import MarkFile, UnclearMark
from millstream.storage.store import StoredState

NAME: Final = "doubted"
VERSION: Final = 1
MAGIC: Final = 0x4244534D  # MSDB
NO_SESSION: Final = 0
EVERY_SESSION: Final = 0xFFFF_FFFF_FFFF_FFFF

_BODY: Final = struct.Struct("<Q")
FILE: Final = MarkFile(NAME, MAGIC, VERSION, _BODY.size)


def write_mark(disk: Disk, last_session: int) -> None:
    """In place of one that is there."""
    FILE.write(disk, _BODY.pack(last_session))


def find_last_doubted(disk: Disk) -> int:
    """The number of the last session in doubt; NO_SESSION where there is none."""
    try:
        body = FILE.find(disk)
    except UnclearMark:
        return EVERY_SESSION
    if body is None:
        return NO_SESSION
    if len(body) != _BODY.size:
        return EVERY_SESSION
    last_session: int = _BODY.unpack(body)[0]
    return last_session


def is_unclear(disk: Disk) -> bool:
    """Whether there is one that cannot be read. One that doubts every session, as a repair leaves it, can."""
    try:
        body = FILE.find(disk)
    except UnclearMark:
        return True
    return body is not None and len(body) != _BODY.size


def remove_mark(disk: Disk) -> None:
    FILE.remove(disk)


def doubt_sessions(state: StoredState, numbers: dict[tuple[str, str], int], last_session: int) -> bool:
    """Sessions up to this number know that their clients may have been told more; whether there is one."""
    is_any = False
    for session in state.sessions:
        if numbers[session.key.pair()] <= last_session:
            session.may_lack_end = is_any = True
    return is_any
