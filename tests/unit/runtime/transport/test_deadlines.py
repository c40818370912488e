"""Deadlines in coarse buckets: none early, none forgotten, whatever the clock does."""

from __future__ import annotations

from fake_transport import GateWorld
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.runtime.transport.deadlines import BUCKET_NS, Deadlines
from millstream.runtime.transport.gate import Gate
from millstream.runtime.transport.link import TransportLink

START_NS = 7_000_000_000_000


class Due(TransportLink):
    """Asks to be looked at again `times` times, `step_ns` after each look."""

    def __init__(self, gate: Gate, times: int = 0, step_ns: int = 0) -> None:
        super().__init__(gate)
        self.looks: list[int] = []
        self._times = times
        self._step_ns = step_ns

    def on_due(self, now_ns: int) -> int:
        self.looks.append(int(now_ns))
        return now_ns + self._step_ns if len(self.looks) <= self._times else 0


GATE = GateWorld().gate


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 10 * BUCKET_NS)), min_size=1, max_size=20),
    st.lists(
        st.sampled_from([1, BUCKET_NS // 5, BUCKET_NS, 3 * BUCKET_NS, 1000 * BUCKET_NS]),
        min_size=1,
        max_size=20,
    ),
)
def test_each_deadline_is_met_once_not_early_and_in_the_tick_that_passes_its_bucket(
    wanted: list[tuple[int, int]], steps: list[int]
) -> None:
    deadlines = Deadlines()
    now_ns = START_NS
    open_ones: list[tuple[Due, int]] = []
    for index, step in enumerate([*steps, 2000 * BUCKET_NS]):
        for when, delay in wanted:
            if when == index or (when > len(steps) and index == 0):
                due = Due(GATE)
                deadlines.add(due, now_ns + delay)
                open_ones.append((due, now_ns + delay))
        now_ns += step
        deadlines.on_tick(now_ns)
        for due, due_ns in open_ones:
            assert len(due.looks) <= 1
            if due.looks:
                assert due.looks[0] >= due_ns
            else:
                assert now_ns < due_ns + 2 * BUCKET_NS
    assert all(len(due.looks) == 1 for due, _ in open_ones)


def test_who_asks_again_is_looked_at_again() -> None:
    deadlines = Deadlines()
    due = Due(GATE, times=3, step_ns=10 * BUCKET_NS)
    deadlines.add(due, START_NS)
    for tick in range(100):
        deadlines.on_tick(START_NS + tick * BUCKET_NS)
    assert len(due.looks) == 4
    gaps = [after - before for before, after in zip(due.looks, due.looks[1:], strict=False)]
    assert all(10 * BUCKET_NS <= gap <= 11 * BUCKET_NS for gap in gaps)


def test_who_asks_for_now_or_the_past_comes_with_the_next_tick_not_for_ever_in_this_one() -> None:
    deadlines = Deadlines()
    due = Due(GATE, times=5, step_ns=-1000 * BUCKET_NS)
    deadlines.add(due, START_NS)
    deadlines.on_tick(START_NS + 2 * BUCKET_NS)
    assert len(due.looks) == 1
    deadlines.on_tick(START_NS + 3 * BUCKET_NS)
    assert len(due.looks) == 2


def test_a_deadline_of_zero_is_none() -> None:
    deadlines = Deadlines()
    due = Due(GATE)
    deadlines.add(due, 0)
    deadlines.on_tick(START_NS)
    deadlines.on_tick(START_NS * 2)
    assert due.looks == []


def test_a_clock_that_stands_or_goes_back_loses_nothing() -> None:
    deadlines = Deadlines()
    deadlines.on_tick(START_NS)
    due = Due(GATE)
    deadlines.add(due, START_NS + 5 * BUCKET_NS)
    deadlines.on_tick(START_NS)
    deadlines.on_tick(START_NS - 100 * BUCKET_NS)
    deadlines.on_tick(START_NS + 4 * BUCKET_NS)
    assert due.looks == []
    deadlines.on_tick(START_NS + 7 * BUCKET_NS)
    assert len(due.looks) == 1


def test_a_leap_of_the_clock_meets_all_that_were_due_and_costs_no_walk_over_the_empty_time() -> None:
    deadlines = Deadlines()
    deadlines.on_tick(START_NS)
    dues = [Due(GATE) for _ in range(3)]
    for number, due in enumerate(dues):
        deadlines.add(due, START_NS + number * 1000 * BUCKET_NS)
    later = Due(GATE)
    deadlines.add(later, START_NS + 10**15)
    deadlines.on_tick(START_NS + 10**9 * BUCKET_NS // 10**6)
    deadlines.on_tick(START_NS + 10**15 - BUCKET_NS)
    assert [len(due.looks) for due in dues] == [1, 1, 1]
    assert later.looks == []
    deadlines.on_tick(START_NS + 10**15 + BUCKET_NS)
    assert len(later.looks) == 1
