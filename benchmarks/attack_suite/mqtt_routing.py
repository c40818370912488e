"""Attacks on filters, retained messages, shares and fan-out."""

from __future__ import annotations

from benchmarks.attack_suite.attack import Facts, attack
from benchmarks.attack_suite.mqtt import MqttClient, encode, encode_publish, properties
from benchmarks.attack_suite.preparation import publish_all, spell_filter, subscribe_all
from benchmarks.attack_suite.pump import pump
from benchmarks.attack_suite.target import Target
from benchmarks.load.frames import SUBACK
from millstream.protocols.mqtt.wire.packets import Subscribe, SubscribeEntry, Unsubscribe

RETAINED = 100_000
FILTERS = 8_192
UNSUBACK = 0xB0


def open_mqtt(target: Target, name: int | str = "", **options: object) -> MqttClient:
    return MqttClient(target.connect()).open(target.name(name), **options)  # type: ignore[arg-type]


def retain_many(target: Target) -> None:
    publishes = (
        encode_publish(b"attack/r/%d/%d" % (number % 997, number), b"x" * 32, retain=True)
        for number in range(int(RETAINED * target.scale))
    )
    publish_all(open_mqtt(target, "retainer"), publishes)


@attack(
    "retained-subscribe",
    "SUBSCRIBE with 1,000 times `#` over 100,000 retained messages, again and again",
    finding="F5",
    prepare=retain_many,
)
def retained_subscribe(target: Target) -> Facts:
    sent = 0
    client = open_mqtt(target)
    while not target.is_over():
        client.subscribe(*([b"#"] * 1000))
        client.expect(SUBACK)
        sent += 1
    return {"subscribes": sent}


@attack(
    "retained-replays",
    "50 clients that subscribe to `#` over 100,000 retained messages and do not read what comes",
    finding="F5, F7",
    prepare=retain_many,
)
def retained_replays(target: Target) -> Facts:
    batch = encode(*[Subscribe(number + 1, [SubscribeEntry(b"#", 1)], properties()) for number in range(100)])
    clients = [open_mqtt(target, number) for number in range(target.count(50))]
    return pump(target, [client.socket for client in clients], [batch], must_read=False)


@attack(
    "retained-churn", "8 publishers that set and clear retained messages on ever new topics", finding="F5"
)
def retained_churn(target: Target) -> Facts:
    publishers = [open_mqtt(target, number) for number in range(8)]
    chunks = []
    for publisher in range(8):
        topics = [b"attack/churn/%d/%d" % (publisher, number) for number in range(4000)]
        sets = b"".join(encode_publish(topic, b"x" * 100, retain=True) for topic in topics)
        chunks.append(sets + b"".join(encode_publish(topic, retain=True) for topic in topics))
    return pump(target, [client.socket for client in publishers], chunks)


def clear_retained(target: Target) -> None:
    """What an operator does about it: they go with an empty message each."""
    empty = (encode_publish(b"attack/fill/%d" % number, retain=True) for number in range(20_000))
    publish_all(open_mqtt(target, "cleaner"), empty)


@attack(
    "retained-fill",
    "4 publishers of 100 kB retained messages to ever new topics",
    finding="F7",
    clean=clear_retained,
)
def retained_fill(target: Target) -> Facts:
    clients = [open_mqtt(target, number) for number in range(4)]
    sent = 0
    try:
        while not target.is_over():
            for client in clients:
                client.publish(b"attack/fill/%d" % sent, b"x" * 100_000, retain=True)
                sent += 1
    except OSError:
        pass  # the broker does not take more, or closed it
    return {"published": sent}


@attack(
    "filters-pathological",
    "8,192 filters of `+` and `#` levels in one session, publishes to ever new topics",
    finding="F6",
)
def filters_pathological(target: Target) -> Facts:
    client = open_mqtt(target)
    granted = subscribe_all(client, [spell_filter(number) for number in range(target.count(FILTERS))])
    publisher = open_mqtt(target, "publisher")
    batch = b"".join(encode_publish(b"/".join([b"a"] * 13) + b"/%d" % number) for number in range(4000))
    return {"granted": granted, **pump(target, [publisher.socket], [batch])}


