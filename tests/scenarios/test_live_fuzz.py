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


def test_an_address_names_its_connection() -> None:
    assert [number_of(address_of(number)) for number in (0, 255, 256, 999_999)] == [0, 255, 256, 999_999]
    assert number_of("127.0.0.1") is None
    assert number_of("local") is None
