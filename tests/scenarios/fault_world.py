"""A broker that gets into trouble, the clients that are there when it does, and what each of them is told."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from pika.spec import Basic, Connection, Exchange
from raw_amqp import AmqpClient, ConnectionLost
from raw_amqp_channel import ChannelClosed
from raw_client import NEVER, ConnectionEnded, RawClient, props

from crash.broker import Broker, Process
from crash.client import make_words
from crash.faulty import VARIABLE
from millstream.protocols.mqtt.wire.packets import (
    Disconnect,
    PubAck,
    Publish,
    PubRec,
    SubAck,
    Subscribe,
    SubscribeEntry,
)
from millstream.runtime.control.client import SOCKET_NAME, ControlClient

PAYLOAD = b"x" * 2000
PUBLISHERS = 12  # connections of each version: one that is sent away is used up
CONFIRMED_MAX = 3000
TIMEOUT_S = 20.0
WAIT_S = 1.0  # a connection that is not answered for so long waits
SETTINGS = (
    "storage.log_file_size=64KiB",
    "log.format=json",
    "queues.jobs.kind=work",
    "queues.amqp.kind=stream",
)


class Trouble(ABC):
    """One kind of fault, brought about and taken away from outside the broker."""

    module = "millstream"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment: dict[str, str] = {}
        self.data_dir = folder / "data"

    @abstractmethod
    def begin(self, broker: Broker) -> None: ...

    @abstractmethod
    def end(self, broker: Broker) -> None: ...


class Planted(Trouble):
    """By a disk of the tests, where the system offers no way that everybody may use."""

    module = "crash.faulty"

    def __init__(self, folder: Path, kind: str) -> None:
        super().__init__(folder)
        self._kind = kind
        self._control = folder / "control"
        self.environment = {VARIABLE: str(self._control)}

    def begin(self, broker: Broker) -> None:
        self._control.write_text(self._kind)

    def end(self, broker: Broker) -> None:
        self._control.unlink()


class SmallDisk(Trouble):
    """A file system of a few megabytes, filled up. Only for who may mount one."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._mounted = folder / "small"
        self._mounted.mkdir()
        self.data_dir = self._mounted / "data"
        command = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(self._mounted)]
        self.is_mounted = (
            os.geteuid() == 0 and subprocess.run(command, capture_output=True, check=False).returncode == 0
        )

    def begin(self, broker: Broker) -> None:
        with (self._mounted / "ballast").open("wb", buffering=0) as ballast:
            try:
                while True:
                    ballast.write(b"\0" * 4096)
            except OSError:
                return

    def end(self, broker: Broker) -> None:
        (self._mounted / "ballast").unlink()

    def close(self) -> None:
        if self.is_mounted:
            subprocess.run(["umount", "--lazy", str(self._mounted)], check=True)


class ReadOnlyMount(SmallDisk):
    """Between two runs only: while files are open for writing, the system refuses to."""

    def begin(self, broker: Broker) -> None:
        subprocess.run(["mount", "-o", "remount,ro", str(self._mounted)], check=True)

    def end(self, broker: Broker) -> None:
        subprocess.run(["mount", "-o", "remount,rw", str(self._mounted)], check=True)


class NoDescriptors(Trouble):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._before = (0, 0)

    def begin(self, broker: Broker) -> None:
        self._before = resource.prlimit(broker.pid(), resource.RLIMIT_NOFILE)
        resource.prlimit(broker.pid(), resource.RLIMIT_NOFILE, (3, self._before[1]))

    def end(self, broker: Broker) -> None:
        if broker.poll() is None:  # the limit ends with its process
            resource.prlimit(broker.pid(), resource.RLIMIT_NOFILE, self._before)


class ReadOnlyFolder(Trouble):
    module = "crash.unprivileged"

    def begin(self, broker: Broker) -> None:
        (self.data_dir / "log").chmod(0o500)

    def end(self, broker: Broker) -> None:
        (self.data_dir / "log").chmod(0o700)


