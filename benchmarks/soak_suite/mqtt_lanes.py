"""Traffic over MQTT: every QoS, a session that comes and goes, shared subscriptions, wills, retained, WebSocket."""

from __future__ import annotations

import itertools
import time
from typing import Final

from benchmarks.attack_suite.mqtt import MqttClient, properties
from benchmarks.attack_suite.target import TIMEOUT_S
from benchmarks.attack_suite.websocket import WebSocket
from benchmarks.load.frames import PUBACK, SUBACK, decode_publication
from benchmarks.soak_suite.account import HEAD
from benchmarks.soak_suite.lane import READ_S, Lane, Publish, Receive, open_mqtt
from millstream.protocols.mqtt.wire.packets import PingReq, Unsubscribe, Will

PUBLISH: Final = 0x30
PUBREC: Final = 0x50
PUBREL: Final = 0x60
PUBCOMP: Final = 0x70
PINGRESP: Final = 0xD0
DISCONNECT: Final = bytes([0xE0, 0])
STAY_S: Final = 3.0  # of a subscriber that comes and goes
RETAINED_TOPICS: Final = 50


def receive_publications(client: MqttClient) -> list[bytes]:
    """Answers what comes, whatever its QoS; gives the payload when it was a message."""
    packet = client.receive()
    kind = packet.first_byte & 0xF0
    if kind == PUBREL:
        client.socket.sendall(bytes([PUBCOMP, 2]) + packet.body[:2])
    if kind != PUBLISH:
        return []
    publication = decode_publication(packet, 5)
    if publication.qos:
        answer = PUBACK if publication.qos == 1 else PUBREC
        client.socket.sendall(bytes([answer, 2]) + publication.packet_id.to_bytes(2, "big"))
    return [publication.payload]


def publish_and_wait(client: MqttClient, topic: bytes, payloads: list[bytes], qos: int) -> None:
    for payload in payloads:
        client.publish(topic, payload, qos=qos)
    missing = len(payloads) if qos else 0
    while missing:
        packet = client.receive()
        kind = packet.first_byte & 0xF0
        if kind == PUBREC:
            client.socket.sendall(bytes([PUBREL | 2, 2]) + packet.body[:2])
        elif kind in (PUBACK, PUBCOMP):
            if len(packet.body) > 2 and packet.body[2] >= 0x80:
                raise ConnectionError(f"a publish was refused: 0x{packet.body[2]:02x}")
            missing -= 1


class MqttLane(Lane):
    qos = 1

    @property
    def topic(self) -> bytes:
        return b"soak/" + self.name.encode()

    @property
    def filter(self) -> bytes:
        return self.topic

    def connect(self, role: str, **options: object) -> MqttClient:
        return open_mqtt(self.target, f"soak-{self.name}-{role}", **options)

    def open_publisher(self) -> Publish:
        client = self.connect("publisher")
        client.socket.settimeout(TIMEOUT_S)
        return lambda payloads: publish_and_wait(client, self.topic, payloads, self.qos)

    def open_consumer(self, number: int) -> Receive:
        client = self.connect(f"subscriber-{number}")
        client.subscribe(self.filter, qos=self.qos)
        client.expect(SUBACK)
        return lambda: receive_publications(client)


class Qos0(MqttLane):
    name = "mqtt-qos0"
    qos = 0
    consumers = 2

    def open_consumer(self, number: int) -> Receive:
        """The second one only makes a fan-out of it."""
        receive = super().open_consumer(number)

        def receive_only() -> list[bytes]:
            receive()
            return []

        return receive_only if number else receive


class Qos1(MqttLane):
    name = "mqtt-qos1"


class Qos2(MqttLane):
    name = "mqtt-qos2"
    qos = 2


class OverWebSocket(MqttLane):
    name = "mqtt-websocket"

    def connect(self, role: str, **options: object) -> MqttClient:
        client = MqttClient(WebSocket(self.target.connect("websocket"))).open(f"soak-{self.name}-{role}")
        client.socket.settimeout(READ_S)
        return client


