"""Other clients, all the time: what they feel is what an attack is judged by.

Four measures, a thread each: a round trip on a live MQTT connection with QoS 0 and with QoS 1 (50 a second each), a
newcomer that connects and subscribes by MQTT (every 200 ms), a newcomer that connects, declares, publishes and gets by
AMQP (every 250 ms). A probe that comes back late stands for those that were due meanwhile as well, so that a broker
that stands still for a second shows as many slow answers as it would have given in that second.

Commands on standard input: `window NAME` begins a window, `end` prints all windows as JSON, and the whole time as `all`.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Final

from benchmarks.attack_suite.amqp import AmqpClient
from benchmarks.attack_suite.mqtt import Closed, MqttClient
from benchmarks.load.frames import PUBACK, SUBACK
from benchmarks.load.job import percentile

GIVE_UP_S: Final = 10.0
LIVE_S: Final = 0.02
MQTT_NEWCOMER_S: Final = 0.2
AMQP_NEWCOMER_S: Final = 0.25
PUBLISH: Final = 0x30
SUBACK_GRANTED: Final = (0, 1)
FAULTS = (OSError, Closed, Exception)


class Samples:
    """Seconds by measure and window; a failed probe counts as long as it was waited for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._windows: list[tuple[float, str]] = []
        self._found: list[tuple[str, float, float, str]] = []  # measure, due, seconds, fault

    def begin(self, window: str) -> None:
        with self._lock:
            self._windows.append((time.monotonic(), window))

    def add(self, measure: str, due: float, seconds: float, fault: str, interval: float) -> None:
        with self._lock:
            while seconds > 0:
                self._found.append((measure, due, seconds, fault))
                due += interval
                seconds -= interval
                fault = ""

    def summary(self) -> dict[str, dict[str, dict[str, object]]]:
        with self._lock:
            windows: dict[str, dict[str, dict[str, object]]] = {}
            for index, (begin, name) in enumerate(self._windows):
                end = self._windows[index + 1][0] if index + 1 < len(self._windows) else float("inf")
                windows[name] = by_measure([item for item in self._found if begin <= item[1] < end])
            windows["all"] = by_measure(self._found)
            return windows


def by_measure(samples: list[tuple[str, float, float, str]]) -> dict[str, dict[str, object]]:
    return {
        measure: describe([item for item in samples if item[0] == measure])
        for measure in dict.fromkeys(item[0] for item in samples)
    }


def describe(samples: list[tuple[str, float, float, str]]) -> dict[str, object]:
    micros = sorted(int(item[2] * 1e6) for item in samples)
    faults = [item[3] for item in samples if item[3]]
    return {
        "count": len(samples),
        "p50_ms": percentile(micros, 50) / 1000,
        "p99_ms": percentile(micros, 99) / 1000,
        "max_ms": micros[-1] / 1000,
        "failed": len(faults),
        "fault": faults[0] if faults else "",
    }


class Witness:
    def __init__(self, job: dict[str, object]) -> None:
        ports = job["ports"]
        assert isinstance(ports, dict)
        self._mqtt_port = int(ports["mqtt"])
        self._amqp_port = int(ports["amqp"])
        self._user = str(job["user"]) if job.get("user") else None
        self._password = str(job.get("password") or "")
        self._is_over = False
        self._number = 0
        self.samples = Samples()
        self._threads = [
            threading.Thread(target=self._repeat, args=arguments, daemon=True)
            for arguments in (
                ("QoS 0", LIVE_S, lambda: self._open_live(0)),
                ("QoS 1", LIVE_S, lambda: self._open_live(1)),
                ("MQTT newcomer", MQTT_NEWCOMER_S, lambda: self._mqtt_newcomer),
                ("AMQP newcomer", AMQP_NEWCOMER_S, lambda: self._amqp_newcomer),
            )
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        self._is_over = True
        for thread in self._threads:
            thread.join(2 * GIVE_UP_S)

    def _repeat(self, measure: str, interval: float, make: Callable[[], Callable[[], None]]) -> None:
        probe: Callable[[], None] | None = None
        due = time.monotonic()
        while not self._is_over:
            time.sleep(max(0.0, due - time.monotonic()))
            fault = ""
            try:
                if probe is None:
                    probe = (
                        make()
                    )  # a connection that was lost is opened again, and its probe is late by that
                probe()
            except FAULTS as error:
                fault = f"{type(error).__name__}: {error}"
                probe = None
            now = time.monotonic()
            self.samples.add(measure, due, now - due, fault, interval)
            due = max(due + interval, now)

    def _open_live(self, qos: int) -> Callable[[], None]:
        topic = f"witness/live/{qos}".encode()
        client = self._connect_mqtt(f"witness-live-{qos}")
        client.subscribe(topic, qos=qos)
        client.expect(SUBACK)
        number = 0

        def round_trip() -> None:
            nonlocal number
            number += 1
            wanted = number.to_bytes(8, "big")
            client.publish(topic, wanted, qos=qos)
            is_confirmed, is_back = qos == 0, False
            while not (is_confirmed and is_back):
                packet = client.receive()
                kind = packet.first_byte & 0xF0
                if kind == PUBLISH and packet.body.endswith(wanted):
                    is_back = True
                    if qos:
                        start = 2 + len(topic)
                        client.socket.sendall(bytes([PUBACK, 2]) + packet.body[start : start + 2])
                elif kind == PUBACK:
                    is_confirmed = True
                elif kind == 0xE0:
                    raise Closed("disconnected")

        return round_trip

    def _connect_mqtt(self, client_id: str) -> MqttClient:
        connection = socket.create_connection(("127.0.0.1", self._mqtt_port), GIVE_UP_S)
        connection.settimeout(GIVE_UP_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return MqttClient(connection).open(
            client_id, user=self._user, password=self._password.encode() or None
        )

    def _mqtt_newcomer(self) -> None:
        self._number += 1
        client = self._connect_mqtt(f"witness-{self._number}")
        client.subscribe(b"witness/new/%d" % self._number)
        granted = client.expect(SUBACK).body[-1]
        client.close()
        if granted not in SUBACK_GRANTED:
            raise Closed(f"SUBACK 0x{granted:02x}")

    def _amqp_newcomer(self) -> None:
        client = AmqpClient(self._amqp_port)
        client.socket.settimeout(GIVE_UP_S)
        try:
            if self._user:
                client.open(user=self._user, password=self._password)
            else:
                client.open()
            channel = client.channel()
            queue = channel.temporary()
            channel.publish("", queue, b"witness")
            found = channel.get(queue, no_ack=True)
            if found is None:
                raise Closed("the queue is empty right after the publish")
        finally:
            client.cut()


def main() -> int:
    job = json.loads(sys.stdin.readline())
    if job.get("core") is not None:
        os.sched_setaffinity(0, {job["core"]})
    witness = Witness(job)
    witness.start()
    print("ready", flush=True)
    for line in sys.stdin:
        command, _, name = line.strip().partition(" ")
        if command == "window":
            witness.samples.begin(name)
        else:
            break
    witness.end()
    print(json.dumps(witness.samples.summary()), flush=True)
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
