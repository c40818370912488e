"""What a power cut or an old disk may do to the files of a broker that is dead, and that takes away nothing it confirmed."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Final

from millstream.runtime.disk.checkpoint_lock import hold_checkpoints
from millstream.runtime.disk.data_folder import STATE
from millstream.runtime.disk.files import RealDisk
from millstream.runtime.disk.lmdb_table import LmdbTable
from millstream.storage.disk import Disk
from millstream.storage.log.files import FOLDER, PREPARED, file_name, file_number
from millstream.storage.log.format import BATCH_HEAD_SIZE, FILE_HEADER_SIZE, decode_batch_head
from millstream.storage.log.recovery import log_names, read_file
from millstream.storage.manifest import find_manifest
from millstream.storage.table.checkpoint import read_meta

GARBAGE: Final = 64


def tear_last_batch(data_dir: Path, chance: random.Random) -> bool:
    """Of the batch that was being written only the beginning reached the disk. False: there is none.

    Only after a death between its write and its sync: nobody was told of it then.
    """
    disk = RealDisk(data_dir)
    names = log_names(disk)
    if not names:
        return False
    start, end = find_last_batch(disk, names[-1])
    if start < 0:
        return False
    file = disk.open(names[-1])
    try:
        # no later than in the middle: the last bytes of a batch may be zeros anyway
        kept = chance.randrange(start + 1, start + 1 + (end - start) // 2)
        file.write_at(kept, bytes(end - kept))
        file.sync()
    finally:
        file.close()
    return True


def name_unfinished(data_dir: Path, chance: random.Random) -> bool:
    """A file of the log that was being made has its name, as in releases that made it in its place. False: there is none."""
    disk = RealDisk(data_dir)
    manifest = find_manifest(disk)
    if manifest is None or PREPARED not in disk.names(FOLDER):
        return False
    disk.rename(PREPARED, file_name(manifest.last_log + 1))
    return True


def find_last_batch(disk: Disk, name: str) -> tuple[int, int]:
    """(where it begins, where it ends); (-1, -1): there is none."""
    recovered = read_file(disk, name, True)
    file = disk.open(name)
    data = file.read_at(0, file.size())
    file.close()
    found = (-1, -1)
    position = FILE_HEADER_SIZE
    while position < recovered.end:
        head = decode_batch_head(data, position, recovered.number, recovered.salt)
        if head is None:
            break
        end = position + BATCH_HEAD_SIZE + int(head.size)
        found = (position, end)
        position = end
    return found


def spoil_log(data_dir: Path, chance: random.Random) -> bool:
    """Garbage behind the last batch of a file that has another one behind it. False: there is no such file."""
    disk = RealDisk(data_dir)
    with hold_checkpoints(data_dir):
        table = LmdbTable(data_dir / STATE)
        try:
            folded = read_meta(table)[1]
        finally:
            table.close()
        for name in log_names(disk)[:-1]:
            recovered = read_file(disk, name, False)
            if file_number(name) <= folded or recovered.damage:
                continue
            file = disk.open(name)
            file.write_at(recovered.end, chance.randbytes(GARBAGE))
            file.sync()
            file.close()
            return True
    return False
