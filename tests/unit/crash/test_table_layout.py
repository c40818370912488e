"""The damage driver knows which bytes of a table an entry needs, without the code that a repair reads with."""

from __future__ import annotations

import pytest

from crash.table_layout import TableLayout
from millstream.runtime.disk.lmdb_table import FILE_NAME, SUM, LmdbTable

PAGE = 4096
LARGE = b"k0050"


@pytest.fixture(scope="module")
def entries() -> dict[bytes, bytes]:
    found = {b"k%04d" % number: bytes([number % 251]) * (40 + number) for number in range(200)}
    return found | {LARGE: b"x" * 9000}


@pytest.fixture(scope="module")
def whole(entries: dict[bytes, bytes], tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("table")
    table = LmdbTable(folder)
    for number in range(300):  # most of these pages are free afterwards
        table.put(b"old%04d" % number, bytes(50))
    table.commit()
    for key, _ in table.items(b"old"):
        table.delete(key)
    table.commit()
    for key, value in entries.items():
        table.put(key, value)
    table.commit()
    table.close()
    return (folder / FILE_NAME).read_bytes()


def find_lost(whole: bytes, at: int) -> list[bytes]:
    """With one bit flipped."""
    data = bytearray(whole)
    data[at] ^= 1
    readable = TableLayout(whole).find_readable(bytes(data))
    return [key for key in TableLayout(whole).values if key not in readable]


def test_all_entries_of_the_last_commit_are_found(whole: bytes, entries: dict[bytes, bytes]) -> None:
    layout = TableLayout(whole)
    assert {key: value for key, value in layout.values.items() if key != SUM} == entries
    assert layout.find_readable(whole) == layout.values


@pytest.mark.parametrize("key", [b"k0000", b"k0120", LARGE])
def test_a_harmed_value_or_key_takes_its_entry_along_alone(whole: bytes, key: bytes) -> None:
    needs = TableLayout(whole).needs[key]
    for start, end in (needs[-1], (whole.index(key, needs[-2][0] if key != LARGE else 0), 0)):
        assert find_lost(whole, max(start, end - 1)) == [key]


def test_the_head_of_a_page_takes_all_along_that_it_leads_to(whole: bytes) -> None:
    needs = TableLayout(whole).needs
    heads = [[start for start, _ in way if start % PAGE == 0 and start >= 2 * PAGE] for way in needs.values()]
    root = heads[0][0]
    assert {way[0] for way in heads} == {root}
    assert find_lost(whole, root) == list(needs)
    leaf = heads[0][1]
    below = [key for key, way in zip(needs, heads, strict=True) if leaf in way]
    assert find_lost(whole, leaf) == below
    assert 1 < len(below) < len(needs)


def test_a_page_that_nothing_leads_to_takes_nothing_along(whole: bytes) -> None:
    used = {start // PAGE for way in TableLayout(whole).needs.values() for start, _ in way}
    unused = [page for page in range(2, len(whole) // PAGE - 3) if page not in used]
    assert unused
    assert find_lost(whole, unused[0] * PAGE + 100) == []
