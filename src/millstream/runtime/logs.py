"""Structured logs: one event name and its fields a line, JSON for machines or text for a terminal.

Invariants
- A secret never reaches a line: fields are redacted by name, and credentials inside URLs by shape.
- A value cannot forge a second line: control characters are escaped in both forms.
- The same event is written at most so often within an interval; what is left out is counted on the next line.
- A log that cannot be written never stops the broker.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time
import traceback
from collections.abc import Callable, MutableMapping
from pathlib import PurePath
from typing import Any, Final, TextIO

import structlog

Fields = MutableMapping[str, Any]

LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}
EVENTS_REMEMBERED_MAX: Final = 1000
DEPTH_MAX: Final = 4
FRAMES_SHOWN: Final = 4
REDACTED: Final = "***"

_SECRET_NAME: Final = re.compile(
    r"pass(word|wd|phrase)|secret|token|authorization|credential|private_key", re.I
)
_SECRET_IN_URL: Final = re.compile(r"(://[^\s/:@]*:)[^\s/@]+(?=@)")
_COLOURS: Final = {"debug": "\x1b[2m", "info": "\x1b[32m", "warning": "\x1b[33m", "error": "\x1b[31m"}
_PLAIN: Final = "\x1b[0m"
_NEEDS_QUOTES: Final = re.compile(r"[\s\"=]|^$")


class RepeatLimit:
    """Lets an event through `burst` times per interval and counts the rest."""

    def __init__(self, interval_s: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval_s = interval_s
        self._burst = burst
        self._clock = clock
        self._windows: dict[str, list[float]] = {}  # event -> [start of the window, written, left out]

    def __call__(self, _logger: object, _method: str, fields: Fields) -> Fields:
        if self._interval_s <= 0:
            return fields
        event = f"{fields.get('event')} {fields.get('condition', '')}"  # each condition for itself
        now = self._clock()
        window = self._windows.get(event)
        if window is None or now - window[0] >= self._interval_s:
            self._windows.pop(event, None)
            if len(self._windows) >= EVENTS_REMEMBERED_MAX:
                del self._windows[next(iter(self._windows))]
            self._windows[event] = [now, 1, 0]
            if window is not None and window[2]:
                fields["left_out"] = int(window[2])
            return fields
        if window[1] >= self._burst:
            window[2] += 1
            raise structlog.DropEvent
        window[1] += 1
        return fields


class Logs:
    """The logs of this process. `set_level` takes effect at once, also on loggers that exist already."""

    def __init__(self, level: str, *, as_json: bool, stream: TextIO, repeats: RepeatLimit) -> None:
        self._threshold = LEVELS[level]
        self._as_json = as_json
        self._stream = stream
        self._repeats = repeats

    def install(self) -> None:
        structlog.configure(
            processors=[
                self._drop_below_level,
                structlog.processors.add_log_level,
                self._repeats,
                structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
                self._shorten_exception,
                redact,
                render_json if self._as_json else self._render_text,
            ],
            wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
            logger_factory=self._make_writer,
            cache_logger_on_first_use=False,
        )
        root = logging.getLogger()
        root.handlers[:] = [_LibraryRecords()]
        root.setLevel(logging.WARNING)

    def set_level(self, level: str) -> None:
        self._threshold = LEVELS[level]

    def _make_writer(self, *_arguments: object) -> _Writer:
        return _Writer(self._stream)

    def _drop_below_level(self, _logger: object, method: str, fields: Fields) -> Fields:
        if LEVELS.get(method, logging.ERROR) < self._threshold:
            raise structlog.DropEvent
        return fields

    def _shorten_exception(self, logger: object, method: str, fields: Fields) -> Fields:
        """One sentence about an exception and its place; the traceback only where somebody is debugging."""
        raised = fields.pop("exc_info", None)
        error = raised if isinstance(raised, BaseException) else sys.exc_info()[1] if raised else None
        if error is not None:
            fields.setdefault("error", f"{type(error).__name__}: {error}")
            if self._threshold <= logging.DEBUG:
                fields["exc_info"] = error
                return structlog.processors.format_exc_info(logger, method, fields)
            if error.__traceback__ is not None:
                fields.setdefault("where", find_place(error))
        return fields

    def _render_text(self, _logger: object, _method: str, fields: Fields) -> str:
        return render_text(fields, has_colour=self._stream.isatty())


def find_place(error: BaseException) -> str:
    """The innermost frames of an exception, outermost first: enough to report it without debug logs."""
    frames = traceback.extract_tb(error.__traceback__)[-FRAMES_SHOWN:]
    return " > ".join(f"{PurePath(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames)


class _Writer:
    """One line at a time to the stream."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def msg(self, line: str) -> None:
        try:
            self._stream.write(line + "\n")
            self._stream.flush()
        except (OSError, ValueError):
            return  # the reader of our log went away; the broker's work goes on

    debug = info = warning = error = critical = exception = log = msg


