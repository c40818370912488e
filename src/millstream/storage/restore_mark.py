"""The mark of a restore: whose clients may know more than the broker.

A backup is of the past. Clients that went on with the broker it was made of hold packet ids, and are done with others, that it
says nothing of. No start changes that: it holds for a session of the backup as long as there is that session. One begun after the restore
has no such past. So the mark says which is the last session of the backup; their numbers count up.

    mark    magic, version, number of a session; then the checksum of all that

Invariants
- It comes into its place with everything else that is restored.
- It goes when a start finds no session of the backup any more. Should the removal not last, or a number be given again, a
  session is in doubt for nothing.
- A mark that is torn, or of another version, speaks of every session.

To change the format: raise VERSION. A start that does not know a version doubts more than it must, and nothing is lost.
"""

from __future__ import annotations

import struct
from typing import Final

from google_crc32c import value

from millstream.storage.disk import Disk, DiskFault
from millstream.storage.store import StoredState

NAME: Final = "restored"
ROOT: Final = "."
VERSION: Final = 1
MAGIC: Final = 0x5352534D  # MSRS
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
    file = disk.create(NAME, 0)
    try:
        file.write_at(0, encode_mark(last_session))
        file.sync()
    finally:
        file.close()
    disk.sync_folder(ROOT)


def find_last_restored(disk: Disk) -> int:
    """The number of the last session that came with a backup; NO_SESSION where nothing was restored."""
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
