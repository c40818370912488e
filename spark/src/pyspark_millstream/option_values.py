"""Texts of options to values: numbers, sizes, times, yes and no, and bounds as Spark's Kafka source writes them."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

from pyspark_millstream.errors import OptionError

EARLIEST_MARK: Final = -2  # the numbers of Spark's Kafka source
LATEST_MARK: Final = -1
OFFSET_MAX: Final = (1 << 63) - 1
MILLISECONDS_MAX: Final = 253_402_300_799_999  # the last of the year 9999
PARTITION: Final = "0"  # a queue has one

_SIZE_UNITS: Final = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_TIME_UNITS: Final = {"ms": 0.001, "s": 1.0, "": 0.001, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_SIZE: Final = re.compile(r"([0-9]{1,18})\s*([kmgt]?)i?b?\Z", re.IGNORECASE)
_TIME: Final = re.compile(r"([0-9]{1,12})\s*([a-z]*)\Z", re.IGNORECASE)


class BoundKind(Enum):
    """Where a read begins or ends."""

    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSETS = "offsets"
    TIMESTAMPS = "timestamps"


@dataclass(frozen=True)
class Bound:
    """One end of what is read. `numbers`: offsets or milliseconds by queue; `everywhere`: one time for all queues."""

    kind: BoundKind
    option: str
    numbers: tuple[tuple[str, int], ...] = ()
    everywhere: int | None = None

    def number_of(self, queue: str) -> int | None:
        return self.everywhere if self.everywhere is not None else dict(self.numbers).get(queue)


def wrong(name: str, value: str, expected: str) -> OptionError:
    shown = value if len(value) <= 80 else value[:77] + "..."
    return OptionError(f'the option {name} cannot be "{shown}"', f"It takes {expected}.")


def boolean(name: str, value: str) -> bool:
    lowered = value.strip().lower()
    if lowered not in ("true", "false"):
        raise wrong(name, value, "true or false")
    return lowered == "true"


def number(name: str, value: str, least: int = 1, most: int = OFFSET_MAX) -> int:
    text = value.strip()
    if re.fullmatch(r"[0-9]{1,19}", text) is None or not least <= int(text) <= most:
        raise wrong(name, value, f"a whole number from {least} to {most}")
    return int(text)


def size_bytes(name: str, value: str) -> int:
    match = _SIZE.match(value.strip())
    size = int(match[1]) * _SIZE_UNITS[match[2].lower()] if match else 0
    if not 1 <= size <= OFFSET_MAX:
        raise wrong(name, value, "a number of bytes, such as 67108864, 64m or 1g")
    return size


def duration_s(name: str, value: str) -> float:
    match = _TIME.match(value.strip())
    if match is None or match[2].lower() not in _TIME_UNITS:
        raise wrong(name, value, "a time, such as 500ms, 90s, 15m or 1h")
    return int(match[1]) * _TIME_UNITS[match[2].lower()]


def choice(name: str, value: str, allowed: tuple[str, ...]) -> str:
    lowered = value.strip().lower()
    if lowered not in allowed:
        raise wrong(name, value, " or ".join(allowed))
    return lowered


def names(name: str, value: str) -> tuple[str, ...]:
    """Names split by commas, or a JSON list of them; each once."""
    text = value.strip()
    if text.startswith("["):
        found = _parsed(name, value, 'names split by commas, or a JSON list such as ["a", "b"]')
        if not isinstance(found, list) or not all(isinstance(item, str) and item for item in found):
            raise wrong(name, value, 'names split by commas, or a JSON list such as ["a", "b"]')
    else:
        found = [part.strip() for part in text.split(",")]
        if not all(found):
            raise wrong(name, value, "names split by commas")
    if len(set(found)) != len(found):
        raise OptionError(f"the option {name} has a name twice", "Name each once.")
    return tuple(found)


def offsets_bound(name: str, value: str, words: tuple[str, ...], least: int) -> Bound:
    """`earliest`, `latest`, or JSON with a number for each queue. `least`: the lowest mark that is allowed."""
    lowered = value.strip().lower()
    if lowered in words:
        return Bound(BoundKind(lowered), name)
    expected = f'{" or ".join(words)}, or JSON such as {{"readings": 1000}}'
    if not lowered.startswith("{"):
        raise wrong(name, value, expected)
    numbers = _numbers_by_queue(name, value, expected, least, OFFSET_MAX)
    return Bound(BoundKind.OFFSETS, name, numbers)


def timestamps_bound(name: str, value: str) -> Bound:
    expected = 'JSON such as {"readings": 1760000000000}, milliseconds since 1970'
    return Bound(BoundKind.TIMESTAMPS, name, _numbers_by_queue(name, value, expected, 0, MILLISECONDS_MAX))


def timestamp_bound(name: str, value: str) -> Bound:
    return Bound(BoundKind.TIMESTAMPS, name, everywhere=number(name, value, 0, MILLISECONDS_MAX))


def _numbers_by_queue(
    name: str, value: str, expected: str, least: int, most: int
) -> tuple[tuple[str, int], ...]:
    found = _parsed(name, value, expected)
    if not isinstance(found, dict) or not found:
        raise wrong(name, value, expected)
    numbers: list[tuple[str, int]] = []
    for queue, inner in found.items():
        if isinstance(inner, dict):
            if set(inner) != {PARTITION}:
                raise OptionError(
                    f'the option {name} names partitions of "{queue}" that do not exist',
                    f'A queue has the one partition 0: {{"{queue}": {{"0": 1000}}}}.',
                )
            inner = inner[PARTITION]
        if type(inner) is not int or not least <= inner <= most:
            raise wrong(name, value, expected)
        numbers.append((queue, inner))
    return tuple(sorted(numbers))


def _parsed(name: str, value: str, expected: str) -> object:
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        raise wrong(name, value, expected) from None
