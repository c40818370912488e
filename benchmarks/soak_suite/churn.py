"""Clients that come and go: connections, sessions, subscriptions, queues and exchanges with ever new names."""

from __future__ import annotations

import ssl
import threading
import time
from abc import ABC, abstractmethod
from typing import Final

from pika.spec import Exchange

from benchmarks.attack_suite.amqp import AmqpClient, ChannelClosed
from benchmarks.attack_suite.mqtt import MqttClient, properties
from benchmarks.attack_suite.target import TIMEOUT_S, Target
from benchmarks.attack_suite.websocket import WebSocket
from benchmarks.load.frames import PUBACK, SUBACK
from benchmarks.soak_suite.account import Account
from benchmarks.soak_suite.lane import AFTER_FAULT_S, open_amqp
from millstream.protocols.mqtt.wire.packets import Unsubscribe

UNSUBACK: Final = 0xB0
DISCONNECT: Final = bytes([0xE0, 0])
TOPICS: Final = 5000  # so many and no more: bounded caches of topics and levels are full within the warm-up
SESSION_S: Final = 5  # of sessions that outlive their connection


class Churn(ABC):
    """A visit every so often, in a thread of its own; `rounds` counts them."""

    name = ""
    interval_s = 0.2

    def __init__(self, target: Target) -> None:
        self.target = target
        self.account = Account()
        self.rounds = 0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._repeat, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join(TIMEOUT_S)

    def _repeat(self) -> None:
        due = time.monotonic()
        while not self._is_over.wait(due - time.monotonic()):
            due = max(due + self.interval_s, time.monotonic())
            try:
                self.visit(self.rounds)
            except Exception as error:  # noqa: BLE001 - it is counted and told at the end
                self.account.note_fault(error)
                self._is_over.wait(AFTER_FAULT_S)
            self.rounds += 1

    @abstractmethod
    def visit(self, number: int) -> None: ...


class MqttChurn(Churn):
    """By TCP, WebSocket and TLS in turn; every third leaves a session that expires, every fourth takes over an id."""

    name = "mqtt-churn"
    interval_s = 0.1

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self._tls = ssl.create_default_context()
        self._tls.check_hostname = False
        self._tls.verify_mode = ssl.CERT_NONE

    def visit(self, number: int) -> None:
        client_id = "soak-churn-same" if number % 4 == 0 else f"soak-churn-{number}"
        client = self._connect(number)
        client.open(client_id, expiry_s=SESSION_S if number % 3 == 0 else 0)
        number %= TOPICS
        topic = b"soak-churn/%d" % number
        client.subscribe(topic, topic + b"/+/x", b"soak-churn/+/%d/#" % number, qos=1)
        client.expect(SUBACK)
        client.subscribe(b"$share/churn%d/" % (number % 100) + topic)
        client.expect(SUBACK)
        client.publish(topic, b"x" * 50, qos=1, retain=number % 5 == 0)
        client.expect(PUBACK)
        if number % 5 == 0:
            client.publish(topic, retain=True)
        if number % 2 == 0:
            client.send(Unsubscribe(client.next_id(), [topic], properties()))
            client.expect(UNSUBACK)
            client.socket.sendall(DISCONNECT)
        client.close()

    def _connect(self, number: int) -> MqttClient:
        if number % 3 == 1:
            return MqttClient(WebSocket(self.target.connect("websocket")))
        if number % 12 == 2 and "mqtt_tls" in self.target.ports:
            return MqttClient(self._tls.wrap_socket(self.target.connect("mqtt_tls")))
        return MqttClient(self.target.connect())


class AmqpChurn(Churn):
    """Queues of every kind, exchanges and bindings, declared, used and deleted; and an operation that is refused."""

    name = "amqp-churn"
    interval_s = 0.4

    def visit(self, number: int) -> None:
        client = open_amqp(self.target)
        channel = client.channel()
        exchange = channel.exchange(f"soak-churn-{number}", "topic", durable=number % 2 == 0)
        durable = f"soak-churn-{number}"
        stream = {"x-queue-type": "stream"} if number % 5 == 0 else {}
        channel.declare(durable, durable=True, arguments=stream)
        temporary = channel.temporary()
        for queue in (durable, temporary):
            channel.bind(queue, exchange, f"key.{number}.#")
        channel.confirm_select()
        channel.publish_confirmed(exchange, f"key.{number}", b"x" * 100, delivery_mode=2)
        if channel.get(temporary, no_ack=True) is None:
            self.account.wrong += 1
        self._be_refused(client, number)
        channel.unbind(durable, exchange, f"key.{number}.#")
        channel.delete(durable)
        channel.call(Exchange.Delete(exchange=exchange), Exchange.DeleteOk)
        client.close() if number % 2 else client.cut()

    def _be_refused(self, client: AmqpClient, number: int) -> None:
        other = client.channel()
        try:
            other.declare(f"soak-missing-{number}", passive=True)
            self.account.wrong += 1
        except ChannelClosed:
            pass  # as it must be: there is no such queue


class Garbage(Churn):
    """What scanners send."""

    name = "garbage"
    interval_s = 1.0
    words = (
        b"\x00" * 64,
        b"GET / HTTP/1.1\r\n\r\n",
        b"AMQP\x00\x01\x00\x00",
        b"\x10\xff\xff\xff\xff",
        b"\x16\x03\x01",
    )

    def visit(self, number: int) -> None:
        names = [name for name in self.target.ports if name in ("mqtt", "amqp", "websocket", "mqtt_tls")]
        connection = self.target.connect(names[number % len(names)])
        connection.settimeout(0.5)
        try:
            connection.sendall(self.words[number % len(self.words)])
            connection.recv(1 << 16)
        except OSError:
            pass  # refused in whatever way, or it waits for more: both are right
        connection.close()


CHURNS = (MqttChurn, AmqpChurn, Garbage)
