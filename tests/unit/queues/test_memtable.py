"""The tail of a stream knows exactly which of its records are in segments."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millstream.queues.memtable import Memtable


def fill(memtable: Memtable, steps: list[int]) -> list[int]:
    """Append a record for each step, so many facts behind the one before; the sequences."""
    sequence = 0
    sequences: list[int] = []
    for step in steps:
        sequence += step
        memtable.add(len(sequences), sequence, b"x")
        sequences.append(sequence)
    return sequences


@given(
    st.lists(st.sampled_from([1, 1, 1, 1, 2, 300]), max_size=1000),
    st.lists(st.integers(0, 5000), max_size=6).map(sorted),
)
def test_sealed_is_one_past_the_last_record_whose_fact_was_folded(steps: list[int], folds: list[int]) -> None:
    memtable = Memtable(0, True)
    sequences = fill(memtable, steps)
    for folded in folds:
        memtable.forget_folded(folded, 0)
        assert memtable.sealed == sum(sequence <= folded for sequence in sequences)
        assert memtable.first <= memtable.sealed <= memtable.end


def test_records_that_come_after_a_fold_are_not_sealed_by_it() -> None:
    memtable = Memtable(0, True)
    memtable.add(0, 1, b"x")
    memtable.forget_folded(1, 0)
    memtable.add(1, 2, b"y")
    assert memtable.sealed == 1
    memtable.forget_folded(2, 0)
    assert memtable.sealed == 2


def test_a_tail_that_begins_later_has_everything_before_in_segments() -> None:
    assert Memtable(700, True).sealed == 700


def test_sealed_never_goes_back_when_old_records_are_let_go() -> None:
    memtable = Memtable(0, True)
    fill(memtable, [1] * 600)
    memtable.forget_folded(400, 0)
    memtable.forget_below(512)
    memtable.forget_folded(550, 0)
    assert memtable.sealed == 550
