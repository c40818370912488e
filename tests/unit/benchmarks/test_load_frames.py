"""The load generator's fast path against its complete parser, on every way the bytes can be cut."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from benchmarks.load.frames import (
    ANSWER_LENGTH,
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    FrameFault,
    PacketReader,
    Proof,
    answer_run,
    count_run,
    decode_publication,
    encode_answer_cycle,
    encode_cycle,
    encode_length,
    encode_publish,
    encode_typical_properties,
)
from benchmarks.load.job import percentile
from benchmarks.load.link import mask_frame, unwrap_frames
from benchmarks.load.peers import Publisher, Shape, Subscriber

TOPIC = b"bench/t"


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.settimeout(5)
    with ours, theirs:
        yield ours, theirs


def make_buffer() -> tuple[bytearray, memoryview]:
    buffer = bytearray(64 * 1024)
    return buffer, memoryview(buffer)


def make_subscriber(connection: socket.socket, qos: int) -> tuple[Subscriber, bytes]:
    cycle = encode_cycle([TOPIC], 5, 64, qos, b"", 0)
    frame = cycle[: len(cycle) // 5]
    return Subscriber(connection, Shape(frame, TOPIC, len(TOPIC), qos)), cycle


@pytest.mark.parametrize(
    ("length", "encoded"),
    [(0, b"\x00"), (127, b"\x7f"), (128, b"\x80\x01"), (16_383, b"\xff\x7f"), (65_600, b"\xc0\x80\x04")],
)
def test_a_remaining_length_is_encoded_as_the_specification_says(length: int, encoded: bytes) -> None:
    assert encode_length(length) == encoded


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize(
    "properties", [b"", encode_typical_properties(False), encode_typical_properties(True)]
)
def test_a_publish_comes_back_whole_from_the_complete_parser(qos: int, properties: bytes) -> None:
    frame = encode_publish(TOPIC, b"payload", qos, 258, properties)
    (packet,) = PacketReader().feed(frame)
    publication = decode_publication(packet, 5 if properties else 4)
    assert publication.topic == TOPIC
    assert publication.payload == b"payload"
    assert publication.qos == qos
    assert publication.packet_id == (258 if qos else 0)


def test_the_reader_gives_the_same_packets_wherever_the_bytes_are_cut() -> None:
    stream = encode_cycle([TOPIC], 3, 200, 1, b"", 0) + encode_answer_cycle(PUBACK, 3)
    whole = [(packet.first_byte, packet.body) for packet in PacketReader().feed(stream)]
    assert len(whole) == 6
    for cut in range(len(stream)):
        reader = PacketReader()
        parts = reader.feed(stream[:cut]) + reader.feed(stream[cut:])
        assert [(packet.first_byte, packet.body) for packet in parts] == whole
        assert reader.unread_length() == 0


def test_a_remaining_length_of_five_bytes_is_a_fault() -> None:
    with pytest.raises(FrameFault):
        PacketReader().feed(b"\x30\xff\xff\xff\xff\x01")


def test_a_run_ends_at_the_first_packet_of_another_kind() -> None:
    frame = encode_publish(TOPIC, b"x" * 20, 2, 7, b"")
    stream = bytearray(frame * 3 + encode_answer_cycle(PUBREL, 30) + frame)
    assert count_run(stream, 0, len(stream), len(frame), 0x34) == 3
    place = 3 * len(frame)
    assert count_run(stream, place, len(stream), ANSWER_LENGTH, PUBREL) == 30


def test_a_run_counts_whole_packets_only() -> None:
    frame = encode_publish(TOPIC, b"x" * 20, 0, 0, b"")
    stream = bytearray(frame * 4)
    for end in range(len(stream) + 1):
        assert count_run(stream, 0, end, len(frame), 0x30) == end // len(frame)


def test_answers_carry_the_packet_ids_of_their_run_in_order() -> None:
    identifiers = [1, 255, 256, 65_535]
    frames = [encode_publish(TOPIC, b"x" * 20, 1, identifier, b"") for identifier in identifiers]
    offset = frames[0].index(TOPIC) + len(TOPIC)
    answers = answer_run(bytearray(b"".join(frames)), 0, 4, len(frames[0]), offset, PUBACK)
    packets = PacketReader().feed(bytes(answers))
    assert [int.from_bytes(packet.body, "big") for packet in packets] == identifiers
    assert {packet.first_byte for packet in packets} == {PUBACK}


def test_a_cycle_whose_publishes_differ_in_length_is_refused() -> None:
    with pytest.raises(FrameFault):
        encode_cycle([b"a", b"bc"], 3, 64, 0, b"", 0)


@pytest.mark.parametrize("qos", [0, 1])
def test_a_subscriber_counts_exactly_however_the_deliveries_arrive(
    ends: tuple[socket.socket, socket.socket], qos: int
) -> None:
    ours, theirs = ends
    buffer, view = make_buffer()
    subscriber, cycle = make_subscriber(ours, qos)
    for size in range(1, len(cycle)):
        for start in range(0, len(cycle), size):
            theirs.send(cycle[start : start + size])
            subscriber.on_readable(buffer, view)
        assert subscriber.received == 5 * size
        if qos:
            answers = theirs.recv(4096)
            assert answers == encode_answer_cycle(PUBACK, 5)


def test_reads_that_are_only_counted_and_reads_that_are_looked_at_add_up(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = ends
    buffer, view = make_buffer()
    subscriber, cycle = make_subscriber(ours, 0)
    subscriber.is_thorough = False
    for _ in range(200):
        theirs.send(cycle[:100])
        subscriber.on_readable(buffer, view)
        theirs.send(cycle[100:])
        subscriber.on_readable(buffer, view)
    assert subscriber.received == 1000


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_delivery_of_another_length_is_a_fault(ends: tuple[socket.socket, socket.socket], qos: int) -> None:
    ours, theirs = ends
    buffer, view = make_buffer()
    subscriber, _ = make_subscriber(ours, qos)
    theirs.send(encode_publish(TOPIC, b"\x01" * 200, qos, 1, b""))
    with pytest.raises(FrameFault):
        subscriber.on_readable(buffer, view)


def test_a_subscriber_walks_the_four_steps_of_qos_2_through_every_cut(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = ends
    buffer, view = make_buffer()
    subscriber, cycle = make_subscriber(ours, 2)
    stream = cycle + encode_answer_cycle(PUBREL, 5)
    for cut in range(1, len(stream)):
        theirs.send(stream[:cut])
        subscriber.on_readable(buffer, view)
        theirs.send(stream[cut:])
        subscriber.on_readable(buffer, view)
        assert theirs.recv(4096) == encode_answer_cycle(PUBREC, 5) + encode_answer_cycle(PUBCOMP, 5)
    assert subscriber.received == subscriber.completed == 5 * (len(stream) - 1)


def test_a_publisher_releases_what_was_recorded_and_settles_what_was_completed(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = ends
    buffer, view = make_buffer()
    cycle = encode_cycle([TOPIC], 8, 64, 2, b"", 0)
    publisher = Publisher(ours, cycle, 8, 2)
    for turn in range(5):
        assert not publisher.send_until(8 * (turn + 1))
        assert theirs.recv(4096) == cycle
        theirs.send(encode_answer_cycle(PUBREC, 8)[:13])
        publisher.on_readable(buffer, view)
        theirs.send(encode_answer_cycle(PUBREC, 8)[13:])
        publisher.on_readable(buffer, view)
        publisher.send_until(publisher.sent())
        assert theirs.recv(4096) == encode_answer_cycle(PUBREL, 8)
        theirs.send(encode_answer_cycle(PUBCOMP, 8))
        publisher.on_readable(buffer, view)
        assert publisher.settled == publisher.sent() == 8 * (turn + 1)


def test_a_publisher_never_puts_a_release_inside_a_publish(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = ends
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    buffer, view = make_buffer()
    cycle = encode_cycle([TOPIC], 8, 30_000, 2, b"", 0)
    publisher = Publisher(ours, cycle, 8, 2)
    publisher.send_until(8)
    assert publisher.has_unsent()
    theirs.send(encode_answer_cycle(PUBREC, 1))
    publisher.on_readable(buffer, view)
    reader = PacketReader()
    kinds: list[int] = []
    while len(kinds) < 9:
        kinds += [packet.first_byte for packet in reader.feed(theirs.recv(65_536))]
        publisher.is_blocked = False
        publisher.send_until(8)
    assert sorted(kinds) == sorted([0x34] * 8 + [PUBREL])
    assert reader.unread_length() == 0


def test_confirms_out_of_order_are_a_fault(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    buffer, view = make_buffer()
    publisher = Publisher(ours, encode_cycle([TOPIC], 8, 64, 1, b"", 0), 8, 1)
    publisher.send_until(8)
    answers = encode_answer_cycle(PUBACK, 8)
    theirs.send(answers[4:8] + answers[:4])
    with pytest.raises(FrameFault):
        publisher.on_readable(buffer, view)


def make_proof_stream(sequences: list[tuple[int, int]]) -> bytes:
    frames = bytearray()
    for publisher, index in sequences:
        payload = ((publisher << 32) | index).to_bytes(8, "big")
        frames += encode_publish(TOPIC, payload, 0, 0, b"")
    return bytes(frames)


def test_a_proof_accepts_publishers_interleaved_but_each_in_order() -> None:
    Proof({TOPIC}, 0, 4, 2, 2).check(make_proof_stream([(0, 0), (1, 0), (1, 1), (0, 1)]))


@pytest.mark.parametrize(
    "sequences",
    [
        [(0, 0), (1, 0), (1, 1)],
        [(0, 0), (0, 1), (1, 0), (1, 0)],
        [(0, 1), (0, 0), (1, 0), (1, 1)],
        [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2)],
    ],
    ids=["lost", "repeated", "swapped", "invented"],
)
def test_a_proof_refuses_deliveries_that_are_not_what_was_sent(sequences: list[tuple[int, int]]) -> None:
    with pytest.raises(FrameFault):
        Proof({TOPIC}, 0, 4, 2, 2).check(make_proof_stream(sequences))


def test_a_masked_frame_carries_its_payload() -> None:
    frame = mask_frame(b"\x10\x00hello")
    mask = frame[2:6]
    assert frame[:2] == bytes([0x82, 0x80 | 7])
    assert bytes(byte ^ mask[index % 4] for index, byte in enumerate(frame[6:])) == b"\x10\x00hello"


def test_frames_of_a_broker_are_joined_and_an_incomplete_one_waits() -> None:
    assert unwrap_frames(b"\x82\x02ab\x82\x03cde\x82\x05x") == b"abcde"


def test_percentiles_are_taken_by_nearest_rank() -> None:
    ordered = list(range(1, 101))
    assert percentile(ordered, 50) == 50
    assert percentile(ordered, 99) == 99
    assert percentile([7], 99) == 7
    assert percentile([], 99) == 0
