"""A table whose changes wait for the commit says the same as one that is changed at once, and is spared what came and went."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millstream.storage.table.pending import PendingTable
from simulation.table import SimulatedTable

KEYS = st.sampled_from([bytes([kind, number]) for kind in b"ds" for number in range(4)])
VALUES = st.binary(max_size=3)
CHANGES = st.one_of(
    st.tuples(st.just("put"), KEYS, VALUES),
    st.tuples(st.just("add"), st.just(b""), VALUES),
    st.tuples(st.just("put_new"), st.integers(0, 30), VALUES),
    st.tuples(st.just("delete"), KEYS, st.just(b"")),
    st.tuples(st.just("delete_new"), st.integers(0, 30), st.just(b"")),
    st.tuples(st.just("items"), st.sampled_from([b"d", b"s", b"m", b""]), st.just(b"")),
    st.tuples(st.just("commit"), st.just(b""), st.just(b"")),
)


class Spared(SimulatedTable):
    """Tells which keys it was ever asked to change."""

    def __init__(self) -> None:
        super().__init__()
        self.touched: set[bytes] = set()

    def put(self, key: bytes, value: bytes) -> None:
        self.touched.add(key)
        super().put(key, value)

    def delete(self, key: bytes) -> None:
        self.touched.add(key)
        super().delete(key)


@given(st.lists(CHANGES, max_size=60))
def test_reading_and_committing_is_the_same_whether_changes_wait_or_not(
    changes: list[tuple[str, bytes | int, bytes]],
) -> None:
    at_once, below = SimulatedTable(), SimulatedTable()
    pending = PendingTable(below)
    added: list[bytes] = []
    for name, at, value in changes:
        key = at if isinstance(at, bytes) else added[at % len(added)] if added else b"d\0"
        if name == "add":  # its key was never there, as that of a message in the log
            key = b"m" + bytes([len(added)])
            added.append(key)
            pending.add(key, value)
            at_once.put(key, value)
        elif name in ("put", "put_new"):
            pending.put(key, value)
            at_once.put(key, value)
        elif name in ("delete", "delete_new"):
            pending.delete(key)
            at_once.delete(key)
        elif name == "items":
            assert pending.items(key) == at_once.items(key)
        else:
            pending.commit()
            at_once.commit()
            assert below.content() == at_once.content()
        assert pending.get(key) == at_once.get(key)
    assert below.content() == at_once.content()  # what waits is not safe yet, there as here
    assert pending.items(b"") == at_once.items(b"")


def test_what_is_added_changed_and_deleted_between_two_commits_never_reaches_the_table() -> None:
    below = Spared()
    pending = PendingTable(below)
    pending.add(b"m1", b"body")
    pending.put(b"m1", b"used")
    pending.add(b"m2", b"stays")
    pending.delete(b"m1")
    pending.commit()
    assert below.touched == {b"m2"}
    assert below.content() == {b"m2": b"stays"}


def test_an_entry_of_the_table_that_is_deleted_put_and_deleted_again_is_gone() -> None:
    below = SimulatedTable({b"d1": b"old"})
    pending = PendingTable(below)
    pending.delete(b"d1")
    pending.put(b"d1", b"new")
    pending.delete(b"d1")
    assert pending.get(b"d1") is None
    pending.commit()
    assert below.content() == {}
