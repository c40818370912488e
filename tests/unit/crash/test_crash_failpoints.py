"""The crash harness finds the failpoints in the source by itself, and knows how to get to each of them."""

from __future__ import annotations

from crash.failpoints import COUNTS, PARTS, WAYS, Tally, find_names, make_table


def test_the_failpoints_of_log_and_checkpoint_are_found() -> None:
    names = find_names()
    assert {"log.before_write", "log.after_sync", "checkpoint.before_commit", "segment.after_write"} <= set(
        names
    )
    assert names == sorted(set(names))
    assert len([name for name in names if name.partition(".")[0] in PARTS]) >= 40


def test_every_name_the_harness_speaks_of_is_in_the_source() -> None:
    assert set(COUNTS) | set(WAYS) | {place for place, _ in WAYS.values()} <= set(find_names())


def test_a_place_that_was_not_reached_often_enough_is_named() -> None:
    tally = Tally(["log.after_sync", "log.after_write"], 2)
    tally.note("log.after_sync", 2, "broker")
    tally.note("log.after_write", 1, "broker")
    tally.note("segment.before_sync", 1, "checkpoint")  # on the way to another
    assert tally.missing() == ["log.after_write"]
    marked = [line.split()[0] for line in make_table(tally) if "not reached" in line]
    assert marked == ["log.after_write"]
