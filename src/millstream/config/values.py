"""How a value may be written: whole numbers, sizes, durations, switches, choices, paths.

Invariants
- A parser takes what YAML, JSON, TOML, a variable or a flag can give and returns one canonical value.
- Anything it does not understand raises ValueError with the end of a sentence that begins with the key.
- `true` is never read as 1 and `1.5` never as 1.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BeforeValidator

from millstream.model.limits import NEVER_EXPIRES

TEXT_LENGTH_MAX: Final = 4096

SIZE_UNITS: Final[dict[str, int]] = {
    "": 1,
    "b": 1,
    "kb": 1000,
    "mb": 1000**2,
    "gb": 1000**3,
    "k": 1024,
    "m": 1024**2,
    "g": 1024**3,
    "kib": 1024,
    "mib": 1024**2,
    "gib": 1024**3,
}
DURATION_UNITS_MS: Final[dict[str, int]] = {
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
}
TRUE_WORDS: Final = ("true", "yes", "on", "1")
FALSE_WORDS: Final = ("false", "no", "off", "0")

_QUANTITY: Final = re.compile(r"(\d{1,18})(?:\.(\d{1,6}))?[ ]?([a-z]*)", re.ASCII)
MEMORY_LIMIT_MIN: Final = 64 * 1024**2

_PERCENT: Final = re.compile(r"(\d{1,3})[ ]?%", re.ASCII)
_WHOLE: Final = re.compile(r"[+-]?[\d_]{1,20}", re.ASCII)


def _split_quantity(text: str) -> tuple[int, str] | None:
    """(millionths, unit) of `1.5 MiB`; integers throughout, so that no size is rounded."""
    found = _QUANTITY.fullmatch(text.strip().lower())
    if found is None:
        return None
    whole, fraction, unit = found.groups()
    return int(whole) * 1_000_000 + int((fraction or "").ljust(6, "0")), unit


def parse_whole(value: object) -> int:
    if isinstance(value, bool):
        raise ValueError("must be a whole number, not a switch")
    if isinstance(value, int):
        return value
    if isinstance(value, str) and _WHOLE.fullmatch(value.strip()):
        return int(value)
    raise ValueError("must be a whole number")


def parse_size(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str):
        quantity = _split_quantity(value)
        if quantity is not None and quantity[1] in SIZE_UNITS:
            size, rest = divmod(quantity[0] * SIZE_UNITS[quantity[1]], 1_000_000)
            if rest == 0:
                return size
    raise ValueError('must be a size in bytes such as 65536, "64 KiB" or "1 MiB"')


def _parse_duration_ms(value: object, unit_ms: int, example: str) -> int:
    if isinstance(value, str):
        quantity = _split_quantity(value)
        if quantity is not None and (quantity[1] in DURATION_UNITS_MS or not quantity[1]):
            factor = DURATION_UNITS_MS[quantity[1]] if quantity[1] else unit_ms
            duration_ms, rest = divmod(quantity[0] * factor, 1_000_000)
            if rest == 0:
                return duration_ms
    elif isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e15:
        duration = value * unit_ms
        if duration == int(duration):
            return int(duration)
    raise ValueError(f"must be a duration such as {example}")


def parse_seconds(value: object) -> int:
    """Whole seconds; `never` is the value MQTT 5 uses for it."""
    if isinstance(value, str) and value.strip().lower() == "never":
        return NEVER_EXPIRES
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    duration_ms = _parse_duration_ms(value, 1000, '30, "30s", "5m" or "never"')
    if duration_ms % 1000:
        raise ValueError("must be a whole number of seconds")
    return duration_ms // 1000


def parse_fractional_seconds(value: object) -> float:
    return _parse_duration_ms(value, 1000, '10, "10s" or "250ms"') / 1000


def parse_milliseconds(value: object) -> int:
    return _parse_duration_ms(value, 1, '100, "100ms" or "2s"')


def parse_switch(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in TRUE_WORDS + FALSE_WORDS:
        return value.strip().lower() in TRUE_WORDS
    raise ValueError("must be true or false")


def parse_rate(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError("must be a number per second")
    try:
        rate = float(value)
    except (ValueError, OverflowError):
        raise ValueError("must be a number per second") from None
    if rate != rate or rate in (float("inf"), float("-inf")):
        raise ValueError("must be a finite number per second")
    return rate


def parse_text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("must be text (put it in quotes)")
    if len(value) > TEXT_LENGTH_MAX:
        raise ValueError(f"must not be longer than {TEXT_LENGTH_MAX} characters")
    if any(ord(character) < 32 for character in value):
        raise ValueError("must not contain control characters")
    return value


def parse_word(value: object) -> str:
    """One of a few words; the choice itself is checked by the field."""
    return parse_text(value).strip().lower()


def parse_path(value: object) -> Path:
    text = value if isinstance(value, Path) else parse_text(value)
    if not str(text).strip():
        raise ValueError("must name a file, not be empty")
    return Path(text)


def parse_overflow(value: object) -> str:
    """FluxMQ numbers these two ways of overflow; we name them and take both."""
    if value in (0, "0") and value is not False:
        return "backpressure"
    if value in (1, "1") and value is not True:
        return "pending"
    return parse_word(value)


def parse_memory_limit(value: object) -> str:
    """`60%`, or bytes as text; `0` for off."""
    if isinstance(value, str):
        text = value.strip().lower()
        if text in FALSE_WORDS:
            return "0"
        share = _PERCENT.fullmatch(text)
        if share is not None and 1 <= int(share[1]) <= 100:
            return f"{int(share[1])}%"
    elif value is False:
        return "0"
    try:
        size = parse_size(value)
    except ValueError:
        size = -1
    if size != 0 and size < MEMORY_LIMIT_MIN:
        raise ValueError('must be "off", a share such as "60%", or a size of at least 64 MiB such as "2 GiB"')
    return str(size)


def _is_null(value: object) -> bool:
    """An empty text is not null: a variable that was meant to name a file must not open the broker."""
    return value is None or (isinstance(value, str) and value.strip().lower() == "null")


def _optional_path(value: object) -> Path | None:
    return None if _is_null(value) else parse_path(value)


def _optional_text(value: object) -> str | None:
    return None if _is_null(value) else parse_text(value)


def _optional_size(value: object) -> int | None:
    return None if _is_null(value) else parse_size(value)


def _optional_whole(value: object) -> int | None:
    return None if _is_null(value) else parse_whole(value)


def _optional_rate(value: object) -> float | None:
    return None if _is_null(value) else parse_rate(value)


def _optional_milliseconds(value: object) -> int | None:
    return None if _is_null(value) else parse_milliseconds(value)


def _optional_word(value: object) -> str | None:
    return None if _is_null(value) else parse_word(value)


def _optional_switch(value: object) -> bool | None:
    return None if _is_null(value) else parse_switch(value)


def _optional_algorithm(value: object) -> str | None:
    return None if _is_null(value) else parse_text(value).strip()


def _text_list(value: object) -> list[str]:
    """A list, or one string with commas as a variable or a flag gives it."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    if not isinstance(value, list | tuple):
        raise ValueError("must be a list of texts")
    return [parse_text(part) for part in value]


