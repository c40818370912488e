"""MQTT on queues: groups by version and words, settling by PUBACK and by publishing, and what a 3.1.1 client sees."""

from __future__ import annotations

from typing import Any

import pytest
from fakes import HeldStore, MqttPeer, MqttWorld

from millstream.broker.queue_access import ConsumeRequest
from millstream.broker.tasks import STEPS_PER_SLICE, STEPS_PER_TURN
from millstream.model.errors import Refused
from millstream.model.queue_topic import TOPIC_LENGTH_MAX, queue_prefix
from millstream.protocols.mqtt.queueing import make_wish
from millstream.protocols.mqtt.wire import reason_codes as code
from millstream.protocols.mqtt.wire.encode import encode_packet
from millstream.protocols.mqtt.wire.packets import (
    Connect,
    Packet,
    PubAck,
    Publish,
    SubAck,
    Subscribe,
    SubscribeEntry,
    Unsubscribe,
)
from millstream.protocols.mqtt.wire.properties import Properties
from millstream.queues.definition import make_definition
from millstream.queues.queue import Queue


def words(**pairs: str) -> Properties:
    properties = Properties()
    properties.user_properties = [
        (name.replace("_", "-").encode(), value.encode()) for name, value in pairs.items()
    ]
    return properties


class QueuePeer:
    """A client of queues: numbers its packets, keeps what it was sent."""

    def __init__(
        self, world: MqttWorld, client_id: str, version: int = 5, clean: bool = True, expiry_s: int = 0
    ) -> None:
        properties = None
        if version == 5 and expiry_s:
            properties = Properties()
            properties.session_expiry_interval = expiry_s
        self.peer: MqttPeer = world.peer(version)
        self.got: list[Publish] = []
        self._number = 0
        self.take(self.peer.send(Connect(version, client_id, clean, properties=properties)))

    def take(self, packets: list[Packet] | None = None) -> list[Packet]:
        packets = self.peer.take() if packets is None else packets
        self.got += [packet for packet in packets if isinstance(packet, Publish)]
        return [packet for packet in packets if not isinstance(packet, Publish)]

    def consume(self, filter: bytes = b"$queue/q", qos: int = 1, **pairs: str) -> int:
        self._number += 1
        packet = Subscribe(self._number, [SubscribeEntry(filter, qos)], words(**pairs) if pairs else None)
        [answer] = self.take(self.peer.send(packet))
        assert isinstance(answer, SubAck)
        return answer.reasons[0]

    def publish(self, topic: bytes = b"$queue/q", payload: bytes = b"x", **pairs: str) -> int:
        self._number += 1
        packet = Publish(
            topic, payload, 1, packet_id=self._number, properties=words(**pairs) if pairs else None
        )
        [answer] = self.take(self.peer.send(packet))
        assert isinstance(answer, PubAck)
        return answer.reason

    def puback(self, at: int = -1) -> None:
        self.take(self.peer.send(PubAck(self.got[at].packet_id)))

    def settle(self, verb: str, at: int = -1, **more: str) -> int:
        said = self.words(at)
        topic = queue_prefix(said["queue"]) + f"/{verb}".encode()
        return self.publish(topic, b"", message_id=said["message-id"], group_id=said["group-id"], **more)

    def words(self, at: int = -1) -> dict[str, str]:
        properties = self.got[at].properties
        assert properties is not None
        return {name.decode(): value.decode() for name, value in properties.user_properties}

    def payloads(self) -> list[bytes]:
        return [packet.payload for packet in self.got]


@pytest.fixture
def world() -> MqttWorld:
    return MqttWorld()


def queue_of(world: MqttWorld, name: str = "q") -> Queue:
    return world.account.queues.catalog.get(name)


def declare(world: MqttWorld, **fields: object) -> Queue:
    return world.account.queues.catalog.declare("q", make_definition(dict(fields)))


# -------------------------------------------------------------------- wishes


