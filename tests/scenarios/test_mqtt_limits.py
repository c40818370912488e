"""What an operator may bound: QoS, sessions, sizes, rates, queues. Each bound is refused with its own code."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import BrokerProcess, StartBroker
from raw_client import BOTH_VERSIONS, NEVER, Clients, RawClient, props, unique, unique_topic

from millstream.protocols.mqtt.wire.packets import (
    ConnAck,
    Disconnect,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    Subscribe,
    SubscribeEntry,
    Will,
)

# ------------------------------------------------------------------------- QoS


@pytest.mark.parametrize("maximum", [0, 1])
def test_max_qos_is_told_granted_and_kept(start_broker: StartBroker, maximum: int) -> None:
    broker = start_broker(f"broker.max_qos={maximum}")
    with Clients(broker.mqtt_port) as clients:
        client = clients.new(5)
        answer = client.connect()
        assert answer.properties is not None
        assert answer.properties.maximum_qos == maximum  # [MQTT-3.2.2-9]
        entries = [SubscribeEntry(b"t/%d" % qos, qos) for qos in (0, 1, 2)]
        granted = [min(qos, maximum) for qos in (0, 1, 2)]
        assert client.subscribe_all(entries) == granted  # [MQTT-3.2.2-10]
        old = clients.open(4)
        assert old.subscribe_all(entries) == granted
        for version in (4, 5):
            client = clients.open(version)
            client.send(Publish(b"t", b"x", maximum + 1, packet_id=1))
            client.expect_disconnect(0x9B)  # [MQTT-3.2.2-11]
            client = clients.new(version)
            client.send_connect(will=Will(b"t", b"gone", maximum + 1))
            client.expect_refused(0x9B, 5)  # [MQTT-3.2.2-12]
            clients.open(version, will=Will(b"t", b"gone", maximum)).expect_nothing()


def test_reject_qos2_publish(start_broker: StartBroker) -> None:
    broker = start_broker("mqtt.reject_qos2_publish=true")
    with Clients(broker.mqtt_port) as clients:
        client = clients.new(5)
        answer = client.connect()
        assert answer.properties is not None
        assert answer.properties.maximum_qos == 1
        for version in (4, 5):
            topic = unique_topic()
            client = clients.open(version)
            assert client.subscribe(topic, 2) in (1, 2)
            client.send(Publish(topic, b"x", 2, packet_id=9))
            client.wait_closed()
            client = clients.new(version)
            client.send_connect(will=Will(b"t", b"gone", 2))
            client.expect_refused(0x9B, 5)


@BOTH_VERSIONS
def test_downgrade_qos2_subscribe(start_broker: StartBroker, version: int) -> None:
    broker = start_broker("mqtt.downgrade_qos2_subscribe=true")
    with Clients(broker.mqtt_port) as clients:
        topic = unique_topic()
        client = clients.open(version)
        assert client.subscribe(topic, 2) == 1
        clients.open(version).publish(topic, b"x", 2)
        client.take(topic, b"x", 1)


@BOTH_VERSIONS
@pytest.mark.parametrize(
    "setting", ["mqtt.max_ack_pending=2", "session.max_inflight_messages=2"], ids=["ack pending", "inflight"]
)
def test_the_window_of_a_session_is_bounded(start_broker: StartBroker, version: int, setting: str) -> None:
    broker = start_broker(setting)
    with Clients(broker.mqtt_port) as clients:
        topic = unique_topic()
        client = clients.open(version)
        client.subscribe(topic, 1)
        publisher = clients.open(version)
        for number in range(4):
            publisher.publish(topic, b"%d" % number, 1)
        found = [client.expect_publish() for _ in range(2)]
        client.expect_nothing()
        for number in (2, 3):
            client.send(PubAck(found.pop(0).packet_id))
            found.append(client.expect_publish())
            assert found[-1].payload == b"%d" % number


# -------------------------------------------------------------------- sessions


def test_max_sessions_refuses_one_more(start_broker: StartBroker) -> None:
    broker = start_broker("session.max_sessions=2")
    with Clients(broker.mqtt_port) as clients:
        kept = unique()
        clients.resume(5, kept).disconnect()
        client = clients.open(5)
        for version in (4, 5):
            refused = clients.new(version)
            refused.send_connect()
            refused.expect_refused(0x97, 3)
        clients.resume(5, kept)  # a session that is there may come back
        client.disconnect()
        clients.open(4)


def test_a_full_broker_names_another(start_broker: StartBroker) -> None:
    broker = start_broker("session.max_sessions=1", "mqtt.server_reference=other.example:1883")
    with Clients(broker.mqtt_port) as clients:
        clients.open(5)
        client = clients.new(5)
        client.send_connect()
        answer = client.expect_refused(0x9C, 3)  # [MQTT-4.11.0]
        assert answer.properties is not None
        assert answer.properties.server_reference == b"other.example:1883"


def test_max_connections_closes_one_more(start_broker: StartBroker) -> None:
    broker = start_broker("mqtt.max_connections=2")
    with Clients(broker.mqtt_port) as clients:
        first = clients.open(5)
        clients.open(4)
        clients.new(5).wait_closed()
        first.disconnect()
        clients.open(5)


def test_max_unauthenticated_bounds_strangers_only(start_broker: StartBroker) -> None:
    broker = start_broker("mqtt.max_unauthenticated=2")
    with Clients(broker.mqtt_port) as clients:
        known = [clients.open(5) for _ in range(4)]
        strangers = [clients.new(5) for _ in range(2)]
        clients.new(5).wait_closed()
        strangers[0].connect()
        clients.open(5)
        known[0].expect_nothing()


def test_the_session_expiry_is_cut_and_told(start_broker: StartBroker) -> None:
    broker = start_broker("session.max_expiry_interval=1", "session.default_expiry_interval=1")
    with Clients(broker.mqtt_port) as clients:
        for asked in (5, NEVER):
            answer = clients.new(5).connect(expiry_s=asked)
            assert answer.properties is not None
            assert answer.properties.session_expiry_interval == 1  # [MQTT-3.2.2.3.2]
        answer = clients.new(5).connect(expiry_s=1)
        assert answer.properties is not None
        assert answer.properties.session_expiry_interval in (None, 1)
        names = {version: unique() for version in (4, 5)}
        for version, name in names.items():
            clients.open(version, name, clean=False, expiry_s=NEVER).disconnect()
        wait_one_second(clients)
        wait_one_second(clients)
        for version, name in names.items():
            assert not clients.new(version).connect(name, clean=False).session_present


def wait_one_second(clients: Clients) -> None:
    """The broker's own clock: a will with this delay has been sent."""
    topic = unique_topic()
    watcher = clients.open(5)
    watcher.subscribe(topic)
    clients.open(5, expiry_s=1, will=Will(topic, b"1 s", properties=props(will_delay_interval=1))).close()
    watcher.take(topic, b"1 s")


