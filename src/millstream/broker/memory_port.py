"""What relief asks of the world outside, and what it makes shrink."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

from mypy_extensions import i64, mypyc_attr

from millstream.broker.line import Line

OFFENCE_BYTES: Final[i64] = 64 * 1024  # who holds less is no offender


@mypyc_attr(allow_interpreted_subclasses=True)
class Offender(ABC):
    """Something of a client's that holds much memory. `is_stuck`: it does not get smaller by itself."""

    def __init__(self, kind: str, name: str, size_bytes: i64, is_stuck: bool) -> None:
        self.kind = kind
        self.name = name
        self.size_bytes: i64 = size_bytes
        self.is_stuck = is_stuck
        self.is_done = False  # it has let go of what it can
        self.steps: i64 = 0  # that it took the last time
        self.freed: i64 = 0

    @abstractmethod
    def shrink(self, wanted: i64, steps: i64) -> i64:
        """Let go of about so many bytes if it has them, in about so many steps; gives how many, and says in `steps` what it
        took and in `is_done` whether that was all."""


@mypyc_attr(allow_interpreted_subclasses=True)
class MemoryPort(ABC):
    @abstractmethod
    def lines(self) -> list[Line]:
        """All connections."""

    @abstractmethod
    def begin_search(self) -> list[Line]:
        """The same: they will be asked for one by one."""

    @abstractmethod
    def find_offender(self, line: Line, now_ns: i64) -> Offender | None:
        """A connection that holds more than `OFFENCE_BYTES`."""

    @abstractmethod
    def end_search(self) -> None:
        """All connections were asked for."""

    @abstractmethod
    def resume(self, count_max: i64) -> None:
        """Read so many publishers again that were not read."""

    def find_held(self) -> tuple[str, int]:
        """The publisher that has not been read for longest because memory is short, and how many are not."""
        return "", 0

    @abstractmethod
    def fold(self) -> None:
        """Ask for a checkpoint, if none runs."""

    @abstractmethod
    def give_back(self) -> None:
        """Hand freed memory back to the system."""

    @abstractmethod
    def outside_bytes(self, high: i64, critical: i64) -> i64:
        """How short of memory the control group is as a whole, on the scale of our own marks; 0: it is not."""

    @abstractmethod
    def on_shrunk(self, offender: Offender, freed: i64) -> None:
        """Tell the operator."""