def request(
    world: MqttWorld, version: int, client_id: str, share: bytes = b"", qos: int = 1, **pairs: str
) -> ConsumeRequest:
    session, _ = world.connect(client_id)
    return make_wish(version, session, share, qos, 0, words(**pairs) if pairs else None)


@pytest.mark.parametrize(
    ("version", "client_id", "share", "pairs", "group"),
    [
        (5, "billing-1", b"", {}, "billing-1"),
        (4, "billing-1", b"", {}, "billing"),
        (4, "billing", b"", {}, "billing"),
        (4, "-x", b"", {}, "-x"),
        (5, "billing-1", b"", {"consumer_group": "b"}, "b"),
        (5, "billing-1", b"shared", {"consumer_group": "b"}, "shared"),
        (4, "billing-1", b"shared", {}, "shared"),
        (5, "a@b%c", b"", {}, "a%40b%25c"),
    ],
)
def test_the_group_is_named_by_share_words_or_client_id(
    world: MqttWorld, version: int, client_id: str, share: bytes, pairs: dict[str, Any], group: str
) -> None:
    assert request(world, version, client_id, share, **pairs).group == group


@pytest.mark.parametrize("group", ["", "a@b", "g" * 257])
def test_a_group_that_cannot_be_named_so_is_refused(world: MqttWorld, group: str) -> None:
    with pytest.raises(Refused):
        request(world, 5, "c", consumer_group=group)


@pytest.mark.parametrize(
    ("version", "qos", "pairs", "is_explicit", "is_asked"),
    [
        (5, 1, {}, True, False),
        (5, 1, {"settlement": "puback"}, False, False),
        (5, 1, {"settlement": "explicit"}, True, True),
        (5, 1, {"auto_commit": "false"}, True, True),
        (5, 0, {"settlement": "explicit"}, False, True),
        (4, 1, {}, False, False),
    ],
)
def test_how_it_settles(
    world: MqttWorld, version: int, qos: int, pairs: dict[str, Any], is_explicit: bool, is_asked: bool
) -> None:
    found = request(world, version, "c", qos=qos, **pairs)
    assert (found.is_explicit, found.is_asked) == (is_explicit, is_asked)


# --------------------------------------------------------------- with packets


def test_a_work_queue_from_publish_to_settlement(world: MqttWorld) -> None:
    producer, consumer = QueuePeer(world, "p"), QueuePeer(world, "c")
    assert consumer.consume(consumer_group="workers") == 1
    assert producer.publish(b"$queue/q/orders", b"one", color="red") == 0
    consumer.take()
    assert consumer.got[0].topic == b"$queue/q/orders"
    assert consumer.words() == {
        "color": "red",
        "message-id": "q:0",
        "group-id": "workers",
        "queue": "q",
        "offset": "0",
    }
    consumer.puback()
    assert queue_of(world).depth() == 1
    assert consumer.settle("$ack") == 0
    assert queue_of(world).depth() == 0
    assert consumer.settle("$ack") == code.NO_MATCHING_SUBSCRIBERS


def test_exactly_once_becomes_at_least_once_towards_a_queue(world: MqttWorld) -> None:
    assert QueuePeer(world, "c").consume(qos=2) == 1


def test_a_3_1_1_client_settles_by_puback_and_is_told_no_words(world: MqttWorld) -> None:
    consumer = QueuePeer(world, "billing-7", version=4)
    consumer.consume()
    QueuePeer(world, "p", version=4).publish(b"$queue/q/a", b"1")
    consumer.take()
    assert list(queue_of(world).groups) == ["billing"]
    assert (consumer.got[0].topic, consumer.payloads()) == (b"$queue/q/a", [b"1"])
    consumer.puback()
    assert queue_of(world).depth() == 0


