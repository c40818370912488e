"""The broker meets no error of its own whatever a connection sends; `./dev fuzz live` sends more of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz.live import run
from fuzz.live.conversations import MAKERS, make_numbered, read_script, write_script
from fuzz.live.generator import address_of, number_of

CONNECTIONS = 1500


def test_a_broker_under_conversations_that_are_nearly_right_fails_nobody(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code = run.main(["--connections", str(CONNECTIONS), "--seed", "13", "--keep", str(tmp_path)])
    printed = capsys.readouterr().out
    assert code == 0, printed
    assert "connection_failed: 0; other errors in the log: 0" in printed


def test_a_seed_and_a_number_make_the_same_connection_again(tmp_path: Path) -> None:
    protocols = list(MAKERS)
    for number in range(300):
        script = make_numbered(7, number, protocols)
        assert make_numbered(7, number, protocols) == script
        write_script(script, tmp_path / "script.json", seed=7)
        assert read_script(tmp_path / "script.json") == script


def test_a_fault_is_told_with_the_commands_that_make_it_again(tmp_path: Path) -> None:
    options = run.read_options(["--seed", "7", "--keep", str(tmp_path), "--protocol", "mqtt"])
    fault: dict[str, object] = {
        "event": "connection_failed",
        "address": address_of(123_456),
        "error": "AssertionError",
        "where": "here",
    }
    same_again = {**fault, "address": address_of(5)}
    run.keep_failing([fault, same_again], options, ["mqtt"])
    file = tmp_path / "seed-7-number-123456.json"
    assert fault["again"] == (
        "./dev fuzz live --seed 7 --first 123456 --connections 1 --protocol mqtt, "
        f"or: ./dev fuzz live --replay {file}"
    )
    assert read_script(file) == make_numbered(7, 123_456, ["mqtt"])
    assert "again" not in same_again
    other = {"event": "unexpected_output", "text": "Traceback"}
    assert run.group_faults([other, same_again, fault]) == [(fault, 2), (other, 1)]


def test_progress_is_read_from_counts_that_are_being_written(tmp_path: Path) -> None:
    (tmp_path / "generator-0").write_text('{"made": 1}\n{"made": 400, "answered": 3}\n{"mad')
    (tmp_path / "generator-1").write_text('{"made": 200}\n')
    (tmp_path / "generator-2").write_text("")
    made = run.sum_counts(tmp_path)["made"]
    assert made == 600
    told = run.tell_progress(made, 120_600, 1.0, 80.0, [{"event": "connection_failed"}, {"event": "other"}])
    assert told.startswith("600 of 120,600 connections, 600 a second, about 3 minutes left")
    assert told.endswith("connection_failed: 1")


def test_an_address_names_its_connection() -> None:
    assert [number_of(address_of(number)) for number in (0, 255, 256, 999_999)] == [0, 255, 256, 999_999]
    assert number_of("127.0.0.1") is None
    assert number_of("local") is None
