"""Exchanges and the topic space. Matching is in properties/test_exchange_match."""

from __future__ import annotations

from itertools import pairwise

import pytest
from fakes import FakeOutlet

from millstream.model.errors import Reason, Refused
from millstream.routing.binding import Binding
from millstream.routing.exchange import FANOUT, HEADERS, TOPIC, Exchange
from millstream.routing.exchanges import EXCHANGES_PER_STEP, Exchanges
from millstream.routing.header_match import HeaderPattern
from millstream.routing.router import Router
from millstream.routing.subscription import Subscription


def bind(exchanges: Exchanges, source: str, queue: FakeOutlet, key: bytes) -> Binding:
    found = exchanges.by_name[source]
    binding = Binding(found, "q", queue, None, key, {}, b"%d" % id(queue) + key, False)
    exchanges.add(binding)
    return binding


def test_many_hashes_in_one_pattern_do_not_make_a_long_key_costly() -> None:
    exchange = Exchange("x", TOPIC, False, False, False, {})
    pattern = b".".join([b"#", b"a"] * 50 + [b"z"])
    exchange.add(Binding(exchange, "q", FakeOutlet(), None, pattern, {}, b"1", False))
    assert exchange.match(b".".join([b"a"] * 127), None, False) == []
    assert len(exchange.match(b".".join([b"a"] * 120 + [b"z"]), None, False)) == 1


def test_the_predeclared_exchanges_are_there() -> None:
    exchanges = Exchanges()
    assert {exchange.name: exchange.kind for exchange in exchanges.by_name.values()} == {
        "": "direct",
        "amq.direct": "direct",
        "amq.fanout": "fanout",
        "amq.topic": "topic",
        "amq.headers": "headers",
        "amq.match": "headers",
    }


def test_a_topic_of_mqtt_reaches_queues_bound_to_amq_topic() -> None:
    exchanges = Exchanges()
    router = Router(10, exchanges)
    queue = FakeOutlet()
    bind(exchanges, "amq.topic", queue, b"#.room.*")
    assert [target.outlet for target in router.find_route(b"house/room/1").targets] == [queue]
    assert router.find_route(b"house/hall/1").targets == []


def test_topics_of_the_broker_itself_reach_no_exchange() -> None:
    exchanges = Exchanges()
    router = Router(10, exchanges)
    bind(exchanges, "amq.topic", FakeOutlet(), b"#")
    assert router.find_route(b"$SYS/broker/uptime").targets == []


def test_a_queue_that_is_subscribed_and_bound_gets_one_copy() -> None:
    exchanges = Exchanges()
    router = Router(10, exchanges)
    queue = FakeOutlet()
    router.subscribe(Subscription(queue, b"a/+", b"", 2, False, True, 0))
    bind(exchanges, "amq.topic", queue, b"a.*")
    assert len(router.find_route(b"a/b").targets) == 1


def test_a_derived_route_is_stale_when_its_topic_gets_a_subscriber() -> None:
    router = Router(10, Exchanges())
    queue = FakeOutlet()
    kept = router.derive_route(b"a", [queue], True)
    assert [target.outlet for target in kept.targets] == [queue]
    router.subscribe(Subscription(FakeOutlet(), b"a", b"", 0, False, False, 0))
    assert kept.generation != router.generation
    assert len(router.derive_route(b"a", [queue], True).targets) == 2


def test_a_topic_goes_on_through_bindings_between_exchanges() -> None:
    exchanges = Exchanges()
    router = Router(10, exchanges)
    queue = FakeOutlet()
    fanout = Exchange("f", FANOUT, True, False, False, {})
    exchanges.by_name["f"] = fanout
    exchanges.add(Binding(exchanges.topics, "f", None, fanout, b"a.#", {}, b"1", True))
    bind(exchanges, "f", queue, b"")
    assert [target.outlet for target in router.find_route(b"a/b").targets] == [queue]


def test_headers_are_needed_where_a_walk_can_come_by_a_headers_exchange() -> None:
    exchanges = Exchanges()
    second = Exchange("h", HEADERS, True, False, False, {})
    first = Exchange("f", FANOUT, True, False, False, {"alternate-exchange": "h"})
    exchanges.by_name["f"] = first
    assert not exchanges.needs_headers(first)
    exchanges.by_name["h"] = second
    assert exchanges.needs_headers(first)
    assert not exchanges.needs_headers(exchanges.topics)


