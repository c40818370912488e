"""What is wrong with a configuration: where it was written, which key, which value, and what to type instead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final

VALUE_LENGTH_SHOWN: Final = 60


@dataclass(frozen=True)
class Origin:
    """Where a value was written: a line of a file, a variable or a flag."""

    text: str
    file: str | None = None
    line: int | None = None


@dataclass(frozen=True)
class Fault:
    origin: Origin
    key: str
    value: str | None
    text: str
    suggestion: str | None = None

    def sentence(self) -> str:
        """`plant.yaml:3: mqtt.prot is not a known key (value: 1884); did you mean mqtt.port?`"""
        subject = f"{self.key} {self.text}" if self.key else self.text
        value = "" if self.value is None else f" (value: {self.value})"
        end = f"; did you mean {self.suggestion}?" if self.suggestion else "."
        return f"{self.origin.text}: {subject}{value}{end}"

    def as_dict(self) -> dict[str, object]:
        return {
            **asdict(self),
            "origin": self.origin.text,
            "file": self.origin.file,
            "line": self.origin.line,
        }


class ConfigFault(Exception):
    """The configuration is refused; nothing has been opened. Carries every fault found."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        assert faults
        self.faults = tuple(faults)
        super().__init__("\n".join(fault.sentence() for fault in self.faults))


def show_value(value: object) -> str:
    """A value as a person wrote it, cut to a length that keeps the sentence readable."""
    if value is None:
        text = "null"
    elif isinstance(value, bool):
        text = "true" if value else "false"
    elif isinstance(value, str):
        text = repr(value) if value != value.strip() or not value.isprintable() or not value else value
    else:
        text = str(value)
    return text if len(text) <= VALUE_LENGTH_SHOWN else text[: VALUE_LENGTH_SHOWN - 1] + "…"
