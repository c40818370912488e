"""`python -m millstream.runtime.checkpoint_run DIR FILE`: fold the log up to a file into the table, then remove it.

A process of its own: folding is work for a processor, and the broker's loop must not feel it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from millstream.runtime.disk_files import RealDisk
from millstream.runtime.failpoints import find_failpoints
from millstream.runtime.lmdb_table import LmdbTable
from millstream.storage.checkpoint import Checkpoint
from millstream.storage.disk import Disk, DiskFault, Failpoints
from millstream.storage.log_files import FOLDER, file_number
from millstream.storage.log_recovery import log_names, read_file


def run(disk: Disk, table: LmdbTable, last_file: int, failpoints: Failpoints) -> int:
    """Fold and remove; how many files went."""
    checkpoint = Checkpoint(table)
    names = [name for name in log_names(disk) if file_number(name) <= last_file]
    for name in names:
        number = file_number(name)
        if number > checkpoint.file:
            for record in read_file(disk, name, False).records:
                checkpoint.apply(record)
            failpoints.hit("checkpoint.before_commit")
            checkpoint.finish(number)
            failpoints.hit("checkpoint.after_commit")
        disk.remove(name)
        failpoints.hit("checkpoint.after_remove")
    disk.sync_folder(FOLDER)
    failpoints.hit("checkpoint.after_folder_sync")
    return len(names)


def main() -> int:
    folder, last_file = Path(sys.argv[1]), int(sys.argv[2])
    try:
        table = LmdbTable(folder / "state")
        try:
            run(RealDisk(folder), table, last_file, find_failpoints())
        finally:
            table.close()
    except DiskFault as fault:
        sys.stderr.write(f"the checkpoint failed: {fault.text}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
