"""Ranges of a queue as Arrow batches: the rows are those the records tell, in both layouts, or it is said what is not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest
from google_crc32c import value
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.model.message import Message
from millstream.model.topic import matches
from millstream.protocols.mqtt.wire import kinds
from millstream.protocols.mqtt.wire.primitives import encode_varint
from millstream.protocols.mqtt.wire.properties import Properties, decode_properties, encode_properties
from millstream.reader.arrow import COLUMNS, ColumnFault, SegmentBatches, schema_of
from millstream.runtime.disk.failpoints import NoFailpoints
from millstream.storage.records.queue_records import (
    QueueRecord,
    decode_record,
    decode_record_message,
    encode_record,
)
from millstream.storage.segments.format import HEADER_SIZE, decode_names, index_name, segment_name
from millstream.storage.segments.pieces import Damaged, Trimmed
from millstream.storage.segments.writer import SegmentWriter
from simulation.disk import SimulatedDisk

NAME = "plant/events and more"
START_NS = 1_700_000_000_123_456_789


def make_message(
    topic: bytes = b"plant/7/device/000000042",
    payload: bytes = b"x" * 100,
    properties: Properties | None = None,
    publisher: str = "device-000042",
    guarantee: int = 1,
) -> Message:
    block = encode_properties(properties)
    length = len(encode_varint(len(block))) if properties is None else len(block) - block_size(block)
    return Message(topic, payload, guarantee, False, block[length:], 0, publisher)


def block_size(block: bytes) -> int:
    """Of the properties without the length before them."""
    at = 0
    while block[at] >= 0x80:
        at += 1
    return len(block) - at - 1


def make_record(
    offset: int, message: Message, time_ns: int = 0, producer: bytes = b"", sequence: int = 0
) -> bytes:
    record = QueueRecord(offset, time_ns or START_NS + 1000 * offset, 0, 0, producer, sequence)
    return encode_record(1, record, message, 0)


def write(
    bodies: Iterable[bytes], segment_size: int = 1 << 20, disk: SimulatedDisk | None = None
) -> SimulatedDisk:
    disk = disk or SimulatedDisk()
    writer = SegmentWriter(disk, NoFailpoints(), segment_size)
    for body in bodies:
        writer.append(1, body)
    writer.finish()
    return disk


def read(disk: SimulatedDisk, first: int = 0, end: int = 1 << 40, **options: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for batch in SegmentBatches(disk, 1, NAME, first, end, **options):
        batch.validate(full=True)
        rows += batch.to_pylist()
    return rows


def offsets(disk: SimulatedDisk, first: int = 0, end: int = 1 << 40, **options: Any) -> list[int]:
    return [row["offset"] for row in read(disk, first, end, columns=["offset"], **options)]


def event_time_of(pairs: list[tuple[bytes, bytes]]) -> int | None:
    texts = [text for name, text in pairs if name == b"event-time"]
    digits = texts[-1].removeprefix(b"-") if texts else b""
    if not digits.isdigit() or len(digits) > 15:
        return None
    is_in_calendar = -62_135_596_800_000 <= int(texts[-1]) < 253_402_300_800_000
    return int(texts[-1]) * 1000 if is_in_calendar else None


def expected_row(body: bytes, headers: str = "none") -> dict[str, Any]:
    """What the record says, by way of everybody else's decoder."""
    record, message = decode_record(body), decode_record_message(body, 0)
    block = encode_varint(len(message.properties)) + message.properties
    properties = decode_properties(block, 0, len(block), kinds.PUBLISH)[0] or Properties()
    row: dict[str, Any] = {
        "queue": NAME,
        "partition": 0,
        "offset": record.offset,
        "timestamp": record.time_wall_ns // 1000,
        "event_time": event_time_of(properties.user_properties),
        "topic": message.topic.decode(),
        "payload": message.payload,
        "content_type": None if properties.content_type is None else properties.content_type.decode(),
        "client_id": message.publisher or None,
        "qos": message.guarantee,
        "producer_sequence": record.producer_sequence if record.producer else None,
    }
    pairs = [(name.decode(), text.decode()) for name, text in properties.user_properties]
    if headers == "map":
        last = {name: at for at, (name, _) in enumerate(pairs)}
        row["headers"] = [pair for at, pair in enumerate(pairs) if last[pair[0]] == at] or None
    elif headers == "array":
        row["headers"] = [{"key": name, "value": text} for name, text in pairs] or None
    return row


