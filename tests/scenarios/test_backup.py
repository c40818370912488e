"""A backup made under load restores to a consistent prefix: all that was confirmed before it began, and no gaps."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

from conftest import StartBroker
from raw_client import NEVER, RawClient

from millstream.protocols.mqtt.wire.packets import PubAck, Publish, SubAck, Subscribe, SubscribeEntry
from millstream.runtime.disk.data_folder import read_state
from millstream.runtime.disk.files import RealDisk
from millstream.storage.records.queue_records import decode_record_message, record_place
from millstream.storage.records.stored_queue import StoredQueue
from millstream.storage.segments.reader import SegmentReader

BACKUPS = 3
WINDOW = 20
STEP = 100  # messages of each publisher between two backups
PADDING = b"." * 500
SETTINGS = (
    "storage.log_file_size=65536",  # so that checkpoints run all the time
    "session.max_offline_queue_size=1000000",
    "session.offline_queue_policy=reject",
    "queues.jobs.kind=work",
    "queues.history.kind=stream",
)
TOPICS = (b"plant/one", b"plant/two", b"$queue/jobs/a", b"$queue/jobs/b", b"$queue/history/a")


class Publisher(threading.Thread):
    """Numbered messages, a window of them unconfirmed, until it is told to stop."""

    def __init__(self, port: int, topic: bytes) -> None:
        super().__init__(daemon=True)
        self.topic = topic
        self.client = RawClient(port)
        self.client.connect()
        self.confirmed = 0
        self.sent = 0
        self._condition = threading.Condition()
        self._limit = 0
        self._is_stopping = False

    def run(self) -> None:
        while self._wait_work():
            while self.sent < min(self.confirmed + WINDOW, self._limit):
                payload = b"%s %d %s" % (self.topic, self.sent, PADDING)
                self.client.send(Publish(self.topic, payload, 1, packet_id=self.sent % WINDOW + 1))
                self.sent += 1
            answer = self.client.receive()
            assert isinstance(answer, PubAck)
            assert answer.reason < 0x80
            with self._condition:
                assert answer.packet_id == self.confirmed % WINDOW + 1
                self.confirmed += 1
                self._condition.notify_all()

    def _wait_work(self) -> bool:
        with self._condition:
            self._condition.wait_for(
                lambda: self._is_stopping or self.confirmed < max(self.sent, self._limit), timeout=60
            )
            return self.confirmed < max(self.sent, self._limit)

    def go_on_to(self, limit: int) -> None:
        with self._condition:
            self._limit = limit
            self._condition.notify_all()

    def wait_confirmed(self, count: int) -> None:
        with self._condition:
            assert self._condition.wait_for(lambda: self.confirmed >= count, timeout=30)

    def finish(self) -> None:
        with self._condition:
            self._is_stopping = True
            self._condition.notify_all()
        self.join(timeout=30)
        assert not self.is_alive()
        self.client.close()


def millstream(*arguments: str) -> dict[str, object]:
    command = [sys.executable, "-m", "millstream", *arguments, "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


def sort_by_publisher(payloads: list[bytes]) -> dict[bytes, list[int]]:
    found: dict[bytes, list[int]] = {topic: [] for topic in TOPICS}
    for payload in payloads:
        topic, number, padding = payload.split(b" ")
        assert padding == PADDING
        found[topic].append(int(number))
    return found


def payloads_in(folder: Path) -> list[bytes]:
    """Everything that waits in a data directory, as a broker would find it."""
    disk = RealDisk(folder)
    state = read_state(disk, folder).state()
    found = [
        delivery.message.payload for session in state.sessions for delivery in session.deliveries.values()
    ]
    for queue in state.queues:
        found += [decode_record_message(body, 0).payload for body in records_of(disk, queue)]
    return found


def records_of(disk: RealDisk, queue: StoredQueue, is_whole: bool = True) -> list[bytes]:
    tail = [body for _, body in queue.tail]
    end = record_place(tail[0])[1] if tail else queue.next
    reader = SegmentReader(disk)
    bodies: list[bytes] = []
    first = queue.first
    while first < end:
        found = reader.read(queue.number, first, end, 10_000, 1 << 30)
        assert not found.damage
        bodies += found.bodies
        first = int(found.end)
    reader.close()
    if is_whole:
        assert [record_place(body)[1] for body in bodies + tail] == list(range(queue.first, queue.next))
    return bodies + tail


def files_of(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_backup_under_load_restores_to_a_consistent_prefix(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    broker = start_broker(*SETTINGS, f"data_dir={tmp_path / 'data'}")
    with RawClient(broker.mqtt_port) as ledger:
        ledger.connect("ledger", clean=False, expiry_s=NEVER)
        ledger.subscribe(b"plant/#", 1)
    publishers = [Publisher(broker.mqtt_port, topic) for topic in TOPICS]
    for publisher in publishers:
        publisher.start()
    floors: list[dict[bytes, int]] = []
    for number in range(BACKUPS):
        for publisher in publishers:
            publisher.go_on_to((number + 4) * STEP)  # the load goes on while the backup is made
        for publisher in publishers:
            publisher.wait_confirmed((number + 1) * STEP)
        floors.append({publisher.topic: publisher.confirmed for publisher in publishers})
        millstream("backup", str(tmp_path / f"{number}.tar"), "--set", f"data_dir={tmp_path / 'data'}")
    for publisher in publishers:
        publisher.finish()
    assert not (tmp_path / "data" / "backup.unfinished").exists()
    for number in range(BACKUPS):
        restored = tmp_path / f"restored{number}"
        counts = millstream("restore", str(tmp_path / f"{number}.tar"), "--to", str(restored))
        assert counts["sessions"] == 1
        assert counts["queues"] == 2
        assert any((restored / "queues").rglob("*.segment"))  # checkpoints had their part in it
        found = sort_by_publisher(payloads_in(restored))
        for publisher in publishers:
            numbers = found[publisher.topic]
            assert numbers == list(range(len(numbers)))
            assert floors[number][publisher.topic] <= len(numbers) <= publisher.sent
    broker.stop()
    check_a_broker_serves(start_broker, tmp_path / f"restored{BACKUPS - 1}", floors[-1])


def check_a_broker_serves(start_broker: StartBroker, folder: Path, floor: dict[bytes, int]) -> None:
    expected = sort_by_publisher(payloads_in(folder))
    broker = start_broker(*SETTINGS, f"data_dir={folder}")
    with RawClient(broker.mqtt_port) as ledger:
        assert ledger.connect("ledger", clean=False, expiry_s=NEVER).session_present
        plant = receive(ledger, len(expected[b"plant/one"]) + len(expected[b"plant/two"]))
    with RawClient(broker.mqtt_port, 4) as worker:
        worker.connect("worker")
        worker.send(Subscribe(1, [SubscribeEntry(b"$queue/jobs/#", 1)]))
        jobs = receive(worker, len(expected[b"$queue/jobs/a"]) + len(expected[b"$queue/jobs/b"]))
    found = sort_by_publisher(plant + jobs)
    for topic in TOPICS[:4]:
        assert found[topic] == expected[topic]
        assert len(found[topic]) >= floor[topic]


def receive(client: RawClient, count: int) -> list[bytes]:
    payloads: list[bytes] = []
    while len(payloads) < count:
        packet = client.receive()
        if isinstance(packet, SubAck):
            continue
        assert isinstance(packet, Publish), packet
        payloads.append(packet.payload)
        client.send(PubAck(packet.packet_id))
    return payloads


def test_what_was_restored_gives_the_same_backup_again(start_broker: StartBroker, tmp_path: Path) -> None:
    broker = start_broker(*SETTINGS, f"data_dir={tmp_path / 'data'}")
    with RawClient(broker.mqtt_port) as ledger:
        ledger.connect("ledger", clean=False, expiry_s=NEVER)
        ledger.subscribe(b"plant/#", 1)
    publishers = [Publisher(broker.mqtt_port, topic) for topic in TOPICS]
    for publisher in publishers:
        publisher.start()
    for publisher in publishers:
        publisher.go_on_to(STEP)
    for publisher in publishers:
        publisher.wait_confirmed(STEP)
        publisher.finish()
    broker.stop()
    first, second = tmp_path / "first.tar.gz", tmp_path / "second.tar"
    millstream("backup", str(first), "--set", f"data_dir={tmp_path / 'data'}")
    counts = millstream("restore", str(first), "--to", str(tmp_path / "once"))
    millstream("backup", str(second), "--set", f"data_dir={tmp_path / 'once'}")
    again = millstream("restore", str(second), "--to", str(tmp_path / "twice"))
    assert counts | {"directory": ""} == again | {"directory": ""}
    assert payloads_in(tmp_path / "data") == payloads_in(tmp_path / "once") == payloads_in(tmp_path / "twice")
    for name in files_of(tmp_path / "once"):
        if name.startswith(("log/", "queues/")):
            assert (tmp_path / "once" / name).read_bytes() == (tmp_path / "twice" / name).read_bytes()
