"""Judges a journal: was every promise kept? Pure, so that it can be tested against journals with known faults.

- Every confirmed message is done with for every reader: taken, accepted, or dead-lettered.
- The first time a reader sees the messages of one publisher on one topic, they come in the order of sending; in a queue,
  where consumers share the work, it is the order of offsets that counts.
- Exactly once is once. What was settled or committed, and confirmed to be, never comes again.
- An offset has one value for ever; a stream has no gaps, and shows each group its offsets in order.
- Of what was confirmed so shortly before a power cut that it may be gone (`Journal.at_risk`), the first messages of each
  publisher and topic are there and the others are not: the cut leaves no holes.
- A session that was confirmed is there after every restart.
"""

from __future__ import annotations

from typing import Final

from crash.journal import COMMITTED, DELIVERED, QOS2, SETTLED, STREAM, UNDONE, UNKNOWN, WORK, Journal
from crash.label import Label

SHOWN_MAX: Final = 5  # faults of one kind that are spelled out


class Verdict:
    """`faults` is empty when every promise was kept."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.confirmed = 0
        self.delivered = 0
        self.lost = 0
        self.duplicated = 0
        self.reordered = 0
        self.redelivered = 0
        self.at_risk = 0
        self.taken = 0  # by power cuts, of those at risk
        self.faults: list[str] = []

    def add(self, other: Verdict) -> None:
        self.confirmed += other.confirmed
        self.delivered += other.delivered
        self.lost += other.lost
        self.duplicated += other.duplicated
        self.reordered += other.reordered
        self.redelivered += other.redelivered
        self.at_risk += other.at_risk
        self.taken += other.taken
        self.faults += other.faults

    def blame(self, found: list[str], what: str) -> int:
        if found:
            shown = "; ".join(found[:SHOWN_MAX])
            self.faults.append(f"{self.path}: {len(found)} {what}: {shown}")
        return len(found)


def check(journal: Journal) -> Verdict:
    verdict = Verdict(journal.path)
    verdict.at_risk = sum(len(labels) for labels in journal.at_risk)
    verdict.taken = len({label for labels in find_taken(journal) for label in labels})
    verdict.confirmed = len(journal.confirmed) + verdict.at_risk
    verdict.delivered = sum(1 for what, _, _, _ in journal.steps if what in (DELIVERED, UNDONE))
    verdict.lost = verdict.blame(find_lost(journal), "confirmed messages lost")
    repeats = find_repeats(journal)
    verdict.duplicated = len(repeats)
    if journal.path == QOS2:
        verdict.blame(repeats, "messages delivered twice that were to come exactly once")
    verdict.reordered = verdict.blame(find_reordered(journal), "messages out of order")
    verdict.redelivered = verdict.blame(find_redelivered(journal), "settled messages delivered again")
    verdict.blame(find_changed_places(journal), "offsets with two values")
    if journal.path == STREAM:
        verdict.blame(find_gaps(journal), "gaps in what a group was given")
    if journal.path != WORK:  # there, several consumers take them in any order
        verdict.blame(find_holes(journal), "holes in what a power cut left")
    absent = [client for client, wanted, present in journal.presences if wanted and not present]
    verdict.blame(absent, "sessions that were confirmed and are gone")
    strange = [client for client, wanted, present in journal.presences if present and not wanted]
    verdict.blame(strange, "sessions that nobody had made")
    verdict.blame(journal.oddities, "things that must not happen")
    return verdict


def name_of(label: Label) -> str:
    return f"{label[0]} {label[1]} {label[2]}"


def find_lost(journal: Journal) -> list[str]:
    return [
        f"{name_of(label)} for {reader}"
        for reader, done in journal.done.items()
        for label in journal.confirmed
        if label not in done
    ]


def find_taken(journal: Journal) -> list[list[Label]]:
    """By power cut: messages at risk that some reader never got."""
    return [
        [label for label in labels if any(label not in done for done in journal.done.values())]
        for labels in journal.at_risk
    ]


def find_holes(journal: Journal) -> list[str]:
    """Messages that are gone although a later one of the same publisher and topic is not."""
    found: list[str] = []
    for labels in journal.at_risk:
        for reader, done in journal.done.items():
            newest: dict[tuple[str, str], int] = {}
            for publisher, topic, number in labels:
                if (publisher, topic, number) in done:
                    newest[publisher, topic] = max(number, newest.get((publisher, topic), 0))
            for label in labels:
                if label not in done and label[2] < newest.get(label[:2], 0):
                    found.append(f"{name_of(label)} for {reader}, but not {newest[label[:2]]}")
    return found


def find_repeats(journal: Journal) -> list[str]:
    """Every delivery of a message to a reader after the first."""
    seen: dict[tuple[str, Label], None] = {}
    repeats: list[str] = []
    for what, reader, label, _ in journal.steps:
        if what != DELIVERED or label is None:
            continue
        if (reader, label) in seen:
            repeats.append(f"{name_of(label)} to {reader}")
        seen[reader, label] = None
    return repeats


def find_reordered(journal: Journal) -> list[str]:
    has_places = any(place != UNKNOWN for _, _, _, place in journal.steps)
    return _find_reordered_places(journal) if has_places else _find_reordered_arrivals(journal)


def _find_reordered_arrivals(journal: Journal) -> list[str]:
    newest: dict[tuple[str, str, str], int] = {}  # reader, publisher, topic: the highest number so far
    seen: dict[tuple[str, Label], None] = {}
    found: list[str] = []
    for what, reader, label, _ in journal.steps:
        if what not in (DELIVERED, UNDONE) or label is None or (reader, label) in seen:
            continue
        seen[reader, label] = None
        if what == UNDONE:
            continue  # it may be there still, and what comes now may be a repeat
        line = (reader, label[0], label[1])
        if label[2] < newest.get(line, 0):
            found.append(f"{name_of(label)} to {reader} after {newest[line]}")
        newest[line] = max(newest.get(line, 0), label[2])
    return found


def _find_reordered_places(journal: Journal) -> list[str]:
    first: dict[Label, int] = {}  # the lowest place of each message
    maybe_delivered_below: dict[Label, None] = {}  # whether that one is still there
    for what, _, label, place in journal.steps:
        if label is not None and place != UNKNOWN:
            first[label] = min(place, first.get(label, place))
            if what == UNDONE:
                maybe_delivered_below[label] = None
    lines: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for label, place in first.items():
        if label not in maybe_delivered_below:
            lines.setdefault(label[:2], []).append((label[2], place))
    found: list[str] = []
    for (publisher, topic), numbers in lines.items():
        numbers.sort()
        highest = -1
        for number, place in numbers:
            if place < highest:
                found.append(f"{publisher} {topic} {number} at offset {place}, an earlier one at {highest}")
            highest = max(highest, place)
    return found


def find_redelivered(journal: Journal) -> list[str]:
    """Deliveries after the confirmed end of that record, or of all records of that message, for that reader."""
    ended: dict[tuple[str, int], None] = {}
    endings: dict[tuple[str, Label], int] = {}
    committed: dict[str, int] = {}
    found: list[str] = []
    for what, reader, label, place in journal.steps:
        if what == COMMITTED:
            committed[reader] = max(place, committed.get(reader, UNKNOWN))
        elif label is None or what == UNDONE:
            continue
        elif what == SETTLED:
            ended[reader, place] = None
            endings[reader, label] = endings.get((reader, label), 0) + 1
        elif place != UNKNOWN and ((reader, place) in ended or place <= committed.get(reader, UNKNOWN)):
            found.append(f"{name_of(label)} at offset {place} to {reader}")
        elif endings.get((reader, label), 0) >= journal.sent[label]:
            found.append(f"{name_of(label)} to {reader}: all of its copies were settled")
    return found


def find_changed_places(journal: Journal) -> list[str]:
    values: dict[int, Label] = {}
    found: list[str] = []
    for what, reader, label, place in journal.steps:
        if label is None or place == UNKNOWN or what == UNDONE:
            continue
        before = values.setdefault(place, label)
        if before != label:
            found.append(f"offset {place} was {name_of(before)}, then {name_of(label)} to {reader}")
    return found


def find_gaps(journal: Journal) -> list[str]:
    """A group sees every offset, and each for the first time in order."""
    next_place: dict[str, int] = dict.fromkeys(journal.readers, 0)
    found: list[str] = []
    for what, reader, _, place in journal.steps:
        if what not in (DELIVERED, UNDONE):
            continue
        if what == DELIVERED and place > next_place[reader]:
            found.append(f"{reader} was given offset {place} where {next_place[reader]} was next")
        next_place[reader] = max(next_place[reader], place + 1)
    return found
