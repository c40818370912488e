"""The checker accepts journals in which every promise was kept, and names what was broken in the others."""

from __future__ import annotations

import pytest

from crash.checker import Verdict, check
from crash.journal import QOS1, QOS2, STREAM, WORK, Journal
from crash.label import Label, encode_label


def publish(journal: Journal, number: int, is_confirmed: bool = True, topic: str = "t") -> Label:
    label = ("publisher", topic, number)
    journal.note_sent(label)
    if is_confirmed:
        journal.note_confirmed(label)
    return label


def take(journal: Journal, reader: str, label: Label, place: int = -1) -> None:
    journal.note_delivered(reader, encode_label(label), place)
    journal.note_done(reader, label)


def make_journal(
    path: str, readers: tuple[str, ...] = ("reader",), count: int = 5
) -> tuple[Journal, list[Label]]:
    """Every reader takes every message once, in order."""
    journal = Journal(path, path, readers)
    labels = [publish(journal, number) for number in range(1, count + 1)]
    for reader in readers:
        for place, label in enumerate(labels):
            take(journal, reader, label, place if path in (WORK, STREAM) else -1)
    return journal, labels


def assert_broken(verdict: Verdict, words: str) -> None:
    assert [fault for fault in verdict.faults if words in fault], verdict.faults


@pytest.mark.parametrize("path", [QOS1, QOS2, WORK, STREAM])
def test_a_journal_without_faults_is_accepted(path: str) -> None:
    journal, labels = make_journal(path, ("one", "other"))
    journal.presences += [("one", False, False), ("one", True, True)]
    if path == WORK:
        journal.note_settled("one", labels[0], 0)
    if path == STREAM:
        journal.note_committed("one", 4)
    verdict = check(journal)
    assert verdict.faults == []
    assert (verdict.confirmed, verdict.delivered, verdict.lost) == (5, 10, 0)


@pytest.mark.parametrize("path", [QOS1, QOS2, WORK, STREAM])
def test_a_confirmed_message_that_a_reader_never_got_is_lost(path: str) -> None:
    journal, _ = make_journal(path, ("one", "other"))
    take(journal, "one", publish(journal, 6), 5)
    verdict = check(journal)
    assert verdict.lost == 1
    assert_broken(verdict, "publisher t 6 for other")


def test_a_message_that_was_never_confirmed_may_come_or_not() -> None:
    journal, _ = make_journal(QOS1)
    publish(journal, 6, is_confirmed=False)
    take(journal, "reader", publish(journal, 7, is_confirmed=False))
    assert check(journal).faults == []


def test_a_second_delivery_is_counted_and_breaks_exactly_once_only() -> None:
    for path, is_broken in ((QOS1, False), (QOS2, True)):
        journal, labels = make_journal(path)
        take(journal, "reader", labels[2])
        verdict = check(journal)
        assert verdict.duplicated == 1
        assert bool(verdict.faults) is is_broken


def test_a_message_seen_first_after_a_later_one_is_out_of_order() -> None:
    journal = Journal(QOS1, QOS1, ("reader",))
    first, second = publish(journal, 1), publish(journal, 2)
    take(journal, "reader", second)
    take(journal, "reader", first)
    verdict = check(journal)
    assert verdict.reordered == 1


def test_other_topics_and_repeats_do_not_count_as_out_of_order() -> None:
    journal = Journal(QOS1, QOS1, ("reader",))
    labels = [publish(journal, 1), publish(journal, 2), publish(journal, 1, topic="other")]
    for label in (labels[0], labels[1], labels[2], labels[0], labels[1]):
        take(journal, "reader", label)
    assert check(journal).reordered == 0


def test_in_a_queue_the_offsets_are_the_order() -> None:
    journal = Journal(WORK, WORK, ("group",))
    first, second = publish(journal, 1), publish(journal, 2)
    take(journal, "group", second, 1)  # another consumer was faster
    take(journal, "group", first, 0)
    assert check(journal).faults == []
    take(journal, "group", publish(journal, 3), 9)
    take(journal, "group", publish(journal, 4), 8)
    assert check(journal).reordered == 1


def test_a_repeat_of_the_publisher_may_stand_behind_later_messages() -> None:
    journal = Journal(WORK, WORK, ("group",))
    first, second = publish(journal, 1), publish(journal, 2)
    publish(journal, 1)
    for place, label in enumerate((first, second, first)):
        take(journal, "group", label, place)
    assert check(journal).faults == []


