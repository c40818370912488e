"""Somebody who comes while the flood runs: how long it takes to be served."""

from __future__ import annotations

import itertools
import socket
import threading
import time

from benchmarks.load.amqp_frames import declare_transient
from benchmarks.load.frames import CONNACK, SUBACK, FrameFault, encode_connect, encode_subscribe
from benchmarks.load.link import open_socket, wait_packet
from benchmarks.load.queue_amqp import connect_amqp

HOST = "127.0.0.1"
PAUSE_S = 0.2
VERSION = 4
NEVER_S = 20.0


def time_amqp(port: int, name: str) -> float:
    """Connect, open a channel, declare a queue."""
    began = time.perf_counter()
    with connect_amqp(HOST, port) as connection:
        declare_transient(connection, name.encode())
        return time.perf_counter() - began


def connect_mqtt(port: int, name: str) -> socket.socket:
    connection = open_socket(HOST, port)
    connection.sendall(encode_connect(name.encode(), VERSION, 60))
    accepted = wait_packet(connection, CONNACK)
    if accepted.body[1] != 0:
        raise FrameFault(f"CONNACK {accepted.body[1]}")
    return connection


def time_mqtt(port: int, name: str) -> float:
    """Connect and subscribe."""
    began = time.perf_counter()
    with connect_mqtt(port, name) as connection:
        connection.sendall(encode_subscribe(1, b"flood/" + name.encode(), 0, VERSION))
        granted = wait_packet(connection, SUBACK).body[-1]
        if granted != 0:
            raise FrameFault(f"SUBACK 0x{granted:02x}")
        return time.perf_counter() - began


class Newcomers:
    """One after the other, of both protocols, until they are stopped."""

    def __init__(self, amqp_port: int, mqtt_port: int) -> None:
        self.amqp_s: list[float] = []
        self.mqtt_s: list[float] = []
        self._ports = amqp_port, mqtt_port
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join(2 * NEVER_S)

    def _run(self) -> None:
        amqp_port, mqtt_port = self._ports
        for number in itertools.count():
            if self._over.is_set():
                return
            self.amqp_s.append(_or_never(time_amqp, amqp_port, f"newcomer-{number}"))
            self.mqtt_s.append(_or_never(time_mqtt, mqtt_port, f"newcomer-{number}"))
            self._over.wait(PAUSE_S)


def _or_never(take: object, port: int, name: str) -> float:
    assert callable(take)
    try:
        return float(take(port, name))
    except (OSError, FrameFault):
        return NEVER_S