def test_two_versions_share_one_group(world: MqttWorld) -> None:
    old, new = QueuePeer(world, "g-1", version=4), QueuePeer(world, "other")
    old.consume()
    new.consume(consumer_group="g")
    producer = QueuePeer(world, "p")
    for number in range(4):
        producer.publish(payload=b"%d" % number)
    old.take()
    new.take()
    assert sorted(old.payloads() + new.payloads()) == [b"0", b"1", b"2", b"3"]
    assert len(old.got) == len(new.got) == 2


def test_a_share_names_the_group(world: MqttWorld) -> None:
    consumer = QueuePeer(world, "c")
    assert consumer.consume(b"$share/team/$queue/q/a/#") == 1
    assert list(queue_of(world).groups) == ["team@a/#"]


@pytest.mark.parametrize("qos", [0, 1])
def test_rejects_whose_dead_letters_are_costly_to_route_are_carried_out_over_several_turns(
    world: MqttWorld, qos: int
) -> None:
    declare(world, dead_letter_exchange="amq.headers")
    grave = world.account.queues.catalog.declare("grave", make_definition({}))
    access = world.account.exchanges
    access.bind_queue(grave, "amq.headers", b"", {})
    for number in range(700):
        access.bind_queue(grave, "amq.headers", b"", {f"k{at}": number for at in range(20)})
    consumer = QueuePeer(world, "c")
    consumer.consume()
    for _ in range(20):
        consumer.publish()
    consumer.take()
    assert len(consumer.got) == 20
    packets = []
    for at in range(20):
        said = consumer.words(at)
        which = words(message_id=said["message-id"], group_id=said["group-id"])
        packets.append(Publish(b"$queue/q/$reject", b"", qos, packet_id=qos * (100 + at), properties=which))
    data = b"".join([encode_packet(packet, 5) for packet in packets])
    consumer.peer.endpoint.receive_data(data, world.now_ns)
    assert grave.depth() == 1
    assert consumer.peer.link.waits_for_turn
    while world.broker.tasks.count():
        before = grave.depth()
        world.broker.tasks.work_off()
        assert grave.depth() - before <= 1 + STEPS_PER_TURN // STEPS_PER_SLICE
    assert grave.depth() == 20
    assert not consumer.peer.link.waits_for_turn


def test_nack_comes_again_counted_and_reject_goes_to_the_dead_letters(world: MqttWorld) -> None:
    declare(world, backoff_ms=0)
    consumer = QueuePeer(world, "c")
    consumer.consume()
    QueuePeer(world, "p").publish()
    consumer.take()
    assert consumer.settle("$nack") == 0
    assert consumer.words()["delivery-count"] == "2"
    assert consumer.settle("$reject", reason="broken") == 0
    undertaker = QueuePeer(world, "u")
    undertaker.consume(b"$dlq/q")
    undertaker.take()
    said = undertaker.words()
    assert (said["_dlq_reason"], said["_dlq_delivery_count"], said["queue"]) == ("broken", "2", "$dlq/q")
    undertaker.settle("$ack")
    assert queue_of(world, "$dlq/q").depth() == 0


def test_another_client_may_not_settle(world: MqttWorld) -> None:
    consumer, thief = QueuePeer(world, "c"), QueuePeer(world, "t")
    consumer.consume(consumer_group="g")
    thief.consume(b"$queue/other", consumer_group="g")
    thief.publish()
    consumer.take()
    assert thief.publish(b"$queue/q/$ack", b"", message_id="q:0", group_id="g") == code.NOT_AUTHORIZED
    assert queue_of(world).depth() == 1


def test_a_connection_that_is_lost_gives_back_what_it_had(world: MqttWorld) -> None:
    first, second = QueuePeer(world, "a", expiry_s=100), QueuePeer(world, "b")
    first.consume(consumer_group="g")
    QueuePeer(world, "p").publish()
    first.take()
    second.consume(consumer_group="g")
    first.peer.lose()
    second.take()
    assert second.payloads() == [b"x"]
    assert second.settle("$ack") == 0
    again = QueuePeer(world, "a", clean=False, expiry_s=100)
    again.take()
    assert again.got == []
    QueuePeer(world, "p2").publish(payload=b"new")
    again.take()
    second.take()
    assert again.payloads() + second.payloads()[1:] == [b"new"]


