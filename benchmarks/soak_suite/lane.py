"""One kind of traffic: a publisher at a steady pace, consumers of what it sends, a thread each.

A connection that is lost is a fault; it is opened again, and what was not confirmed is sent again.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final

from benchmarks.attack_suite.amqp import AmqpClient
from benchmarks.attack_suite.mqtt import MqttClient
from benchmarks.attack_suite.target import Target
from benchmarks.soak_suite.account import Account, make_payload

INTERVAL_S: Final = 0.1  # between two bursts
AFTER_FAULT_S: Final = 1.0
READ_S: Final = 1.0  # a reader looks up this often, to see whether it is over

Publish = Callable[[list[bytes]], None]  # returns when all are confirmed
Receive = Callable[[], list[bytes] | None]  # None: the connection is over on purpose; open another one


class Lane(ABC):
    name = ""
    consumers = 1
    burst = 4
    size = 100
    may_repeat = False  # a connection is cut on purpose, so a delivery may come twice
    is_delayed = False  # messages wait on purpose, so their latency says nothing

    def __init__(self, target: Target) -> None:
        self.target = target
        self.account = Account()
        self._is_over = threading.Event()
        self._is_drained = threading.Event()
        self._ready = threading.Semaphore(0)
        self._publisher = threading.Thread(target=self._publish, daemon=True)

    @abstractmethod
    def open_publisher(self) -> Publish: ...

    @abstractmethod
    def open_consumer(self, number: int) -> Receive: ...

    def prepare(self) -> None:  # noqa: B027 - most have nothing to prepare
        """What is declared before anybody comes."""

    # ---- the life of a lane

    def start(self) -> None:
        """Publishing begins when all consumers are there."""
        self.prepare()
        for number in range(self.consumers):
            threading.Thread(target=self._consume, args=(number,), daemon=True).start()
        for _ in range(self.consumers):
            self._ready.acquire()
        self._publisher.start()

    def stop(self) -> None:
        self._is_over.set()

    def drain(self, deadline: float) -> None:
        """Until all that was sent is here, or the time is over."""
        self._publisher.join(max(0.0, deadline - time.monotonic()))
        while self.account.lost and time.monotonic() < deadline:
            time.sleep(0.05)
        self._is_drained.set()

    # ---- threads

    def _publish(self) -> None:
        publish: Publish | None = None
        due = time.monotonic()
        while not self._is_over.is_set():
            self._is_over.wait(due - time.monotonic())
            due = max(due + INTERVAL_S, time.monotonic())
            first = self.account.sent
            burst = [make_payload(first + offset, self.size) for offset in range(self.burst)]
            try:
                if publish is None:
                    publish = self.open_publisher()
                publish(burst)
                self.account.sent += len(burst)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is counted and told at the end
                self.account.note_fault(error)
                publish = None
                self._is_over.wait(AFTER_FAULT_S)

    def _consume(self, number: int) -> None:
        receive: Receive | None = None
        is_announced = False
        while not self._is_drained.is_set():
            try:
                if receive is None:
                    receive = self.open_consumer(number)
                    if not is_announced:
                        self._ready.release()
                        is_announced = True
                payloads = receive()
                if payloads is None:
                    receive = None
                for payload in payloads or ():
                    self.account.note(payload)
            except TimeoutError:
                continue  # nothing came: is it over?
            except Exception as error:  # noqa: BLE001 - as above
                self.account.note_fault(error)
                receive = None
                time.sleep(AFTER_FAULT_S)


def open_mqtt(target: Target, name: str, **options: object) -> MqttClient:
    client = MqttClient(target.connect()).open(name, **options)  # type: ignore[arg-type]
    client.socket.settimeout(READ_S)
    return client


def open_amqp(target: Target) -> AmqpClient:
    return AmqpClient(target.ports["amqp"], target.address).open()
