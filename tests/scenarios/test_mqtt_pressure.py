"""When receivers do not keep up: windows, waiting publishers, slow consumers, and the $SYS tree that counts it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from conftest import BrokerProcess, StartBroker
from raw_client import BOTH_VERSIONS, Clients, RawClient, unique_topic

from millstream.protocols.mqtt.wire.packets import (
    Disconnect,
    PingReq,
    PingResp,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    Will,
)


def wait_for_value(clients: Clients, topic: bytes, is_wanted: Callable[[int], bool]) -> None:
    """Watch a number in the $SYS tree until it is as wanted."""
    watcher = clients.open(5)
    watcher.subscribe(topic)
    while not is_wanted(int(watcher.expect_publish().payload)):
        pass
    watcher.close()


def pass_time(client: RawClient) -> None:
    """Let the broker go round its loop a few times."""
    for _ in range(5):
        client.expect_nothing()


# ----------------------------------------------------------- inflight_overflow


@BOTH_VERSIONS
def test_with_pending_a_full_window_never_holds_a_publisher(start_broker: StartBroker, version: int) -> None:
    broker = start_broker(
        "session.max_inflight_messages=2",
        "session.inflight_overflow=pending",
        "session.pending_queue_size=3",
        "broker.sys_interval=1",
    )
    with Clients(broker.mqtt_port) as clients:
        topic = unique_topic()
        client = clients.open(version)
        client.subscribe(topic, 1)
        publisher = clients.open(version)
        for number in range(8):
            publisher.publish(topic, b"%d" % number, 1)  # every one is confirmed
        for number in range(5):  # two in the window, three pending, three dropped
            client.take(topic, b"%d" % number, 1)
        client.expect_nothing()
        publisher.publish(topic, b"next", 1)
        client.take(topic, b"next", 1)
        wait_for_value(clients, b"$SYS/broker/messages/dropped/queue_full", lambda value: value == 3)


@BOTH_VERSIONS
def test_with_backpressure_a_publisher_waits_and_nothing_is_lost(
    start_broker: StartBroker, version: int
) -> None:
    broker = start_broker(
        "session.max_inflight_messages=2",
        "session.inflight_overflow=backpressure",
        "session.pending_queue_size=3",
        "session.slow_consumer_grace=60s",
    )
    with Clients(broker.mqtt_port) as clients:
        topic = unique_topic()
        client = clients.open(version)
        client.subscribe(topic, 1)
        publisher = clients.open(version)
        for number in range(5):
            publisher.publish(topic, b"%d" % number, 1)
        publisher.send(Publish(topic, b"5", 1, packet_id=100))
        other = clients.open(version)
        pass_time(other)  # other connections are served
        assert not publisher.has_input(), "the publisher should wait"
        for number in range(6):
            client.take(topic, b"%d" % number, 1)
        publisher.expect(PubAck(100))
        client.expect_nothing()


@BOTH_VERSIONS
def test_a_window_that_stands_still_does_not_hold_publishers_for_ever(
    start_broker: StartBroker, version: int
) -> None:
    broker = start_broker(
        "session.max_inflight_messages=2",
        "session.pending_queue_size=3",
        "session.max_offline_queue_size=4",
        "session.slow_consumer_grace=100",
        "broker.sys_interval=1",
    )
    with Clients(broker.mqtt_port) as clients:
        topic = unique_topic()
        stuck = clients.open(version)
        stuck.subscribe(topic, 1)
        steady = clients.open(version)
        steady.subscribe(topic, 1)
        publisher = clients.open(version)
        for number in range(20):
            publisher.publish(topic, b"%d" % number, 1)  # waits for the grace, then goes on
            steady.take(topic, b"%d" % number, 1)
        found = [int(packet.payload) for packet in read_all(stuck)]
        assert found[:2] == [0, 1]
        assert found == sorted(found)
        assert found[-1] == 19  # the newest are kept: the policy is evict
        assert len(found) == 2 + 4
        wait_for_value(clients, b"$SYS/broker/messages/dropped/queue_full", lambda value: value == 14)


def read_all(client: RawClient) -> list[Publish]:
    """Every message there is for this client, each answered, until an answer brings no more."""
    found: list[Publish] = []
    while True:
        client.send(PingReq())
        count = len(found)
        while not isinstance(packet := client.receive(), PingResp):
            assert isinstance(packet, Publish)
            client.answer(packet)
            found.append(packet)
        if len(found) == count:
            return found


# --------------------------------------------------------------- slow consumers

SMALL_QUEUES = (
    "session.send_queue_low_bytes=32 KiB",
    "session.send_queue_high_bytes=64 KiB",
    "session.max_send_queue_bytes=256 KiB",
    "session.slow_consumer_grace=50",
    "broker.sys_interval=1",
)


def flood(publisher: RawClient, reader: RawClient, topic: bytes, rounds: int) -> None:
    """Twenty messages of 10 kB a round; the reader keeps up."""
    for turn in range(rounds):
        publisher.send(*[Publish(topic, b"%08d" % (turn * 20 + n) + b"x" * 10_000) for n in range(20)])
        for n in range(20):
            assert int(reader.expect_publish().payload[:8]) == turn * 20 + n


@BOTH_VERSIONS
def test_a_consumer_that_stops_reading_does_not_stop_others(start_broker: StartBroker, version: int) -> None:
    broker = start_broker(*SMALL_QUEUES)
    with Clients(broker.mqtt_port) as clients:
        topic = unique_topic()
        slow = clients.open(version)
        slow.shrink_input()
        slow.subscribe(topic)
        steady = clients.open(version)
        steady.subscribe(topic)
        publisher = clients.open(version)
        flood(publisher, steady, topic, 100)
        wait_for_value(clients, b"$SYS/broker/messages/dropped/slow", lambda value: value > 0)
        numbers = [int(packet.payload[:8]) for packet in read_all(slow)]
        assert numbers == sorted(numbers)  # it reads again: what is left, in order
        assert len(numbers) < 2000
        publisher.send(Publish(topic, b"99999999"))
        assert slow.expect_publish().payload == b"99999999"


def test_a_slow_consumer_can_be_disconnected_instead(start_broker: StartBroker) -> None:
    broker = start_broker(*SMALL_QUEUES, "session.disconnect_on_full=true")
    with Clients(broker.mqtt_port) as clients:
        topic = unique_topic()
        will = unique_topic()
        slow = clients.open(5, will=Will(will, b"too slow", 1))
        slow.shrink_input()
        slow.subscribe(topic)
        steady = clients.open(5)
        steady.subscribe(topic)
        watcher = clients.open(5)
        watcher.subscribe(will, 1)
        publisher = clients.open(5)
        flood(publisher, steady, topic, 100)
        watcher.take(will, b"too slow", 1)
        slow.wait_closed()


@BOTH_VERSIONS
def test_a_slow_numbered_consumer_loses_nothing_within_its_bounds(
    start_broker: StartBroker, version: int
) -> None:
    broker = start_broker(*SMALL_QUEUES, "session.max_offline_queue_size=10000")
    with Clients(broker.mqtt_port) as clients:
        topic = unique_topic()
        slow = clients.open(version)
        slow.shrink_input()
        slow.subscribe(topic, 1)
        publisher = clients.open(version)
        for number in range(3000):
            publisher.publish(topic, b"%d" % number + b" " * 5000, 1)
        for number in range(3000):
            found = slow.expect_publish()
            slow.answer(found)
            assert int(found.payload) == number


# ---------------------------------------------------------------- async_fan_out


@BOTH_VERSIONS
@pytest.mark.parametrize("size", [1, 10_000])
def test_an_asynchronous_fan_out_delivers_all_in_order(
    start_broker: StartBroker, version: int, size: int
) -> None:
    broker = start_broker("broker.async_fan_out=true", f"broker.fan_out_queue_size={size}")
    with Clients(broker.mqtt_port) as clients:
        topic = unique_topic()
        subscriber = clients.open(version)
        subscriber.subscribe(topic, 2)
        publisher = clients.open(version)
        publisher.send(*[Publish(topic, b"%d" % n, 2, packet_id=n + 1) for n in range(500)])
        for n in range(500):
            publisher.expect(PubRec(n + 1))
        publisher.send(*[PubRel(n + 1) for n in range(500)])
        for n in range(500):
            publisher.expect(PubComp(n + 1))
        for n in range(500):
            subscriber.take(topic, b"%d" % n, 2)
        subscriber.expect_nothing()


# ------------------------------------------------------------------------- $SYS


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path_factory.mktemp("counted"), ("broker.sys_interval=1",), ())
    broker.wait_ready()
    yield broker
    broker.kill()


NAMES = [
    "version",
    "uptime",
    "clients/connected",
    "clients/disconnected",
    "clients/total",
    "messages/received",
    "messages/sent",
    "publish/messages/received",
    "publish/messages/sent",
    "bytes/received",
    "bytes/sent",
    "subscriptions/count",
    "retained messages/count",
    "messages/dropped/slow",
    "messages/dropped/queue_full",
    "messages/dropped/expired",
    "messages/dropped/too_large",
    "messages/dropped/no_receiver",
    "errors/publishes_denied",
    "errors/protocol_errors",
    "errors/clients_refused",
    "errors/clients_limited",
]


@BOTH_VERSIONS
def test_the_state_of_the_broker_is_retained(counted: BrokerProcess, version: int) -> None:
    with Clients(counted.mqtt_port) as clients:
        for name in NAMES:
            client = clients.open(version)
            client.subscribe(b"$SYS/broker/" + name.encode())
            found = client.expect_publish()
            assert found.retain
            assert found.payload


@BOTH_VERSIONS
def test_the_state_of_the_broker_is_refreshed(counted: BrokerProcess, version: int) -> None:
    with Clients(counted.mqtt_port) as clients:
        client = clients.open(version)
        client.subscribe(b"$SYS/broker/uptime")
        first = client.expect_publish()
        second = client.expect_publish()
        assert second.payload != first.payload
        assert not second.retain  # to one who is there already it is a live message
        wait_for_value(clients, b"$SYS/broker/clients/connected", lambda value: value == 2)


@BOTH_VERSIONS
def test_the_state_of_the_broker_is_hidden_from_leading_wildcards(
    counted: BrokerProcess, version: int
) -> None:
    with Clients(counted.mqtt_port) as clients:  # [MQTT-4.7.2-1]
        client = clients.open(version)
        for filter in (b"#", b"+/#", b"+/broker/#", b"+/broker/uptime"):
            client.subscribe(filter)
        client.expect_nothing()
        witness = clients.open(version)
        witness.subscribe(b"$SYS/broker/uptime")
        for _ in range(2):
            witness.expect_publish()
        client.expect_nothing()
        witness.subscribe(b"$SYS/#")
        witness.expect_publish()


# ------------------------------------------------------------- without memory


def test_a_client_that_leaves_while_it_waits_for_memory_is_gone_and_what_it_sent_last_counts(
    start_broker: StartBroker,
) -> None:
    broker = start_broker(
        "memory.limit=400MiB",
        "memory.high_watermark=10",  # the process itself is larger
        "memory.critical_watermark=99",
        "broker.sys_interval=1",
    )
    with Clients(broker.mqtt_port) as clients:
        watcher = clients.open(5)
        watcher.subscribe(b"wills", 0)
        leaving = clients.open(5, will=Will(b"wills", b"died"))
        leaving.subscribe(b"t", 0)
        leaving.send(Publish(b"t", bytes(100_000)))
        leaving.take(b"t", bytes(100_000), 0)
        leaving.send(Disconnect())  # it is not read any more
        leaving.close()
        wait_for_value(clients, b"$SYS/broker/clients/connected", lambda value: value == 2)
        watcher.expect_nothing()
