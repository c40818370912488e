"""Results on standard output: a table for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Final

import typer


class Output(StrEnum):
    TABLE = "table"
    JSON = "json"


DRAWN_MAX: Final = 1000  # rows; a table of more is written line by line, which takes a hundredth of the time

OutputOption = Annotated[Output, typer.Option("--output", "-o", help="Form of the result.")]


def print_json(value: object) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False, default=str))


def print_line(value: object) -> None:
    """One JSON document on one line, at once, for programs that read along."""
    print(json.dumps(value, ensure_ascii=False, default=str), flush=True)


def print_rows(rows: Sequence[Mapping[str, object]], columns: Sequence[str], output: Output) -> None:
    """The same rows as a table of `columns`, or whole as JSON."""
    if output is Output.JSON:
        print_json(list(rows))
        return
    if len(rows) > DRAWN_MAX:
        print_plain([[_cell(row.get(column)) for column in columns] for row in rows], columns)
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column.replace("_", " "), overflow="fold")
    for row in rows:
        table.add_row(*(Text(_cell(row.get(column))) for column in columns))
    # A pipe has no width; lines must not be broken there.
    width = None if sys.stdout.isatty() else 10_000
    Console(width=width, highlight=False, soft_wrap=not sys.stdout.isatty()).print(table)


def print_plain(rows: Sequence[Sequence[str]], columns: Sequence[str]) -> None:
    """The same columns without regard to the width of the terminal."""
    lines = [[column.replace("_", " ") for column in columns]]
    lines += [[text if text.isprintable() else _make_printable(text) for text in row] for row in rows]
    widths = [0] * len(columns)
    for line in lines:
        for at, text in enumerate(line):
            widths[at] = max(widths[at], _width(text))
    for line in lines:
        padded = [text + " " * (width - _width(text)) for text, width in zip(line, widths, strict=True)]
        print("  ".join(padded))


def _width(text: str) -> int:
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _make_printable(text: str) -> str:
    return "".join([character if character.isprintable() else " " for character in text])


def print_result(result: object, sentence: str, output: Output) -> None:
    """What was done, in a sentence or whole as JSON."""
    if output is Output.JSON:
        print_json(result)
    else:
        print(sentence)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