def test_a_will_delay_is_cut(start_broker: StartBroker) -> None:
    broker = start_broker("session.max_will_delay_interval=0")
    with Clients(broker.mqtt_port) as clients:
        topic = unique_topic()
        watcher = clients.open(5)
        watcher.subscribe(topic)
        clients.open(
            5, expiry_s=60, will=Will(topic, b"x", properties=props(will_delay_interval=600))
        ).close()
        watcher.take(topic, b"x")


def test_subscriptions_are_bounded(start_broker: StartBroker) -> None:
    broker = start_broker("session.max_subscriptions=2", "session.max_filters_per_subscribe=3")
    with Clients(broker.mqtt_port) as clients:
        for version in (4, 5):
            client = clients.open(version)
            full = 0x97 if version == 5 else 0x80
            names = [b"a", b"b", b"c"]
            assert client.subscribe_all([SubscribeEntry(name, 1) for name in names]) == [1, 1, full]
            assert client.subscribe(b"a", 0) == 0  # one that is there may change
            client.unsubscribe(b"b")
            assert client.subscribe(b"c", 1) == 1
            client.send(Subscribe(9, [SubscribeEntry(b"a")] * 4))
            client.expect_disconnect(0x97)


@BOTH_VERSIONS
def test_filters_that_would_make_every_publish_slow_are_refused_by_default(
    shared_broker: BrokerProcess, version: int
) -> None:
    """A name or a `+` at each of nine levels: one topic matches all 512 of them."""
    base = unique_topic()
    wanted = [b"/".join((base, *levels)) for levels in itertools.product((b"a", b"+"), repeat=9)]
    full = 0x97 if version == 5 else 0x80
    with Clients(shared_broker.mqtt_port) as clients:
        reasons = clients.open(version).subscribe_all([SubscribeEntry(name, 0) for name in wanted])
    assert reasons == [0] * 101 + [full] * 411  # the first has no wildcard, and a hundred may have them


