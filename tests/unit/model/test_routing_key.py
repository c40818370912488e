"""Routing keys and topics, by example; what holds for all of them is in tests/properties/test_routing_keys.py."""

from __future__ import annotations

import pytest

from millstream.model.queue_topic import quote_name, split_queue_topic
from millstream.model.routing_key import (
    filter_of_binding,
    key_of_topic,
    quote_level,
    topic_of_key,
    topic_of_name,
    topic_of_publish,
)


@pytest.mark.parametrize(
    ("key", "topic"),
    [
        (b"a.b.c", b"a/b/c"),
        (b"a/b.c", b"a.b/c"),
        (b"", b"%"),
        (b"..", b"//"),
        (b"a+b.#", b"a%2Bb/%23"),
        (b"a.*", b"a/*"),
        (b"$SYS.uptime", b"%24SYS/uptime"),
        (b"a\x00b", b"a%00b"),
        (b"a.\xff\xc3", b"a/%FF%C3"),
        ("å.ß".encode(), "å/ß".encode()),
        (b"100%", b"100%"),
    ],
)
def test_a_routing_key_stands_for_a_topic(key: bytes, topic: bytes) -> None:
    assert topic_of_key(key) == topic


@pytest.mark.parametrize("topic", [b"a/b", b"a.b/c", b"100%/x.y", b"/", b"a/*/c", b"%2B/%"])
def test_the_key_of_a_topic_leads_back_to_it(topic: bytes) -> None:
    assert topic_of_key(key_of_topic(topic)) == topic


@pytest.mark.parametrize(
    ("exchange", "key", "topic"),
    [
        (b"amq.topic", b"a.b", b"a/b"),
        (b"orders", b"new.eu", b"orders/new/eu"),
        (b"my.orders", b"", b"my.orders/%"),
        (b"a/b", b"$c", b"a%2Fb/%24c"),
        (b"$x", b"k", b"%24x/k"),
        (b"", b"tasks", b"$queue/tasks"),
        (b"", b"a/b+c%", b"$queue/a%2Fb%2Bc%25"),
        (b"", b"$queue/tasks/eu", b"$queue/tasks/eu"),
        (b"", b"$dlq/tasks", b"$dlq/tasks"),
        (b"", b"$queue/ta+sks", b"$queue/ta%2Bsks"),
    ],
)
def test_what_is_published_to_an_exchange_has_a_topic(exchange: bytes, key: bytes, topic: bytes) -> None:
    assert topic_of_publish(exchange, key) == topic


def test_a_name_with_slashes_is_a_topic_for_the_default_exchange() -> None:
    assert topic_of_name(b"a/b.c") == b"a/b.c"
    assert topic_of_name(b"a.b.c") == b"a/b/c"
    assert topic_of_name(b"$SYS/x") == b"%24SYS/x"
    assert topic_of_name(b"a/#") == b"a/%23"
    assert topic_of_name(b"") == b"%"


@pytest.mark.parametrize(
    ("binding", "filter"),
    [
        (b"a.*.c", b"a/+/c"),
        (b"a.#", b"a/#"),
        (b"#", b"#"),
        (b"", b"%"),
        (b"#.a", None),
        (b"a.#.b", None),
        (b"#.#", None),
        (b"a*.b#", b"a*/b%23"),
        (b"a/b.*", b"a.b/+"),
        (b"$SYS.#", b"%24SYS/#"),
    ],
)
def test_a_binding_key_stands_for_a_filter_if_there_is_one(binding: bytes, filter: bytes | None) -> None:
    assert filter_of_binding(binding) == filter


@pytest.mark.parametrize("name", ["tasks", "a/b", "a+b#c", "100%", "%2F", "ü.x", "*"])
def test_the_name_of_a_queue_is_read_back_from_its_topic(name: str) -> None:
    assert quote_level(name.encode()) == quote_name(name)
    assert split_queue_topic(topic_of_publish(b"", name.encode())) == (name, b"")
