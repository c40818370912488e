"""A message that comes unmarked was never delivered before, whatever happened to the broker in between."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pika
import pytest
from amqp_names import IS_OURS
from conftest import BrokerProcess
from pika.adapters.blocking_connection import BlockingChannel

pytestmark = pytest.mark.skipif(not IS_OURS, reason="a broker that can be killed")

KEPT = pika.BasicProperties(delivery_mode=pika.DeliveryMode.Persistent)
QUEUES = {"plain": {}, "counted": {"x-queue-type": "quorum"}, "ranked": {"x-max-priority": 9}}


class Service:
    """A broker on one data directory, and a client of it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._runs = 0
        self.start()

    def start(self) -> None:
        self._runs += 1
        home = self._folder / str(self._runs)
        home.mkdir()
        self.broker = BrokerProcess(home, (f"data_dir={self._folder / 'data'}",), ())
        self.broker.wait_ready()
        parameters = pika.ConnectionParameters("127.0.0.1", self.broker.ports["amqp"])
        self._connection = pika.BlockingConnection(parameters)
        self.channel: BlockingChannel = self._connection.channel()
        self.channel.confirm_delivery()

    def kill(self) -> None:
        self.broker.kill()
        self.start()

    def stop(self) -> None:
        """With the client still connected, and its delivery open, unless it left."""
        assert self.broker.stop() == 0
        self.start()

    def leave(self) -> None:
        self._connection.close()

    def fill(self, queue: str, *bodies: bytes) -> None:
        for body in bodies:
            self.channel.basic_publish("", queue, body, KEPT)

    def get(self, queue: str) -> tuple[bytes, bool, object]:
        """(body, redelivered, how often it was counted); it stays open."""
        method, properties, body = self.channel.basic_get(queue)
        assert method is not None, self.broker.log()
        assert body is not None
        return body, method.redelivered, (properties.headers or {}).get("x-delivery-count")

    def consume(self, queue: str, count: int) -> list[tuple[bytes, bool]]:
        found: list[tuple[bytes, bool]] = []
        for method, _, body in self.channel.consume(queue):
            found.append((body, method.redelivered))
            if len(found) == count:
                return found
        return found


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    service = Service(tmp_path)
    for name, arguments in QUEUES.items():
        service.channel.queue_declare(name, durable=True, arguments=arguments)
        service.fill(name, b"open", b"never delivered")
        assert service.get(name)[:2] == (b"open", False)
    yield service
    if service.broker.process.poll() is None:
        service.broker.kill()


def test_a_delivery_that_was_open_when_the_broker_was_killed_is_redelivered(service: Service) -> None:
    service.kill()
    for name in QUEUES:
        service.fill(name, b"new")
    assert service.get("plain") == (b"open", True, None)
    assert service.get("counted") == (b"open", True, 0)
    found = service.consume("ranked", 3)
    assert found[0] == (b"open", True)
    assert found[2] == (b"new", False)


def test_after_a_clean_stop_only_the_open_delivery_is_redelivered(service: Service) -> None:
    service.stop()
    assert service.get("plain") == (b"open", True, None)
    assert service.get("plain") == (b"never delivered", False, None)
    assert service.get("counted") == (b"open", True, 1)
    assert service.get("counted") == (b"never delivered", False, 0)
    assert service.consume("ranked", 2) == [(b"open", True), (b"never delivered", False)]


def test_what_is_in_doubt_since_a_kill_stays_so_over_a_clean_stop(service: Service) -> None:
    service.kill()
    service.fill("plain", b"new")
    service.leave()  # the broker need not wait for a client that does not listen
    service.stop()
    assert service.consume("plain", 3) == [(b"open", True), (b"never delivered", True), (b"new", False)]
