"""What the checker makes of power cuts that may take the last second: no more than that, and no holes."""

from __future__ import annotations

import pytest

from crash.checker import check
from crash.journal import QOS1, STREAM, WORK, Journal
from crash.label import Label, encode_label
from crash.power import OS_WINDOW_S, find_window_s


def publish(journal: Journal, number: int, now_s: float) -> Label:
    journal.now_s = now_s
    label = ("publisher", "t", number)
    journal.note_sent(label)
    journal.note_confirmed(label)
    return label


def take(journal: Journal, reader: str, label: Label, place: int = -1) -> None:
    journal.note_delivered(reader, encode_label(label), place)
    journal.note_done(reader, label)


def make_cut(path: str, survived: tuple[int, ...]) -> Journal:
    """Six messages, one a second; the power goes at 6.5, with the last two at risk. What survived is taken later."""
    journal = Journal(path, path, ("reader",))
    labels = [publish(journal, number, float(number)) for number in range(1, 7)]
    journal.note_power_cut(4.5)
    journal.now_s = 8.0
    for place, number in enumerate(survived):
        take(journal, "reader", labels[number - 1], place if path in (STREAM, WORK) else -1)
    return journal


@pytest.mark.parametrize("path", [QOS1, STREAM, WORK])
@pytest.mark.parametrize("survived", [(1, 2, 3, 4), (1, 2, 3, 4, 5), (1, 2, 3, 4, 5, 6)])
def test_the_newest_may_go(path: str, survived: tuple[int, ...]) -> None:
    verdict = check(make_cut(path, survived))
    assert verdict.faults == []
    assert (verdict.confirmed, verdict.lost) == (6, 0)
    assert (verdict.at_risk, verdict.taken) == (2, 6 - len(survived))


def test_what_is_older_than_the_window_must_be_there() -> None:
    verdict = check(make_cut(QOS1, (1, 2, 3)))
    assert verdict.lost == 1
    assert "publisher t 4 for reader" in verdict.faults[0]


@pytest.mark.parametrize("path", [QOS1, STREAM])
def test_a_hole_is_blamed(path: str) -> None:
    verdict = check(make_cut(path, (1, 2, 3, 4, 6)))
    assert [fault for fault in verdict.faults if "holes in what a power cut left" in fault]


def test_nobody_waits_for_what_may_be_gone() -> None:
    journal = make_cut(QOS1, (1, 2, 3, 4))
    assert journal.is_complete()
    assert journal.backlog() == 0


def test_offsets_and_settlements_of_the_last_moment_bind_nobody() -> None:
    journal = Journal(WORK, WORK, ("reader",))
    first, second = publish(journal, 1, 1.0), publish(journal, 2, 5.0)
    journal.note_delivered("reader", encode_label(first), 0)
    journal.note_settled("reader", first, 0)
    take(journal, "reader", second, 1)
    journal.note_power_cut(4.5)
    third = publish(journal, 3, 7.0)
    take(journal, "reader", first, 0)
    take(journal, "reader", third, 1)  # the place of the one that went
    assert check(journal).faults == []


def test_those_of_before_do() -> None:
    journal = Journal(WORK, WORK, ("reader",))
    label = publish(journal, 1, 1.0)
    journal.note_delivered("reader", encode_label(label), 0)
    journal.note_settled("reader", label, 0)
    journal.note_power_cut(4.5)
    journal.now_s = 7.0
    take(journal, "reader", label, 0)
    assert check(journal).redelivered == 1


def test_only_a_broker_that_does_not_sync_each_batch_may_lose_anything() -> None:
    assert find_window_s(()) == 0
    assert find_window_s(("storage.durability=os", "storage.durability=fsync")) == 0
    assert find_window_s(("storage.log_file_size=1MiB", "storage.durability=os")) == OS_WINDOW_S
