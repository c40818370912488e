"""The mark of doubt: whose clients may know more than the broker.

A backup is of the past, a log that was not synced with every batch may lack its end, damage takes facts away, and so does its repair.
Clients that went on with what is missing hold packet ids, and are done with others, that nothing here speaks of. No later start
changes that: it holds for a session as long as there is that session. One begun afterwards has no such past. So the mark says which is the
last session in doubt; their numbers count up.

    mark    magic, version, number of a session; then the checksum of all that

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

from google_crc32c import value

from millstream.storage.disk import Disk, DiskFault
from millstream.storage.store import StoredState

NAME: Final = "doubted"
UNFINISHED: Final = "doubted.part"
ROOT: Final = "."
VERSION: Final = 1
MAGIC: Final = 0x4244534D  # MSDB
NO_SESSION: Final = 0
EVERY_SESSION: Final = 0xFFFF_FFFF_FFFF_FFFF

_MARK: Final = struct.Struct("<IIQ")
_CHECKSUM: Final = struct.Struct("<I")
_SIZE: Final = 20


def encode_mark(last_session: int) -> bytes:
    data = _MARK.pack(MAGIC, VERSION, last_session)
    return data + _CHECKSUM.pack(value(data))


def decode_mark(data: bytes) -> int:
    if len(data) != _SIZE or _CHECKSUM.pack(value(data[: _MARK.size])) != data[_MARK.size :]:
        return EVERY_SESSION
    magic, version, last_session = _MARK.unpack_from(data)
    if magic != MAGIC or version != VERSION:
        return EVERY_SESSION
    found: int = last_session
    return found


def write_mark(disk: Disk, last_session: int) -> None:
    """In place of one that is there."""
    disk.remove(UNFINISHED)
    file = disk.create(UNFINISHED, 0)
    try:
        file.write_at(0, encode_mark(last_session))
        file.sync()
    finally:
        file.close()
    disk.rename(UNFINISHED, NAME)
    disk.sync_folder(ROOT)


def find_last_doubted(disk: Disk) -> int:
    """The number of the last session in doubt; NO_SESSION where there is none."""
    try:
        file = disk.open(NAME)
    except DiskFault:
        return NO_SESSION  # it is not there: the log was opened just before
    try:
        return decode_mark(file.read_at(0, _SIZE + 1))
    except DiskFault:
        return EVERY_SESSION
    finally:
        file.close()


def remove_mark(disk: Disk) -> None:
    disk.remove(NAME)
    disk.sync_folder(ROOT)


def doubt_sessions(state: StoredState, numbers: dict[tuple[str, str], int], last_session: int) -> bool:
    """Sessions up to this number know that their clients may have been told more; whether there is one."""
    is_any = False
    for session in state.sessions:
        if numbers[session.key.pair()] <= last_session:
            session.may_lack_end = is_any = True
    return is_any
