"""Output gathered per connection: in order, flushed once, builders used again."""

from __future__ import annotations

import pytest
from fakes import FakeLine, ManualWakeup
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.model.outbox import (
    FLUSH_NS,
    FLUSHES_PER_LOOK,
    FLUSHES_PER_TURN,
    KEEP,
    LARGE,
    Outbox,
    OutboxPool,
)


class Owner(FakeLine):
    def __init__(self, pool: OutboxPool) -> None:
        super().__init__()
        self.outbox = Outbox(pool, self)
        self.writes: list[bytes] = []
        self.errors: list[Exception] = []
        self.fault: Exception | None = None

    def flush(self) -> None:
        data = self.outbox.take_all()
        if self.fault is not None:
            raise self.fault
        self.writes.append(data)

    def on_flush_failed(self, error: Exception) -> None:
        self.errors.append(error)


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from([1, 10, LARGE - 1, LARGE, LARGE + 1]), st.booleans()), max_size=12))
def test_parts_of_any_size_leave_in_the_order_they_came(parts: list[tuple[int, bool]]) -> None:
    owner = Owner(OutboxPool(ManualWakeup()))
    wanted = b""
    for number, (size, by_builder) in enumerate(parts):
        data = bytes([number]) * size
        wanted += data
        if by_builder:
            owner.outbox.open().write(data)
        else:
            owner.outbox.write(data)
        assert owner.outbox.size_bytes() == len(wanted)
    assert owner.outbox.take_all() == wanted
    assert owner.outbox.size_bytes() == 0
    assert owner.outbox.take_all() == b""


def test_a_large_part_alone_is_passed_on_as_it_is() -> None:
    owner = Owner(OutboxPool(ManualWakeup()))
    data = bytes(LARGE)
    owner.outbox.write(data)
    assert owner.outbox.take_all() is data


def test_the_loop_is_asked_once_however_many_write() -> None:
    wakeup = ManualWakeup()
    pool = OutboxPool(wakeup)
    owners = [Owner(pool) for _ in range(3)]
    for owner in owners * 5:
        owner.outbox.write(b"x")
    assert wakeup.requests == 1
    pool.flush()
    assert [owner.writes for owner in owners] == [[b"xxxxx"]] * 3
    owners[0].outbox.write(b"y")
    assert wakeup.requests == 2


def test_what_is_written_while_others_are_flushed_leaves_in_the_same_flush() -> None:
    pool = OutboxPool(ManualWakeup())
    second = Owner(pool)

    class First(Owner):
        def flush(self) -> None:
            super().flush()
            second.outbox.write(b"answer")

    first = First(pool)
    first.outbox.write(b"question")
    pool.flush()
    assert second.writes == [b"answer"]


def test_builders_are_used_again_but_not_those_that_grew_large() -> None:
    pool = OutboxPool(ManualWakeup())
    one, other = Owner(pool), Owner(pool)
    small = one.outbox.open()
    one.outbox.write(b"x")
    pool.flush()
    assert other.outbox.open() is small
    for _ in range(KEEP // 1000 + 10):
        other.outbox.write(bytes(1000))
    pool.flush()
    assert one.outbox.open() is not small
    assert one.outbox.take_all() == b""


def test_a_builder_that_comes_back_is_empty() -> None:
    pool = OutboxPool(ManualWakeup())
    one, other = Owner(pool), Owner(pool)
    one.outbox.write(b"secret of one")
    one.outbox.take_all()
    other.outbox.write(b"x")
    assert other.outbox.take_all() == b"x"


@pytest.mark.parametrize("at", [0, 1, 2])
def test_one_that_fails_to_flush_keeps_nobody_from_flushing(at: int) -> None:
    pool = OutboxPool(ManualWakeup())
    owners = [Owner(pool) for _ in range(3)]
    owners[at].fault = ValueError("ours")
    for _ in range(2):
        for owner in owners:
            owner.outbox.write(b"x")
        pool.flush()
    assert [len(owner.writes) for owner in owners] == [0 if number == at else 2 for number in range(3)]
    assert len(owners[at].errors) == 2


def test_very_many_connections_are_written_to_over_several_turns_in_order() -> None:
    wakeup = ManualWakeup()
    pool = OutboxPool(wakeup)
    owners = [Owner(pool) for _ in range(2 * int(FLUSHES_PER_TURN) + 10)]
    for owner in owners:
        owner.outbox.write(b"x")
    for turn in (1, 2):
        asked = wakeup.requests
        pool.flush()
        assert sum(len(owner.writes) for owner in owners) == turn * FLUSHES_PER_TURN
        assert owners[turn * int(FLUSHES_PER_TURN) - 1].writes
        assert wakeup.requests == asked + 1  # there is more
    asked = wakeup.requests
    pool.flush()
    assert all(owner.writes == [b"x"] for owner in owners)
    assert wakeup.requests == asked


class SlowOwner(Owner):
    """Takes its time to be written to."""

    def __init__(self, pool: OutboxPool, time_ns: list[int], took_ns: int) -> None:
        super().__init__(pool)
        self.time_ns = time_ns
        self.took_ns = took_ns

    def flush(self) -> None:
        super().flush()
        self.time_ns[0] += self.took_ns


def slow_pool(count: int) -> tuple[OutboxPool, list[SlowOwner], list[int]]:
    time_ns = [1]
    pool = OutboxPool(ManualWakeup(), lambda: time_ns[0])
    owners = [SlowOwner(pool, time_ns, int(FLUSH_NS) // 2) for _ in range(count)]
    for owner in owners:
        owner.outbox.write(b"x")
    return pool, owners, time_ns


def test_a_turn_writes_for_a_bounded_time_and_to_a_few_connections_at_least() -> None:
    pool, owners, _ = slow_pool(20)
    for turn in (1, 2):
        pool.flush()
        assert sum(len(owner.writes) for owner in owners) == turn * FLUSHES_PER_LOOK
        assert pool.is_behind()
    pool.flush()
    assert [owner.writes for owner in owners] == [[b"x"]] * 20
    assert not pool.is_behind()


def test_who_has_something_to_send_later_goes_ahead_of_those_that_are_left_from_turns_before() -> None:
    pool, owners, time_ns = slow_pool(40)
    pool.flush()
    late = SlowOwner(pool, time_ns, 0)
    late.outbox.write(b"answer")
    pool.flush()
    assert late.writes == [b"answer"]
    assert sum(len(owner.writes) for owner in owners) == 2 * FLUSHES_PER_LOOK


def test_what_a_connection_adds_while_it_is_left_for_a_later_turn_goes_with_the_rest_in_order() -> None:
    pool, owners, _ = slow_pool(20)
    pool.flush()
    owners[-1].outbox.write(b"y")
    while pool.is_behind():
        pool.flush()
    assert owners[-1].writes == [b"xy"]