class ResumedSession(MqttLane):
    """The subscriber leaves every few seconds, in good order or not, and what it missed waits for it."""

    name = "mqtt-session"
    may_repeat = True
    is_delayed = True
    is_subscribed = False

    def open_consumer(self, number: int) -> Receive:
        client = self.connect("subscriber", clean_start=False, expiry_s=3600)
        if not self.is_subscribed:
            client.subscribe(self.filter, qos=1)
            client.expect(SUBACK)
            self.is_subscribed = True
        until = time.monotonic() + STAY_S
        is_orderly = int(until) % 2 == 0

        def receive() -> list[bytes] | None:
            if time.monotonic() > until:
                if is_orderly:
                    client.socket.sendall(DISCONNECT)
                client.close()
                time.sleep(STAY_S / 3)
                return None
            return receive_publications(client)

        return receive


class SharedSubscription(MqttLane):
    """Three members; each leaves every few seconds, having answered all it got."""

    name = "mqtt-shared"
    consumers = 3
    burst = 6

    @property
    def filter(self) -> bytes:
        return b"$share/soak/" + self.topic

    def open_consumer(self, number: int) -> Receive:
        client = self.connect(f"member-{number}")
        client.subscribe(self.filter, qos=1)
        client.expect(SUBACK)
        until = time.monotonic() + STAY_S * (number + 1)

        def receive() -> list[bytes] | None:
            if number and time.monotonic() > until:
                rest = self._leave(client)
                return rest or None
            return receive_publications(client)

        return receive

    def _leave(self, client: MqttClient) -> list[bytes]:
        """What still came before the answer to a PINGREQ behind the UNSUBSCRIBE. Called again, it is gone."""
        if client.socket.fileno() < 0:  # type: ignore[union-attr]
            return []
        rest: list[bytes] = []
        client.send(Unsubscribe(client.next_id(), [self.filter], properties()), PingReq())
        while True:
            packet = client.receive()
            if packet.first_byte & 0xF0 == PUBLISH:
                publication = decode_publication(packet, 5)
                client.socket.sendall(bytes([PUBACK, 2]) + publication.packet_id.to_bytes(2, "big"))
                rest.append(publication.payload)
            elif packet.first_byte & 0xF0 == PINGRESP:
                break
        client.socket.sendall(DISCONNECT)
        client.close()
        return rest


class Wills(MqttLane):
    """Clients that vanish; their wills are the messages."""

    name = "mqtt-will"
    burst = 1

    def open_publisher(self) -> Publish:
        numbers = itertools.count()

        def vanish(payloads: list[bytes]) -> None:
            for payload in payloads:
                will = Will(self.topic, payload, 1, False, properties())
                self.connect(f"vanishing-{next(numbers)}", will=will).close()

        return vanish


class Retained(MqttLane):
    """Each burst sets retained messages; a newcomer must find them, and those of the bursts before, as they were set."""

    name = "mqtt-retained"

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self._last: dict[bytes, int] = {}
        self._bursts = 0

    def open_publisher(self) -> Publish:
        client = self.connect("publisher")
        client.socket.settimeout(TIMEOUT_S)

        def publish(payloads: list[bytes]) -> None:
            for payload in payloads:
                number = HEAD.unpack_from(payload)[0]
                topic = self.topic + b"/%d" % (number % RETAINED_TOPICS)
                client.publish(topic, payload, qos=1, retain=True)
                client.expect(PUBACK)
                self._last[topic] = number
            self._bursts += 1
            if self._bursts % 10 == 0:
                self._look()

        return publish

    def _look(self) -> None:
        newcomer = self.connect("newcomer")
        newcomer.subscribe(self.topic + b"/#")
        newcomer.expect(SUBACK)
        found: dict[bytes, int] = {}
        while len(found) < len(self._last):
            packet = newcomer.receive()
            if packet.first_byte & 0xF0 == PUBLISH:
                publication = decode_publication(packet, 5)
                found[publication.topic] = HEAD.unpack_from(publication.payload)[0]
        newcomer.close()
        self.account.wrong += sum(found.get(topic) != number for topic, number in self._last.items())

    @property
    def filter(self) -> bytes:
        return self.topic + b"/+"


LANES = (Qos0, Qos1, Qos2, OverWebSocket, ResumedSession, SharedSubscription, Wills, Retained)
