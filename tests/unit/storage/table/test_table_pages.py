"""A table is looked at page by page before its library maps it: whatever was done to it, the process goes on."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from crash.table_layout import TableLayout
from millstream.runtime.disk.files import RealDisk
from millstream.runtime.disk.lmdb_table import (
    FILE_NAME,
    SUM,
    LmdbTable,
    find_table_fault,
    open_entry,
    salvage_entries,
)
from millstream.storage.disk import DiskFault
from millstream.storage.table.pages import TablePages

ENTRIES = 400
PAGE = 4096
READ_ALL = """
import sys
from pathlib import Path
from millstream.runtime.disk.lmdb_table import LmdbTable
from millstream.storage.disk import DiskFault
for name in sys.argv[1:]:
    try:
        table = LmdbTable(Path(name))
        table.items(b"")
        table.put(b"new", b"x" * 5000)
        table.commit()
        table.close()
    except DiskFault:
        pass
"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Branches, leaves, large values, one of them with more pages than it needs, free pages."""
    folder = tmp_path_factory.mktemp("table") / "state"
    table = LmdbTable(folder)
    for round_ in range(3):
        for number in range(ENTRIES):
            size = 9000 if number % 50 == 0 else 40 + number
            table.put(b"k%05d" % number, bytes([round_]) * size)
        table.commit()
    table.put(b"k00010", bytes(20_000))
    table.put(b"k00010", bytes(500))
    for number in range(0, ENTRIES, 3):
        table.delete(b"k%05d" % number)
    table.commit()
    table.close()
    return (folder / FILE_NAME).read_bytes()


def write(tmp_path: Path, name: str, data: bytes) -> Path:
    folder = tmp_path / name
    folder.mkdir(parents=True)
    (folder / FILE_NAME).write_bytes(data)
    return folder


def test_a_whole_table_has_no_fault_and_all_entries_are_found(whole: bytes, tmp_path: Path) -> None:
    folder = write(tmp_path, "whole", whole)
    assert find_table_fault(folder) == ""
    file = RealDisk(folder).open(FILE_NAME)
    found = TablePages(file, keeps_entries=True).entries
    file.close()
    kept = [key for key, stored in found if key.startswith(b"k") and open_entry(key, stored)]
    assert len(kept) == ENTRIES - len(range(0, ENTRIES, 3))


@pytest.mark.parametrize("size", [0, 1, PAGE, 2 * PAGE, 3 * PAGE])
def test_a_table_cut_short_has_a_fault(whole: bytes, tmp_path: Path, size: int) -> None:
    assert find_table_fault(write(tmp_path, "cut", whole[:size]))


def test_a_table_that_ends_inside_a_large_value_has_a_fault(tmp_path: Path) -> None:
    """Its first page is there, and the library would read on behind the end of the file."""
    folder = tmp_path / "state"
    table = LmdbTable(folder)
    table.put(b"large", bytes(10 * PAGE))
    table.commit()
    table.close()
    whole = (folder / FILE_NAME).read_bytes()
    assert find_table_fault(folder) == ""
    for pages in range(1, 10):
        cut = write(tmp_path, f"cut-{pages}", whole[: -pages * PAGE])
        assert "is missing: the file ends at byte" in find_table_fault(cut)


@pytest.mark.parametrize("size", [100, 3000, 9000])
def test_a_large_value_that_is_put_again_shorter_in_the_same_commit_is_no_fault(
    tmp_path: Path, size: int
) -> None:
    """The library leaves it all the pages it had."""
    folder = tmp_path / "state"
    for round_ in range(4):
        table = LmdbTable(folder)
        table.put(b"grown", bytes(5000 * round_))
        for number in range(40):
            table.put(b"large %d" % number, bytes(20_000))
            table.put(b"large %d" % number, bytes([round_]) * size)
        table.commit()
        table.close()
        assert find_table_fault(folder) == ""
        entries, is_newest = salvage_entries(folder)
        assert (len(entries), is_newest) == (41, True)
        assert entries[b"large 7"] == bytes([round_]) * size