@attack(
    "filters-many-clients",
    "80 sessions with 100 shapes of filters each, publishes to ever new topics",
    finding="F6",
)
def filters_many_clients(target: Target) -> Facts:
    granted = 0
    clients = [open_mqtt(target, number) for number in range(target.count(80))]
    for index, client in enumerate(clients):
        granted += subscribe_all(client, [spell_filter(index * 100 + number) for number in range(100)])
    publisher = open_mqtt(target, "publisher")
    batch = b"".join(encode_publish(b"/".join([b"a"] * 13) + b"/%d" % number) for number in range(4000))
    return {"granted": granted, **pump(target, [publisher.socket], [batch])}


@attack(
    "session-churn-filters",
    "sessions with 8,192 filters each that are made, taken over and ended, one after the other",
    finding="F6",
)
def session_churn_filters(target: Target) -> Facts:
    filters = [b"attack/%d/+/%d" % (number % 64, number) for number in range(target.count(FILTERS))]
    made = 0
    while not target.is_over():
        client = open_mqtt(target, f"{made % 3}", expiry_s=60 if made % 2 else 0)
        subscribe_all(client, filters)
        client.close()
        made += 1
    return {"sessions": made}


@attack("subscribe-unsubscribe", "8 clients that subscribe to 500 filters and leave them, without a pause")
def subscribe_unsubscribe(target: Target) -> Facts:
    chunks = []
    for client in range(8):
        filters = [b"attack/%d/+/%d/#" % (client, number) for number in range(500)]
        packets = [
            Subscribe(1, [SubscribeEntry(item, 1) for item in filters], properties()),
            Unsubscribe(2, filters, properties()),
        ]
        chunks.append(encode(*packets) * 4)
    clients = [open_mqtt(target, number) for number in range(8)]
    return pump(target, [client.socket for client in clients], chunks)


@attack("shares-many-groups", "5,000 share groups of one filter, and a flood of publishes to it")
def shares_many_groups(target: Target) -> Facts:
    groups = target.count(5000)
    members = [open_mqtt(target, number) for number in range(10)]
    for index, member in enumerate(members):
        names = range(index * groups // 10, (index + 1) * groups // 10)
        subscribe_all(member, [b"$share/g%d/attack/shared" % number for number in names])
    publisher = open_mqtt(target, "publisher")
    chunks = [*[bytes([0xC0, 0])] * 10, encode_publish(b"attack/shared", b"x" * 50) * 200]
    return pump(target, [*(member.socket for member in members), publisher.socket], chunks)


@attack("fan-out-wide", "1,000 subscribers of `attack/#`, 4 publishers at full speed", finding="F7")
def fan_out_wide(target: Target) -> Facts:
    subscribers = [open_mqtt(target, number) for number in range(target.count(1000))]
    for subscriber in subscribers:
        subscriber.subscribe(b"attack/#")
    publishers = [open_mqtt(target, f"publisher-{number}") for number in range(4)]
    chunks = [*[bytes([0xC0, 0])] * len(subscribers), encode_publish(b"attack/wide", b"x" * 200) * 100]
    return pump(target, [client.socket for client in (*subscribers, *publishers)], chunks)


@attack("sys-subscribe", "40 clients that subscribe to `$SYS/#` and leave it, without a pause")
def sys_subscribe(target: Target) -> Facts:
    packets = [
        Subscribe(1, [SubscribeEntry(b"$SYS/#", 1)], properties()),
        Unsubscribe(2, [b"$SYS/#"], properties()),
    ]
    clients = [open_mqtt(target, number) for number in range(40)]
    return pump(target, [client.socket for client in clients], [encode(*packets) * 100])


@attack("topics-deep", "publishes to ever new topics of 256 levels and to topics of 60,000 bytes")
def topics_deep(target: Target) -> Facts:
    subscriber = open_mqtt(target, "subscriber")
    subscribe_all(subscriber, [b"/".join([b"+"] * levels) + b"/#" for levels in range(1, 60)])
    publishers = [open_mqtt(target, number) for number in range(4)]
    deep = b"".join(encode_publish(b"/".join([b"%d" % number] * 200)) for number in range(2000))
    long = b"".join(encode_publish(b"attack/%d/" % number + b"x" * 60_000) for number in range(50))
    return pump(target, [client.socket for client in publishers], [deep, deep, long, long])
