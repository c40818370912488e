"""Back-pressure: sources wait for an outlet that is full, but never for one that stands still.

A session whose connection lags, or whose window is full, is watched. When it becomes full it holds the connections that
publish to it: they stop reading. As long as it makes progress they wait. Once it has made none for
`slow_grace_ms` it is called slow: nobody waits for it, and what it cannot take is bounded and dropped by
policy until it catches up. Because watching begins long before a session is full, one that has stopped reading
is known by then and costs the others no wait at all.
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
        self.source: object | None = None  # who publishes at the moment; None: nobody that could wait
        self.held: Session | None = None  # a full session met since the last `take_held`
        self._watched: dict[Session, Watch] = {}

    def take_held(self) -> Session | None:
        held = self.held
        self.held = None
        return held

    def can_wait_for(self, session: Session) -> bool:
        """Whether the present source can be held for it. Nobody can wait for himself: his answers are needed."""
        return self.source is not None and self.source is not session

    def watch(self, session: Session, now_ns: i64) -> None:
        if session not in self._watched:
            self._watched[session] = Watch(session.progress_mark(), now_ns)

    def unwatch(self, session: Session) -> None:
        watch = self._watched.pop(session, None)
        if watch is not None:
            watch.release()

    def is_stuck(self, session: Session, now_ns: i64) -> bool:
        """Whether a watched session has made no progress for the grace time."""
        watch = self._watched.get(session)
        if watch is None:
            return False
        mark = session.progress_mark()
        if mark != watch.mark:
            watch.mark = mark
            watch.since_ns = now_ns
            return False
        return now_ns - watch.since_ns >= self._grace_ns

    def wait(self, session: Session, source: Line) -> bool:
        """Whether `source` must stop reading; it is resumed when the session has room."""
        watch = self._watched.get(session)
        if watch is None or not session.is_full:
            return False
        watch.sources[source] = None
        return True

    def release(self, session: Session) -> None:
        watch = self._watched.get(session)
        if watch is not None:
            watch.release()

    def forget_source(self, source: Line) -> None:
        for watch in self._watched.values():
            watch.sources.pop(source, None)

    def on_tick(self, now_ns: i64) -> None:
        if not self._watched:
            return
        stuck: list[Session] = []
        for session in self._watched:
            if self.is_stuck(session, now_ns) and session.is_full:
                stuck.append(session)
        for session in stuck:
            session.become_slow()


@final
class Watch:
    def __init__(self, mark: tuple[int, int], now_ns: i64) -> None:
        self.sources: dict[Line, None] = {}
        self.mark = mark
        self.since_ns: i64 = now_ns  # of the last progress seen

    def release(self) -> None:
        sources = self.sources
        if sources:
            self.sources = {}
            for source in sources:
                source.resume()