# ----------------------------------------------------------------------- sizes


@BOTH_VERSIONS
def test_message_and_topic_sizes_are_bounded(start_broker: StartBroker, version: int) -> None:
    broker = start_broker(
        "broker.max_message_size=1000", "broker.max_topic_length=20", "broker.max_topic_levels=3"
    )
    with Clients(broker.mqtt_port) as clients:
        client = clients.open(version)
        invalid = 0x8F if version == 5 else 0x80
        entries = [SubscribeEntry(name) for name in (b"a/b/c", b"a/b/c/d", b"x" * 20, b"x" * 21)]
        assert client.subscribe_all(entries) == [0, invalid, 0, invalid]
        client.send(Publish(b"a/b/c", b"x" * 1000))
        client.take(b"a/b/c", b"x" * 1000)
        for packet, reason in (
            (Publish(b"a", b"x" * 1001), 0x95),
            (Publish(b"a/b/c/d", b"x"), 0x90),
            (Publish(b"x" * 21, b"x"), 0x90),
        ):
            client = clients.open(version)
            client.send(packet)
            client.expect_disconnect(reason)


def test_topic_aliases_can_be_turned_off(start_broker: StartBroker) -> None:
    broker = start_broker("mqtt.topic_alias_maximum=0", "mqtt.topic_alias_out_maximum=0")
    with Clients(broker.mqtt_port) as clients:
        client = clients.new(5)
        answer = client.connect(properties=props(topic_alias_maximum=10))
        assert answer.properties is not None
        assert answer.properties.topic_alias_maximum in (None, 0)
        client.subscribe(b"t", 1)
        clients.open(5).publish(b"t", b"x", 1)
        assert client.take(b"t", b"x", 1).properties is None
        client.send(Publish(b"t", b"x", properties=props(topic_alias=1)))
        client.expect_disconnect(0x94)  # [MQTT-3.2.2-17]


def test_a_client_that_keeps_its_aliases_over_a_reconnect_is_told_what_the_page_shows(
    start_broker: StartBroker,
) -> None:
    """The page names the client that does it, what is seen of it, and the key that helps."""
    page = (Path(__file__).resolve().parents[2] / "docs" / "operations.md").read_text(encoding="utf-8")
    row = next((line for line in page.splitlines() if "Eclipse Paho for Java" in line), "")
    assert "`mqtt.topic_alias_maximum: 0`" in row
    broker = start_broker()
    with Clients(broker.mqtt_port) as clients:
        client = clients.resume(5, "paho")
        client.publish(b"t", b"x", 1, properties=props(topic_alias=1))
        client.disconnect()
        client = clients.resume(5, "paho")
        client.send(Publish(b"", b"y", properties=props(topic_alias=1)))
        answer = client.receive()
    assert isinstance(answer, Disconnect)
    assert f"(DISCONNECT 0x{answer.reason:02X})" in row
    assert answer.properties is not None
    text = (answer.properties.reason_string or b"").decode()
    assert f"`{text.partition(';')[0]}`" in row
    assert "mqtt.topic_alias_maximum" in text  # so that it is found without the page


def test_the_receive_maximum_is_told_and_kept(start_broker: StartBroker) -> None:
    broker = start_broker("mqtt.receive_maximum=3")
    with Clients(broker.mqtt_port) as clients:
        client = clients.new(5)
        answer = client.connect()
        assert answer.properties is not None
        assert answer.properties.receive_maximum == 3
        client.send(*[Publish(b"t", b"x", 2, packet_id=n) for n in (1, 2, 3)])
        for n in (1, 2, 3):
            client.expect(PubRec(n, 0x10))
        client.send(PubRel(2))
        client.expect(PubComp(2))
        client.send(Publish(b"t", b"x", 2, packet_id=4))
        client.expect(PubRec(4, 0x10))
        client.send(Publish(b"t", b"x", 1, packet_id=5))
        client.expect_disconnect(0x93)


