"""Segments are read one at a time, and what is damaged in them is named, while checkpoints go on."""

from __future__ import annotations

from test_stream_gaps import COUNT, QUEUE, Stream

from millstream.storage import queue_facts
from millstream.storage.segment_format import segment_name
from millstream.storage.segment_survey import SegmentSurvey


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
    stream.tell(queue_facts.QUEUE_TRIMMED, queue_facts.encode_pair(QUEUE, stream.firsts()[2]))
    stream.fold()
    assert read_all(stream, survey) == []


def test_a_queue_that_is_removed_meanwhile_is_left_out() -> None:
    stream = Stream()
    survey = SegmentSurvey(stream.disk)
    assert survey.step(stream.table) == []
    stream.tell(queue_facts.QUEUE_REMOVED, queue_facts.encode_number(QUEUE))
    stream.fold()
    assert survey.step(stream.table) is None