Whole = Annotated[int, BeforeValidator(parse_whole)]
Size = Annotated[int, BeforeValidator(parse_size)]
Seconds = Annotated[int, BeforeValidator(parse_seconds)]
FractionalSeconds = Annotated[float, BeforeValidator(parse_fractional_seconds)]
Milliseconds = Annotated[int, BeforeValidator(parse_milliseconds)]
Switch = Annotated[bool, BeforeValidator(parse_switch)]
MemoryLimit = Annotated[str, BeforeValidator(parse_memory_limit)]
Rate = Annotated[float, BeforeValidator(parse_rate)]
Text = Annotated[str, BeforeValidator(parse_text)]
FilePath = Annotated[Path, BeforeValidator(parse_path)]
OptionalPath = Annotated[Path | None, BeforeValidator(_optional_path)]
OptionalText = Annotated[str | None, BeforeValidator(_optional_text)]
OptionalSize = Annotated[int | None, BeforeValidator(_optional_size)]
OptionalWhole = Annotated[int | None, BeforeValidator(_optional_whole)]
OptionalRate = Annotated[float | None, BeforeValidator(_optional_rate)]
OptionalMilliseconds = Annotated[int | None, BeforeValidator(_optional_milliseconds)]
OptionalSwitch = Annotated[bool | None, BeforeValidator(_optional_switch)]
TextList = Annotated[tuple[str, ...], BeforeValidator(_text_list)]
TransientPolicy = Annotated[Literal["drop_head", "keep"], BeforeValidator(parse_word)]
Revoked = Annotated[Literal["suspend", "remove"], BeforeValidator(parse_word)]
Policy = Annotated[Literal["evict", "reject"], BeforeValidator(parse_word)]
Compression = Annotated[Literal["none", "zstd"], BeforeValidator(parse_word)]
Durability = Annotated[Literal["fsync", "os", "memory"], BeforeValidator(parse_word)]
Overflow = Annotated[Literal["backpressure", "pending"], BeforeValidator(parse_overflow)]
QueueKind = Annotated[Literal["work", "stream", "ephemeral"], BeforeValidator(parse_word)]
AutoCreate = Annotated[Literal["work", "stream", "ephemeral", "off"], BeforeValidator(parse_word)]
QueueOverflow = Annotated[
    Literal["reject", "drop_head", "dead_letter", "reject_dead_letter"], BeforeValidator(parse_word)
]
PolicyTarget = Annotated[Literal["queues", "exchanges", "all"], BeforeValidator(parse_word)]
PolicyOverflow = Annotated[
    Literal["drop-head", "reject-publish", "reject-publish-dlx"] | None, BeforeValidator(_optional_word)
]
LogLevel = Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(parse_word)]
LogFormat = Annotated[Literal["auto", "json", "text"], BeforeValidator(parse_word)]
Algorithm = Annotated[
    Literal["HS256", "RS256", "ES256"] | None,
    BeforeValidator(_optional_algorithm),
]
Quality = Annotated[Literal[0, 1, 2], BeforeValidator(parse_whole)]
