"""AMQP 0.9.1: every kind of exchange brings a message where its bindings say, once to each queue."""

from __future__ import annotations

from typing import Any

import pytest
from amqp_names import unique
from pika.spec import Exchange
from raw_amqp_channel import AmqpChannel

pytest_plugins = ["amqp_broker"]


def bound_queues(channel: AmqpChannel, exchange: str, keys: list[str]) -> dict[str, str]:
    queues = {}
    for key in keys:
        queues[key] = channel.temporary()
        channel.bind(queues[key], exchange, key)
    return queues


def who_gets(
    channel: AmqpChannel, exchange: str, key: str, queues: dict[str, str], **options: Any
) -> set[str]:
    channel.publish_confirmed(exchange, key, key.encode(), **options)
    found = {name: channel.drain(queue) for name, queue in queues.items()}
    assert all(bodies in ([], [key.encode()]) for bodies in found.values()), f"more than once: {found}"
    return {name for name, bodies in found.items() if bodies}


def test_a_direct_exchange_compares_whole_keys(channel: AmqpChannel) -> None:
    exchange = channel.exchange(unique("x"), "direct")
    queues = bound_queues(channel, exchange, ["a", "b", "a.b", "*", "#", ""])
    for key in ("a", "b", "a.b", "*", "#", ""):
        assert who_gets(channel, exchange, key, queues) == {key}
    assert who_gets(channel, exchange, "c", queues) == set()


def test_a_direct_exchange_serves_all_queues_of_a_key(channel: AmqpChannel) -> None:
    exchange = channel.exchange(unique("x"), "direct")
    queues = {name: channel.temporary() for name in ("one", "two")}
    for queue in queues.values():
        channel.bind(queue, exchange, "k")
        channel.bind(queue, exchange, "k")
        channel.bind(queue, exchange, "other")
    assert who_gets(channel, exchange, "k", queues) == {"one", "two"}
    channel.unbind(queues["one"], exchange, "k")
    assert who_gets(channel, exchange, "k", queues) == {"two"}
    assert who_gets(channel, exchange, "other", queues) == {"one", "two"}


def test_a_fanout_exchange_looks_at_no_key(channel: AmqpChannel) -> None:
    exchange = channel.exchange(unique("x"), "fanout")
    queues = bound_queues(channel, exchange, ["a", "b", ""])
    channel.bind(queues["a"], exchange, "second binding")
    assert who_gets(channel, exchange, "whatever", queues) == {"a", "b", ""}


TOPIC_PATTERNS = [
    "a.b.c",
    "a.*.c",
    "a.#.b",
    "a.b.b.c",
    "#",
    "#.#",
    "*.b",
    "*.*",
    "*",
    "a.#",
    "b.b.c",
    "a.#.c",
    "*.#",
    "#.c",
    "*.#.*",
    "",
]


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("a.b.c", {"a.b.c", "a.*.c", "#", "#.#", "a.#", "a.#.c", "*.#", "#.c", "*.#.*"}),
        ("a.b", {"a.#.b", "#", "#.#", "*.b", "*.*", "a.#", "*.#", "*.#.*"}),
        ("a.b.b", {"a.#.b", "#", "#.#", "a.#", "*.#", "*.#.*"}),
        ("", {"#", "#.#", ""}),
        ("b.b.c", {"#", "#.#", "b.b.c", "*.#", "#.c", "*.#.*"}),
        ("a", {"#", "#.#", "*", "a.#", "*.#"}),
        ("a.c", {"#", "#.#", "*.*", "a.#", "a.#.c", "*.#", "#.c", "*.#.*"}),
        ("nothing.here.at.all", {"#", "#.#", "*.#", "*.#.*"}),
        ("oneword", {"#", "#.#", "*", "*.#"}),
    ],
)
@pytest.mark.parametrize("is_predeclared", [False, True], ids=["own", "amq.topic"])
def test_a_topic_exchange_matches_words(
    channel: AmqpChannel, key: str, expected: set[str], is_predeclared: bool
) -> None:
    exchange = "amq.topic" if is_predeclared else channel.exchange(unique("x"), "topic")
    queues = bound_queues(channel, exchange, TOPIC_PATTERNS)
    assert who_gets(channel, exchange, key, queues) == expected


