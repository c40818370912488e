"""Segments are read one at a time, and what is damaged in them is named, while checkpoints go on."""

from __future__ import annotations

from counting_disk import CountingDisk
from test_stream_gaps import COUNT, QUEUE, Stream

from millstream.storage.disk import Disk, DiskFault, DiskFile
from millstream.storage.records import queue_records
from millstream.storage.segments.format import segment_name
from millstream.storage.segments.survey import SegmentSurvey


def read_all(stream: Stream, survey: SegmentSurvey) -> list[str]:
    sentences: list[str] = []
    while (found := survey.step(stream.table)) is not None:
        sentences += found
    return sentences


def test_nothing_is_said_of_good_segments_and_each_is_one_step() -> None:
    stream = Stream()
    survey = SegmentSurvey(stream.disk)
    assert [survey.step(stream.table) for _ in stream.firsts()] == [[] for _ in stream.firsts()]
    assert survey.step(stream.table) is None
    assert survey.step(stream.table) is None


def test_a_damaged_record_is_named_with_file_and_offset() -> None:
    stream = Stream()
    first = stream.firsts()[1]
    stream.disk.flip_bit(segment_name(QUEUE, first), 60, 1)
    (sentence,) = read_all(stream, SegmentSurvey(stream.disk))
    assert segment_name(QUEUE, first) in sentence
    assert f"the offsets {first} to {first} of the queue 'history'" in sentence


def test_offsets_that_no_segment_has_are_named() -> None:
    stream = Stream()
    first, behind = stream.firsts()[1:3]
    stream.lose(first)
    (sentence,) = read_all(stream, SegmentSurvey(stream.disk))
    assert f"the offsets {first} to {behind - 1} of the queue 'history'" in sentence


def test_what_is_appended_and_trimmed_meanwhile_is_no_damage() -> None:
    stream = Stream()
    survey = SegmentSurvey(stream.disk)
    assert survey.step(stream.table) == []
    stream.append(range(COUNT, COUNT + 30))
    stream.tell(queue_records.QUEUE_TRIMMED, queue_records.encode_pair(QUEUE, stream.firsts()[2]))
    stream.fold()
    assert read_all(stream, survey) == []


def test_a_folder_is_not_listed_again_for_each_of_its_segments() -> None:
    stream = Stream()
    counting = CountingDisk(stream.disk)
    assert read_all(stream, SegmentSurvey(counting)) == []
    assert counting.listed <= 3 < len(stream.firsts())


def test_a_segment_that_is_trimmed_before_its_turn_is_passed_over() -> None:
    stream = Stream()
    survey = SegmentSurvey(stream.disk)
    assert survey.step(stream.table) == []
    trimmed = stream.firsts()[3]
    stream.tell(queue_records.QUEUE_TRIMMED, queue_records.encode_pair(QUEUE, trimmed))
    stream.fold()
    assert stream.firsts()[0] == trimmed
    steps = 0
    while (found := survey.step(stream.table)) is not None:
        assert found == []
        steps += 1
    assert steps == len(stream.firsts())


def test_a_queue_that_is_removed_meanwhile_is_left_out() -> None:
    stream = Stream()
    survey = SegmentSurvey(stream.disk)
    assert survey.step(stream.table) == []
    stream.tell(queue_records.QUEUE_REMOVED, queue_records.encode_number(QUEUE))
    stream.fold()
    assert survey.step(stream.table) is None


class FailingDisk(CountingDisk):
    """Does not give one file."""

    def __init__(self, disk: Disk, name: str) -> None:
        super().__init__(disk)
        self._bad = name

    def open(self, name: str) -> DiskFile:
        if name == self._bad:
            raise DiskFault(f"{name}: Input/output error")
        return super().open(name)


def test_a_segment_that_the_disk_does_not_give_is_named_and_the_others_are_read() -> None:
    stream = Stream()
    bad, damaged = [segment_name(QUEUE, first) for first in stream.firsts()[1:3]]
    stream.disk.flip_bit(damaged, 60, 1)
    sentences = read_all(stream, SegmentSurvey(FailingDisk(stream.disk, bad)))
    assert [sentence.split()[0] for sentence in sentences] == [bad, damaged]
    assert "it cannot be read" in sentences[0]
