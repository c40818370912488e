"""What the clients of one path did and saw, in the order they saw it. The checker reads nothing else.

A *reader* is whoever must get every message once: a subscriber, or a group of a queue. A *place* is the offset in the
queue, where there is one and the client is told.
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
        self.steps: list[Step] = []
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
        for reader, done in self.done.items():
            if label not in done:
                self._missing[reader][label] = None

    def note_delivered(self, reader: str, payload: bytes, place: int = UNKNOWN) -> Label | None:
        """The message, unless it is damaged or nobody sent it."""
        label = find_label(payload)
        if label is None or label not in self.sent:
            self.oddities.append(f"{reader} was given what nobody sent: {payload[:60]!r} (place {place})")
            return None
        self.steps.append((DELIVERED, reader, label, place))
        return label

    def note_settled(self, reader: str, label: Label, place: int) -> None:
        self.steps.append((SETTLED, reader, label, place))

    def note_committed(self, reader: str, place: int) -> None:
        self.steps.append((COMMITTED, reader, None, place))

    def note_done(self, reader: str, label: Label) -> None:
        """This reader has it for good: taken, accepted, or found among the dead letters."""
        self.done[reader][label] = None
        self._missing[reader].pop(label, None)

    def backlog(self) -> int:
        """Confirmed messages that the slowest reader still has to get."""
        return max((len(missing) for missing in self._missing.values()), default=0)

    def is_complete(self) -> bool:
        return not any(self._missing.values())
