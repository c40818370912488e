"""What a pipeline says of itself while it runs, from the reports of Spark."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from pyspark_millstream.pipelines.progress import STATUS_BYTES_MAX, QueryPace, StatusFile, lag_of, status_line
from pyspark_millstream.pipelines.run import EndAsked, Ending


def report(second: int, rows: int, read: int, newest: int, dropped: int = 0) -> dict[str, object]:
    source = {"endOffset": {"q": {"0": read}}, "latestOffset": {"q": {"0": newest}}}
    return {
        "timestamp": f"2026-11-15T08:00:{second:02}.000Z",
        "batchId": second,
        "numInputRows": rows,
        "processedRowsPerSecond": 50.0,
        "sources": [source],
        "stateOperators": [{"numRowsDroppedByWatermark": dropped}],
    }


def test_the_end_is_estimated_from_how_the_lag_shrinks() -> None:
    pace = QueryPace("q")
    pace.take(report(0, 100, 100, 1100), 0.0)
    pace.take(report(10, 300, 400, 1200), 10.0)  # the queue grew while 300 were read
    assert (pace.rows, pace.lag) == (400, 800)
    assert pace.rate == pytest.approx(30.0)
    assert pace.end_in_s == pytest.approx(40.0)


def test_a_lag_that_grows_has_no_end() -> None:
    pace = QueryPace("q")
    pace.take(report(0, 100, 100, 200), 0.0)
    pace.take(report(10, 100, 200, 500), 10.0)
    assert pace.end_in_s is None
    assert pace.line()["end_in_s"] is None


def test_a_query_that_has_caught_up_ends_now() -> None:
    pace = QueryPace("q")
    pace.take(report(0, 100, 100, 100), 0.0)
    assert pace.end_in_s == 0.0
    assert pace.rate == 50.0, "of one batch only Spark knows the rate"


def test_a_report_that_was_seen_is_not_counted_again() -> None:
    pace = QueryPace("q")
    for _ in range(3):
        pace.take(report(1, 100, 100, 100, dropped=2), 1.0)
    pace.take(report(0, 100, 100, 100), 2.0)
    assert (pace.rows, pace.dropped) == (100, 2)


def test_of_a_query_that_hands_over_the_records_count_and_not_the_ranges() -> None:
    def handed(second: int, ranges: int, read: int, newest: int, so_far: int) -> dict[str, object]:
        told = report(second, ranges, read, newest)
        newest_place = {"q": {"0": newest, "handed": so_far}}
        return {**told, "sources": [{"endOffset": {"q": {"0": read}}, "latestOffset": newest_place}]}

    pace = QueryPace("q")
    pace.take(handed(0, 2, 100, 1100, 100), 0.0)
    assert (pace.rows, pace.lag, pace.rate) == (100, 1000, 2500.0), "50 ranges a second of 50 records each"
    pace.take(handed(10, 2, 400, 1200, 400), 10.0)
    assert (pace.rows, pace.lag) == (400, 800)
    assert pace.rate == pytest.approx(30.0)
    assert pace.end_in_s == pytest.approx(40.0)
    pace.take(report(11, 0, 400, 1200), 11.0)  # nothing to do: Spark made its source anew
    assert pace.rows == 400


def test_lag_is_summed_over_queues_and_taken_from_text_as_well() -> None:
    newest = json.dumps({"a": {"0": 10}, "b": {"0": 7}})
    assert lag_of({"endOffset": {"a": {"0": 4}, "b": {"0": 7}}, "latestOffset": newest}) == 6
    assert lag_of({"endOffset": {"a": {"0": 4}}, "latestOffset": None}) == 0
    assert lag_of({"endOffset": "no JSON", "latestOffset": '{"a": 3}'}) == 0


def test_a_pipeline_is_as_far_as_its_slowest_query() -> None:
    fast, slow = QueryPace("fast"), QueryPace("slow")
    fast.take(report(0, 100, 100, 100), 0.0)
    slow.take(report(0, 30, 30, 100), 0.0)
    line = status_line("running", "now", [fast, slow])
    assert (line["rows"], line["lag"]) == (30, 70)
    assert status_line("starting", "now", []) == {"state": "starting", "time": "now", "queries": []}


def test_the_status_file_never_grows_beyond_its_bound(tmp_path: Path) -> None:
    path = tmp_path / "status.jsonl"
    path.write_text("x" * (STATUS_BYTES_MAX + 1))
    status = StatusFile(path)
    status.write({"state": "running"})
    status.write({"state": "done"})
    assert [json.loads(line)["state"] for line in path.read_text().splitlines()] == ["running", "done"]


def test_a_batch_is_broken_off_where_it_is_and_a_stream_is_asked() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    end = Ending()
    try:
        end.listen()
        signal.raise_signal(signal.SIGTERM)
        assert end.is_asked
        with pytest.raises(EndAsked), end.breaking():
            pytest.fail("nothing begins after the end was asked for")
        end = Ending()
        end.listen()
        with pytest.raises(EndAsked), end.breaking():
            signal.raise_signal(signal.SIGINT)
        assert end.is_asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
