"""Tables for people."""

from __future__ import annotations

import pytest

from millstream.commands.output import DRAWN_MAX, Output, print_rows

COLUMNS = ("name", "handed_out")


def table_of(count: int, capsys: pytest.CaptureFixture[str]) -> list[str]:
    names = ["日本語", "a\tb", *[f"queue-{number}" for number in range(count - 2)]]
    print_rows([{"name": name, "handed_out": None} for name in names], COLUMNS, Output.TABLE)
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


def test_a_table_of_very_many_rows_looks_like_any_other(capsys: pytest.CaptureFixture[str]) -> None:
    small = table_of(DRAWN_MAX, capsys)
    large = table_of(DRAWN_MAX + 1, capsys)
    assert len(large) == len(small) + 1 == DRAWN_MAX + 2
    assert [line.split() for line in large[:-1]] == [line.split() for line in small]
    assert {line.rindex("-") for line in small[3:]} == {line.rindex("-") for line in large[3:-1]}