def with_plain_times(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    for row in rows:
        for name in ("timestamp", "event_time"):
            if row.get(name) is not None:
                row[name] = pa.scalar(row[name], pa.timestamp("us", tz="UTC")).value
    return rows


texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
topics = texts.map(lambda text: ("t" + text.replace("+", "").replace("#", "")).encode())
names = st.one_of(texts, st.just("event-time"), st.sampled_from(["a", "b", "a name longer than twelve"]))
event_times = st.integers(-(10**14), 10**14).map(str)
pairs = st.lists(st.tuples(names, st.one_of(texts, event_times)), max_size=4)


@st.composite
def bodies_of_any_kind(draw: st.DrawFn) -> list[bytes]:
    offset = draw(st.integers(0, 5))
    bodies: list[bytes] = []
    for _ in range(draw(st.integers(1, 25))):
        properties: Properties | None = None
        if draw(st.booleans()):
            properties = Properties()
            properties.user_properties = [(a.encode(), b.encode()) for a, b in draw(pairs)]
            if draw(st.booleans()):
                properties.content_type = draw(texts).encode()
            if draw(st.booleans()):
                properties.correlation_data = draw(st.binary(max_size=9))
                properties.payload_format_indicator = 1
        message = make_message(
            draw(topics), draw(st.binary(max_size=700)), properties, draw(texts), draw(st.integers(0, 2))
        )
        producer = draw(st.sampled_from([b"", b"p", b"a producer"]))
        time_ns = START_NS + draw(st.integers(-(10**15), 10**15))
        bodies.append(make_record(offset, message, time_ns, producer, draw(st.integers(0, 1 << 40))))
        offset += draw(st.sampled_from([1, 1, 1, 2, 50]))
    return bodies


@settings(max_examples=150, deadline=None)
@given(
    bodies_of_any_kind(),
    st.sampled_from(["plain", "view"]),
    st.sampled_from(["none", "map", "array"]),
    st.sets(st.sampled_from(COLUMNS), min_size=1),
    st.sampled_from([1, 3, 10_000]),
    st.sampled_from([200, 1000, 1 << 20]),
    st.sampled_from([64, 700, 1 << 20]),
)
def test_any_messages_come_back_as_the_rows_their_records_tell(
    bodies: list[bytes],
    layout: str,
    headers: str,
    columns: set[str],
    rows: int,
    bytes_max: int,
    piece_size: int,
) -> None:
    disk = write(bodies, 2000)
    options: dict[str, Any] = {"rows": rows, "bytes_max": bytes_max, "piece_size": piece_size}
    first = int(decode_record(bodies[0]).offset)
    found = read(disk, first, layout=layout, headers=headers, columns=sorted(columns), **options)
    wanted = [expected_row(body, headers) for body in bodies]
    kept = [name for name in wanted[0] if name in columns or name == "headers"]
    assert with_plain_times(found) == [{name: row[name] for name in kept} for row in wanted]


def test_the_schema_is_that_of_the_reader_in_both_layouts() -> None:
    time = pa.timestamp("us", tz="UTC")
    plain = schema_of()
    assert plain.names == [
        "queue", "partition", "offset", "timestamp", "event_time", "topic", "payload", "content_type",
        "client_id", "qos", "producer_sequence",
    ]  # fmt: skip
    assert plain.types == [
        pa.string(), pa.int32(), pa.int64(), time, time, pa.string(), pa.binary(), pa.string(),
        pa.string(), pa.int32(), pa.int64(),
    ]  # fmt: skip
    view = schema_of(["payload", "topic", "offset"], "view", "map")
    assert view.names == ["offset", "topic", "payload", "headers"]
    assert view.types == [pa.int64(), pa.string_view(), pa.binary_view(), pa.map_(pa.string(), pa.string())]
    pair = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.string())])
    assert schema_of(["qos"], headers="array").field("headers").type == pa.list_(pair)


