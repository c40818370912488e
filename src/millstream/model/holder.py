"""What a publisher can be made to wait for: a session, a queue, the memory of the process."""

from __future__ import annotations

from abc import ABC, abstractmethod

from mypy_extensions import i64, mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class Holder(ABC):  # noqa: B024 its subclasses have abstract methods of their own
    """Who publishes into something that is full is not read until it has room again."""

    def title(self) -> str:
        """What it is, as an operator knows it."""
        return ""

    def holds(self) -> bool:
        """Whether publishers have to wait for it now."""
        return False

    def progress_mark(self) -> tuple[int, int]:
        """Any two numbers of which one changes when it makes progress."""
        return (0, 0)

    def can_hold(self, source: object) -> bool:
        """Whether this publisher may be made to wait. Not one whose answers are what is waited for."""
        return source is not self

    def on_stuck(self) -> None:  # noqa: B027 there are holders that nobody needs to be released from
        """It has made no progress for the grace time. Who waits for it should be released."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Backpressure(ABC):
    """The port from what can be full to those who wait for it."""

    @abstractmethod
    def hold(self, holder: Holder) -> None:
        """It is full: whoever publishes at the moment waits, once all it has sent so far has been dealt with."""

    @abstractmethod
    def watch(self, holder: Holder, now_ns: i64) -> None:
        """It may become full: look after its progress from now on."""

    @abstractmethod
    def unwatch(self, holder: Holder) -> None: ...

    @abstractmethod
    def is_stuck(self, holder: Holder, now_ns: i64) -> bool:
        """Whether a watched holder has made no progress for the grace time."""

    @abstractmethod
    def release(self, holder: Holder) -> None:
        """It has room: those who wait for nothing else go on."""
