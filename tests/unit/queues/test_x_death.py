"""Dead letters that go to an exchange: what they say about their deaths, and that none goes round for ever."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from queue_world import START_NS, WALL_OFFSET_NS, QueueWorld, words_of

from millstream.model.message import Message
from millstream.model.native_properties import AMQP_091, AMQP_ADDRESS, native_part, wrap_carried
from millstream.model.outcome import Outcome
from millstream.queues.publish_options import encode_user_property
from millstream.queues.queue import Queue
from millstream.queues.x_death import (
    DEATHS,
    DEATHS_MAX,
    KEYS_MAX,
    TEXT_MAX,
    find_place,
    further_keys,
    is_cycle,
    read_deaths,
)
from millstream.storage.records import queue_records

KINDS = ("work", "ephemeral")
START_S = (WALL_OFFSET_NS + START_NS) // 1_000_000_000
PLAIN = b"\x10\x00\x02"  # property flags and delivery mode: never looked into here


@pytest.fixture
def world() -> QueueWorld:
    return QueueWorld()


def carry(exchange: bytes, key: bytes, properties: bytes = PLAIN) -> bytes:
    place = bytes([AMQP_091, len(exchange)]) + exchange + bytes([len(key)]) + key
    return wrap_carried(place + properties)


def publish(world: QueueWorld, queue: Queue, payload: bytes, block: bytes, expiry_ms: int = 0) -> None:
    expires_ns = int(world.clock.now_ns) + expiry_ms * 1_000_000 if expiry_ms else 0
    queue.append(Message(b"orders/eu", payload, 1, False, block, expires_ns, "p"))
    world.loop()


def deaths_of(message: Message) -> list[dict[str, Any]]:
    return list(json.loads(words_of(message)["x-death"]))


def reject_all(world: QueueWorld, queue: Queue) -> None:
    consumer = world.join(queue)
    consumer.settle_all(Outcome.REJECTED)
    world.leave(queue, consumer)


@pytest.mark.parametrize("kind", KINDS)
def test_a_rejected_message_is_published_again_with_its_death(world: QueueWorld, kind: str) -> None:
    queue = world.declare(kind=kind, auto_delete=False, dead_letter_exchange="dlx", dead_letter="off")
    target = world.declare("dlx", kind=kind, auto_delete=False)
    publish(world, queue, b"poison", carry(b"amq.direct", b"orders.eu") + encode_user_property(b"a", b"b"))
    world.move(2000)
    reject_all(world, queue)
    [(exchange, key, letter)] = world.exchanges.posted
    assert (exchange, key, letter.payload) == ("dlx", b"orders.eu", b"poison")
    assert deaths_of(letter) == [
        {
            "queue": "q",
            "reason": "rejected",
            "count": 1,
            "exchange": "amq.direct",
            "routing-keys": ["orders.eu"],
            "time": START_S + 2,
        }
    ]
    words = words_of(letter)
    assert words["a"] == "b"
    assert (words["x-first-death-queue"], words["x-first-death-reason"]) == ("q", "rejected")
    assert words["x-first-death-exchange"] == "amq.direct"
    assert native_part(letter.properties) == b"\x01\x03dlx\x09orders.eu" + PLAIN
    assert letter.topic == b"dlx/orders/eu"
    assert (queue.depth(), queue.counters.dead_lettered, target.depth()) == (0, 1, 1)


def test_a_key_of_the_queue_takes_the_place_of_its_own(world: QueueWorld) -> None:
    queue = world.declare(dead_letter_exchange="", dead_letter_key="grave")
    publish(world, queue, b"x", carry(b"", b"q"))
    reject_all(world, queue)
    [(exchange, key, letter)] = world.exchanges.posted
    assert (exchange, key, letter.topic) == ("", b"grave", b"$queue/grave")
    assert find_place(letter) == (b"", b"grave")
    assert deaths_of(letter)[0]["routing-keys"] == ["q"]


@pytest.mark.parametrize(
    ("topic", "place"),
    [
        (b"a/b", (b"amq.topic", b"a.b")),
        (b"$queue/q", (b"", b"q")),
        (b"$queue/a%2Fb/key", (b"", b"a/b")),
    ],
)
def test_what_no_amqp_client_published_has_a_place_too(topic: bytes, place: tuple[bytes, bytes]) -> None:
    assert find_place(Message(topic, b"", 0, False, encode_user_property(b"a", b"b"), 0, "")) == place


def test_a_letter_of_another_protocol_says_where_it_was_published_too(world: QueueWorld) -> None:
    queue = world.declare(dead_letter_exchange="dlx")
    queue.append(Message(b"plant/hall", b"x", 1, False, b"", 0, "p"))
    world.loop()
    reject_all(world, queue)
    [(_, key, letter)] = world.exchanges.posted
    assert key == b"plant.hall"
    assert find_place(letter) == (b"dlx", b"plant.hall")
    assert deaths_of(letter)[0]["exchange"] == "amq.topic"


def test_each_reason_has_the_word_amqp_clients_know(world: QueueWorld) -> None:
    fields = {"dead_letter_exchange": "dlx", "backoff_ms": 0, "max_deliveries": 2}
    world.declare("dlx")
    queue = world.declare(overflow="drop_head", length_max=1, **fields)
    world.fill(queue, 2)
    consumer = world.join(queue)
    consumer.settle(0, Outcome.MODIFIED)
    consumer.settle(1, Outcome.MODIFIED)
    world.publish(queue, b"2")
    world.loop()
    consumer.settle(2, Outcome.REJECTED, "in words of the consumer")
    consumer.credit = 0
    world.publish(queue, b"3", expiry_ms=10)
    world.move(10)
    reasons = [deaths_of(letter)[0]["reason"] for _, _, letter in world.exchanges.posted]
    assert reasons == ["maxlen", "delivery_limit", "rejected", "expired"]


def test_an_expired_message_says_how_long_it_had_and_has_no_end_any_more(world: QueueWorld) -> None:
    queue = world.declare(dead_letter_exchange="dlx")
    target = world.declare("dlx")
    publish(world, queue, b"x", carry(b"", b"q"), expiry_ms=700)
    world.move(1000)
    [(_, _, letter)] = world.exchanges.posted
    assert deaths_of(letter)[0]["original-expiration"] == "700"
    assert letter.expires_ns == 0
    world.move(10_000)
    assert target.depth() == 1


def test_the_same_death_is_counted_and_moved_to_the_front(world: QueueWorld) -> None:
    first = world.declare("a", dead_letter_exchange="b")
    second = world.declare("b", dead_letter_exchange="a", message_ttl_ms=100)
    publish(world, first, b"x", carry(b"amq.direct", b"k"))
    for _ in range(3):
        reject_all(world, first)
        world.move(100)
    assert (first.ready(), second.ready()) == (1, 0)
    deaths = deaths_of(world.join(first).got[0].message)
    assert [(death["queue"], death["reason"], death["count"]) for death in deaths] == [
        ("b", "expired", 3),
        ("a", "rejected", 3),
    ]
    assert deaths[1]["exchange"] == "amq.direct"  # where it came from the first time
    assert words_of(world.exchanges.posted[-1][2])["x-first-death-queue"] == "a"
    assert words_of(world.exchanges.posted[-1][2])["x-first-death-exchange"] == "amq.direct"


def test_deaths_that_a_client_sent_one_by_one_are_merged(world: QueueWorld) -> None:
    """As RabbitMQ does with those of releases that did not count: so many entries, so often it happened."""
    told: list[dict[str, object]] = [
        {"queue": "q", "reason": "rejected", "exchange": "newest"},
        {"queue": "other", "reason": "expired", "count": 7},
        {"queue": "q", "reason": "rejected", "exchange": "older"},
        {"queue": "other", "reason": "expired"},
        {"queue": "q", "reason": "expired", "count": "often"},
        {"queue": "q", "reason": "rejected", "exchange": "oldest"},
    ]
    queue = world.declare(dead_letter_exchange="dlx")
    block = carry(b"", b"q") + encode_user_property(DEATHS, json.dumps(told).encode())
    publish(world, queue, b"x", block)
    reject_all(world, queue)
    [(_, _, letter)] = world.exchanges.posted
    assert [(death["queue"], death["reason"], death["count"]) for death in deaths_of(letter)] == [
        ("q", "rejected", 4),
        ("other", "expired", 7),
        ("q", "expired", 1),
    ]
    assert deaths_of(letter)[0]["exchange"] == "newest"


@pytest.mark.parametrize("kind", KINDS)
def test_a_letter_that_would_go_round_by_itself_is_dropped(world: QueueWorld, kind: str) -> None:
    fields = {"kind": kind, "auto_delete": False, "message_ttl_ms": 100}
    first = world.declare("a", dead_letter_exchange="b", **fields)
    second = world.declare("b", dead_letter_exchange="a", **fields)
    world.fill(first, 1)
    world.move(100)
    assert (first.depth(), second.depth()) == (0, 1)
    world.move(100)
    assert (first.depth(), second.depth(), second.counters.dropped) == (0, 0, 1)


def death(queue: str, reason: str) -> dict[str, object]:
    return {"queue": queue, "reason": reason, "count": 1}


@pytest.mark.parametrize(
    ("deaths", "is_one"),
    [
        ([], False),
        ([death("b", "expired")], False),
        ([death("a", "expired")], True),
        ([death("a", "maxlen"), death("b", "rejected")], True),
        ([death("a", "rejected")], False),
        ([death("b", "expired"), death("a", "expired")], True),
        ([death("b", "rejected"), death("a", "expired")], False),
        ([death("b", "expired"), death("a", "rejected")], False),
        ([death("b", "delivery_limit"), death("c", "maxlen"), death("a", "expired")], True),
    ],
)
def test_a_cycle_is_one_only_if_nobody_rejected_in_it(deaths: list[dict[str, object]], is_one: bool) -> None:
    block = encode_user_property(DEATHS, json.dumps(deaths).encode())
    assert is_cycle("a", Message(b"t", b"", 0, False, block, 0, "")) is is_one


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"null", b"{}", b"[1, null, []]", b"[" * 30_000, b'[{"queue": 5, "count": "x"}]', b"\xff"],
)
def test_deaths_that_a_client_made_up_do_no_harm(world: QueueWorld, text: bytes) -> None:
    queue = world.declare(dead_letter_exchange="dlx")
    publish(world, queue, b"x", encode_user_property(DEATHS, text))
    reject_all(world, queue)
    [(_, _, letter)] = world.exchanges.posted
    assert read_deaths(letter.properties)[0]["queue"] == "q"
    assert not is_cycle("other", letter)


def test_deaths_are_bounded(world: QueueWorld) -> None:
    many = [{**death(str(number), "expired"), "routing-keys": ["k" * 255]} for number in range(300)]
    text = json.dumps(many[: DEATHS_MAX + 50], separators=(",", ":")).encode()
    queue = world.declare(dead_letter_exchange="dlx")
    publish(world, queue, b"x", encode_user_property(DEATHS, text))
    reject_all(world, queue)
    [(_, _, letter)] = world.exchanges.posted
    deaths = read_deaths(letter.properties)
    assert len(deaths) == DEATHS_MAX
    assert deaths[0]["queue"] == "q"
    assert len(words_of(letter)["x-death"]) <= TEXT_MAX


def _forge(queue: str, **more: object) -> dict[str, object]:
    return {"queue": queue, "reason": "rejected", "count": 3, **more}


@pytest.mark.parametrize(
    ("forged", "kept"),
    [
        (_forge("q", filler="x" * 64_000), []),  # of this very death
        (_forge("other", filler="x" * 64_000), [("other", 3)]),
        (_forge("other", filler=["y"] * 12_000, count=[1] * 1000), [("other", 1)]),
        (_forge("z" * 64_000), []),
    ],
    ids=["this death", "another", "its lists", "its name"],
)
def test_a_death_that_is_too_large_does_not_cost_the_others(
    world: QueueWorld, forged: dict[str, object], kept: list[tuple[str, int]]
) -> None:
    queue = world.declare("q", dead_letter_exchange="dlx")
    real = {"queue": "before", "reason": "expired", "count": 2, "routing-keys": ["k"]}
    text = json.dumps([forged, real]).encode()
    publish(world, queue, b"x", carry(b"", b"k") + encode_user_property(DEATHS, text))
    reject_all(world, queue)
    _, _, letter = world.exchanges.posted[-1]
    found = [(death["queue"], death["count"]) for death in deaths_of(letter)]
    assert found == [("q", 4 if forged["queue"] == "q" else 1), *kept, ("before", 2)]
    assert deaths_of(letter)[-1] == real


def test_deaths_that_are_nested_as_deep_as_can_be_read_do_no_harm(world: QueueWorld) -> None:
    queue = world.declare("q", dead_letter_exchange="dlx")
    for depth in range(sys.getrecursionlimit() - 150, sys.getrecursionlimit()):
        text = b'[{"queue":"q","reason":"rejected","filler":' + b"[" * depth + b"]" * depth + b"}]"
        publish(world, queue, b"x", carry(b"", b"k") + encode_user_property(DEATHS, text))
        reject_all(world, queue)
        _, _, letter = world.exchanges.posted[-1]
        assert words_of(letter)["x-death"].startswith('[{"queue":"q"')


def test_directions_to_the_first_queue_are_left_out_but_for_the_priority(world: QueueWorld) -> None:
    queue = world.declare(dead_letter_exchange="dlx")
    world.publish(queue, b"x", producer_id="p", sequence=1, priority=3)
    reject_all(world, queue)
    words = words_of(world.exchanges.posted[0][2])
    assert "producer-id" not in words
    assert words["priority"] == "3"


def test_without_an_exchange_to_take_it_the_letter_is_dropped_and_counted(world: QueueWorld) -> None:
    queue = world.declare(dead_letter_exchange="nowhere")
    world.fill(queue, 1)
    reject_all(world, queue)
    assert (queue.counters.dropped, queue.counters.dead_lettered, queue.depth()) == (1, 0, 0)
    world.catalog.exchanges = None
    world.fill(queue, 1)
    reject_all(world, queue)
    assert queue.counters.dropped == 2


def test_the_letter_is_in_the_log_before_its_source_goes(world: QueueWorld) -> None:
    queue = world.declare(dead_letter_exchange="dlx")
    world.declare("dlx")
    world.fill(queue, 1)
    consumer = world.join(queue)
    before = len(world.facts.log)
    consumer.settle_all(Outcome.REJECTED)
    world.loop()
    kinds = world.facts.kinds()[before:]
    assert kinds.index(queue_records.RECORD_APPENDED) < kinds.index(queue_records.RECORDS_SETTLED)


@pytest.mark.parametrize(
    ("form", "text", "keys"),
    [
        (AMQP_091, b'["a","b"]', [b"a", b"b"]),
        (AMQP_091, b'["\\ud800", 5, null, "a"]', [b"?", b"a"]),
        (AMQP_091, json.dumps(["k" * 256, "a"]).encode(), [b"a"]),
        (AMQP_091, json.dumps(["a"] * (KEYS_MAX + 1)).encode(), [b"a"] * KEYS_MAX),
        (AMQP_091, b"[", []),
        (AMQP_091, b'"a"', []),
        (AMQP_ADDRESS, b'["a"]', []),
    ],
)
def test_only_what_an_amqp_publisher_said_of_copies_counts(form: int, text: bytes, keys: list[bytes]) -> None:
    block = wrap_carried(bytes([form]) + b"\x00\x01k") + encode_user_property(b"CC", text)
    assert further_keys(Message(b"t", b"", 1, False, block, 0, "")) == keys


def test_a_letter_with_very_many_keys_remembers_where_it_has_been(world: QueueWorld) -> None:
    queue = world.declare(dead_letter_exchange="q", message_ttl_ms=10)
    copies = encode_user_property(b"CC", json.dumps([str(n) * 40 for n in range(1000, 1380)]).encode())
    publish(world, queue, b"x", carry(b"", b"q") + copies)
    for _ in range(5):
        world.move(50)
    assert len(world.exchanges.posted) == 1, "it would go round for ever"
    assert queue.depth() == 0
