"""A campaign that is measured in pieces ends with one file of results."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.suite.merged_rows import (
    choose_names,
    find_missing,
    format_minutes,
    merge_rows,
    read_rows,
)

ORDER = ["a", "b", "c", "d"]


def test_rows_of_a_later_piece_replace_those_of_their_name_and_keep_the_order() -> None:
    before = [{"name": "d", "value": 1}, {"name": "b", "value": 1}, {"name": "gone", "value": 1}]
    now = [{"name": "b", "value": 2}, {"name": "a", "value": 2}]
    merged = merge_rows(before, now, ORDER)
    assert merged == [{"name": "a", "value": 2}, {"name": "b", "value": 2}, {"name": "d", "value": 1}]
    assert find_missing(merged, ORDER) == ["c"]


def test_a_file_that_is_missing_or_of_another_kind_has_no_rows(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    assert read_rows(file, "rows") == []
    for text in ("", "[]", '{"rows": 3}', '{"other": []}'):
        file.write_text(text)
        assert read_rows(file, "rows") == []
    file.write_text(json.dumps({"rows": [{"name": "a"}]}))
    assert read_rows(file, "rows") == [{"name": "a"}]


def test_a_run_begins_where_it_is_told_to_and_takes_only_what_it_is_told_to() -> None:
    assert choose_names(ORDER, [], "") == ORDER
    assert choose_names(ORDER, [], "c") == ["c", "d"]
    assert choose_names(ORDER, ["d", "a"], "") == ["a", "d"]
    assert choose_names(ORDER, ["d", "a"], "b") == ["d"]
    with pytest.raises(ValueError, match="there is no x"):
        choose_names(ORDER, [], "x")


def test_minutes_are_told_in_minutes_and_seconds() -> None:
    assert [format_minutes(seconds) for seconds in (3.4, 59.7, 125.0)] == ["3 s", "1 min 00 s", "2 min 05 s"]