# -------------------------------------------------------------------- retained


@BOTH_VERSIONS
@pytest.mark.parametrize(
    "settings",
    [("broker.max_retained_messages=2",), ("broker.max_retained_bytes=2000",)],
    ids=["by count", "by bytes"],
)
def test_retained_messages_are_bounded(
    start_broker: StartBroker, version: int, settings: tuple[str, ...]
) -> None:
    broker = start_broker(*settings, "broker.sys_interval=0")
    with Clients(broker.mqtt_port) as clients:
        size = 10 if "messages" in settings[0] else 700
        watcher = clients.open(version)
        reasons = [
            clients.open(version).publish(b"keep/%d" % n, b"x" * size, 1, retain=True) for n in range(4)
        ]
        if version == 5:
            assert reasons[-1] == 0x97
            assert reasons[0] == 0x10
        watcher.subscribe(b"keep/#", 0)
        kept = [watcher.expect_publish().topic for _ in range(2)]
        watcher.expect_nothing()
        assert kept == [b"keep/0", b"keep/1"]
        clients.open(version).publish(b"keep/0", b"", 1, retain=True)  # room again
        clients.open(version).publish(b"keep/9", b"y", 1, retain=True)
        late = clients.open(version)
        late.subscribe(b"keep/9", 0)
        late.take(b"keep/9", b"y", retain=True)


# --------------------------------------------------------------- offline queues


@BOTH_VERSIONS
@pytest.mark.parametrize(
    ("policy", "kept"),
    [("evict", [b"3", b"4", b"5"]), ("reject", [b"0", b"1", b"2"])],
    ids=["evict", "reject"],
)
def test_an_offline_queue_is_bounded_by_its_policy(
    start_broker: StartBroker, version: int, policy: str, kept: list[bytes]
) -> None:
    broker = start_broker(
        "session.max_offline_queue_size=3", f"session.offline_queue_policy={policy}", "broker.sys_interval=1"
    )
    with Clients(broker.mqtt_port) as clients:
        topic = unique_topic()
        name = unique()
        client = clients.resume(version, name)
        client.subscribe(topic, 1)
        client.disconnect()
        publisher = clients.open(version)
        for number in range(6):
            publisher.publish(topic, b"%d" % number, 1)
        client = clients.resume(version, name)
        for payload in kept:
            client.take(topic, payload, 1)
        client.expect_nothing()
        wait_for_value(clients, b"$SYS/broker/messages/dropped/queue_full", lambda value: value == 3)


@pytest.mark.parametrize("policy", ["evict", "reject"])
def test_an_offline_queue_is_bounded_in_bytes(start_broker: StartBroker, policy: str) -> None:
    broker = start_broker("session.max_offline_queue_bytes=10000", f"session.offline_queue_policy={policy}")
    with Clients(broker.mqtt_port) as clients:
        name = unique()
        client = clients.resume(5, name)
        client.subscribe(b"t", 1)
        client.disconnect()
        publisher = clients.open(5)
        for number in range(6):
            publisher.publish(b"t", b"%d" % number * 4000, 1)
        client = clients.resume(5, name)
        wanted = [b"4", b"5"] if policy == "evict" else [b"0", b"1"]
        assert [client.expect_publish().payload[:1] for _ in range(2)] == wanted
        client.expect_nothing()


def wait_for_value(clients: Clients, topic: bytes, is_wanted: Callable[[int], bool]) -> None:
    """Watch a number in the $SYS tree until it is as wanted."""
    watcher = clients.open(5)
    watcher.subscribe(topic)
    while not is_wanted(int(watcher.expect_publish().payload)):
        pass
    watcher.close()


# ----------------------------------------------------------------------- rates


def open_rated(start_broker: StartBroker, *settings: str) -> BrokerProcess:
    return start_broker("ratelimit.enabled=true", *settings)


