"""Offsets and tasks of the Spark source: pure functions, so whatever is given again gives the same."""

from __future__ import annotations

import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_millstream.client import QueueState
from pyspark_millstream.errors import CheckpointError
from pyspark_millstream.offsets import (
    Backlog,
    RecordRange,
    admitted,
    backlogs,
    place_from,
    ranges,
    shares,
    stored,
)
from pyspark_millstream.options import SourceOptions, read_options

NAMES = st.text(min_size=1, max_size=8)
PLACES = st.dictionaries(NAMES, st.integers(0, 10**9), max_size=6)


def with_options(**options: str) -> SourceOptions:
    return read_options({"uri": "http://h", "queues": "a", **options})


def spans(parts: list[RecordRange]) -> list[tuple[str, int, int]]:
    return [(part.queue, part.first, part.end) for part in parts]


@given(PLACES)
def test_a_place_survives_being_kept_and_its_text_does_not_depend_on_order(place: dict[str, int]) -> None:
    text = json.dumps(stored(place))
    assert place_from(json.loads(text)) == place
    assert json.dumps(stored(dict(reversed(place.items())))) == text


@pytest.mark.parametrize(
    "kept",
    [
        None,
        [],
        "text",
        {"a": 5},
        {"a": {}},
        {"a": {"0": -1}},
        {"a": {"0": True}},
        {"a": {"0": 1 << 63}},
        {"a": {"0": 1, "1": 2}},
        {"a": {"1": 1}},
    ],
)
def test_an_offset_that_is_not_ours_is_refused_in_one_sentence(kept: object) -> None:
    with pytest.raises(CheckpointError) as caught:
        place_from(kept)
    assert str(caught.value).startswith(
        "the checkpoint of this query holds an offset that millstream did not"
    )
    assert "checkpointLocation" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_range_is_one_task_unless_it_is_long() -> None:
    options = with_options(rowsPerPartition="100")
    assert spans(ranges({"a": 5}, {"a": 105}, options)) == [("a", 5, 105)]
    assert spans(ranges({"a": 5}, {"a": 106}, options)) == [("a", 5, 55), ("a", 55, 106)]


def test_what_is_equal_at_both_ends_gives_no_task() -> None:
    assert ranges({"a": 5, "b": 1}, {"a": 5, "b": 1}, with_options()) == []


def test_at_least_so_many_tasks_are_made_of_the_longest_queues() -> None:
    parts = ranges({"a": 0, "b": 0}, {"a": 900, "b": 100}, with_options(minPartitions="10"))
    assert len(parts) == 10
    assert [part.queue for part in parts].count("a") == 9
    assert len(ranges({"a": 0}, {"a": 3}, with_options(minPartitions="10"))) == 3


def test_a_queue_that_came_later_is_read_from_its_first_record() -> None:
    parts = ranges({"a": 5}, {"a": 5, "new": 7}, with_options())
    assert spans(parts) == [("new", 0, 7)]
    assert parts[0].may_begin_later


def test_a_queue_that_was_made_anew_is_read_from_its_first_record() -> None:
    parts = ranges({"a": 1000}, {"a": 7}, with_options())
    assert spans(parts) == [("a", 0, 7)]
    assert parts[0].may_begin_later


@given(PLACES, PLACES, st.integers(1, 10), st.integers(1, 10**9))
def test_tasks_cover_every_record_once_and_are_the_same_again(
    start: dict[str, int], lengths: dict[str, int], least: int, rows: int
) -> None:
    end = {queue: start.get(queue, 0) + min(length, rows * 50) for queue, length in lengths.items()}
    options = with_options(minPartitions=str(least), rowsPerPartition=str(rows))
    # Bounded, so that a long queue does not make a list of millions.
    start = {queue: max(start.get(queue, 0), end[queue] - rows * 50) for queue in end}
    parts = ranges(start, end, options)
    assert ranges(start, end, options) == parts
    for queue, last in end.items():
        edge = start[queue]
        for part in parts:
            if part.queue == queue:
                assert part.first == edge
                assert 0 < part.end - part.first <= rows
                edge = part.end
        assert edge == last
    total = sum(end[queue] - start[queue] for queue in end)
    assert len(parts) >= min(least, total)


def test_a_task_travels() -> None:
    part = RecordRange("a", 1, 2, True)
    assert pickle.loads(pickle.dumps(part)) == part


@given(st.lists(st.integers(0, 10**6), max_size=8), st.integers(1, 10**6))
def test_shares_keep_to_the_limit_and_starve_nobody(sizes: list[int], limit: int) -> None:
    given = shares(sizes, limit)
    assert sum(given) <= limit
    assert all(0 <= one <= size for one, size in zip(given, sizes, strict=True))
    if sum(sizes) <= limit:
        assert given == sizes
    busy = [size for size in sizes if size]
    if len(busy) <= limit:
        assert all(one > 0 for one, size in zip(given, sizes, strict=True) if size)
    elif busy:
        assert sum(given) == limit


def test_shares_are_in_proportion() -> None:
    assert shares([900, 100], 100) == [90, 10]


def test_a_limit_of_rows_and_one_of_bytes_hold_together() -> None:
    waiting = [Backlog("a", 0, 1000, 10.0), Backlog("b", 50, 1050, 1000.0)]
    assert admitted(waiting, None, None) == {"a": 1000, "b": 1050}
    assert admitted(waiting, 100, None) == {"a": 50, "b": 100}
    both = admitted(waiting, 100, 1010)
    assert both["a"] - 0 < 50
    assert both["b"] - 50 == 1
    assert admitted(waiting, 100, 10**9) == {"a": 50, "b": 100}


def test_a_limit_smaller_than_a_record_still_moves() -> None:
    assert admitted([Backlog("a", 3, 10, 5000.0)], None, 1) == {"a": 4}


def test_what_waits_begins_at_what_is_still_there() -> None:
    states = {
        "a": QueueState("a", 100, 200, 100, 1000),
        "b": QueueState("b", 5, 50, 45, 0),
        "c": QueueState("c", 0, 0, 0, 0),
    }
    ends = {name: state.end for name, state in states.items()}
    found = {backlog.queue: backlog for backlog in backlogs({"a": 50, "c": 0}, states, ends)}
    assert (found["a"].first, found["a"].rows, found["a"].record_bytes) == (100, 100, 10.0)
    assert (found["b"].first, found["b"].rows) == (5, 45)
    assert found["c"].rows == 0
    assert backlogs({"a": 500}, states, {"a": 200})[0].first == 100
