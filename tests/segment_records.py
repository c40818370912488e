"""Records for tests of segments: bodies that say where they belong, and all of a queue read back."""

from __future__ import annotations

import struct

from millstream.storage.disk import Disk
from millstream.storage.log.recovery import Damage
from millstream.storage.segments.reader import SegmentReader

END = 1 << 62


def make_body(queue: int, offset: int, size: int = 40, time_ns: int = -1) -> bytes:
    """No two are alike, and every byte depends on the place."""
    place = struct.pack("<QQQ", queue, offset, 1000 + offset if time_ns < 0 else time_ns)
    filler = struct.pack("<QQ", queue * 7919, offset * 104729) * (size // 16 + 1)
    return place + filler[:size]


def offset_of(body: bytes) -> int:
    offset: int = struct.unpack_from("<8xQ", body)[0]
    return offset


def read_all(
    disk: Disk, queue: int, first: int = 0, end: int = END, reader: SegmentReader | None = None
) -> tuple[list[bytes], list[Damage]]:
    """Slice by slice, as a group would."""
    own = reader or SegmentReader(disk)
    bodies: list[bytes] = []
    damage: list[Damage] = []
    while first < end:
        found = own.read(queue, first, end, 50, 4000)
        assert found.end > first
        bodies += found.bodies
        damage += found.damage
        first = int(found.end)
    if reader is None:
        own.close()
    return bodies, damage
