"""The judge of copies knows an exact one from one that lost, doubled or changed records."""

from __future__ import annotations

from crash.copies import check_copy

SOURCE = {("a", 0): b"x", ("a", 1): b"y", ("b", 0): b"z"}
EXACT = [(queue, offset, payload) for (queue, offset), payload in SOURCE.items()]


def test_a_copy_with_every_record_once_is_exact_in_any_order() -> None:
    verdict = check_copy("lake", SOURCE, reversed(EXACT))
    assert verdict.faults == []
    assert (verdict.source_rows, verdict.rows) == (3, 3)


def test_a_record_that_is_not_there_is_lost() -> None:
    verdict = check_copy("lake", SOURCE, EXACT[:2])
    assert verdict.lost == 1
    assert verdict.faults == ["lake: 1 records lost: b 0"]


def test_every_repetition_of_a_record_is_counted() -> None:
    verdict = check_copy("queue", SOURCE, [*EXACT, EXACT[1], EXACT[1]])
    assert verdict.duplicated == 2
    assert verdict.faults == ["queue: 2 records more than once: a 1, a 1"]


def test_a_record_with_another_payload_or_from_nowhere_is_a_fault() -> None:
    verdict = check_copy("lake", SOURCE, [*EXACT[:2], ("b", 0, b"Z"), ("c", 7, b"")])
    assert (verdict.lost, verdict.changed) == (0, 2)
    assert verdict.faults == ["lake: 2 records that are not as in the source: b 0, c 7"]