def test_new_connections_of_an_address_are_rated(start_broker: StartBroker) -> None:
    broker = open_rated(start_broker, "ratelimit.connection.rate=0.01", "ratelimit.connection.burst=3")
    with Clients(broker.mqtt_port) as clients:
        held = [clients.open(5) for _ in range(3)]
        clients.new(5).wait_closed()
        for client in held:
            client.expect_nothing()


@BOTH_VERSIONS
def test_subscriptions_of_a_client_are_rated(start_broker: StartBroker, version: int) -> None:
    broker = open_rated(start_broker, "ratelimit.subscribe.rate=0.01", "ratelimit.subscribe.burst=3")
    with Clients(broker.mqtt_port) as clients:
        client = clients.open(version)
        full = 0x97 if version == 5 else 0x80
        assert client.subscribe_all([SubscribeEntry(b"t/%d" % n, 1) for n in range(5)]) == [
            1,
            1,
            1,
            full,
            full,
        ]
        assert clients.open(version).subscribe(b"t", 1) == 1  # each client has its own


@BOTH_VERSIONS
@pytest.mark.parametrize("qos", [0, 1])
def test_a_client_that_publishes_too_fast_is_slowed_down_not_cut(
    start_broker: StartBroker, version: int, qos: int
) -> None:
    broker = open_rated(start_broker, "ratelimit.message.rate=20", "ratelimit.message.burst=5")
    with Clients(broker.mqtt_port) as clients:
        topic = unique_topic()
        subscriber = clients.open(version)
        subscriber.subscribe(topic, qos)
        publisher = clients.open(version)
        start = time.monotonic()
        for number in range(15):
            publisher.send(Publish(topic, b"%d" % number, qos, packet_id=number + 1 if qos else 0))
        for number in range(15):
            subscriber.take(topic, b"%d" % number, qos)  # all arrive, in order
        # what one read brought too much is paid by the one behind it
        publisher.send(Publish(topic, b"15", qos, packet_id=16 if qos else 0))
        subscriber.take(topic, b"15", qos)
        assert time.monotonic() - start > 0.3  # ten messages over the burst, at twenty a second


# -------------------------------------------------------- what mqtt-cli looks at


@BOTH_VERSIONS
def test_the_broker_takes_what_a_capability_test_tries(shared_broker: BrokerProcess, version: int) -> None:
    with Clients(shared_broker.mqtt_port) as clients:
        base = unique_topic()
        client = clients.open(version)
        for qos in (0, 1, 2):
            topic = base + b"/qos%d" % qos
            client.subscribe(topic, qos)
            for number in range(10):
                exchange(client, topic, b"%d" % number, qos)
        for filter in (base + b"/plus/+", base + b"/hash/#", b"$share/cli/" + base + b"/shared"):
            assert client.subscribe(filter, 2) == 2
        for topic in (base + b"/plus/x", base + b"/hash/x/y", base + b"/shared"):
            exchange(client, topic, b"x", 1)
        exchange(client, base + b"/qos1", b"x" * 1_000_000, 1)


def exchange(client: RawClient, topic: bytes, payload: bytes, qos: int) -> None:
    """Publish to oneself and finish both sides of it."""
    packet_id = client.new_packet_id() if qos else 0
    client.send(Publish(topic, payload, qos, packet_id=packet_id))
    got_message = False
    got_answer = qos == 0
    while not (got_message and got_answer):
        packet = client.receive()
        if isinstance(packet, Publish):
            assert (packet.topic, packet.payload) == (topic, payload)
            client.answer(packet)
            got_message = True
        elif isinstance(packet, PubRec):
            client.send(PubRel(packet.packet_id))
        else:
            assert isinstance(packet, (PubAck, PubComp))
            got_answer = True


def test_a_refused_connect_says_nothing_about_a_session(start_broker: StartBroker) -> None:
    broker = start_broker("auth.allow_anonymous=false")
    with Clients(broker.mqtt_port) as clients:
        client = clients.new(5)
        client.send_connect(clean=False, expiry_s=60)
        answer = client.receive()
        assert isinstance(answer, ConnAck)
        assert answer.reason == 0x87
        assert not answer.session_present