def test_a_persistent_consumer_finds_its_place_again(world: MqttWorld) -> None:
    first = QueuePeer(world, "a", expiry_s=100)
    first.consume()
    first.peer.lose()
    QueuePeer(world, "p").publish(payload=b"meanwhile")
    again = QueuePeer(world, "a", clean=False, expiry_s=100)
    again.take()
    assert again.payloads() == [b"meanwhile"]


def test_after_an_unsubscribe_nothing_comes(world: MqttWorld) -> None:
    consumer = QueuePeer(world, "c", expiry_s=100)
    consumer.consume()
    QueuePeer(world, "p").publish()
    consumer.take()
    consumer.take(consumer.peer.send(Unsubscribe(900, [b"$queue/q"])))
    consumer.puback()
    consumer.peer.lose()
    again = QueuePeer(world, "c", clean=False, expiry_s=100)
    again.take()
    assert again.got == []
    assert queue_of(world).groups["c"].lag() == 1


def test_confirms_and_deliveries_wait_for_the_store() -> None:
    store = HeldStore()
    world = MqttWorld(store=store)
    consumer, producer = QueuePeer(world, "c"), QueuePeer(world, "p")
    consumer.consume()
    store.hold()
    assert producer.peer.send(Publish(b"$queue/q", b"x", 1, packet_id=1)) == []
    consumer.take()
    assert consumer.got == []
    store.release()
    world.broker.on_durable()
    assert isinstance(producer.peer.take()[0], PubAck)
    consumer.take()
    assert consumer.payloads() == [b"x"]


def test_the_answer_to_a_settlement_waits_for_the_store() -> None:
    store = HeldStore()
    world = MqttWorld(store=store)
    consumer = QueuePeer(world, "c")
    consumer.consume()
    QueuePeer(world, "p").publish()
    consumer.take()
    store.hold()
    said = consumer.words()
    packet = Publish(
        b"$queue/q/$ack",
        b"",
        1,
        packet_id=77,
        properties=words(message_id=said["message-id"], group_id=said["group-id"]),
    )
    assert consumer.peer.send(packet) == []
    store.release()
    world.broker.on_durable()
    answer = consumer.peer.take()[0]
    assert isinstance(answer, PubAck)
    assert answer.reason == 0


def test_a_full_queue_says_so(world: MqttWorld) -> None:
    declare(world, length_max=1)
    producer = QueuePeer(world, "p")
    assert [producer.publish() for _ in range(2)] == [0, code.QUOTA_EXCEEDED]


def test_a_3_1_1_client_is_not_told_that_a_full_queue_took_it(world: MqttWorld) -> None:
    declare(world, length_max=1)
    producer = QueuePeer(world, "p", version=4)
    producer.publish()
    assert producer.peer.send(Publish(b"$queue/q", b"x", 1, packet_id=9)) == []
    assert producer.peer.link.is_closed
    assert queue_of(world).depth() == 1


def test_at_most_once_publishes_are_taken_in_runs(world: MqttWorld) -> None:
    consumer, producer = QueuePeer(world, "c"), QueuePeer(world, "p")
    consumer.consume()
    producer.peer.send(*[Publish(b"$queue/q", b"%d" % number) for number in range(5)])
    consumer.take()
    assert consumer.payloads() == [b"0", b"1", b"2", b"3", b"4"]
    said = [consumer.words(at) for at in range(5)]
    packets = [
        Publish(
            b"$queue/q/$ack", b"", properties=words(message_id=one["message-id"], group_id=one["group-id"])
        )
        for one in said
    ]
    consumer.peer.send(*packets)
    assert queue_of(world).depth() == 0


