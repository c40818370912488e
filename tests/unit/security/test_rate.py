"""Token buckets and failure counts, moved by a clock of the test's own."""

from __future__ import annotations

import random

import pytest

from millstream.security.rate import Bucket, BucketTable, FailureTable, address_key

SECOND_NS = 1_000_000_000
START_NS = 5 * SECOND_NS


def test_a_burst_is_granted_and_then_the_rate_holds() -> None:
    bucket = Bucket(10.0, 5)
    assert [bucket.take(1, START_NS) for _ in range(7)] == [True] * 5 + [False] * 2
    later = START_NS + SECOND_NS // 10
    assert bucket.take(1, later)
    assert not bucket.take(1, later)
    assert not bucket.take(1, later + SECOND_NS // 10 - 1)
    assert bucket.take(1, later + SECOND_NS // 10)


def test_a_refused_take_costs_nothing() -> None:
    bucket = Bucket(1.0, 3)
    assert not bucket.take(4, START_NS)
    assert bucket.take(3, START_NS)
    for _ in range(100):
        assert not bucket.take(1, START_NS)
    assert bucket.take(1, START_NS + SECOND_NS)


def test_an_idle_bucket_fills_up_to_its_burst_and_no_further() -> None:
    bucket = Bucket(100.0, 4)
    assert bucket.take(4, START_NS)
    much_later = START_NS + 3600 * SECOND_NS
    assert not bucket.take(5, much_later)
    assert bucket.take(4, much_later)
    assert not bucket.take(1, much_later)


@pytest.mark.parametrize("rate", [0.0, -1.0])
def test_a_rate_of_zero_is_no_limit(rate: float) -> None:
    assert Bucket(rate, 1).take(1_000_000, START_NS)
    assert Bucket(rate, 1).charge(1_000_000, START_NS) == 0
    table = BucketTable(rate, 1)
    assert table.take("a", 1_000_000, START_NS)
    assert len(table) == 0


def test_a_charge_is_always_granted_and_says_how_long_to_wait() -> None:
    bucket = Bucket(10.0, 5)
    assert bucket.charge(5, START_NS) == 0
    assert bucket.charge(20, START_NS) == 2 * SECOND_NS
    assert not bucket.take(1, START_NS + 2 * SECOND_NS)
    assert bucket.charge(1, START_NS + 2 * SECOND_NS + SECOND_NS // 10) == 0


def test_over_any_time_no_more_than_burst_and_rate_are_granted() -> None:
    chance = random.Random(7)
    for _ in range(50):
        rate, burst = chance.choice([0.5, 3.0, 1000.0]), chance.randint(1, 20)
        bucket = Bucket(rate, burst)
        now_ns, granted = START_NS, 0
        for _ in range(200):
            now_ns += chance.randint(0, int(2 * SECOND_NS / rate))
            count = chance.randint(1, 4)
            granted += count if bucket.take(count, now_ns) else 0
        assert granted <= burst + rate * (now_ns - START_NS) / SECOND_NS + 1e-3


def test_keys_of_a_table_do_not_share_tokens() -> None:
    table = BucketTable(1.0, 1)
    assert table.take("a", 1, START_NS)
    assert not table.take("a", 1, START_NS)
    assert table.take("b", 1, START_NS)


def test_a_table_forgets_idle_keys_by_itself() -> None:
    table = BucketTable(1.0, 1)
    for number in range(100):
        table.take(str(number), 1, START_NS)
    assert len(table) == 100
    table.take("new", 1, START_NS + 60 * SECOND_NS)
    assert len(table) == 1


def test_a_sweep_keeps_keys_that_still_owe() -> None:
    table = BucketTable(1.0, 5)
    table.take("idle", 1, START_NS)
    table.take("busy", 5, START_NS)
    assert table.sweep(START_NS + 2 * SECOND_NS) == 1
    assert not table.take("busy", 5, START_NS + 2 * SECOND_NS)


def test_a_table_never_grows_beyond_its_bound() -> None:
    table = BucketTable(1.0, 1, keys_max=10)
    for number in range(1000):
        assert table.take(str(number), 1, START_NS)
        assert len(table) <= 10
    assert not table.take("999", 1, START_NS)


def test_failures_block_a_key_until_its_window_ends() -> None:
    table = FailureTable(3, SECOND_NS, 10)
    key = ("anna", "10.0.0.1")
    for _ in range(3):
        assert not table.is_blocked(key, START_NS)
        table.add(key, START_NS)
    assert table.is_blocked(key, START_NS + SECOND_NS - 1)
    assert not table.is_blocked(("anna", "10.0.0.2"), START_NS)
    assert not table.is_blocked(key, START_NS + SECOND_NS)
    assert len(table) == 0


def test_failures_further_apart_than_the_window_do_not_add_up() -> None:
    table = FailureTable(2, SECOND_NS, 10)
    for number in range(20):
        table.add(("anna", ""), START_NS + number * SECOND_NS)
        assert not table.is_blocked(("anna", ""), START_NS + number * SECOND_NS)


def test_the_failure_table_is_bounded_and_drops_the_oldest_window() -> None:
    table = FailureTable(1, SECOND_NS, 3)
    for name in ("a", "b", "c", "d"):
        table.add((name, ""), START_NS)
    assert len(table) == 3
    assert [table.is_blocked((name, ""), START_NS) for name in ("a", "b", "c", "d")] == [
        False,
        True,
        True,
        True,
    ]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("2001:db8:0:1::1", "2001:db8:0:1:ffff::2", True),
        ("2001:db8:0:1::1", "2001:db8:0:2::1", False),
        ("not:an:address", "not:an:address", True),
    ],
)
def test_an_address_stands_for_one_peer(one: str, other: str, same: bool) -> None:
    assert (address_key(one) == address_key(other)) is same
