"""A file that a person names on the command line, read whole; one that cannot be is told in a sentence."""

from __future__ import annotations

from pathlib import Path

from millstream.commands.outcome import CommandFailed, ExitCode
from millstream.config.bounded_file import read_bounded


def read_input(file: Path, size_max: int, code: ExitCode = ExitCode.USAGE) -> bytes:
    try:
        return read_bounded(file, size_max)
    except OSError as error:
        raise CommandFailed(code, f"{file} cannot be read: {error.strerror}.") from None