def test_what_does_not_exist_is_refused_with_what_does() -> None:
    with pytest.raises(ColumnFault, match="no column 'key'; there are queue, partition"):
        schema_of(["offset", "key"])
    with pytest.raises(ColumnFault, match="no layout 'rows'; there are plain, view"):
        schema_of(layout="rows")
    with pytest.raises(ColumnFault, match="one of none, map, array"):
        schema_of(headers="all")
    with pytest.raises(ColumnFault, match="no column is asked for"):
        schema_of([])


@pytest.mark.parametrize("layout", ["plain", "view"])
def test_a_stream_of_batches_is_the_same_on_the_other_side_of_a_wire(layout: str) -> None:
    bodies = [make_record(n, make_message(payload=bytes([n % 256]) * (1 + n % 900))) for n in range(700)]
    batches = SegmentBatches(write(bodies, 30_000), 1, NAME, 0, 700, layout=layout, rows=100, piece_size=4096)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches.schema) as stream:
        for batch in batches:
            stream.write_batch(batch)
    table = pa.ipc.open_stream(sink.getvalue()).read_all()
    assert table.schema == schema_of(layout=layout)
    assert with_plain_times(table.to_pylist()) == [expected_row(body) for body in bodies]


def test_batches_end_at_their_rows_and_at_their_bytes() -> None:
    disk = write([make_record(n, make_message(payload=bytes(100))) for n in range(1000)], 20_000)
    sizes = [len(batch) for batch in SegmentBatches(disk, 1, NAME, 0, 1000, rows=300)]
    assert sizes == [300, 300, 300, 100]
    one = len(make_record(0, make_message(payload=bytes(100)))) + 8
    sizes = [len(batch) for batch in SegmentBatches(disk, 1, NAME, 0, 50, rows=300, bytes_max=20 * one)]
    assert sizes == [20, 20, 10]


@pytest.mark.parametrize("layout", ["plain", "view"])
def test_a_payload_larger_than_a_batch_and_a_piece_comes_as_a_batch_of_its_own(layout: str) -> None:
    payloads = [b"a" * 10, bytes(range(256)) * 20_000, b"b" * 300_000, b""]
    disk = write([make_record(n, make_message(payload=payload)) for n, payload in enumerate(payloads)])
    batches = list(SegmentBatches(disk, 1, NAME, 0, 4, layout=layout, bytes_max=100_000, piece_size=65_536))
    assert [len(batch) for batch in batches] == [1, 1, 1, 1]
    assert [batch.column("payload")[0].as_py() for batch in batches] == payloads
    assert max(batch.nbytes for batch in batches) < 5_300_000


def test_payloads_that_are_most_of_their_records_are_not_copied_in_the_view_layout() -> None:
    bodies = [make_record(n, make_message(payload=bytes(2000))) for n in range(40)]
    (batch,) = SegmentBatches(write(bodies), 1, NAME, 0, 40, layout="view")
    (piece,) = batch.column("payload").buffers()[2:]
    assert piece.to_pybytes() == write(bodies).content(segment_name(1, 0))[HEADER_SIZE:]


def test_a_narrow_filter_does_not_keep_what_it_leaves_out() -> None:
    bodies = [
        make_record(n, make_message(b"all/%d" % (n % 100), payload=bytes([n % 256]) * 2000))
        for n in range(500)
    ]
    (batch,) = SegmentBatches(write(bodies), 1, NAME, 0, 500, layout="view", topic_filter=b"all/7")
    assert batch.column("offset").to_pylist() == [7, 107, 207, 307, 407]
    assert batch.column("payload").to_pylist() == [bytes([n % 256]) * 2000 for n in range(7, 500, 100)]
    assert batch.nbytes < 5 * 2200


