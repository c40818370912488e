"""Harm of every kind to the files of a log: found, named, and never believed. `python -m simulation.flips` is the long run."""

from __future__ import annotations

import pytest

from millstream.storage.log.format import FILE_HEADER_SIZE
from simulation.flips import HarmedLog

FLIPS = 1500
TAIL = 3000


@pytest.fixture(scope="module")
def log() -> HarmedLog:
    return HarmedLog(seed=3, file_size=8 * 1024, files=3)


def test_a_flipped_bit_is_named_and_costs_no_other_batch(log: HarmedLog) -> None:
    faults = [log.check_flip(*log.random_flip()) for _ in range(FLIPS)]
    assert [fault for fault in faults if fault] == []


def test_every_bit_of_a_header_and_of_the_first_batch_behind_it_is_watched(log: HarmedLog) -> None:
    for number, file in enumerate(log.files):
        for offset in range(min(file.ends[1][0], 400)):
            assert log.check_flip(number, offset, offset % 8) == ""


def test_the_end_of_a_file_that_is_not_the_last_is_watched_too(log: HarmedLog) -> None:
    file = log.files[0]
    for offset in range(file.last_batch_at(), file.used()):
        assert log.check_flip(0, offset, offset % 8) == ""


def test_the_last_file_may_end_anywhere() -> None:
    log = HarmedLog(seed=4, file_size=8 * 1024, files=2)
    used = log.files[-1].used()
    lengths = [*range(FILE_HEADER_SIZE), *range(used - TAIL, used + 1)]
    assert [log.check_cut(length) for length in lengths if log.check_cut(length)] == []
