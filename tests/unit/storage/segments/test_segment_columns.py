"""Records as columns: which rows are chosen, and that no body, however broken, is read beyond its end."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from librt.strings import BytesWriter

from millstream.model.message import Message
from millstream.model.native_properties import wrap_carried
from millstream.queues.publish_options import encode_user_property
from millstream.storage.records.queue_records import (
    HEAD_SIZE,
    QueueRecord,
    decode_record,
    decode_record_message,
    encode_record,
)
from millstream.storage.records.session_records import FactFault
from millstream.storage.segments.column_buffers import PlainColumn, Spans, TextColumn, ViewColumn
from millstream.storage.segments.columns import ColumnBatch, RowFilter, find_places
from millstream.storage.segments.format import write_record
from millstream.storage.segments.property_columns import NOT_A_TIME, PropertyReader, decode_milliseconds

MANY = 1 << 40


def make_body(offset: int, payload: bytes = b"payload", producer: bytes = b"") -> bytes:
    message = Message(b"a/topic", payload, 1, False, b"", 0, "publisher")
    return encode_record(1, QueueRecord(offset, 1000 * offset, 0, 0, producer, 7), message, 0)


def frame(bodies: list[bytes]) -> bytes:
    out = BytesWriter()
    for body in bodies:
        write_record(out, body)
    return out.getvalue()


def make_batch(columns: list[str], chosen: RowFilter, rows: int = 100, size: int = MANY) -> ColumnBatch:
    return ColumnBatch(columns, False, 0, chosen, rows, size)


def numbers(data: bytes) -> list[int]:
    return [int.from_bytes(data[at : at + 8], "little", signed=True) for at in range(0, len(data), 8)]


def test_a_batch_goes_on_where_the_one_before_ended() -> None:
    piece = frame([make_body(offset) for offset in range(10)])
    chosen = RowFilter(2, 9)
    position, found = 0, []
    while True:
        batch = make_batch(["offset", "timestamp"], chosen, rows=3)
        position = batch.add(piece, position, len(piece))
        found.append(numbers(batch.take_fixed("offset").values))
        assert numbers(batch.take_fixed("timestamp").values) == found[-1]
        if batch.is_done:
            break
    assert found == [[2, 3, 4], [5, 6, 7], [8]]


def test_a_batch_is_full_at_its_bytes_but_takes_one_row_whatever_its_size() -> None:
    piece = frame([make_body(offset, bytes(1000)) for offset in range(4)])
    batch = make_batch(["offset"], RowFilter(0, 9), size=10)
    assert batch.add(piece, 0, len(piece)) == len(piece) // 4
    assert (batch.rows, batch.is_full) == (1, True)
    batch = make_batch(["offset"], RowFilter(0, 9), size=len(piece) // 2)
    assert batch.add(piece, 0, len(piece)) == len(piece) // 2
    assert batch.rows == 2


def test_a_batch_with_rows_does_not_take_a_large_one_from_the_next_piece() -> None:
    batch = make_batch(["offset"], RowFilter(0, 9), size=500)
    piece = frame([make_body(0)])
    assert batch.add(piece, 0, len(piece)) == len(piece)
    assert not batch.is_full
    piece = frame([make_body(1, bytes(1000))])
    assert batch.add(piece, 0, len(piece)) == 0
    assert (batch.rows, batch.is_full) == (1, True)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from([b"", b"producer"]), st.data())
def test_a_body_becomes_a_row_exactly_if_the_decoder_of_records_takes_it(
    producer: bytes, data: st.DataObject
) -> None:
    body = bytearray(make_body(5, b"payload", producer))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(24, len(body) - 1))
        body[at] = data.draw(st.integers(0, 255))
    broken = bytes(body[: data.draw(st.integers(24, len(body)))])
    piece = frame([broken])
    found = find_places(piece, 0, len(piece), RowFilter(0, 9), 10, MANY, False)
    try:
        decode_record(broken)
        decode_record_message(broken, 0)
    except (FactFault, IndexError):
        assert (found.rows, found.faulty_end) == (0, len(piece))
    except ValueError:
        return  # a publisher that is no text, a number above 63 bits: the broker writes neither
    else:
        assert (found.rows, found.faulty_end) == (1, 0)


@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("size", [0xFFFFFFFC, 0xFFFFFFFD, 0xFFFFFFFF, 0x80000000, 0x7FFFFFFF, 100])
def test_a_size_that_points_out_of_the_body_makes_no_row(part: int, size: int) -> None:
    body = make_body(5)
    at = HEAD_SIZE + 10
    for _ in range(part):
        at += 4 + int.from_bytes(body[at : at + 4], "little")
    piece = frame([body[:at] + size.to_bytes(4, "little") + body[at + 4 :]])
    found = find_places(piece, 0, len(piece), RowFilter(0, 9), 10, MANY, False)
    assert (found.rows, found.faulty_end) == (0, len(piece))


@given(st.binary(max_size=60), st.booleans())
def test_any_bytes_can_stand_where_properties_are_expected(block: bytes, has_pairs: bool) -> None:
    reader = PropertyReader(has_pairs)
    reader.read(block, 0, len(block))
    assert -1 <= reader.content_type_at <= reader.content_type_end <= len(block)
    places = [*reader.pairs, reader.name_at, reader.value_at, reader.value_end]
    assert all(0 <= place <= len(block) for place in places)
    assert len(reader.pairs) == (3 * reader.pair_count if reader.pair_count > 1 else 0)


@pytest.mark.parametrize("size", [1, 70_000])
def test_what_another_protocol_carries_is_not_read_as_columns(size: int) -> None:
    inside = b"\x03\x00\x04fake" + encode_user_property(b"event-time", b"1")
    carried = wrap_carried(inside + bytes(size))
    block = carried + b"\x03\x00\x04text" + encode_user_property(b"a", b"b")
    reader = PropertyReader(True)
    reader.read(block, 0, len(block))
    assert block[reader.content_type_at : reader.content_type_end] == b"text"
    assert reader.event_time == NOT_A_TIME
    assert [block[at] for at in (reader.name_at, reader.value_at)] == [ord("a"), ord("b")]
    assert reader.pair_count == 1


@pytest.mark.parametrize(
    ("text", "time_us"),
    [
        (b"0", 0),
        (b"1700000000123", 1_700_000_000_123_000),
        (b"-5", -5000),
        (b"253402300799999", 253_402_300_799_999_000),
        (b"253402300800000", NOT_A_TIME),
        (b"-62135596800000", -62_135_596_800_000_000),
        (b"-62135596800001", NOT_A_TIME),
        (b"99999999999999999999999999", NOT_A_TIME),
        (b"", NOT_A_TIME),
        (b"-", NOT_A_TIME),
        (b"12.5", NOT_A_TIME),
        (b"+1", NOT_A_TIME),
        (b"2026-11-15", NOT_A_TIME),
    ],
)
def test_an_event_time_is_milliseconds_in_decimal_digits(text: bytes, time_us: int) -> None:
    assert decode_milliseconds(b"x" + text + b"7", 1, 1 + len(text)) == time_us


def read_views(views: bytes, data: bytes) -> list[bytes]:
    found: list[bytes] = []
    for at in range(0, len(views), 16):
        size = int.from_bytes(views[at : at + 4], "little")
        if size <= 12:
            assert views[at + 4 + size : at + 16] == bytes(12 - size), "zeros must follow a text in a view"
            found.append(views[at + 4 : at + 4 + size])
            continue
        place = int.from_bytes(views[at + 12 : at + 16], "little")
        found.append(data[place : place + size])
        assert views[at + 4 : at + 8] == found[-1][:4]
        assert views[at + 8 : at + 12] == bytes(4)
    return found


@pytest.mark.parametrize("size", range(30))
def test_a_short_text_is_whole_in_its_view_and_nothing_of_its_neighbour_is(size: int) -> None:
    piece = bytes(range(200, 200 + size)) + b"\xff" * 20
    column = ViewColumn(False)
    column.add(piece, Spans(bytes(4) + size.to_bytes(4, "little"), 8, 0, 4, 0, 0, False))
    taken = column.take()
    assert read_views(taken.values, b"".join(taken.data)) == [piece[:size]]


@settings(deadline=None)
@given(
    st.lists(st.one_of(st.binary(max_size=40), st.sampled_from([b"x" * 13, b"y" * 600])), max_size=20),
    st.booleans(),
    st.booleans(),
)
def test_texts_of_all_sizes_come_out_of_both_kinds_of_columns(
    texts: list[bytes], is_repeating: bool, is_rare: bool
) -> None:
    piece = b"".join(texts)
    ends = [sum(len(text) for text in texts[:count]) for count in range(len(texts) + 1)]
    pairs = [number.to_bytes(4, "little") for at in range(len(texts)) for number in ends[at : at + 2]]
    spans = Spans(b"".join(pairs), 8, 0, 4, 0, 0, False)
    columns: list[TextColumn] = [PlainColumn(is_rare), ViewColumn(is_repeating, is_rare)]
    for column in columns:
        column.add(piece, spans)
        column.add(piece, spans)
    plain, view = (column.take() for column in columns)
    assert (plain.validity, view.validity, plain.nulls, view.nulls) == (None, None, 0, 0)
    places = [int.from_bytes(plain.values[at : at + 4], "little") for at in range(0, len(plain.values), 4)]
    assert [plain.data[0][places[at] : places[at + 1]] for at in range(2 * len(texts))] == texts + texts
    assert read_views(view.values, b"".join(view.data)) == texts + texts