def test_equal_topics_stand_once_in_a_batch_of_the_view_layout() -> None:
    bodies = [make_record(n, make_message(b"plant/7/device/%09d" % (n % 10))) for n in range(1000)]
    (batch,) = SegmentBatches(write(bodies), 1, NAME, 0, 1000, layout="view", columns=["topic"])
    assert batch.column("topic").buffers()[2].size == 10 * 24


def test_offsets_outside_the_range_stay_out_and_gaps_are_no_loss() -> None:
    disk = write([make_record(n, make_message()) for n in range(0, 300, 3)], 2000)
    assert offsets(disk, 100, 121) == [102, 105, 108, 111, 114, 117, 120]
    assert offsets(disk, 0, 3) == [0]
    assert offsets(disk, 298, 1000) == []
    assert offsets(disk, 7, 7) == []


def test_a_queue_without_rows_in_the_range_gives_no_batch_but_has_a_schema() -> None:
    batches = SegmentBatches(write([make_record(5, make_message())]), 1, NAME, 6, 9)
    assert batches.schema == schema_of()
    assert list(batches) == []
    assert list(batches) == []


def test_only_records_of_the_time_asked_for_come_also_where_the_clock_stepped_back() -> None:
    times = [START_NS + 1_000_000 * step for step in range(3000)]
    times[2000:2100] = [START_NS] * 100
    bodies = [make_record(n, make_message(), time_ns) for n, time_ns in enumerate(times)]
    disk = write(bodies, 100_000)
    since, until = times[1990], times[2110]
    wanted = [n for n, time_ns in enumerate(times) if since <= time_ns < until]
    assert wanted == [*range(1990, 2000), *range(2100, 2110)]
    assert offsets(disk, since_ns=since, until_ns=until) == wanted
    assert offsets(disk, 1995, 2105, since_ns=since) == [*range(1995, 2000), *range(2100, 2105)]


@pytest.mark.parametrize("topic_filter", [b"a/+/c", b"a/#", b"#", b"$SYS/#", b"a/1/c", b"nothing"])
def test_only_topics_under_the_filter_come(topic_filter: bytes) -> None:
    topics = [b"a/1/c", b"a/2/c", b"a", b"b/1/c", b"$SYS/x", b"a/1/c/d"]
    bodies = [make_record(n, make_message(topics[n % 6]), 0, b"p" if n % 5 else b"", n) for n in range(60)]
    found = offsets(write(bodies, 3000), topic_filter=topic_filter, rows=7, layout="view")
    assert found == [n for n in range(60) if matches(topic_filter, topics[n % 6])]


def test_rows_that_were_trimmed_before_are_an_error_that_names_the_lowest() -> None:
    disk = write([make_record(n, make_message()) for n in range(100)], 2000)
    writer = SegmentWriter(disk, NoFailpoints(), 2000)
    writer.drop_below(1, 50)
    lowest = decode_names(disk.names("queues/1"))[0][0]
    assert 0 < lowest <= 50
    with pytest.raises(Trimmed, match=f"offsets 3 to {lowest - 1} are no longer there") as caught:
        read(disk, 3, 100)
    assert caught.value.first == lowest
    assert offsets(disk, lowest, 100) == list(range(lowest, 100))
    writer.remove(1)
    with pytest.raises(Trimmed):
        read(disk, lowest, 100)


def test_rows_that_are_trimmed_while_reading_are_an_error_after_those_before_them() -> None:
    disk = write([make_record(n, make_message()) for n in range(100)], 2000)
    second = decode_names(disk.names("queues/1"))[0][1]
    batches = SegmentBatches(disk, 1, NAME, 0, 100, columns=["offset"], rows=1)
    found = next(batches).column("offset").to_pylist()
    SegmentWriter(disk, NoFailpoints(), 2000).drop_below(1, 60)
    lowest = decode_names(disk.names("queues/1"))[0][0]
    for _ in range(1, second):  # the file is open: what is in it can still be read
        found += next(batches).column("offset").to_pylist()
    with pytest.raises(Trimmed) as caught:
        next(batches)
    assert (caught.value.asked, caught.value.first) == (second, lowest)
    assert found == list(range(second))


