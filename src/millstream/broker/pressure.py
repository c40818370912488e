"""Back-pressure: publishers wait for what is full, but never for what stands still.

A holder (a session whose connection lags, a queue that grows) is watched. When it becomes full it holds the connections
that publish to it: they stop reading. As long as it makes progress they wait. Once it has made none for `slow_grace_ms` it is told so (`Holder.on_stuck`): a session is slow from then on, nobody waits for it, and
what it cannot take is bounded and dropped by policy until it catches up. Because watching begins long before a session
is full, one that has stopped reading is known by then and costs the others no wait at all.

One connection may wait for several holders; it goes on when none of them holds it any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from millstream.broker.conditions import PUBLISHERS_SLOWED
from millstream.broker.health import Health
from millstream.model.holder import Backpressure, Holder

if TYPE_CHECKING:
    from millstream.broker.line import Line

TICKS_TOLD: Final[i64] = 20  # with somebody waiting, more than without


@final
class Pressure(Backpressure):
    def __init__(self, slow_grace_ms: i64, health: Health | None = None) -> None:
        self._grace_ns: i64 = slow_grace_ms * 1_000_000
        self._health = health
        self._waiting_ticks: i64 = 0  # ticks that found somebody waiting, less those that did not
        self.source: object | None = None  # who publishes at the moment; None: nobody that could wait
        self._met: dict[Holder, None] = {}  # full holders that the present source has published to
        self._watched: dict[Holder, Watch] = {}
        self._waiting: dict[Line, dict[Holder, None]] = {}  # who waits, and for what

    # ----------------------------------------------------------------- sources

    def begin(self, source: object | None) -> None:
        """What is published from now on comes from this source, which can be made to wait."""
        self.source = source
        if self._met:  # the last one ended in an error
            self._met = {}

    def end(self, line: Line) -> bool:
        """The source has been dealt with. True: its line must not be read until `Line.resume` is called."""
        self.source = None
        if not self._met:
            return False
        met = self._met
        self._met = {}
        must_wait = False
        for holder in met:
            if self._wait(line, holder):
                must_wait = True
        return must_wait

    def _wait(self, line: Line, holder: Holder) -> bool:
        watch = self._watched.get(holder)
        if watch is None or not holder.holds():
            return False
        watch.sources[line] = None
        held_by = self._waiting.get(line)
        if held_by is None:
            held_by = self._waiting[line] = {}
        held_by[holder] = None
        return True

    def forget_met(self) -> None:
        """What was met since has no source that could wait."""
        if self._met:
            self._met = {}

    def is_waiting(self, line: Line) -> bool:
        return line in self._waiting

    def forget_source(self, line: Line) -> None:
        held_by = self._waiting.pop(line, None)
        if held_by is None:
            return
        for holder in held_by:
            watch = self._watched.get(holder)
            if watch is not None:
                watch.sources.pop(line, None)

    # ----------------------------------------------------------------- holders

    def can_wait_for(self, holder: Holder) -> bool:
        """Whether the present source can be held for it. Nobody can wait for himself: his answers are needed."""
        source = self.source
        return source is not None and holder.can_hold(source)

    def hold(self, holder: Holder) -> None:
        if holder not in self._met and self.can_wait_for(holder):
            self._met[holder] = None

    def watch(self, holder: Holder, now_ns: i64) -> None:
        if holder not in self._watched:
            self._watched[holder] = Watch(holder.progress_mark(), now_ns)

    def unwatch(self, holder: Holder) -> None:
        if holder in self._watched:
            self.release(holder)
            del self._watched[holder]

    def is_stuck(self, holder: Holder, now_ns: i64) -> bool:
        watch = self._watched.get(holder)
        if watch is None:
            return False
        mark = holder.progress_mark()
        if mark != watch.mark:
            watch.mark = mark
            watch.since_ns = now_ns
            return False
        return now_ns - watch.since_ns >= self._grace_ns

    def release(self, holder: Holder) -> None:
        watch = self._watched.get(holder)
        if watch is None or not watch.sources:
            return
        lines = watch.sources
        watch.sources = {}
        for line in lines:
            held_by = self._waiting.get(line)
            if held_by is None:
                continue
            held_by.pop(holder, None)
            if not held_by:
                del self._waiting[line]
                line.resume()

    def on_tick(self, now_ns: i64) -> None:
        self._tell_waiting()
        if not self._watched:
            return
        stuck: list[Holder] = []
        for holder in self._watched:
            if self.is_stuck(holder, now_ns) and holder.holds():
                stuck.append(holder)
        for holder in stuck:
            holder.on_stuck()

    def _tell_waiting(self) -> None:
        """Publishers wait for a moment all the time; an operator is told when they do most of the time."""
        if not self._waiting:
            if self._waiting_ticks > 0:
                self._waiting_ticks -= 1
            return
        self._waiting_ticks += 1
        if self._waiting_ticks >= TICKS_TOLD and self._health is not None:
            self._waiting_ticks = 0
            for line, holders in self._waiting.items():
                for holder in holders:
                    others = f", and {len(self._waiting) - 1} others wait" if len(self._waiting) > 1 else ""
                    self._health.report(
                        PUBLISHERS_SLOWED, f"{line.describe()} waits for {holder.title()}{others}"
                    )
                    return


@final
class Watch:
    def __init__(self, mark: tuple[int, int], now_ns: i64) -> None:
        self.sources: dict[Line, None] = {}
        self.mark = mark
        self.since_ns: i64 = now_ns  # of the last progress seen
