"""The table on LMDB: nothing it did not get comes out of it."""

from __future__ import annotations

from pathlib import Path

import lmdb
import pytest

from millstream.runtime.disk.lmdb_table import LmdbTable
from millstream.storage.disk import DiskFault


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