def test_a_stream_is_read_from_where_the_reader_says(world: MqttWorld) -> None:
    declare(world, kind="stream")
    producer = QueuePeer(world, "p")
    for number in range(4):
        producer.publish(payload=b"%d" % number)
    reader = QueuePeer(world, "r")
    reader.consume(consumer_group="g", x_stream_offset="2")
    reader.take()
    assert reader.payloads() == [b"2", b"3"]
    assert reader.words(0)["x-stream-offset"] == "2"
    assert int(reader.words(0)["x-stream-timestamp"]) == world.now_ns // 1_000_000
    reader.puback(0)
    assert queue_of(world).groups["g"].committed == 3


def test_a_reader_that_commits_itself_is_not_settled_by_puback(world: MqttWorld) -> None:
    declare(world, kind="stream")
    QueuePeer(world, "p").publish()
    reader = QueuePeer(world, "r")
    reader.consume(auto_commit="false")
    reader.take()
    reader.puback()
    assert queue_of(world).groups["r"].committed == 0
    assert reader.publish(b"$queue/q/$commit", b"", group_id="r", offset="0") == 0
    assert queue_of(world).groups["r"].committed == 1


@pytest.mark.parametrize(
    ("filter", "pairs", "reason"),
    [
        (b"$queue/+", {}, code.TOPIC_FILTER_INVALID),
        (b"$queue/q", {"consumer_group": "a@b"}, code.TOPIC_FILTER_INVALID),
        (b"$queue/$bad", {}, code.TOPIC_FILTER_INVALID),
        (b"$queue/s", {"x_stream_offset": "soon"}, code.TOPIC_FILTER_INVALID),
    ],
)
def test_what_cannot_be_consumed_is_refused_alone(
    world: MqttWorld, filter: bytes, pairs: dict[str, Any], reason: int
) -> None:
    world.account.queues.catalog.declare("s", make_definition({"kind": "stream"}))
    consumer = QueuePeer(world, "c")
    assert consumer.consume(filter, **pairs) == reason
    assert consumer.consume() == 1


def test_single_active_moves_to_the_next_while_the_first_is_away(world: MqttWorld) -> None:
    declare(world, single_active=True)
    first, second = QueuePeer(world, "a", expiry_s=100), QueuePeer(world, "b")
    first.consume(consumer_group="g")
    second.consume(consumer_group="g")
    producer = QueuePeer(world, "p")
    producer.publish(payload=b"1")
    first.take()
    second.take()
    assert (first.payloads(), second.payloads()) == ([b"1"], [])
    first.peer.lose()
    producer.publish(payload=b"2")
    second.take()
    assert second.payloads() == [b"1", b"2"]


@pytest.mark.parametrize("version", [4, 5])
def test_a_topic_that_leaves_no_room_for_the_name_of_the_queue_is_delivered_by_that_name(
    world: MqttWorld, version: int
) -> None:
    queue = declare(world, bindings=["t/#"])
    consumer = QueuePeer(world, "c", version)
    consumer.consume()
    topic = b"t/" + b"a" * (TOPIC_LENGTH_MAX - 2)
    assert QueuePeer(world, "p").publish(topic) == code.SUCCESS
    consumer.take()
    assert [packet.topic for packet in consumer.got] == [b"$queue/q"]
    if version == 5:
        assert consumer.words()["x-source-topic"] == topic.decode()
        assert consumer.settle("$reject") == code.SUCCESS
        other = QueuePeer(world, "d")
        other.consume(b"$dlq/q")
        other.take()
        assert [packet.topic for packet in other.got] == [b"$dlq/q"]
    assert queue.unsettled() == (0 if version == 5 else 1)


def test_a_group_and_a_filter_that_are_too_long_to_be_told_are_refused(world: MqttWorld) -> None:
    queue = declare(world)
    consumer = QueuePeer(world, "c")
    assert (
        consumer.consume(b"$queue/q/" + b"x" * 65_400, consumer_group="g" * 200) == code.TOPIC_FILTER_INVALID
    )
    assert not queue.groups
    assert consumer.consume(b"$queue/q/" + b"x" * 65_300, consumer_group="g" * 200) == 1