def test_a_topic_binding_can_be_taken_back(channel: AmqpChannel) -> None:
    exchange = channel.exchange(unique("x"), "topic")
    queues = bound_queues(channel, exchange, ["a.*", "a.#", "#.b"])
    channel.unbind(queues["a.#"], exchange, "a.#")
    channel.unbind(queues["#.b"], exchange, "a.#")
    assert who_gets(channel, exchange, "a.b", queues) == {"a.*", "#.b"}


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"a": 1, "b": "two"}, {"all", "any", "default", "empty"}),
        ({"a": 1, "b": "two", "more": True}, {"all", "any", "default", "empty"}),
        ({"a": 1}, {"any", "empty"}),
        ({"b": "two"}, {"any", "empty"}),
        ({"a": 2, "b": "three"}, {"empty"}),
        ({"a": "1"}, {"empty"}),
        ({}, {"empty"}),
        ({"x-of-mine": "yes"}, {"empty"}),
    ],
    ids=str,
)
def test_a_headers_exchange_matches_all_or_any(
    channel: AmqpChannel, headers: dict[str, Any], expected: set[str]
) -> None:
    exchange = channel.exchange(unique("x"), "headers")
    wanted = {"a": 1, "b": "two"}
    queues = {name: channel.temporary() for name in ("all", "any", "default", "empty")}
    channel.bind(queues["all"], exchange, "k", **{"x-match": "all"}, **wanted)
    channel.bind(queues["any"], exchange, "k", **{"x-match": "any"}, **wanted)
    channel.bind(queues["default"], exchange, "k", **wanted)
    channel.bind(queues["empty"], exchange, "k", **{"x-match": "all"})
    assert who_gets(channel, exchange, "ignored", queues, headers=headers) == expected


def test_a_headers_binding_may_ask_that_a_header_exists(channel: AmqpChannel) -> None:
    exchange = channel.exchange(unique("x"), "headers")
    queues = {"has": channel.temporary()}
    channel.bind(queues["has"], exchange, "", **{"x-match": "all", "present": None})
    assert who_gets(channel, exchange, "1", queues, headers={"present": 5}) == {"has"}
    assert who_gets(channel, exchange, "2", queues, headers={"other": 5}) == set()


def test_a_headers_binding_with_another_match_is_refused(channel: AmqpChannel) -> None:
    queue = channel.temporary()
    with pytest.raises(Exception, match="406"):
        channel.bind(queue, "amq.headers", "", **{"x-match": "most"})


def test_the_default_exchange_brings_to_the_queue_of_that_name(channel: AmqpChannel) -> None:
    queues = {name: channel.temporary() for name in ("one", "two")}
    assert who_gets(channel, "", queues["one"], queues) == {"one"}


def test_an_exchange_can_be_bound_to_an_exchange(channel: AmqpChannel) -> None:
    source = channel.exchange(unique("source"), "topic")
    middle = channel.exchange(unique("middle"), "fanout")
    target = channel.exchange(unique("target"), "direct")
    queues = {name: channel.temporary() for name in ("a.x", "a.y")}
    bind_exchange(channel, middle, source, "a.*")
    bind_exchange(channel, target, middle, "")
    for key, queue in queues.items():
        channel.bind(queue, target, key)
    assert who_gets(channel, source, "a.x", queues) == {"a.x"}
    assert who_gets(channel, source, "b.x", queues) == set()
    unbind = Exchange.Unbind(destination=middle, source=source, routing_key="a.*")
    channel.call(unbind, Exchange.UnbindOk)
    assert who_gets(channel, source, "a.x", queues) == set()


def bind_exchange(channel: AmqpChannel, destination: str, source: str, key: str) -> None:
    bind = Exchange.Bind(destination=destination, source=source, routing_key=key)
    channel.call(bind, Exchange.BindOk)


def test_exchanges_bound_in_a_ring_bring_a_message_once(channel: AmqpChannel) -> None:
    one, two = channel.exchange(unique("x"), "fanout"), channel.exchange(unique("x"), "fanout")
    queues = {"one": channel.temporary(), "two": channel.temporary()}
    bind_exchange(channel, one, two, "")
    bind_exchange(channel, two, one, "")
    bind_exchange(channel, one, one, "")
    channel.bind(queues["one"], one)
    channel.bind(queues["two"], two)
    channel.bind(queues["one"], two)
    assert who_gets(channel, one, "k", queues) == {"one", "two"}


