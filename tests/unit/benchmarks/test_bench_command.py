"""What every benchmark command does before it measures."""

from __future__ import annotations

import argparse
import io
import shutil
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.mqtt_suite.runner import parse_arguments
from benchmarks.suite.command import run_command
from benchmarks.suite.plan import has_room, make_parser, parse_with


def must_not_measure(parsed: argparse.Namespace, cores: list[int], console: Console) -> int:
    raise AssertionError("nothing was to be measured")


def test_a_list_of_the_scenarios_measures_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    parsed = parse_arguments(["--list"])
    assert run_command(parsed, ["first", "second"], 80, must_not_measure) == 0
    assert capsys.readouterr().out.split() == ["first", "second"]


def test_a_benchmark_without_a_core_of_its_own_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {3})
    assert run_command(parse_arguments([]), [], 120, must_not_measure) == 2
    assert "needs two cores" in capsys.readouterr().out


def test_what_was_measured_decides_how_the_command_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {5, 2})
    seen: list[list[int]] = []

    def measure(parsed: argparse.Namespace, cores: list[int], console: Console) -> int:
        seen.append(cores)
        return 1

    assert run_command(parse_arguments([]), [], 120, measure) == 1
    assert seen == [[2, 5]]


def test_a_benchmark_of_no_brokers_has_no_options_for_them() -> None:
    parser = make_parser("own", "Measure.", "one", ["one", "two"], (), "short")
    parsed = parse_with(parser, ["--scenario", "two", "--quick", "--check"], ())
    assert vars(parsed) == {"scenario": ["two"], "rounds": 0, "quick": True, "check": True, "list": False}


def test_who_lacks_room_is_told_how_much_and_what_to_ask_for(tmp_path: Path) -> None:
    out = io.StringIO()
    console = Console(file=out, width=400)
    free_bytes = shutil.disk_usage(tmp_path).free
    assert has_room(tmp_path, 1, "This", "fewer --rows", console)
    assert out.getvalue() == ""
    assert not has_room(tmp_path, free_bytes + 2**50, "This", "fewer --rows", console)
    assert out.getvalue().startswith("This needs 10")
    assert out.getvalue().endswith("GiB are free; choose another --folder, or fewer --rows.\n")