def test_numbers_are_compared_by_value_and_never_with_text_or_truth() -> None:
    pattern = HeaderPattern({"k": 1})
    assert pattern.matches({b"k": 1}, False)
    assert pattern.matches({b"k": 1.0}, False)
    assert not pattern.matches({b"k": True}, False)
    assert not pattern.matches({b"k": b"1"}, False)
    assert pattern.matches({b"k": b"1"}, True)


def test_tables_and_lists_are_compared_part_by_part() -> None:
    pattern = HeaderPattern({"k": ["a", {"b": [1]}]})
    assert pattern.matches({b"k": [b"a", {b"b": [1]}]}, False)
    assert not pattern.matches({b"k": [b"a", {b"b": [2]}]}, False)
    assert not pattern.matches({b"k": [b"a"]}, False)


def test_an_unknown_x_match_is_refused() -> None:
    with pytest.raises(Refused) as caught:
        HeaderPattern({"x-match": "some"})
    assert caught.value.reason is Reason.PRECONDITION_FAILED


def test_whether_headers_matter_is_found_without_a_look_at_bindings_of_queues() -> None:
    exchanges = Exchanges()
    start, headers = exchanges.by_name["amq.direct"], exchanges.by_name["amq.headers"]
    for number in range(3):
        bind(exchanges, "amq.direct", FakeOutlet(), b"%d" % number)
    assert start.onward == {}
    onward = Binding(start, "amq.headers", None, headers, b"k", {}, b"onward", False)
    exchanges.add(onward)
    assert exchanges.needs_headers(start)
    exchanges.remove(onward)
    assert start.onward == {}
    assert not exchanges.needs_headers(start)


def test_a_bound_queue_costs_a_route_no_target_of_its_own() -> None:
    exchanges = Exchanges()
    router = Router(100, exchanges)
    bind(exchanges, "amq.topic", FakeOutlet(), b"#")
    assert router.find_route(b"a").targets[0] is router.find_route(b"b").targets[0]


def test_routes_with_very_many_receivers_fill_the_cache_sooner() -> None:
    exchanges = Exchanges()
    router = Router(100, exchanges)
    for _ in range(16 * 60):
        bind(exchanges, "amq.topic", FakeOutlet(), b"#")
    before = router.generation
    for number in range(7):
        router.find_route(b"%d" % number)
    assert router.generation == before
    for number in range(7, 14):
        router.find_route(b"%d" % number)
    assert router.generation == before + 1


def test_the_key_does_not_matter_to_an_exchange_that_sends_all_to_queues() -> None:
    exchange = Exchange("x", FANOUT, False, False, False, {})
    assert exchange.ignores_key()
    assert not Exchange("x", FANOUT, False, False, False, {"alternate-exchange": "y"}).ignores_key()
    assert not Exchange("x", TOPIC, False, False, False, {}).ignores_key()
    onward = Exchange("y", TOPIC, False, False, False, {})
    exchange.add(Binding(exchange, "y", None, onward, b"", {}, b"1", False))
    assert not exchange.ignores_key()


def make_chain(length: int) -> tuple[Exchanges, Exchange]:
    """Fanout exchanges, each bound to the one before; nothing else."""
    exchanges = Exchanges()
    chain = [Exchange(f"x{number}", FANOUT, False, False, False, {}) for number in range(length)]
    for exchange in chain:
        exchanges.by_name[exchange.name] = exchange
    for source, target in pairwise(chain):
        exchanges.add(Binding(source, target.name, None, target, b"", {}, target.name.encode(), False))
    return exchanges, chain[0]


def test_every_exchange_on_the_way_of_a_message_counts_as_work() -> None:
    exchanges, first = make_chain(200)
    exchanges.walk(first, b"", None)
    assert exchanges.steps >= 200


def test_looking_whether_headers_decide_anywhere_counts_as_work() -> None:
    exchanges, first = make_chain(200)
    assert not exchanges.needs_headers(first)
    assert exchanges.steps == 200 // EXCHANGES_PER_STEP