def test_a_message_with_no_queue_goes_to_the_alternate_exchange(channel: AmqpChannel) -> None:
    spare = channel.exchange(unique("spare"), "fanout")
    exchange = channel.exchange(unique("x"), "direct", arguments={"alternate-exchange": spare})
    queues = {"known": channel.temporary(), "rest": channel.temporary()}
    channel.bind(queues["known"], exchange, "known")
    channel.bind(queues["rest"], spare)
    assert who_gets(channel, exchange, "known", queues) == {"known"}
    assert who_gets(channel, exchange, "unknown", queues, mandatory=True) == {"rest"}
    channel.expect_nothing()  # it was routed: not returned


def test_alternate_exchanges_form_a_chain_that_may_be_a_ring(channel: AmqpChannel) -> None:
    first, second = unique("first"), unique("second")
    channel.exchange(first, "direct", arguments={"alternate-exchange": second})
    channel.exchange(second, "direct", arguments={"alternate-exchange": first})
    channel.publish(first, "nobody", b"x", mandatory=True)
    assert channel.returned().method.reply_code == 312
    channel.confirm()


def test_a_deleted_queue_or_exchange_takes_its_bindings_along(channel: AmqpChannel) -> None:
    exchange = channel.exchange(unique("x"), "direct")
    queue = unique()
    channel.declare(queue)
    channel.bind(queue, exchange, "k")
    channel.delete(queue)
    channel.declare(queue)
    assert who_gets(channel, exchange, "k", {"q": queue}) == set()
    channel.bind(queue, exchange, "k")
    channel.call(Exchange.Delete(exchange=exchange), Exchange.DeleteOk)
    channel.exchange(exchange, "direct")
    assert who_gets(channel, exchange, "k", {"q": queue}) == set()


def test_further_keys_come_from_the_headers_cc_and_bcc(channel: AmqpChannel) -> None:
    exchange = channel.exchange(unique("x"), "direct")
    queues = bound_queues(channel, exchange, ["to", "copy", "blind", "other"])
    headers = {"CC": ["copy"], "BCC": ["blind"]}
    channel.publish_confirmed(exchange, "to", b"x", headers=headers)
    for key in ("to", "copy", "blind"):
        delivery = channel.get_one(queues[key], no_ack=True)
        assert delivery.headers == {"CC": ["copy"]}, "the blind ones are not shown"
        assert delivery.method.routing_key == "to"
    assert channel.get(queues["other"]) is None
    channel.publish(exchange, "nobody", b"x", headers={"CC": ["none"], "BCC": ["secret"]}, mandatory=True)
    assert channel.returned().headers == {"CC": ["none"]}


def test_every_exchange_on_the_way_looks_at_all_keys(channel: AmqpChannel) -> None:
    last = channel.exchange(unique("last"), "direct")
    first = channel.exchange(unique("first"), "direct")
    queue = channel.temporary()
    channel.call(Exchange.Bind(destination=last, source=first, routing_key="copy"), Exchange.BindOk)
    channel.bind(queue, last, "to")
    channel.publish_confirmed(first, "to", b"x", headers={"CC": ["copy"]})
    assert channel.drain(queue) == [b"x"]


def test_a_key_that_finds_nobody_does_not_lead_to_the_alternate_exchange_when_another_does(
    channel: AmqpChannel,
) -> None:
    spare = channel.exchange(unique("spare"), "fanout")
    exchange = channel.exchange(unique("x"), "direct", arguments={"alternate-exchange": spare})
    lost, queue = channel.temporary(), channel.temporary()
    channel.bind(lost, spare)
    channel.bind(queue, exchange, "copy")
    channel.publish_confirmed(exchange, "nobody", b"0", headers={"CC": ["copy"]})
    channel.publish_confirmed(exchange, "nobody", b"1", headers={"CC": ["none"]})
    assert (channel.drain(queue), channel.drain(lost)) == ([b"0"], [b"1"])
