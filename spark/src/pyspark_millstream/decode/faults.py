"""What can be wrong with the options of decoding, and with one row.

Invariants
- A wrong option is one sentence, said where the data frame is made.
- A wrong row is never an exception that leaves a decoder: it is a reason in that row's `_error`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark_millstream.errors import OptionError

REASON_CHARACTERS_MAX: Final = 300
SHOWN_CHARACTERS_MAX: Final = 60


class DecodeOptionError(OptionError):
    """An option that says how payloads are decoded is missing or wrong."""


class RowError(ValueError):
    """Why one payload cannot be decoded."""


@dataclass(frozen=True)
class Fault:
    """A row of a batch that could not be decoded, and why."""

    row: int
    reason: str


def shorten(text: str, characters_max: int = SHOWN_CHARACTERS_MAX) -> str:
    """What a sentence can carry of a text from outside."""
    line = text.encode("utf-8", "replace").decode("utf-8").replace("\n", " ").replace("\r", " ")
    return line if len(line) <= characters_max else line[: characters_max - 3] + "..."
