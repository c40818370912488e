"""Entries in memory answer as the table they were read from."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millstream.storage.table.entries import EntryTable
from simulation.table import SimulatedTable

keys = st.binary(min_size=1, max_size=3)


@given(entries=st.dictionaries(keys, keys), changes=st.lists(st.tuples(keys, st.none() | keys)), prefix=keys)
def test_it_holds_what_another_table_would(
    entries: dict[bytes, bytes], changes: list[tuple[bytes, bytes | None]], prefix: bytes
) -> None:
    table, other = EntryTable(dict(entries)), SimulatedTable(entries)
    for key, value in changes:
        for changed in (table, other):
            if value is None:
                changed.delete(key)
            else:
                changed.put(key, value)
        assert table.items(b"") == other.items(b"")
        assert table.items(prefix[:1]) == other.items(prefix[:1])
        assert table.get(key) == value