def test_what_was_settled_never_comes_again_to_its_group() -> None:
    journal, labels = make_journal(WORK, ("one", "other"))
    journal.note_settled("one", labels[1], 1)
    take(journal, "other", labels[1], 1)
    assert check(journal).faults == []
    take(journal, "one", labels[1], 1)
    verdict = check(journal)
    assert verdict.redelivered == 1


def test_a_consumer_that_is_not_told_offsets_sees_settled_messages_too() -> None:
    journal, labels = make_journal(WORK)
    journal.note_settled("reader", labels[1], 1)
    journal.note_sent(labels[0])
    journal.note_settled("reader", labels[0], 0)
    take(journal, "reader", labels[0])  # sent twice, so there may be a second record
    assert check(journal).redelivered == 0
    take(journal, "reader", labels[1])
    assert check(journal).redelivered == 1


def test_what_was_committed_never_comes_again_to_its_group() -> None:
    journal, labels = make_journal(STREAM, ("one", "other"))
    journal.note_committed("one", 2)
    take(journal, "one", labels[3], 3)
    take(journal, "other", labels[2], 2)
    assert check(journal).redelivered == 0
    take(journal, "one", labels[2], 2)
    assert check(journal).redelivered == 1


def test_an_offset_has_one_value_for_all_readers_and_for_ever() -> None:
    journal, _ = make_journal(STREAM, ("one",))
    journal.add_reader("latecomer")
    for place, number in enumerate((1, 3, 2, 4, 5)):
        take(journal, "latecomer", ("publisher", "t", number), place)
    assert_broken(check(journal), "2 offsets with two values")


def test_a_group_must_not_skip_an_offset_of_a_stream() -> None:
    journal, _ = make_journal(STREAM)
    take(journal, "reader", publish(journal, 6), 6)
    assert_broken(check(journal), "offset 6 where 5 was next")


def test_a_confirmed_session_must_be_there_and_no_other_may() -> None:
    journal, _ = make_journal(QOS1)
    journal.presences.append(("reader", True, False))
    assert_broken(check(journal), "sessions that were confirmed and are gone")
    journal.presences[:] = [("reader", False, True)]
    assert_broken(check(journal), "sessions that nobody had made")


def test_a_damaged_payload_is_named() -> None:
    journal, labels = make_journal(QOS1)
    assert journal.note_delivered("reader", encode_label(labels[3])[:-1]) is None
    assert journal.note_delivered("reader", encode_label(("publisher", "t", 99))) is None
    assert_broken(check(journal), "2 things that must not happen")


def test_verdicts_of_one_path_add_up() -> None:
    journal, _ = make_journal(QOS1)
    publish(journal, 6)
    total = Verdict(QOS1)
    total.add(check(journal))
    total.add(check(journal))
    assert (total.confirmed, total.lost, len(total.faults)) == (12, 2, 2)


def test_a_journal_is_complete_when_every_reader_is_done_with_everything_confirmed() -> None:
    journal = Journal(STREAM, STREAM, ("one", "other"))
    early = ("publisher", "t", 1)
    journal.note_sent(early)
    take(journal, "one", early, 0)  # the delivery may be faster than the confirm
    journal.note_confirmed(early)
    assert not journal.is_complete()
    assert journal.backlog() == 1
    take(journal, "other", early, 0)
    assert journal.is_complete()
    journal.add_reader("latecomer")
    assert not journal.is_complete()
    take(journal, "latecomer", early, 0)
    assert journal.is_complete()


@pytest.mark.parametrize("is_marked", [True, False])
def test_a_record_that_comes_again_must_say_so(is_marked: bool) -> None:
    journal, labels = make_journal(WORK)
    journal.note_delivered("reader", encode_label(labels[0]), 0, is_marked)
    assert (journal.oddities == []) is is_marked
    assert bool(check(journal).faults) is not is_marked


def test_after_a_power_cut_another_record_may_have_that_place() -> None:
    journal, labels = make_journal(WORK)
    journal.note_power_cut(0.0)
    journal.note_delivered("reader", encode_label(labels[0]), 0, False)
    assert journal.oddities == []
