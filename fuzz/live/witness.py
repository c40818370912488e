"""An ordinary client beside the fuzzed connections: it publishes and receives all the time, and notes how long it waits."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Callable

from fuzz.live.amqp091 import frame, long, method, short
from fuzz.live.mqtt import packet, text

PERIOD_S = 0.1
ANSWER_S = 15.0  # who waits longer is not served


class Witness:
    """`faults` says what did not work; `slowest_s` is the longest that a round trip took, by what it was."""

    def __init__(self, ports: dict[str, int]) -> None:
        self._ports = ports
        self._is_ending = threading.Event()
        self.rounds: dict[str, int] = {}
        self.slowest_s: dict[str, float] = {}
        self.faults: list[str] = []
        tasks: dict[str, Callable[[], None]] = {
            "publish and receive over MQTT": self._use_mqtt,
            "publish and receive over AMQP": self._use_amqp,
            "connect over MQTT": self._use_newcomers,
            "ask the reader": self._use_reader,
        }
        self._threads = [threading.Thread(target=self._run, args=task, daemon=True) for task in tasks.items()]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._is_ending.set()
        for thread in self._threads:
            thread.join(2 * ANSWER_S)

    def _run(self, name: str, use: Callable[[], None]) -> None:
        threading.current_thread().name = name
        self.rounds[name] = 0
        self.slowest_s[name] = 0.0
        try:
            use()
        except (OSError, AssertionError, http.client.HTTPException) as error:
            self.faults.append(f"the witness could not {name}: {type(error).__name__}: {error}")

    def _note_round(self, began: float) -> bool:
        """Whether there is to be another."""
        name = threading.current_thread().name
        self.rounds[name] += 1
        self.slowest_s[name] = max(self.slowest_s[name], time.monotonic() - began)
        return not self._is_ending.wait(PERIOD_S)

    # -------------------------------------------------------------------- MQTT

    def _connect_mqtt(self, client: bytes) -> socket.socket:
        link = socket.create_connection(("127.0.0.1", self._ports["mqtt"]), ANSWER_S)
        link.sendall(packet(0x10, b"\x00\x04MQTT\x04\x02\x00\x3c" + text(client)))
        assert read_exactly(link, 4) == b"\x20\x02\x00\x00", "no CONNACK"
        return link

    def _use_mqtt(self) -> None:
        link = self._connect_mqtt(b"the-witness")
        topic = text(b"witness/only/mine")
        link.sendall(packet(0x82, b"\x00\x01" + topic + b"\x00"))
        assert read_exactly(link, 5) == b"\x90\x03\x00\x01\x00", "no SUBACK"
        while True:
            began = time.monotonic()
            link.sendall(packet(0x32, topic + b"\x00\x05" + b"payload"))
            expected = [b"\x40\x02\x00\x05", packet(0x30, topic + b"payload")]
            received = read_exactly(link, sum(map(len, expected)))
            assert received in (b"".join(expected), b"".join(reversed(expected))), "not what was published"
            if not self._note_round(began):
                return

    def _use_newcomers(self) -> None:
        while True:
            began = time.monotonic()
            self._connect_mqtt(b"").close()
            if not self._note_round(began):
                return

    # -------------------------------------------------------------------- AMQP

    def _use_amqp(self) -> None:
        link = socket.create_connection(("127.0.0.1", self._ports["amqp"]), ANSWER_S)
        login = method(0, 10, 11, long(b""), short(b"ANONYMOUS"), long(b""), short(b"en_US"))
        tune = method(0, 10, 31, b"\x07\xff\x00\x02\x00\x00\x00\x00")
        opening = (login, tune, method(0, 10, 40, short(b"/"), b"\0\0"), method(1, 20, 10, b"\0"))
        queue = short(b"witness.only.mine")
        declare = method(1, 50, 10, b"\0\0", queue, b"\x04", long(b""))
        consume = method(1, 60, 20, b"\0\0", queue, short(b"w"), b"\x02", long(b""))
        link.sendall(
            b"".join((b"AMQP\x00\x00\x09\x01", *opening, method(1, 85, 10, b"\0"), declare, consume))
        )
        while read_method(link) != (60, 21):  # consume-ok comes last
            pass
        content = frame(2, 1, b"\x00\x3c\x00\x00" + (7).to_bytes(8, "big") + b"\0\0") + frame(
            3, 1, b"payload"
        )
        publish = method(1, 60, 40, b"\0\0", short(b""), queue, b"\0") + content
        while True:
            began = time.monotonic()
            link.sendall(publish)
            wanted = {(60, 60), (60, 80)}  # deliver, and the confirm
            while wanted:
                wanted.discard(read_method(link))
            if not self._note_round(began):
                return

    # ------------------------------------------------------------------ reader

    def _use_reader(self) -> None:
        while True:
            began = time.monotonic()
            link = http.client.HTTPConnection("127.0.0.1", self._ports["reader"], timeout=ANSWER_S)
            link.request("GET", "/v1/health")
            status = link.getresponse().status
            link.close()
            assert status in (200, 503), f"HTTP {status}"
            if not self._note_round(began):
                return


def read_exactly(link: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = link.recv(size - len(data))
        assert more, "the broker closed the connection"
        data += more
    return data


def read_method(link: socket.socket) -> tuple[int, int]:
    """Class and number of the next method; other frames are passed over."""
    while True:
        head = read_exactly(link, 7)
        payload = read_exactly(link, int.from_bytes(head[3:], "big") + 1)
        if head[0] == 1:
            found = (int.from_bytes(payload[:2], "big"), int.from_bytes(payload[2:4], "big"))
            assert found != (10, 50), "the broker closed the connection"
            return found
