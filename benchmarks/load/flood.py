"""Thousands of connections that never finish their CONNECT, while a legitimate client tries to get in.

A third stays silent, a third sends the beginning of a CONNECT, a third drips one byte a second for ever.
"""

from __future__ import annotations

import select
import socket
from time import perf_counter, sleep
from typing import Final

from benchmarks.load.frames import CONNACK, encode_connect
from benchmarks.load.job import Job, Result
from benchmarks.load.link import KEEP_ALIVE_S, open_socket, wait_packet
from benchmarks.load.usage import read_rss_bytes

PROBE_EVERY: Final = 500  # connections opened between two attempts of the legitimate client
PROBE_INTERVAL_S: Final = 0.25
DRIP_INTERVAL_S: Final = 1.0
GIVE_UP_S: Final = 40.0
# promises 60,000 bytes and sends a few of them
BEGINNING: Final = b"\x10\xe0\xd4\x03\x00\x04MQTT\x04\x02"


class Flood:
    """Opens `connections` sockets, then watches until the broker has closed every one of them."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._open: dict[int, socket.socket] = {}
        self._dripping: list[int] = []
        self._poll = select.epoll()
        self._probes_s: list[float] = []
        self._refused_probes = 0
        self._rss_max = 0

    def run(self) -> Result:
        job = self._job
        result = Result()
        self._probe()
        sleep(PROBE_INTERVAL_S)
        self._probes_s.clear()
        result.rss_before_bytes = read_rss_bytes(job.broker_pids)
        started = perf_counter()
        for index in range(job.connections):
            self._attack(index)
            if index % PROBE_EVERY == PROBE_EVERY - 1:
                self._probe()
        opened = perf_counter()
        result.connections = len(self._open)
        last_close = self._watch(opened)
        result.rss_after_bytes = self._rss_max
        result.seconds = opened - started
        result.findings["still_open"] = float(len(self._open))
        result.findings["closed_after_s"] = last_close - opened
        result.findings["legitimate_attempts"] = float(len(self._probes_s))
        result.findings["legitimate_refused"] = float(self._refused_probes)
        result.findings["legitimate_longest_s"] = max(self._probes_s) if self._probes_s else 0.0
        for connection in self._open.values():
            connection.close()
        return result

    def _attack(self, index: int) -> None:
        connection = open_socket(self._job.host, self._job.port)
        connection.setblocking(False)
        if index % 3 != 0:
            connection.send(BEGINNING)
        if index % 3 == 2:
            self._dripping.append(connection.fileno())
        self._open[connection.fileno()] = connection
        self._poll.register(connection.fileno(), select.EPOLLIN | select.EPOLLRDHUP)

    def _watch(self, opened: float) -> float:
        """Until all are closed or patience ends; the time of the last close."""
        last_close = opened
        next_probe = opened
        next_drip = opened
        while self._open and perf_counter() - opened < GIVE_UP_S:
            events: list[tuple[int, int]] = self._poll.poll(0.05)
            for descriptor, _mask in events:
                if self._is_closed(descriptor):
                    last_close = perf_counter()
            now = perf_counter()
            if now >= next_probe:
                next_probe = now + PROBE_INTERVAL_S
                self._probe()
            if now >= next_drip:
                next_drip = now + DRIP_INTERVAL_S
                self._drip()
        return last_close

    def _is_closed(self, descriptor: int) -> bool:
        connection = self._open[descriptor]
        try:
            is_closed = not connection.recv(4096)
        except BlockingIOError:
            return False
        except OSError:
            is_closed = True  # reset by the broker: closed all the same
        if is_closed:
            self._poll.unregister(descriptor)
            del self._open[descriptor]
            connection.close()
        return is_closed

    def _drip(self) -> None:
        for descriptor in self._dripping:
            connection = self._open.get(descriptor)
            if connection is not None:
                try:
                    connection.send(b"\x00")
                except OSError:
                    continue  # closed under our feet: the next poll sees it

    def _probe(self) -> None:
        """One legitimate client: connect, CONNECT, CONNACK."""
        self._rss_max = max(self._rss_max, read_rss_bytes(self._job.broker_pids))
        started = perf_counter()
        try:
            connection = open_socket(self._job.host, self._job.port)
            connection.sendall(encode_connect(b"legitimate", self._job.version, KEEP_ALIVE_S))
            accepted = wait_packet(connection, CONNACK)
            if accepted.body[1] != 0:
                self._refused_probes += 1
            connection.close()
        except OSError:
            self._refused_probes += 1
        self._probes_s.append(perf_counter() - started)
