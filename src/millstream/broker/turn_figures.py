"""How long turns of the event loop take: the longest lately, and how many were too long. Told in `$SYS` and by `status`.

Whatever happens between two looks of the loop at its connections is a turn: reads, what they bring about, what is handed out and
written. While one lasts nobody else is served, so that the longest is what a client waits at worst for being heard.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from millstream.broker.conditions import LOOP_SLOW
from millstream.broker.health import Health

LONG_NS: Final[i64] = 50_000_000
OFTEN: Final[i64] = 3  # so many long turns in one interval are told
INTERVAL_NS: Final[i64] = 10_000_000_000
MILLISECONDS: Final[i64] = 1_000_000

# the parts of a turn
READS: Final = "reading, connecting and sending"
WAITING_READS: Final = "reads that waited for their turn"
QUEUES: Final = "handing out the messages of queues"
TASKS: Final = "subscriptions, replays, other work in slices, and writing the log"
TICK: Final = "the regular look at sessions, queues and memory"


@final
class TurnFigures:
    def __init__(self, health: Health) -> None:
        self._health = health
        self._began_ns: i64 = 0  # the present interval
        self._longest_ns: i64 = 0  # in it
        self._part = ""  # what took most of that turn
        self._long: i64 = 0  # turns in it
        self._before_ns: i64 = 0  # the longest of the interval before
        self.long_total: i64 = 0

    def note(self, took_ns: i64, part: str) -> None:
        """A turn is over, and this part took most of it. Only one longer than `longest_ns` need be told."""
        if took_ns > self._longest_ns:
            self._longest_ns = took_ns
            self._part = part
        if took_ns >= LONG_NS:
            self._long += 1
            self.long_total += 1

    def note_tick(self, took_ns: i64) -> None:
        if self.is_notable(took_ns):
            self.note(took_ns, TICK)

    def is_notable(self, took_ns: i64) -> bool:
        return took_ns > self._longest_ns or took_ns >= LONG_NS

    def on_tick(self, now_ns: i64) -> None:
        if now_ns - self._began_ns < INTERVAL_NS:
            return
        self._began_ns = now_ns
        self._before_ns = self._longest_ns
        if self._long >= OFTEN:
            cause = (
                f"{int(self._long)} turns of the event loop took more than {LONG_NS // MILLISECONDS} ms within "
                f"{INTERVAL_NS // 1_000_000_000} s, the longest {self._longest_ns // MILLISECONDS} ms, most of it for {self._part}"
            )
            self._health.begin(LOOP_SLOW, cause)
            self._health.count(LOOP_SLOW, self._long)
        elif not self._long:
            self._health.end(LOOP_SLOW)
        self._longest_ns = 0
        self._long = 0

    def longest_ns(self) -> i64:
        """In the last ten to twenty seconds."""
        return self._before_ns if self._before_ns > self._longest_ns else self._longest_ns

    def values(self) -> dict[str, str]:
        return {
            "longest_turn_ms": f"{int(self.longest_ns()) / 1e6:.1f}",
            "long_turns": str(self.long_total),
        }