class RemovedFolder(Trouble):
    """Taken away and put back: so it can be seen whether all that was confirmed is in it."""

    def begin(self, broker: Broker) -> None:
        (self.data_dir / "log").rename(self.folder / "taken")

    def end(self, broker: Broker) -> None:
        (self.folder / "taken").rename(self.data_dir / "log")


class FewDescriptorsBroker(Broker):
    """From its start on."""

    def launch(self, arguments: list[str], environment: dict[str, str]) -> Process:
        with self.log_file.open("wb") as log:
            return subprocess.Popen(
                ["sh", "-c", 'ulimit -n 40; exec "$@"', "sh", sys.executable, "-m", self._module, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | environment,
            )


class Load:
    """Publishers that wait for every confirm, until they are refused or told to stop."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._is_over = threading.Event()
        self.seen = {"mqtt5": "", "mqtt3": "", "amqp": ""}
        works = (self._run_mqtt5, self._run_mqtt3, self._run_amqp)
        self._threads = [threading.Thread(target=work, daemon=True) for work in works]
        for thread in self._threads:
            thread.start()

    def _run_mqtt5(self) -> None:
        client = self._clients.mqtt5.pop()
        while not self._is_over.is_set() and not self.seen["mqtt5"]:
            answer = self._clients.publish(client, b"kept/a")
            self.seen["mqtt5"] = "" if answer == "PUBACK 0x00" else answer

    def _run_mqtt3(self) -> None:
        client = self._clients.mqtt3.pop()
        while not self._is_over.is_set() and not self.seen["mqtt3"]:
            answer = self._clients.publish(client, b"kept/b")
            self.seen["mqtt3"] = "" if answer == "PUBACK" else answer

    def _run_amqp(self) -> None:
        while not self._is_over.is_set() and not self.seen["amqp"]:
            answer = self._clients.publish_amqp()
            self.seen["amqp"] = "" if answer == "basic.ack" else answer

    def wait(self) -> None:
        """Until every publisher was refused."""
        for thread in self._threads:
            thread.join(TIMEOUT_S)
            assert not thread.is_alive(), f"a publisher still waits or is still confirmed: {self.seen}"

    def stop(self) -> None:
        self._is_over.set()
        self.wait()


class Clients:
    """Everybody who is connected before the trouble begins, and what was confirmed to them."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._lock = threading.Lock()
        self._count = 0
        self.confirmed: list[bytes] = []
        with self.connect("keeper", expiry_s=NEVER) as keeper:
            assert keeper.subscribe(b"kept/#", 1) == 1
        with self.connect("filler") as filler:
            for payload in (b"first", b"second"):
                assert filler.publish(b"$queue/jobs/a", payload, 1) == 0
        self.worker = RawClient(broker.port)
        self.worker.connect("worker", properties=props(receive_maximum=1))
        self.worker.send(Subscribe(1, [SubscribeEntry(b"$queue/jobs/#", 1)], make_words(settlement="puback")))
        self.worker.expect_among(SubAck(1, [1]))
        self._delivery = self.worker.expect_publish()
        self.listener = self.connect("listener")
        assert self.listener.subscribe(b"live/#", 0) == 0
        self.watcher = self.connect("watcher")
        assert self.watcher.subscribe(b"$SYS/broker/health/#", 0) == 0
        self.speaker = self.connect("speaker")
        self.mqtt5 = [self.connect(f"five-{number}") for number in range(PUBLISHERS)]
        self.mqtt3 = [self.connect(f"three-{number}", 4) for number in range(PUBLISHERS)]
        self.amqp = AmqpClient(broker.ports["amqp"]).open()
        self.channel = self.amqp.channel()
        self.channel.confirm_select()
        self.transaction = self.amqp.channel()
        self.transaction.tx_select()
        self.declaring = self.amqp.channel()
        self.plain = AmqpClient(broker.ports["amqp"]).open()
        self.plain_channel = self.plain.channel()
        self.control = ControlClient(broker.data_dir / SOCKET_NAME)
        assert self.publish(self.mqtt5[0], b"kept/a") == "PUBACK 0x00"
        assert self.publish_amqp() == "basic.ack"

    def connect(self, client_id: str, version: int = 5, expiry_s: int | None = None) -> RawClient:
        client = RawClient(self._broker.port, version)
        client.connect(client_id, clean=expiry_s is None, expiry_s=expiry_s)
        return client

    def next_payload(self) -> bytes:
        with self._lock:
            self._count += 1
            assert self._count < CONFIRMED_MAX, "the broker is in trouble, and all is confirmed"
            return b"%d " % self._count + PAYLOAD

    def publish(self, client: RawClient, topic: bytes) -> str:
        """What it is told."""
        payload = self.next_payload()
        try:
            client.send(Publish(topic, payload, 1, packet_id=1))
            answer = client.receive()
        except (ConnectionEnded, BrokenPipeError, ConnectionResetError):
            return "closed"
        if isinstance(answer, Disconnect):
            return f"DISCONNECT 0x{answer.reason:02X}"
        assert isinstance(answer, PubAck)
        if answer.reason < 0x80:
            self.confirmed.append(payload)
        return "PUBACK" if client.version < 5 else f"PUBACK 0x{answer.reason:02X}"

    def publish_amqp(self) -> str:
        payload = self.next_payload()
        self.channel.publish("", "amqp", payload, delivery_mode=2)
        if isinstance(self.channel.confirm(), Basic.Nack):
            return "basic.nack"
        self.confirmed.append(payload)
        return "basic.ack"

    def publish_until_refused(self) -> dict[str, str]:
        """By every kind of client, first by those who wait when it becomes known, then by others."""
        seen: dict[str, str] = {}
        for kind, clients, topic, confirmed in (
            ("mqtt5", self.mqtt5, b"kept/a", "PUBACK 0x00"),
            ("mqtt3", self.mqtt3, b"kept/b", "PUBACK"),
        ):
            while True:
                client = clients.pop()
                while (answer := self.publish(client, topic)) == confirmed:
                    pass
                if answer.startswith("DISCONNECT"):
                    seen[f"{kind}_waiting"] = answer
                    continue
                seen[kind] = answer
                break
        while (answer := self.publish_amqp()) == "basic.ack":
            pass
        seen["amqp"] = answer
        return seen

    def publish_qos2(self) -> str:
        client = self.mqtt5.pop()
        client.send(Publish(b"kept/c", PAYLOAD, 2, packet_id=1))
        answer = client.receive()
        assert isinstance(answer, PubRec)
        return f"PUBREC 0x{answer.reason:02X}"

    def commit(self) -> str:
        try:
            self.transaction.publish("", "amqp", PAYLOAD, delivery_mode=2)
            self.transaction.commit()
        except ChannelClosed as closed:
            return f"channel closed, {closed.code}"
        return "tx.commit-ok"

    def declare(self) -> str:
        try:
            self.declaring.declare("declared", durable=True)
        except ChannelClosed as closed:
            return f"channel closed, {closed.code}"
        return "queue.declare-ok"

    def publish_plain(self) -> str:
        """Whether the broker goes on reading from one that publishes without confirms."""
        self.plain_channel.publish("", "amqp", PAYLOAD, delivery_mode=2)
        self.plain_channel.send(Exchange.Declare(exchange="amq.direct", passive=True))
        self.plain.socket.settimeout(WAIT_S)
        try:
            self.plain_channel.expect(Exchange.DeclareOk)
        except TimeoutError:
            return "not read"
        return "read"

    def is_live(self) -> bool:
        self.speaker.send(Publish(b"live/a", b"now"))
        return self.listener.expect_publish().payload == b"now"

    def has_next_record(self) -> bool:
        self.worker.send(PubAck(self._delivery.packet_id))
        return self.worker.expect_publish().payload == b"second"

    def is_blocked(self) -> bool:
        """Whether AMQP clients are told; they are within a second or two."""
        deadline = time.monotonic() + TIMEOUT_S
        while not any(isinstance(method, Connection.Blocked) for method in self.amqp.control):
            self.amqp.pump()
            assert time.monotonic() < deadline
        return True

    def try_connect(self) -> str:
        try:
            with RawClient(self._broker.port, timeout_s=WAIT_S) as client:
                client.connect("newcomer")
        except TimeoutError:
            return "wait"
        return "accepted"

    def wait_sys(self, *conditions: str) -> None:
        """`$SYS` tells of all of them, in whichever order."""
        left = {b"$SYS/broker/health/" + condition.encode() for condition in conditions}
        while left:
            found = self.watcher.expect_publish()
            if found.payload:
                left.discard(found.topic)

    def status(self) -> dict[str, Any]:
        found = self.control.call("broker.status", {})
        assert isinstance(found, dict)
        return found


def publish_until_refused(broker: Broker) -> str:
    """By new connections, each used until it is told something else than a confirm."""
    for number in range(PUBLISHERS):
        with RawClient(broker.port) as client:
            client.connect(f"filling-{number}")
            for count in range(CONFIRMED_MAX):
                client.send(Publish(b"kept/c", PAYLOAD, 1, packet_id=1 + count % 1000))
                answer = client.receive()
                if isinstance(answer, Disconnect):
                    break
                assert isinstance(answer, PubAck)
                if answer.reason >= 0x80:
                    return f"PUBACK 0x{answer.reason:02X}"
    raise AssertionError("the broker is in trouble, and all is confirmed")


def log_lines(broker: Broker, event: str) -> dict[str, dict[str, Any]]:
    """The last line of each condition with that event."""
    found: dict[str, dict[str, Any]] = {}
    for line in broker.log().splitlines():
        if line.startswith("{") and f'"{event}"' in line:
            fields = json.loads(line)
            found[fields["condition"]] = fields
    return found


def wait_line(broker: Broker, event: str, condition: str) -> dict[str, Any]:
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        found = log_lines(broker, event).get(condition)
        if found is not None:
            return found
        time.sleep(0.02)  # another process: there is no event to wait for
    raise AssertionError(f"no {event} of {condition}:\n{broker.last_lines()}")


def wait_service(broker: Broker) -> None:
    """The same process confirms again."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            with RawClient(broker.port) as client:
                client.connect("again")
                if client.publish(b"other/a", b"x", 1) in (0, 0x10):
                    return
        except (AssertionError, ConnectionEnded, ConnectionLost, OSError):
            pass
        assert time.monotonic() < deadline, f"no service after the trouble:\n{broker.last_lines()}"
        time.sleep(0.05)  # the broker looks at its disk now and then


def fetch_all(broker: Broker, wanted: list[bytes]) -> list[bytes]:
    """Of what was confirmed, what is not there."""
    left = dict.fromkeys(wanted)
    amqp = AmqpClient(broker.ports["amqp"]).open()
    channel = amqp.channel()
    total = channel.counts("amqp")[0]
    channel.qos(100)
    channel.send(Basic.Consume(queue="amqp", consumer_tag="all", arguments={"x-stream-offset": "first"}))
    for _ in range(total):
        delivery = channel.delivery()
        left.pop(delivery.body, None)
        channel.send(Basic.Ack(delivery_tag=delivery.tag))
    amqp.socket.close()
    with RawClient(broker.port) as keeper:
        keeper.connect("keeper", clean=False, expiry_s=NEVER)
        with RawClient(broker.port) as marker:
            marker.connect("marker")
            assert marker.publish(b"kept/end", b"end", 1) == 0
        while True:
            found = keeper.expect_publish()
            left.pop(found.payload, None)
            keeper.send(PubAck(found.packet_id))
            if found.payload == b"end":
                return list(left)
