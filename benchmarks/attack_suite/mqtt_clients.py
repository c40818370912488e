"""Attacks by MQTT clients that do not read, do not answer, vanish or send what costs more than it looks like."""

from __future__ import annotations

import itertools

from benchmarks.attack_suite.attack import Facts, attack
from benchmarks.attack_suite.mqtt import MqttClient, encode_publish, properties
from benchmarks.attack_suite.mqtt_routing import open_mqtt
from benchmarks.attack_suite.pump import pump
from benchmarks.attack_suite.target import Target
from benchmarks.load.frames import SUBACK
from millstream.protocols.mqtt.wire.packets import Will

PINGREQ = bytes([0xC0, 0])


def open_many(target: Target, count: int, topic: bytes, qos: int) -> list[MqttClient]:
    clients = [open_mqtt(target, number) for number in range(target.count(count))]
    for client in clients:
        client.subscribe(topic, qos=qos)
    for client in clients:
        client.expect(SUBACK)
    return clients


@attack(
    "slow-readers-qos0",
    "1,000 subscribers that do not read, and a flood of QoS 0 messages of 10 kB",
    finding="F7",
)
def slow_readers_qos0(target: Target) -> Facts:
    readers = open_many(target, 1000, b"attack/slow", 0)
    publisher = open_mqtt(target, "publisher")
    facts = pump(target, [publisher.socket], [encode_publish(b"attack/slow", b"x" * 10_000) * 10])
    return {"readers": len(readers), **facts}


@attack(
    "slow-readers-qos1",
    "200 subscribers that answer nothing, and a flood of QoS 1 messages of 50 kB",
    finding="F7",
)
def slow_readers_qos1(target: Target) -> Facts:
    readers = open_many(target, 200, b"attack/slow", 1)
    publisher = open_mqtt(target, "publisher")
    batch = b"".join(encode_publish(b"attack/slow", b"x" * 50_000, 1, number) for number in range(1, 21))
    return {"readers": len(readers), **pump(target, [publisher.socket], [batch])}


@attack(
    "offline-fill", "1,000 sessions without a connection, and a flood of QoS 1 messages to all", finding="F7"
)
def offline_fill(target: Target) -> Facts:
    for number in range(target.count(1000)):
        client = open_mqtt(target, number, expiry_s=30)
        client.subscribe(b"attack/offline", qos=1)
        client.expect(SUBACK)
        client.close()
    publisher = open_mqtt(target, "publisher")
    batch = b"".join(encode_publish(b"attack/offline", b"x" * 5000, 1, number) for number in range(1, 101))
    return pump(target, [publisher.socket], [batch])


def end_sessions(target: Target) -> None:
    for number in range(target.count(1000)):
        open_mqtt(target, number).close()


@attack("wills-storm", "1,000 clients at a time with wills of 10 kB that vanish, again and again")
def wills_storm(target: Target) -> Facts:
    watcher = open_mqtt(target, "watcher")
    watcher.subscribe(b"attack/will/#")
    vanished = 0
    while not target.is_over():
        clients = []
        for number in range(target.count(1000)):
            if target.is_over():
                break
            will = Will(b"attack/will/%d" % number, b"x" * 10_000, 1, number % 2 == 0, properties())
            clients.append(open_mqtt(target, number, will=will))
        for client in clients:
            client.close()
        vanished += len(clients)
    return {"vanished": vanished}


@attack(
    "wills-delayed",
    "clients that leave delayed wills of 60 kB and sessions behind, ever new ones",
    finding="F7",
)
def wills_delayed(target: Target) -> Facts:
    left = 0
    while not target.is_over():
        will = Will(b"attack/will/%d" % left, b"x" * 60_000, 1, False, properties(will_delay_interval=20))
        open_mqtt(target, left, will=will, expiry_s=20).close()
        left += 1
    return {"left": left}


@attack("alias-churn", "8 publishers that give their topic aliases a new topic in every publish")
def alias_churn(target: Target) -> Facts:
    publishers = [open_mqtt(target, number) for number in range(8)]
    chunks = [
        b"".join(
            encode_publish(b"attack/alias/%d/%d" % (publisher, number), b"x", topic_alias=number % 64 + 1)
            for number in range(5000)
        )
        for publisher in range(8)
    ]
    return pump(target, [client.socket for client in publishers], chunks)


@attack("user-properties", "publishes with 256 user properties to 200 subscribers", finding="F7")
def user_properties(target: Target) -> Facts:
    subscribers = open_many(target, 200, b"attack/properties", 0)
    publishers = [open_mqtt(target, f"publisher-{number}") for number in range(4)]
    pairs = [(b"name-%d" % number, b"value" * 10) for number in range(256)]
    publish = encode_publish(b"attack/properties", b"x", user_properties=pairs)
    chunks = [*[PINGREQ] * len(subscribers), publish * 20]
    return pump(target, [client.socket for client in (*subscribers, *publishers)], chunks)


@attack("ping-flood", "50 clients that send PINGREQ at full speed and read no answer")
def ping_flood(target: Target) -> Facts:
    clients = [open_mqtt(target, number) for number in range(50)]
    return pump(target, [client.socket for client in clients], [PINGREQ * 50_000], must_read=False)


@attack("publish-flood", "20 publishers of empty QoS 0 messages to topics nobody subscribed to")
def publish_flood(target: Target) -> Facts:
    publishers = [open_mqtt(target, number) for number in range(20)]
    chunks = [
        b"".join(encode_publish(b"attack/%d/%d" % (publisher, number)) for number in range(10_000))
        for publisher in range(20)
    ]
    return pump(target, [client.socket for client in publishers], chunks)


@attack("qos2-unfinished", "100 clients that begin QoS 2 publishes of 10 kB and end none", finding="F7")
def qos2_unfinished(target: Target) -> Facts:
    sockets = []
    chunk = b"".join(encode_publish(b"attack/half", b"x" * 10_000, 2, number) for number in range(1, 1000))
    for number in itertools.count():
        if number == target.count(100):
            break
        sockets.append(open_mqtt(target, number, expiry_s=10).socket)
    return pump(target, sockets, [chunk], rounds=1)


@attack(
    "big-messages", "20 clients that send messages of 1 MB to 20 subscribers that read slowly", finding="F7"
)
def big_messages(target: Target) -> Facts:
    subscribers = open_many(target, 20, b"attack/big", 1)
    publishers = [open_mqtt(target, f"publisher-{number}") for number in range(20)]
    facts = pump(
        target, [client.socket for client in publishers], [encode_publish(b"attack/big", b"x" * 1_000_000)]
    )
    return {"readers": len(subscribers), **facts}


@attack("takeover-storm", "4 client ids that are taken over from each other without a pause")
def takeover_storm(target: Target) -> Facts:
    taken = 0
    held: dict[int, MqttClient] = {}
    while not target.is_over():
        held[taken % 4] = open_mqtt(target, taken % 4, expiry_s=5, clean_start=False)
        taken += 1
    return {"taken": taken}
