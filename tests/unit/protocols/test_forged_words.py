"""What the broker says of a message cannot be said by who publishes it, from any protocol to any other."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from amqp091_traffic import consume, publish, queue
from amqp091_world import AmqpPeer
from both_world import BothWorld
from fakes import MqttPeer

from millstream.model.reserved_words import DEATH_WORDS, QUEUE_WORDS, STORED_WORDS
from millstream.protocols.amqp091.wire.codes import HEADER
from millstream.protocols.amqp091.wire.field_table import FieldTable
from millstream.protocols.amqp091.wire.methods import BasicGet, BasicNack, BasicQos
from millstream.protocols.amqp091.wire.properties import BasicProperties, decode_properties
from millstream.protocols.mqtt.wire.packets import Connect, Publish, Subscribe, SubscribeEntry
from millstream.protocols.mqtt.wire.properties import Properties
from millstream.queues.definition import WORK, Definition

DEAD_LETTER_WORDS = (
    b"_dlq_reason",
    b"_dlq_original_queue",
    b"_dlq_original_topic",
    b"_dlq_original_id",
    b"_dlq_original_group",
    b"_dlq_original_time",
    b"_dlq_delivery_count",
    b"_dlq_moved_at",
    b"_dlq_anything_later",
)
ALL_WORDS = tuple(dict.fromkeys(QUEUE_WORDS + STORED_WORDS + DEATH_WORDS + DEAD_LETTER_WORDS))
FORGED = b"forged"
OWN = (b"x-trace", b"mine")  # what publishers may say


def mqtt(world: BothWorld, version: int = 5) -> MqttPeer:
    peer = world.mqtt_peer(version)
    peer.send(Connect(version, f"c{version}-{len(world.account.sessions)}", True, 0))
    return peer


def amqp(world: BothWorld) -> AmqpPeer:
    peer = world.client()
    peer.open_channel()
    return peer


def publish_forged(world: BothWorld, protocol: str, topic: bytes, key: bytes, exchange: bytes) -> None:
    """A message that says of itself whatever the broker could say."""
    if protocol == "mqtt":
        properties = Properties()
        properties.user_properties = [OWN, *[(name, FORGED) for name in ALL_WORDS], OWN]
        mqtt(world).send(Publish(topic, b"x", 1, packet_id=1, properties=properties))
        return
    headers: FieldTable = {OWN[0]: OWN[1], **dict.fromkeys(ALL_WORDS, FORGED)}
    amqp(world).receive(publish(key, b"x", exchange, BasicProperties(headers=headers, message_id=FORGED)))


def contents(peer: AmqpPeer) -> Iterator[BasicProperties]:
    """The properties of all that came to it."""
    data = peer.link.data
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at + 3 : at + 7], "big")
        if data[at] == HEADER:
            yield decode_properties(bytes(data[at + 7 + 12 : at + 7 + size]))
        at += size + 8


def read_by_mqtt(world: BothWorld, filter: bytes) -> list[tuple[bytes, bytes]]:
    reader = mqtt(world)
    packets = reader.send(Subscribe(1, [SubscribeEntry(filter, 1)])) + reader.take()
    (found,) = [packet for packet in packets if isinstance(packet, Publish)]
    assert found.properties is not None
    return found.properties.user_properties


PLACES = [
    (b"$queue/q", b"q", b""),  # straight into the queue
    (b"bound/a", b"bound.a", b"amq.topic"),  # by a filter and by a binding
]


@pytest.mark.parametrize(("topic", "key", "exchange"), PLACES)
@pytest.mark.parametrize("protocol", ["mqtt", "amqp"])
def test_a_queue_tells_its_mqtt_consumers_nothing_that_a_publisher_made_up(
    protocol: str, topic: bytes, key: bytes, exchange: bytes
) -> None:
    world = BothWorld()
    amqp(world).say(queue(), 1)
    world.account.queues.catalog.bind(world.account.queues.catalog.get("q"), "bound/#")
    publish_forged(world, protocol, topic, key, exchange)
    told = read_by_mqtt(world, b"$queue/q")
    forged = [name for name, value in told if value == FORGED]
    assert [name for name in forged if protocol == "mqtt" or name not in DEATH_WORDS] == []
    assert OWN in told
    said = dict(told)
    assert len(said) == len([name for name, _ in told if name != OWN[0]]) + 1
    assert (said[b"message-id"], said[b"offset"], said[b"queue"]) == (b"q:0", b"0", b"q")


@pytest.mark.parametrize(("topic", "key", "exchange"), PLACES)
@pytest.mark.parametrize("protocol", ["mqtt", "amqp"])
@pytest.mark.parametrize("kind", [b"classic", b"quorum", b"stream"])
def test_a_queue_tells_its_amqp_consumers_nothing_that_a_publisher_made_up(
    kind: bytes, protocol: str, topic: bytes, key: bytes, exchange: bytes
) -> None:
    world = BothWorld()
    reader = amqp(world)
    reader.say(queue(arguments={b"x-queue-type": kind}), 1)
    world.account.queues.catalog.bind(world.account.queues.catalog.get("q"), "bound/#")
    publish_forged(world, protocol, topic, key, exchange)
    if kind == b"stream":
        reader.say(BasicQos(0, 10, False), 1)
        from_first: FieldTable = {b"x-stream-offset": b"first"}
        reader.say(consume(arguments=from_first), 1)
    else:
        reader.say(consume(), 1)
    (told,) = contents(reader)
    assert told.headers is not None
    written_here = [*STORED_WORDS, *DEAD_LETTER_WORDS, *(DEATH_WORDS if protocol == "mqtt" else ())]
    assert [name for name in written_here if told.headers.get(name) == FORGED] == []
    assert told.headers.get(b"x-stream-offset") == (0 if kind == b"stream" else None)
    own = told.headers[OWN[0]]
    assert own == OWN[1] or own == [OWN[1], OWN[1]]


@pytest.mark.parametrize("protocol", ["mqtt", "amqp"])
def test_dead_letters_say_of_themselves_what_the_broker_saw(protocol: str) -> None:
    world = BothWorld()
    world.account.queues.catalog.declare("q", Definition(WORK))
    publish_forged(world, protocol, b"$queue/q", b"q", b"")
    reader = amqp(world)
    reader.say(BasicGet(b"q", False), 1)
    reader.say(BasicNack(1, False, False), 1)
    told = read_by_mqtt(world, b"$dlq/q")
    said = dict(told)
    assert [name for name, value in told if value == FORGED and name not in DEATH_WORDS] == []
    assert said[b"_dlq_original_queue"] == b"q"
    assert sum(name == b"_dlq_reason" for name, _ in told) == 1


def test_a_message_to_a_topic_may_be_called_anything() -> None:
    """Only queues say these words."""
    world = BothWorld()
    reader = mqtt(world)
    reader.send(Subscribe(1, [SubscribeEntry(b"t", 1)]))
    publish_forged(world, "mqtt", b"t", b"t", b"amq.topic")
    (found,) = [packet for packet in reader.take() if isinstance(packet, Publish)]
    assert found.properties is not None
    assert dict(found.properties.user_properties)[b"message-id"] == FORGED


def declare_ring(reader: AmqpPeer) -> None:
    """Two queues whose messages expire from one into the other."""
    for name, other in ((b"one", b"two"), (b"two", b"one")):
        arguments: FieldTable = {
            b"x-message-ttl": 10,
            b"x-dead-letter-exchange": b"",
            b"x-dead-letter-routing-key": other,
        }
        reader.say(queue(name, arguments=arguments), 1)


@pytest.mark.parametrize(
    "forged",
    [
        [{"queue": "one", "reason": "rejected", "count": 1}],
        [{"queue": "two", "reason": "rejected"}, {"queue": "one", "reason": "rejected"}],
        [{"queue": "other", "reason": "rejected", "count": 1}] * 3,
        [{"queue": "one", "reason": "expired", "count": -5, "junk": "x" * 50_000}],
        [{"queue": str(number), "reason": "rejected"} for number in range(200)],
    ],
)
@pytest.mark.parametrize("protocol", ["mqtt", "amqp"])
def test_no_history_that_a_publisher_makes_up_lets_a_message_go_round_for_ever(
    protocol: str, forged: list[dict[str, object]]
) -> None:
    world = BothWorld()
    peer = amqp(world)
    declare_ring(peer)
    if protocol == "mqtt":
        properties = Properties()
        properties.user_properties = [(b"x-death", json.dumps(forged).encode())]
        mqtt(world).send(Publish(b"$queue/one", b"x", 1, packet_id=1, properties=properties))
    else:
        table: list[object] = [
            {
                name.encode(): value.encode() if isinstance(value, str) else value
                for name, value in entry.items()
            }
            for entry in forged
        ]
        peer.receive(publish(b"one", properties=BasicProperties(headers={b"x-death": table})))
    queues = world.account.queues.catalog.queues
    for _ in range(12):
        world.move(0.5)
        world.settle_down()
    assert [int(queues[name].depth()) for name in ("one", "two")] == [0, 0]


def test_an_amqp_client_that_publishes_again_keeps_the_history_and_its_counts() -> None:
    """As with RabbitMQ: many count their attempts so."""
    world = BothWorld()
    peer = amqp(world)
    arguments: FieldTable = {b"x-dead-letter-exchange": b"", b"x-dead-letter-routing-key": b"letters"}
    peer.say(queue(b"letters"), 1)
    peer.say(queue(b"work", arguments=arguments), 1)
    history: list[object] = [
        {b"queue": b"work", b"reason": b"rejected", b"count": 3, b"exchange": b""},
        {b"queue": b"else", b"reason": b"expired", b"count": 1},
    ]
    peer.receive(publish(b"work", properties=BasicProperties(headers={b"x-death": history})))
    peer.say(BasicGet(b"work", False), 1)
    peer.say(BasicNack(1, False, False), 1)
    peer.say(consume(b"letters"), 1)
    told = list(contents(peer))[-1]
    assert told.headers is not None
    deaths = told.headers[b"x-death"]
    assert isinstance(deaths, list)
    assert [(death[b"queue"], death[b"count"]) for death in deaths] == [(b"work", 4), (b"else", 1)]
