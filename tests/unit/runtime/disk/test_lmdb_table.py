"""The table on LMDB: nothing it did not get comes out of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import lmdb
import pytest

from millstream.runtime.disk.lmdb_table import FILE_NAME, LOCK_NAME, LOCK_SIZE, LmdbTable, find_table_fault
from millstream.storage.disk import DiskFault

MAKE_WITHOUT_ROOM = """
import resource, sys
from pathlib import Path
from millstream.runtime.disk.lmdb_table import LmdbTable
from millstream.storage.disk import DiskFault
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    LmdbTable(Path(sys.argv[1]))
except DiskFault as fault:
    print(fault.text)
"""


def fill(folder: Path) -> None:
    table = LmdbTable(folder)
    for number in range(50):
        table.put(b"k%02d" % number, b"value %d" % number * 20)
    table.delete(b"k07")
    table.put(b"k08", b"changed")
    table.commit()
    table.close()


def change(folder: Path, key: bytes, value: bytes | None) -> None:
    """Behind the table's back."""
    environment = lmdb.open(str(folder))
    with environment.begin(write=True) as transaction:
        if value is None:
            transaction.delete(key)
        else:
            transaction.put(key, value)
    environment.close()


def test_what_was_committed_comes_back(tmp_path: Path) -> None:
    fill(tmp_path)
    table = LmdbTable(tmp_path)
    assert table.find_fault() == ""
    assert table.get(b"k08") == b"changed"
    assert table.get(b"k07") is None
    assert [key for key, _ in table.items(b"k1")] == [b"k%d" % number for number in range(10, 20)]
    table.close()


def test_every_flipped_bit_of_an_entry_is_found(tmp_path: Path) -> None:
    fill(tmp_path)
    environment = lmdb.open(str(tmp_path))
    with environment.begin() as transaction:
        stored = bytes(transaction.get(b"k08"))
    environment.close()
    for position in range(len(stored) * 8):
        damaged = bytearray(stored)
        damaged[position // 8] ^= 1 << position % 8
        change(tmp_path, b"k08", bytes(damaged))
        table = LmdbTable(tmp_path)
        with pytest.raises(DiskFault, match="storage repair"):
            table.get(b"k08")
        assert table.is_damaged(b"k08")
        table.close()


def test_an_entry_that_vanished_or_came_from_elsewhere_is_noticed(tmp_path: Path) -> None:
    fill(tmp_path)
    change(tmp_path, b"k09", None)
    table = LmdbTable(tmp_path)
    assert "48 entries" in table.find_fault()
    table.close()


def test_a_change_that_was_not_committed_is_not_there(tmp_path: Path) -> None:
    fill(tmp_path)
    table = LmdbTable(tmp_path)
    table.put(b"k60", b"new")
    table.close()
    table = LmdbTable(tmp_path)
    assert table.get(b"k60") is None
    assert table.find_fault() == ""
    table.close()


@pytest.mark.parametrize("is_there", [False, True])
def test_the_room_of_the_lock_is_reserved_because_it_is_written_through_memory(
    tmp_path: Path, is_there: bool
) -> None:
    """On a full disk a copy with holes in it would end the process by SIGBUS."""
    lock = tmp_path / LOCK_NAME
    if is_there:
        lock.touch()
        os.truncate(lock, LOCK_SIZE)
    fill(tmp_path)
    status = lock.stat()
    assert (status.st_size, status.st_blocks * 512 >= LOCK_SIZE) == (LOCK_SIZE, True)


def test_a_table_that_could_not_be_made_leaves_nothing_that_looks_like_one(tmp_path: Path) -> None:
    """As on a disk that becomes full within the first two pages of it."""
    LmdbTable(tmp_path / "other").close()
    (tmp_path / "state").mkdir()
    (tmp_path / "other" / LOCK_NAME).rename(tmp_path / "state" / LOCK_NAME)
    command = [sys.executable, "-c", MAKE_WITHOUT_ROOM, str(tmp_path / "state")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "No space left on device" in done.stdout, done.stderr
    assert not (tmp_path / "state" / FILE_NAME).exists()
    fill(tmp_path / "state")
    assert find_table_fault(tmp_path / "state") == ""
