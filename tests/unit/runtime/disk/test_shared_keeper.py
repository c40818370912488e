"""The manifest between the log's thread and the loop, on a disk that does not answer."""

from __future__ import annotations

import threading
from pathlib import Path

from mypy_extensions import i64

from millstream.runtime.disk.files import RealDisk
from millstream.runtime.disk.shared_keeper import SharedKeeper
from millstream.storage.disk import DiskFile
from millstream.storage.manifest import Manifest, ManifestKeeper, find_manifest

PATIENCE_S = 10


class StalledDisk(RealDisk):
    """Does not return from the first creation of a file until it is told to."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.has_begun = threading.Event()
        self.may_go_on = threading.Event()

    def create(self, name: str, size: i64) -> DiskFile:
        self.has_begun.set()
        assert self.may_go_on.wait(PATIENCE_S)
        return super().create(name, size)


def test_the_loop_does_not_wait_for_a_manifest_that_cannot_be_written(tmp_path: Path) -> None:
    disk = StalledDisk(tmp_path)
    keeper = SharedKeeper(ManifestKeeper(disk, Manifest("ab" * 16)))
    log = threading.Thread(target=keeper.begin_log, args=(2, 7, 4096, 1, 5), daemon=True)
    log.start()
    assert disk.has_begun.wait(PATIENCE_S)
    loop = threading.Thread(target=keeper.note_folded, args=(1, 5), daemon=True)
    loop.start()
    loop.join(PATIENCE_S / 4)
    is_held = loop.is_alive()
    disk.may_go_on.set()
    log.join(PATIENCE_S)
    assert not is_held
    keeper.open()
    keeper.begin_log(3, 8, 4096, 2, 9)
    written = find_manifest(disk)
    assert written is not None
    assert (written.folded_file, written.folded_sequence) == (1, 5)