def test_damage_is_an_error_that_names_the_file_and_the_offsets_or_is_skipped_and_listed() -> None:
    bodies = [make_record(n, make_message()) for n in range(100)]
    disk = write(bodies)
    size = len(bodies[0]) + 8
    place = HEADER_SIZE + 40 * size
    disk.flip_bit(segment_name(1, 0), place + 60)
    with pytest.raises(Damaged, match=f"offsets 40 to 40 cannot be read: .*0.segment, bytes {place} to"):
        read(disk, 0, 100)
    batches = SegmentBatches(disk, 1, NAME, 0, 100, columns=["offset"], skips_damage=True)
    rows = [row["offset"] for batch in batches for row in batch.to_pylist()]
    assert rows == [n for n in range(100) if n != 40]
    assert [(damage.start, damage.end) for damage in batches.damage] == [(place, place + size)]
    assert offsets(disk, 41, 100) == list(range(41, 100))
    assert offsets(disk, 0, 40) == list(range(40))


@pytest.mark.parametrize("rows", [10, 50, 10_000])
def test_rows_before_damage_come_before_the_error(rows: int) -> None:
    bodies = [make_record(n, make_message()) for n in range(100)]
    disk = write(bodies)
    disk.flip_bit(segment_name(1, 0), HEADER_SIZE + 70 * (len(bodies[0]) + 8) + 60)
    batches = SegmentBatches(disk, 1, NAME, 0, 100, rows=rows)
    found = [offset for _ in range(-(-70 // rows)) for offset in next(batches).column("offset").to_pylist()]
    assert found == list(range(70))
    with pytest.raises(Damaged) as caught:
        next(batches)
    assert (caught.value.first, caught.value.end) == (70, 71)
    with pytest.raises(Damaged):
        next(batches)


def test_a_record_whose_body_makes_no_sense_is_damage_although_its_checksum_is_right() -> None:
    bodies = [make_record(n, make_message()) for n in range(9)]
    broken = bytearray(bodies[4])
    broken[44:48] = (1 << 20).to_bytes(4, "little")  # size of the topic
    assert value(bytes(broken)) != value(bodies[4])
    bodies[4] = bytes(broken)
    disk = write(bodies)
    with pytest.raises(Damaged, match=r"offsets 4 to 4 cannot be read: .*makes no sense"):
        read(disk, 0, 9)
    assert offsets(disk, 0, 9, skips_damage=True) == [0, 1, 2, 3, 5, 6, 7, 8]


def test_a_damaged_header_is_told_but_costs_no_row() -> None:
    disk = write([make_record(n, make_message()) for n in range(9)])
    disk.flip_bit(segment_name(1, 0), 3)
    batches = SegmentBatches(disk, 1, NAME, 0, 9, columns=["offset"])
    assert [row["offset"] for batch in batches for row in batch.to_pylist()] == list(range(9))
    assert [damage.text for damage in batches.damage] == ["the header of the file is damaged"]


def test_a_missing_index_costs_nothing_but_time() -> None:
    disk = write([make_record(n, make_message()) for n in range(900)])
    disk.remove(index_name(1, 0))
    assert offsets(disk, 700, 900) == list(range(700, 900))


def test_a_record_that_is_just_being_written_is_not_there_yet() -> None:
    disk = write([make_record(n, make_message()) for n in range(9)])
    name = segment_name(1, 0)
    disk.replace(name, disk.content(name) + make_record(9, make_message())[:50])
    assert offsets(disk, 0, 10) == list(range(9))


def test_a_segment_that_is_cut_and_written_on_while_it_is_read_is_looked_at_again() -> None:
    bodies = [make_record(n, make_message()) for n in range(9)]
    disk = write(bodies[:5])
    name = segment_name(1, 0)
    disk.replace(name, disk.content(name) + b"\x55" * 300)
    batches = SegmentBatches(disk, 1, NAME, 0, 9, columns=["offset"], rows=1, piece_size=300)
    found = next(batches).column("offset").to_pylist()
    disk.replace(name, write(bodies).content(name))
    found += [batch.column("offset")[0].as_py() for batch in batches]
    assert found == list(range(9))
    assert batches.damage == []
