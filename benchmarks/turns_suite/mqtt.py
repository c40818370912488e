"""Inputs of MQTT clients: filters, sessions, shares, wills, retained messages."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

from benchmarks.attack_suite.mqtt import MqttClient, encode_publish, properties
from benchmarks.attack_suite.preparation import ping, publish_all, spell_filter, subscribe_all
from benchmarks.turns_suite.case import case
from benchmarks.turns_suite.world import World
from millstream.protocols.mqtt.wire.packets import Subscribe, SubscribeEntry, Unsubscribe, Will

SESSION_FILTERS = 10_000
PUBLISH = 0x30


def nothing(world: World) -> None:
    """Nothing has to be there."""


def plain_filters(count: int) -> list[bytes]:
    return [b"site/%d/+/state" % number for number in range(count)]


def open_with_filters(world: World, count: int = SESSION_FILTERS, **options: Any) -> MqttClient:
    client = world.mqtt(**options)
    subscribe_all(client, plain_filters(world.count(count)))
    return client


def disconnect(client: MqttClient) -> None:
    client.socket.shutdown(socket.SHUT_RDWR)


# ---------------------------------------------------------------------- filters


def open_many_shapes(world: World) -> MqttClient:
    """As many shapes as the account admits, all matching one topic."""
    for at in range(world.count(45)):
        client = world.mqtt()
        subscribe_all(client, [spell_filter(at * 100 + number) for number in range(100)])
    return world.mqtt()


@case(
    "mqtt-shapes",
    "publishes to new topics against as many shapes of filters as are admitted",
    open_many_shapes,
)
def publish_new_topics(world: World, client: MqttClient) -> None:
    topic = b"/".join([b"a"] * 13)
    client.socket.sendall(b"".join(encode_publish(topic + b"/%d" % number) for number in range(2000)))
    ping(client)


@case("mqtt-unsubscribe", "UNSUBSCRIBE of 10,000 filters, 1,000 a packet, in one write", open_with_filters)
def unsubscribe_all(world: World, client: MqttClient) -> None:
    filters = plain_filters(world.count(SESSION_FILTERS))
    packets = [
        Unsubscribe(client.next_id(), filters[at : at + 1000], properties())
        for at in range(0, len(filters), 1000)
    ]
    client.send(*packets)
    ping(client)


@case("mqtt-disconnect", "a connection of a session with 10,000 filters is lost", open_with_filters)
def lose_session(world: World, client: MqttClient) -> None:
    disconnect(client)


def open_many_sessions(world: World) -> list[MqttClient]:
    return [open_with_filters(world) for _ in range(10)]


@case(
    "mqtt-disconnect-many",
    "ten connections of sessions with 10,000 filters are lost at once",
    open_many_sessions,
)
def lose_sessions(world: World, clients: list[MqttClient]) -> None:
    for client in clients:
        disconnect(client)


def leave_session(world: World) -> str:
    client = world.mqtt("turns-stayer", expiry_s=3600)
    subscribe_all(client, plain_filters(world.count(SESSION_FILTERS)))
    disconnect(client)
    return "turns-stayer"


@case("mqtt-clean-start", "a clean start over a stored session with 10,000 filters", leave_session)
def start_clean(world: World, name: str) -> None:
    ping(world.mqtt(name))


def leave_expiring(world: World) -> int:
    """How many sessions stay when they have expired."""
    stay = world.status()["sessions"]
    clients = [world.mqtt(expiry_s=3) for _ in range(10)]
    for client in clients:
        subscribe_all(client, plain_filters(world.count(SESSION_FILTERS)))
    for client in clients:
        disconnect(client)
    return int(stay)


@case("mqtt-expiry", "ten stored sessions with 10,000 filters expire in one moment", leave_expiring)
def expire_sessions(world: World, stay: int) -> None:
    world.wait_sessions(stay)


def leave_full_sessions(world: World) -> MqttClient:
    """Offline queues as long as they may be, of shared subscriptions."""
    members = [world.mqtt(f"turns-member-{number}", expiry_s=3600) for number in range(2)]
    for client in members:
        subscribe_all(client, [b"$share/g/jobs/#"], qos=1)
    connected = int(world.status()["connections"])
    disconnect(members[1])
    world.wait_connections(connected - 1)
    publisher = world.mqtt()
    for start in range(0, 1200, 200):
        publisher.socket.sendall(
            b"".join(
                encode_publish(b"jobs/%d" % number, b"x", 1, number + 1)
                for number in range(start, start + 200)
            )
        )
        ping(publisher)
    return members[0]


@case("mqtt-hand-over", "a member of a share leaves 1,000 messages to another", leave_full_sessions)
def hand_over(world: World, client: MqttClient) -> None:
    disconnect(client)


# ---------------------------------------------------------------------- shares


def join_many_groups(world: World) -> MqttClient:
    client = world.mqtt()
    subscribe_all(client, [b"$share/g%d/load" % number for number in range(world.count(SESSION_FILTERS))])
    return world.mqtt()


@case(
    "mqtt-share-groups",
    "publishes to a topic that one client has joined by 10,000 share groups",
    join_many_groups,
)
def publish_to_groups(world: World, client: MqttClient) -> None:
    client.socket.sendall(b"".join(encode_publish(b"load", b"x") for _ in range(20)))
    ping(client)


def join_many_groups_wild(world: World) -> MqttClient:
    client = world.mqtt()
    subscribe_all(client, [b"$share/g%d/load/+" % number for number in range(world.count(SESSION_FILTERS))])
    return world.mqtt()


@case(
    "mqtt-share-topics",
    "publishes to new topics that one client has joined by 10,000 share groups",
    join_many_groups_wild,
)
def publish_new_to_groups(world: World, client: MqttClient) -> None:
    client.socket.sendall(b"".join(encode_publish(b"load/%d" % number, b"x") for number in range(20)))
    ping(client)


def join_many_members(world: World) -> MqttClient:
    for _ in range(world.count(2000)):
        subscribe_all(world.mqtt(), [b"$share/g/load/#"])
    return world.mqtt()


@case("mqtt-share-members", "publishes to new topics of a share group with 2,000 members", join_many_members)
def publish_to_members(world: World, client: MqttClient) -> None:
    client.socket.sendall(b"".join(encode_publish(b"load/%d" % number, b"x") for number in range(500)))
    ping(client)


# --------------------------------------------------------------------- fan-out


def open_audience(world: World) -> MqttClient:
    for _ in range(world.count(5000)):
        subscribe_all(world.mqtt(), [b"news/#"])
    return world.mqtt()


@case("mqtt-fan-out", "one publish to 5,000 connected subscribers", open_audience)
def publish_news(world: World, client: MqttClient) -> None:
    client.publish(b"news/today", b"x" * 100)
    ping(client)


def open_audience_qos1(world: World) -> MqttClient:
    for _ in range(world.count(5000)):
        subscribe_all(world.mqtt(expiry_s=3600), [b"news/#"], qos=1)
    return world.mqtt()


@case(
    "mqtt-fan-out-stored", "one QoS 1 publish to 5,000 subscribers with stored sessions", open_audience_qos1
)
def publish_news_qos1(world: World, client: MqttClient) -> None:
    client.publish(b"news/today", b"x" * 100, qos=1)
    client.expect(0x40)


def open_system_readers(world: World) -> MqttClient:
    client = world.mqtt()
    for _ in range(world.count(1000)):
        subscribe_all(world.mqtt(), [b"$SYS/#"])
    subscribe_all(client, [b"$SYS/broker/uptime"])
    return client


@case(
    "mqtt-system-topics",
    "1,000 subscribers of `$SYS/#` get a round of it",
    open_system_readers,
    ("broker.sys_interval=2",),
)
def await_system_round(world: World, client: MqttClient) -> None:
    for _ in range(3):  # the retained one, and two rounds
        client.expect(PUBLISH)


def open_wills(world: World) -> list[MqttClient]:
    for _ in range(20):
        subscribe_all(world.mqtt(), [b"gone/#"])
    return [
        world.mqtt(will=Will(b"gone/%d" % number, b"x" * 200, 0, True, properties()))
        for number in range(world.count(3000))
    ]


@case("mqtt-wills", "3,000 connections with retained wills are lost at once", open_wills)
def lose_all(world: World, clients: list[MqttClient]) -> None:
    for client in clients:
        disconnect(client)


# -------------------------------------------------------------------- retained


def encode_retained(count: int, payload: bytes) -> Iterator[bytes]:
    return (
        encode_publish(b"kept/%d/%d" % (number % 997, number), payload, retain=True)
        for number in range(count)
    )


def retain_many(world: World) -> MqttClient:
    client = world.mqtt()
    publish_all(client, encode_retained(world.count(200_000), b"x" * 16))
    return client


@case("mqtt-retained-clear", "100,000 retained messages are cleared", retain_many)
def clear_retained(world: World, client: MqttClient) -> None:
    client.socket.sendall(b"".join(encode_retained(world.count(100_000), b"")))
    ping(client)


@case("mqtt-retained-subscribe", "SUBSCRIBE with 1,000 times `#` over 200,000 retained messages", retain_many)
def subscribe_retained(world: World, client: MqttClient) -> None:
    reader = world.mqtt()
    reader.send(Subscribe(reader.next_id(), [SubscribeEntry(b"#", 0)] * 1000, properties()))
    reader.expect(0x90)
    for _ in range(world.count(200_000)):
        reader.expect(PUBLISH)


# ----------------------------------------------------------------------- other


@case("mqtt-aliases", "50,000 publishes that set a topic alias anew, each to a new topic", nothing)
def churn_aliases(world: World, _: None) -> None:
    client = world.mqtt()
    client.socket.sendall(
        b"".join(
            encode_publish(b"alias/%d" % number, b"x", topic_alias=number % 64 + 1)
            for number in range(world.count(50_000))
        )
    )
    ping(client)


def cache_routes(world: World) -> MqttClient:
    subscribe_all(world.mqtt(), [b"cached/#"])
    client = world.mqtt()
    publish_all(client, (encode_publish(b"cached/%d" % number) for number in range(world.count(190_000))))
    return client


@case("mqtt-route-cache", "a wildcard subscription forgets 190,000 cached routes", cache_routes)
def forget_routes(world: World, client: MqttClient) -> None:
    client.subscribe(b"+/other")
    ping(client)


def consume_many_queues(world: World) -> MqttClient:
    client = world.mqtt()
    subscribe_all(
        client, [b"$queue/turns-%d" % number for number in range(world.count(SESSION_FILTERS))], qos=1
    )
    return client


@case("mqtt-queue-consumers", "a session that consumes from 10,000 queues is lost", consume_many_queues)
def lose_consumer(world: World, client: MqttClient) -> None:
    disconnect(client)


def fill_filtered(world: World) -> MqttClient:
    client = world.mqtt()
    one = encode_publish(b"$queue/filtered/a", b"x" * 16)
    publish_all(client, (one for _ in range(world.count(300_000))))
    return client


@case("mqtt-queue-filters", "200 groups with filters that match nothing of 300,000 records", fill_filtered)
def filter_queue(world: World, client: MqttClient) -> None:
    reader = world.mqtt()
    subscribe_all(
        reader, [b"$share/g%d/$queue/filtered/b%d" % (number, number) for number in range(200)], qos=1
    )
    world.wait_quiet()  # nothing comes: that they have read it all can only be seen by what the broker does