def test_a_wrong_number_of_pages_of_a_large_value_costs_no_other_entry(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    table = LmdbTable(folder)
    for number in range(40):
        table.put(b"large %d" % number, bytes([number]) * 9000)
    table.commit()
    table.close()
    whole = (folder / FILE_NAME).read_bytes()
    expected = salvage_entries(folder)[0]
    heads = [at for at in range(0, len(whole), PAGE) if whole[at + 8 : at + 16] == b"\0\0\4\0\3\0\0\0"]
    assert len(heads) == 40
    for at in heads:
        for pages in (1, 2, 4, 10, 1 << 31):
            data = whole[: at + 12] + pages.to_bytes(4, "little") + whole[at + 16 :]
            (folder / FILE_NAME).write_bytes(data)
            assert find_table_fault(folder) != ""
            assert salvage_entries(folder)[0] == expected


def test_whatever_has_no_fault_can_be_read_and_written_without_a_signal(whole: bytes, tmp_path: Path) -> None:
    chance = random.Random(1)
    passed: list[str] = []
    for number in range(150):
        data = bytearray(whole)
        page = chance.randrange(len(data) // PAGE)
        harm = number % 4
        if harm == 0:
            data[page * PAGE : page * PAGE + PAGE] = bytes(PAGE)
        elif harm == 1:
            for _ in range(4):
                data[page * PAGE + chance.randrange(64)] ^= 1 << chance.randrange(8)
        elif harm == 2:
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        else:
            del data[chance.randrange(len(data)) :]
        folder = write(tmp_path, str(number), bytes(data))
        if not find_table_fault(folder):
            passed.append(str(folder))
    assert passed
    done = subprocess.run([sys.executable, "-c", READ_ALL, *passed], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()[-500:]


def test_a_flipped_bit_costs_no_entry_but_those_it_lies_in(whole: bytes, tmp_path: Path) -> None:
    """Whatever way led to them: also through a page above them."""
    layout = TableLayout(whole)
    assert (
        len(layout.values) == len(salvage_entries(write(tmp_path, "whole", whole))[0]) + 1
    )  # the sum of all
    folder = write(tmp_path, "flipped", whole)
    chance = random.Random(1)
    ways = sorted({(start, end) for needs in layout.needs.values() for start, end in needs[2:-1]})
    costs: list[int] = []
    for start, end in ways + chance.choices(ways, k=200):
        data = bytearray(whole)
        data[chance.randrange(start, end)] ^= 1 << chance.randrange(8)
        (folder / FILE_NAME).write_bytes(data)
        readable = layout.find_readable(bytes(data))
        readable.pop(SUM, None)
        kept = salvage_entries(folder)[0]
        assert [key for key in readable if kept.get(key) != readable[key]] == []
        costs.append(len(layout.values) - len(kept))
    assert max(costs) < ENTRIES // 3  # a leaf at most


def test_a_table_that_is_cut_short_keeps_every_entry_before_the_cut(whole: bytes, tmp_path: Path) -> None:
    layout = TableLayout(whole)
    folder = write(tmp_path, "cut", whole)
    for size in range(len(whole), 3 * PAGE, -PAGE // 3):
        (folder / FILE_NAME).write_bytes(whole[:size])
        readable = layout.find_readable(whole[:size])
        readable.pop(SUM, None)
        kept = salvage_entries(folder)[0]
        assert [key for key in readable if kept.get(key) != readable[key]] == []


def test_keys_that_are_out_of_order_are_a_fault(whole: bytes, tmp_path: Path) -> None:
    """The library would not find what a repair has to remove."""
    end = TableLayout(whole).needs[b"k00304"][-2][1]  # of the key
    data = whole[: end - 1] + b"5" + whole[end:]
    assert "out of order" in find_table_fault(write(tmp_path, "order", data))


def test_a_folder_without_a_table_is_a_fault_of_the_disk(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    with pytest.raises(DiskFault):
        find_table_fault(tmp_path / "state")
