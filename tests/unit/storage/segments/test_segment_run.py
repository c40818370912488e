"""Checking a piece at once finds what checking its records one by one finds."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from librt.strings import BytesWriter
from segment_records import make_body

from millstream.storage.segments.format import write_record
from millstream.storage.segments.run import find_run

SIZES = st.lists(
    st.one_of(st.integers(0, 300), st.sampled_from([743, 744, 745, 3000, 70_000])), min_size=1, max_size=8
)


def make_piece(sizes: list[int], queue: int = 1, first: int = 10) -> bytes:
    bodies = [make_body(queue, first + 2 * at, size) for at, size in enumerate(sizes)]
    out = BytesWriter()
    for body in bodies:
        write_record(out, body)
    return out.getvalue()


@settings(deadline=None)
@given(SIZES, st.integers(0, 40))
def test_whole_records_are_sound_whatever_their_sizes_and_whatever_follows(
    sizes: list[int], rest: int
) -> None:
    piece = make_piece(sizes)
    last = 10 + 2 * (len(sizes) - 1)
    run = find_run(piece + make_piece([40], 1, 100)[:rest], 1, 9)
    assert (run.end, run.first, run.last, run.is_sound) == (len(piece), 10, last, True)


@settings(deadline=None)
@given(SIZES, st.data())
def test_a_flipped_bit_is_found_or_the_run_ends_before_it(sizes: list[int], data: st.DataObject) -> None:
    piece = bytearray(make_piece(sizes))
    at = data.draw(st.integers(0, len(piece) - 1))
    piece[at] ^= 1 << data.draw(st.integers(0, 7))
    run = find_run(bytes(piece), 1, 9)
    assert not run.is_sound or run.end <= at


@settings(deadline=None)
@given(SIZES, st.data())
def test_a_run_ends_before_a_record_that_is_cut(sizes: list[int], data: st.DataObject) -> None:
    ends = [len(make_piece(sizes[:count])) for count in range(len(sizes) + 1)]
    cut = data.draw(st.integers(0, ends[-1]))
    run = find_run(make_piece(sizes)[:cut], 1, 9)
    assert (run.end, run.is_sound) == (max(end for end in ends if end <= cut), True)


def test_a_run_ends_before_a_record_of_another_queue_and_before_an_offset_that_does_not_rise() -> None:
    good = make_piece([50, 60])
    for other in (make_piece([40], 2, 20), make_piece([40], 1, 12), make_piece([40], 1, 3)):
        run = find_run(good + other, 1, 9)
        assert (run.end, run.last, run.is_sound) == (len(good), 12, True)
    assert find_run(good, 1, 10).end == 0
    assert find_run(good, 2, 9).end == 0
    assert find_run(b"", 1, -1).end == 0
