"""What the clients of one path did and saw, in the order they saw it. The checker reads nothing else.

A *reader* is whoever must get every message once: a subscriber, or a group of a queue. A *place* is the offset in the
queue, where there is one and the client is told.

Where a power cut may take what was done shortly before it, all that the clients saw since then binds nobody any more:
steps become *undone*, confirmed messages are *at risk*.
"""

from __future__ import annotations

from typing import Final

from crash.label import Label, find_label

QOS1: Final = "qos1"
QOS2: Final = "qos2"
WORK: Final = "work"
STREAM: Final = "stream"
PATHS: Final = (QOS1, QOS2, WORK, STREAM)

DELIVERED: Final = "delivered"
SETTLED: Final = "settled"  # the broker confirmed it: this record never comes again to this reader
COMMITTED: Final = "committed"  # the broker confirmed it: nothing up to this place comes again to this reader
UNDONE: Final = "undone"  # one of these that a power cut may have taken back

UNKNOWN: Final = -1  # a place the client is not told

Step = tuple[str, str, Label | None, int]  # what, reader, message, place


class Journal:
    def __init__(self, path: str, name: str, readers: tuple[str, ...]) -> None:
        self.path = path
        self.name = name
        self.readers = list(readers)
        self.sent: dict[Label, int] = {}  # how often: a repeat may become a second record
        self.confirmed: dict[Label, None] = {}
        self.refused = 0
        self.now_s = 0.0  # when the driver looked last
        self.steps: list[Step] = []
        self._step_s: list[float] = []
        self._handed: dict[tuple[str, int], Label] = {}  # reader, place: what it has seen there
        self._confirmed_s: dict[Label, float] = {}
        self.at_risk: list[dict[Label, None]] = []  # by power cut
        self.done: dict[str, dict[Label, None]] = {reader: {} for reader in readers}
        self._missing: dict[str, dict[Label, None]] = {
            reader: {} for reader in readers
        }  # confirmed, not done
        self.presences: list[
            tuple[str, bool, bool]
        ] = []  # client, whether its session must be there, is there
        self.oddities: list[str] = []  # what no client should ever see
        self.cuts = 0  # connections that clients cut on purpose

    def add_reader(self, reader: str) -> None:
        self.readers.append(reader)
        self.done[reader] = {}
        self._missing[reader] = dict(self.confirmed)

    def note_sent(self, label: Label) -> None:
        self.sent[label] = self.sent.get(label, 0) + 1

    def note_confirmed(self, label: Label) -> None:
        self.confirmed[label] = None
        self._confirmed_s[label] = self.now_s
        for reader, done in self.done.items():
            if label not in done:
                self._missing[reader][label] = None

    def note_delivered(
        self, reader: str, payload: bytes, place: int = UNKNOWN, is_marked: bool = True
    ) -> Label | None:
        """The message, unless it is damaged or nobody sent it. `is_marked`: the reader was told that it may have had it."""
        label = find_label(payload)
        if label is None or label not in self.sent:
            self.oddities.append(f"{reader} was given what nobody sent: {payload[:60]!r} (place {place})")
            return None
        if place != UNKNOWN:
            if not is_marked and self._handed.get((reader, place)) == label:
                self.oddities.append(f"{reader} was given offset {place} again as if for the first time")
            self._handed[reader, place] = label
        self._add((DELIVERED, reader, label, place))
        return label

    def note_settled(self, reader: str, label: Label, place: int) -> None:
        self._add((SETTLED, reader, label, place))

    def note_committed(self, reader: str, place: int) -> None:
        self._add((COMMITTED, reader, None, place))

    def _add(self, step: Step) -> None:
        self.steps.append(step)
        self._step_s.append(self.now_s)

    def note_power_cut(self, since_s: float) -> None:
        """All since then may be gone."""
        self._handed.clear()  # places may be given anew
        taken = {label: None for label in self.confirmed if self._confirmed_s[label] >= since_s}
        self.at_risk.append(taken)
        for label in taken:
            del self.confirmed[label]
            for missing in self._missing.values():
                missing.pop(label, None)
        for at in range(len(self.steps) - 1, -1, -1):
            if self._step_s[at] < since_s:
                break
            self.steps[at] = (UNDONE, *self.steps[at][1:])

    def note_done(self, reader: str, label: Label) -> None:
        """This reader has it for good: taken, accepted, or found among the dead letters."""
        self.done[reader][label] = None
        self._missing[reader].pop(label, None)

    def backlog(self) -> int:
        """Confirmed messages that the slowest reader still has to get."""
        return max((len(missing) for missing in self._missing.values()), default=0)

    def is_complete(self) -> bool:
        return not any(self._missing.values())
