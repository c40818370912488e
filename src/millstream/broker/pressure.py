"""Back-pressure: sources wait for an outlet that is full, but not for one that stands still.

A session that is full holds the connections that publish to it: they stop reading. As long as it
makes progress they wait; after `slow_grace_ms` without any it is called slow, its sources go
on, and what it cannot take is bounded and dropped by policy, until it catches up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

if TYPE_CHECKING:
    from millstream.broker.line import Line
    from millstream.broker.session import Session


@final
class Pressure:
    def __init__(self, slow_grace_ms: i64) -> None:
        self._grace_ns: i64 = slow_grace_ms * 1_000_000
        self.held: Session | None = None  # a full session met since the last `take_held`
        self._full: dict[Session, Waiting] = {}

    def take_held(self) -> Session | None:
        held = self.held
        self.held = None
        return held

    def wait(self, session: Session, source: Line) -> bool:
        """Whether `source` must stop reading; it is resumed when the session has room."""
        if not session.is_full:
            return False
        waiting = self._full.get(session)
        if waiting is None:
            return False
        waiting.sources[source] = None
        return True

    def on_full(self, session: Session) -> None:
        if session not in self._full:
            self._full[session] = Waiting()

    def on_room(self, session: Session) -> None:
        waiting = self._full.pop(session, None)
        if waiting is not None:
            for source in waiting.sources:
                source.resume()

    def forget_source(self, source: Line) -> None:
        for waiting in self._full.values():
            waiting.sources.pop(source, None)

    def on_tick(self, now_ns: i64) -> None:
        if not self._full:
            return
        still: list[Session] = []
        for session, waiting in self._full.items():
            mark = session.progress_mark()
            if mark != waiting.mark or waiting.since_ns == 0:
                waiting.mark = mark
                waiting.since_ns = now_ns
            elif now_ns - waiting.since_ns >= self._grace_ns:
                still.append(session)
        for session in still:
            session.become_slow()


@final
class Waiting:
    def __init__(self) -> None:
        self.sources: dict[Line, None] = {}
        self.since_ns: i64 = 0
        self.mark: tuple[int, int] = (-1, -1)
