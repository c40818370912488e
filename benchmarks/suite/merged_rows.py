"""Results that are measured in pieces: each row replaces the one of its name, the others stay, and all come in one order."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def read_rows(path: Path, key: str) -> list[Row]:
    """Of a run before; none when there is no such file, or it is not one of these."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    rows = found.get(key) if isinstance(found, dict) else None
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def merge_rows(before: Sequence[Row], now: Sequence[Row], order: Sequence[str]) -> list[Row]:
    """By their `name`, in the order of the names; a name that is no longer known goes."""
    latest = {row["name"]: row for row in (*before, *now) if "name" in row}
    return [latest[name] for name in order if name in latest]


def find_missing(rows: Sequence[Row], order: Sequence[str]) -> list[str]:
    measured = {row["name"] for row in rows}
    return [name for name in order if name not in measured]


def choose_names(names: Sequence[str], only: Sequence[str], first: str) -> list[str]:
    """Those asked for by `--only` (all without), from `--from` on. ValueError names what is not known."""
    for name in (*only, *([first] if first else [])):
        if name not in names:
            raise ValueError(f"there is no {name}; type --list to see all names")
    chosen = [name for name in names if name in only] if only else list(names)
    return [name for name in chosen if names.index(name) >= names.index(first)] if first else chosen


class Progress:
    """How far a run is, and how long the rest may take, judged by what is done."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0
        self._began = time.monotonic()

    def step(self) -> str:
        self._done += 1
        took = self.seconds()
        rest = took / self._done * (self._total - self._done)
        return f"{self._done} of {self._total} in {format_minutes(took)}, about {format_minutes(rest)} left"

    def seconds(self) -> float:
        return time.monotonic() - self._began


def format_minutes(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