class _LibraryRecords(logging.Handler):
    """What libraries say through the standard logging module, in our form."""

    def emit(self, record: logging.LogRecord) -> None:
        method = record.levelname.lower() if record.levelname.lower() in LEVELS else "error"
        error = record.exc_info[1] if record.exc_info else None
        log = getattr(structlog.get_logger(), method)
        log("library_message", library=record.name, text=record.getMessage(), exc_info=error)


def configure_logs(
    level: str = "info",
    format: str = "auto",
    *,
    repeat_interval_s: float = 10,
    repeat_burst: int = 20,
    stream: TextIO | None = None,
) -> Logs:
    """Sets up the logs of the process: `auto` is text on a terminal and JSON elsewhere."""
    target = sys.stderr if stream is None else stream
    as_json = format == "json" or (format == "auto" and not target.isatty())
    logs = Logs(level, as_json=as_json, stream=target, repeats=RepeatLimit(repeat_interval_s, repeat_burst))
    logs.install()
    return logs


def redact(_logger: object, _method: str, fields: Fields) -> Fields:
    for name in fields:
        fields[name] = _redacted(name, fields[name], 0)
    return fields


def _redacted(name: str, value: object, depth: int) -> object:
    if _SECRET_NAME.search(name) and not isinstance(value, bool | int | None):
        return REDACTED
    if isinstance(value, str):
        return _SECRET_IN_URL.sub(rf"\1{REDACTED}", value)
    if isinstance(value, dict) and depth < DEPTH_MAX:
        return {str(key): _redacted(str(key), inner, depth + 1) for key, inner in value.items()}
    if isinstance(value, list | tuple) and depth < DEPTH_MAX:
        return [_redacted(name, inner, depth + 1) for inner in value]
    return value


def render_json(_logger: object, _method: str, fields: Fields) -> str:
    first = {name: fields.pop(name, None) for name in ("time", "level", "event")}
    return json.dumps({**first, **fields}, default=_plain, ensure_ascii=False)


def _plain(value: object) -> str:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def render_text(fields: Fields, *, has_colour: bool) -> str:
    """`12:30:01 info    listening host=127.0.0.1 port=1883`"""
    moment = str(fields.pop("time", ""))[11:19]
    level = str(fields.pop("level", ""))
    event = _shown(fields.pop("event", ""), in_quotes=False)
    frames = fields.pop("exception", None)
    head = f"{_COLOURS.get(level, '')}{level:<7}{_PLAIN}" if has_colour else f"{level:<7}"
    pairs = "".join(f" {name}={_shown(value, in_quotes=True)}" for name, value in fields.items())
    tail = f"\n{frames}" if frames else ""
    return f"{moment} {head} {event}{pairs}{tail}"


def _shown(value: object, *, in_quotes: bool) -> str:
    text = value if isinstance(value, str) else _plain(value)
    if not text.isprintable() or (in_quotes and _NEEDS_QUOTES.search(text)):
        return json.dumps(text, ensure_ascii=not text.isprintable())
    return text
