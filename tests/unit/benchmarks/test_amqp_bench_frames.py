"""The transient messages of `bench amqp091`: what is sent, and how deliveries are found by stride and proven."""

from __future__ import annotations

import pytest
from pika import frame as frames
from pika import spec

from benchmarks.amqp_suite.scenarios import BOTH, SCENARIOS
from benchmarks.load.amqp_frames import (
    CONSUMER,
    AmqpShape,
    DeliveryReader,
    delivery_bytes,
    encode_transient,
    encode_transient_cycle,
    sequence_of,
)
from benchmarks.load.frames import FrameFault, count_run, encode_payload

QUEUE = b"bench-flow"
SIZE = 64


def encode_delivery(tag: int, payload: bytes) -> bytes:
    """As a broker would send it, by another's codec."""
    method = spec.Basic.Deliver(CONSUMER.decode(), tag, False, "", QUEUE.decode())
    properties = spec.BasicProperties(delivery_mode=1)
    return (
        frames.Method(1, method).marshal()
        + frames.Header(1, len(payload), properties).marshal()
        + frames.Body(1, payload).marshal()
    )


def deliveries(count: int) -> bytes:
    return b"".join(encode_delivery(number + 1, encode_payload(number, SIZE)) for number in range(count))


def test_a_publish_is_what_another_codec_reads() -> None:
    data = encode_transient(QUEUE, encode_payload(7, SIZE))
    used, publish = frames.decode_frame(data)
    assert (publish.method.exchange, publish.method.routing_key) == ("", QUEUE.decode())
    data = data[used:]
    used, header = frames.decode_frame(data)
    assert (header.body_size, header.properties.delivery_mode) == (SIZE, 1)
    _, body = frames.decode_frame(data[used:])
    assert sequence_of(body.fragment) == 7


def test_the_publishes_of_a_cycle_have_one_length_and_are_numbered_by_publisher() -> None:
    one = len(encode_transient(QUEUE, encode_payload(0, SIZE)))
    assert len(encode_transient_cycle(QUEUE, 5, SIZE, 3)) == 5 * one


def test_deliveries_are_found_by_their_stride() -> None:
    shape = AmqpShape(QUEUE, SIZE)
    data = bytearray(deliveries(10))
    assert shape.stride == delivery_bytes(QUEUE, SIZE) == len(data) // 10
    assert count_run(data, 0, len(data), shape.stride, shape.first_byte) == 10
    shape.check(data, 0, 10)


@pytest.mark.parametrize("place", [0, 5, 10, -1, -2])
def test_a_delivery_that_looks_otherwise_is_a_fault(place: int) -> None:
    shape = AmqpShape(QUEUE, SIZE)
    data = bytearray(deliveries(1))
    data[place] ^= 0xFF
    with pytest.raises(FrameFault):
        shape.check(data, 0, 1)


def test_the_proof_reads_deliveries_however_they_are_cut() -> None:
    data = deliveries(3)
    for step in (1, 7, 100, len(data)):
        reader = DeliveryReader()
        found = [body for at in range(0, len(data), step) for body in reader.feed(data[at : at + step])]
        assert [sequence_of(body) for body in found] == [0, 1, 2]
        assert reader.unread_length() == 0


def test_the_proof_does_not_take_a_close_for_a_delivery() -> None:
    close = frames.Method(1, spec.Channel.Close(404, "NOT_FOUND - no queue", 60, 40)).marshal()
    with pytest.raises(FrameFault, match="NOT_FOUND"):
        DeliveryReader().feed(close)


def test_every_scenario_compares_both_brokers() -> None:
    assert {scenario.brokers for scenario in SCENARIOS} == {BOTH}
    assert len({scenario.name for scenario in SCENARIOS}) == len(SCENARIOS)
