"""What is published, as a person names it: on the command line, in a file, or line by line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from millstream.commands.input_file import read_input
from millstream.commands.outcome import CommandFailed, ExitCode

FILE_SIZE_MAX: Final = 256 * 1024 * 1024  # no message can be larger

MessageArgument = Annotated[str | None, typer.Argument(metavar="[MESSAGE]", help="Payload, as text.")]
FileOption = Annotated[Path | None, typer.Option(metavar="FILE", help="Payload from a file.")]
LinesOption = Annotated[
    bool, typer.Option("--lines", "-l", help="Publish every line of standard input as a message.")
]
PropertyOption = Annotated[
    list[str] | None,
    typer.Option("--property", "-P", metavar="NAME=VALUE", help="User property; may be repeated."),
]


def read_payload(file: Path) -> bytes:
    return read_input(file, FILE_SIZE_MAX)


def parse_properties(pairs: list[str]) -> list[tuple[str, str]]:
    found = []
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise CommandFailed(ExitCode.USAGE, f"--property {pair}: write NAME=VALUE.")
        found.append((name, value))
    return found
