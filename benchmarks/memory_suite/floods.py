"""What clients may do to the memory of a broker. Each flood goes on for some seconds and leaves nothing behind but what the
broker keeps."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks.load.frames import FrameFault
from benchmarks.memory_suite.clients import (
    Amqp,
    Gone,
    Mqtt,
    amqp_publish,
    declare_bound,
    packet,
    publish,
    text,
)

KIB = 1024
MIB = 1024 * KIB
SEND_TIMEOUT_S = 2.0


@dataclass
class Target:
    """A running broker, and how much is done to it."""

    mqtt_port: int
    amqp_port: int
    seconds: float
    scale: float = 1.0  # of the number of clients
    sent_bytes: int = 0
    lost: int = 0  # connections the broker closed or refused
    lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, number: int) -> int:
        return max(1, round(number * self.scale))

    def add(self, sent_bytes: int, lost: int = 0) -> None:
        with self.lock:
            self.sent_bytes += sent_bytes
            self.lost += lost


def pour(target: Target, client: Mqtt | Amqp, make: Callable[[int], bytes], limit: int = 1 << 60) -> None:
    """Send what `make` gives, as fast as it is taken, until the time is over; a broker that does not read is waited for."""
    deadline = time.monotonic() + target.seconds
    client.socket.settimeout(SEND_TIMEOUT_S)
    number = 0
    sent = 0
    pending = memoryview(b"")
    while time.monotonic() < deadline and sent < limit:
        if not pending:
            pending = memoryview(make(number))
            number += 1
        try:
            taken = client.socket.send(pending)
        except TimeoutError:
            continue
        except OSError:
            target.add(sent, 1)
            return
        pending = pending[taken:]
        sent += taken
    target.add(sent)


def drain(client: Mqtt | Amqp, stop: threading.Event) -> int:
    """Read and throw away until told to stop; how many bytes."""
    client.socket.settimeout(0.5)
    size = 0
    while not stop.is_set():
        try:
            data = client.socket.recv(256 * KIB)
        except TimeoutError:
            continue
        except OSError:
            return size
        if not data:
            return size
        size += len(data)
    return size


def together(target: Target, works: list[Callable[[], None]]) -> None:
    def run(work: Callable[[], None]) -> None:
        try:
            work()
        except (Gone, OSError, FrameFault):
            target.add(0, 1)

    threads = [threading.Thread(target=run, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(target.seconds + 60)


def open_many(target: Target, count: int, make: Callable[[int], Mqtt]) -> list[Mqtt]:
    clients: list[Mqtt] = []
    for number in range(count):
        try:
            clients.append(make(number))
        except Gone:
            target.add(0, 1)
    return clients


def silent_subscribers(target: Target) -> None:
    """2,000 subscribers that do not read, and a flood of QoS 0."""

    def join(number: int) -> Mqtt:
        client = Mqtt(target.mqtt_port, f"silent-{number}")
        client.subscribe("flood/#", 0)
        return client

    clients = open_many(target, target.count(2000), join)
    batches = [
        publish("flood/a", bytes(1000)) * 100,
        publish("flood/b", bytes(1000)) * 50 + publish("flood/c", b"") * 50,
    ]
    pour(target, Mqtt(target.mqtt_port, "loud"), lambda number: batches[number % 2])
    for client in clients:
        client.close()


def offline_sessions(target: Target) -> None:
    """3,000 sessions without a connection, and a flood of QoS 1 to all of them."""
    ids = range(target.count(3000))

    def leave(number: int) -> Mqtt:
        client = Mqtt(target.mqtt_port, f"offline-{number}", clean=False)
        client.subscribe("offline/#", 1)
        client.close()
        return client

    open_many(target, len(ids), leave)
    flood_numbered(target, "offline/x", 200)
    for number in ids:  # leave no session behind
        with contextlib.suppress(Gone):
            Mqtt(target.mqtt_port, f"offline-{number}").close()


def slow_consumers(target: Target) -> None:
    """200 subscribers with QoS 1 and large messages that read nothing and answer nothing."""

    def join(number: int) -> Mqtt:
        client = Mqtt(target.mqtt_port, f"slow-{number}", receive_bytes=4096)
        client.subscribe("slow/#", 1)
        return client

    clients = open_many(target, target.count(200), join)
    flood_numbered(target, "slow/x", 50_000)
    for client in clients:
        client.close()


def flood_numbered(target: Target, topic: str, size: int) -> None:
    publisher = Mqtt(target.mqtt_port, f"numbered-{topic}")
    stop = threading.Event()
    reader = threading.Thread(target=drain, args=(publisher, stop), daemon=True)
    reader.start()

    def make(number: int) -> bytes:
        first = number * 20
        return b"".join(publish(topic, bytes(size), 1, (first + n) % 65_535 + 1) for n in range(20))

    pour(target, publisher, make)
    stop.set()
    reader.join()
    publisher.close()


def retained_flood(target: Target) -> None:
    """Retained messages to ever new topics."""

    def make(number: int) -> bytes:
        base = number * 50
        return b"".join(publish(f"kept/{base + n}/state", bytes(200), retain=True) for n in range(50))

    client = Mqtt(target.mqtt_port, "keeper")
    pour(target, client, make)
    client.close()


def transient_bulk(target: Target) -> None:
    """1.5 GB into a transient queue, then a consumer that takes all of it."""
    client = Amqp(target.amqp_port)
    client.declare(b"bulk")
    data = amqp_publish(b"bulk", bytes(100_000)) * 5
    pour(target, client, lambda _number: data, 1500 * MIB)
    stop = threading.Event()
    consumer = Amqp(target.amqp_port)
    consumer.consume(b"bulk")
    timer = threading.Timer(3.0, stop.set)
    timer.start()
    drain(consumer, stop)
    consumer.close()
    client.close()


def transient_small(target: Target) -> None:
    """1 kB messages to a transient queue that nobody consumes, by two publishers."""

    def work() -> None:
        client = Amqp(target.amqp_port)
        client.declare(b"small")
        data = amqp_publish(b"small", bytes(1000)) * 100
        pour(target, client, lambda _number: data)
        client.close()

    together(target, [work, work])


def empty_messages(target: Target) -> None:
    """20 AMQP publishers of empty messages, one consumer."""

    def work() -> None:
        client = Amqp(target.amqp_port)
        client.declare(b"empty")
        data = amqp_publish(b"empty", b"") * 500
        pour(target, client, lambda _number: data)
        client.close()

    consumer = Amqp(target.amqp_port)
    consumer.declare(b"empty")
    consumer.consume(b"empty")
    stop = threading.Event()
    reader = threading.Thread(target=drain, args=(consumer, stop), daemon=True)
    reader.start()
    together(target, [work] * target.count(20))
    stop.set()
    reader.join()
    consumer.close()


def unfinished_packets(target: Target) -> None:
    """1,500 MQTT clients that send all but the last byte of the largest packet, 20 AMQP clients with bodies without an end."""
    clients: list[Mqtt] = []
    bodies: list[Amqp] = []
    large = packet(0x30, bytes(1024 * KIB))[:-1]
    deadline = time.monotonic() + target.seconds
    for number in range(target.count(1500)):
        if time.monotonic() > deadline:
            break
        with contextlib.suppress(Gone):
            client = Mqtt(target.mqtt_port, f"unfinished-{number}")
            clients.append(client)
            client.socket.settimeout(0.2)
            client.send(large)
            target.add(len(large))
    for _ in range(target.count(80)):
        with contextlib.suppress(Gone, OSError, FrameFault):
            body = Amqp(target.amqp_port)
            bodies.append(body)
            body.socket.settimeout(0.2)
            body.send(amqp_publish(b"none", bytes(15 * MIB), 16 * MIB))
    for each in (*clients, *bodies):
        each.close()


def open_transactions(target: Target) -> None:
    """8 AMQP transactions of 200 MB that are never committed."""

    def work() -> None:
        client = Amqp(target.amqp_port)
        client.begin_transactions()
        data = amqp_publish(b"none", bytes(100_000)) * 5
        pour(target, client, lambda _number: data, 200 * MIB)
        client.close()

    together(target, [work] * 8)


def retained_subscribers(target: Target) -> None:
    """100,000 retained messages, and 200 clients that subscribe to all of them a thousand times over and read nothing."""
    keeper = Mqtt(target.mqtt_port, "keeper")

    def make(number: int) -> bytes:
        base = number * 50
        return b"".join(publish(f"kept/{base + n}/state", bytes(200), retain=True) for n in range(50))

    pour(Target(0, 0, target.seconds / 2), keeper, make, 25 * MIB)
    keeper.close()
    body = b"\x00\x01" + b"".join(text(name) + b"\x00" for name in ("#",) * 1000)
    clients = open_many(
        target, target.count(200), lambda number: Mqtt(target.mqtt_port, f"r-{number}", receive_bytes=4096)
    )

    def work() -> None:
        for client in clients:
            pour(Target(0, 0, 0.05), client, lambda _number: packet(0x82, body), len(body) * 10)

    together(target, [work])
    for client in clients:
        client.close()


def subscriptions(target: Target) -> None:
    """50 clients that subscribe to ever new filters, 500 in a packet."""

    def work(number: int) -> Callable[[], None]:
        def run() -> None:
            client = Mqtt(target.mqtt_port, f"many-{number}")
            stop = threading.Event()
            reader = threading.Thread(target=drain, args=(client, stop), daemon=True)
            reader.start()

            def make(turn: int) -> bytes:
                names = (f"s/{number}/{turn}/{n}/{'x' * 60}" for n in range(500))
                return packet(0x82, b"\x00\x01" + b"".join(text(name) + b"\x00" for name in names))

            pour(target, client, make)
            stop.set()
            reader.join()
            client.close()

        return run

    together(target, [work(number) for number in range(target.count(50))])


def queues(target: Target) -> None:
    """Ever new transient queues by 10 AMQP clients, each bound to three keys, all gone with their connection."""

    def work(number: int) -> Callable[[], None]:
        def run() -> None:
            client = Amqp(target.amqp_port)
            stop = threading.Event()
            reader = threading.Thread(target=drain, args=(client, stop), daemon=True)
            reader.start()
            pour(
                target,
                client,
                lambda turn: b"".join(declare_bound(f"q-{number}-{turn}-{n}") for n in range(50)),
            )
            stop.set()
            reader.join()
            client.close()

        return run

    together(target, [work(number) for number in range(target.count(10))])


def sessions(target: Target) -> None:
    """Ever new sessions that outlive their connection, each with a subscription; at the end they are taken over and end."""
    deadline = time.monotonic() + target.seconds
    names: list[str] = []
    lock = threading.Lock()

    def work(number: int) -> Callable[[], None]:
        def run() -> None:
            count = 0
            while time.monotonic() < deadline:
                name = f"stay-{number}-{count}"
                count += 1
                with contextlib.suppress(Gone):
                    client = Mqtt(target.mqtt_port, name, clean=False)
                    client.subscribe(f"stay/{name}", 1)
                    client.close()
                    with lock:
                        names.append(name)

        return run

    together(target, [work(number) for number in range(8)])
    for name in names:
        with contextlib.suppress(Gone):
            Mqtt(target.mqtt_port, name).close()


FLOODS: dict[str, Callable[[Target], None]] = {
    "silent_subscribers": silent_subscribers,
    "transient_bulk": transient_bulk,
    "transient_small": transient_small,
    "offline_sessions": offline_sessions,
    "slow_consumers": slow_consumers,
    "retained_flood": retained_flood,
    "empty_messages": empty_messages,
    "unfinished_packets": unfinished_packets,
    "open_transactions": open_transactions,
    "retained_subscribers": retained_subscribers,
    "subscriptions": subscriptions,
    "queues": queues,
    "sessions": sessions,
}
