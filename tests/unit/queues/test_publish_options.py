"""Directions: what a publisher asks of a queue, read out of a block of properties."""

from __future__ import annotations

import pytest

from millstream.model.queue_topic import split_queue_topic
from millstream.queues.publish_options import (
    DELAY_MS_MAX,
    encode_user_property,
    find_user_properties,
    read_number,
    read_publish_options,
    read_user_properties,
)

OTHERS = b"\x01\x01\x02\x00\x00\x00\x05\x03\x00\x04text\x08\x00\x01t\x09\x00\x03\x26\x00\x01"


def words(**pairs: str) -> bytes:
    return b"".join(
        encode_user_property(name.replace("_", "-").encode(), value.encode()) for name, value in pairs.items()
    )


def test_nothing_asked_gives_nothing() -> None:
    assert read_publish_options(b"") is None
    assert read_publish_options(OTHERS) is None
    assert read_publish_options(words(color="red")) is None


def test_all_of_them_are_found_among_the_others() -> None:
    found = read_publish_options(
        OTHERS + words(producer_id="p", sequence="7", color="red", priority="4", delay_ms="250")
    )
    assert found is not None
    assert (found.producer, found.sequence, found.priority, found.delay_ms) == (b"p", 7, 4, 250)


def test_what_is_too_much_is_cut_to_the_most() -> None:
    found = read_publish_options(words(priority="999", delay_ms="999999999999"))
    assert found is not None
    assert (found.priority, found.delay_ms) == (255, DELAY_MS_MAX)


@pytest.mark.parametrize("value", ["", "-1", "1.5", "x", "²", "1" * 19, " 1"])
def test_what_is_no_number_is_not_followed(value: str) -> None:
    found = read_publish_options(words(producer_id="p", sequence=value, priority=value, delay_ms=value))
    assert found is not None
    assert (found.producer, found.sequence, found.priority, found.delay_ms) == (b"", 0, 0, 0)


def test_numbers() -> None:
    assert [read_number(value) for value in (b"0", b"17", b"9" * 18, b"", b"-1")] == [
        0,
        17,
        10**18 - 1,
        -1,
        -1,
    ]


def test_pairs_are_found_in_order_with_their_places() -> None:
    block = words(a="1") + OTHERS + words(b="", a="2")
    assert read_user_properties(block) == [(b"a", b"1"), (b"b", b""), (b"a", b"2")]
    for name, value, start, end in find_user_properties(block):
        assert block[start:end] == encode_user_property(name, value)


@pytest.mark.parametrize(
    ("topic", "place"),
    [
        (b"$queue/q", ("q", b"")),
        (b"$queue/q/a/b", ("q", b"a/b")),
        (b"$queue/", ("", b"")),
        (b"$dlq/q", ("$dlq/q", b"")),
        (b"$dlq/q/a", ("$dlq/q", b"a")),
        (b"$queue", None),
        (b"queue/q", None),
        (b"a/$queue/q", None),
    ],
)
def test_names_of_queues_in_topics(topic: bytes, place: tuple[str, bytes] | None) -> None:
    assert split_queue_topic(topic) == place
