"""A disk that is full, fails or stands still: publishers are told at once, reading goes on, service comes back by itself."""

from __future__ import annotations

import os
import resource
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from raw_client import NEVER, ConnectionEnded, RawClient, props

from crash.broker import Broker
from crash.client import make_words
from crash.faulty import FULL, IO_ERROR, STALL, SYNC_ERROR, VARIABLE
from millstream.protocols.mqtt.wire.packets import (
    Disconnect,
    PubAck,
    Publish,
    SubAck,
    Subscribe,
    SubscribeEntry,
)

PROMPT_S = 1.0  # an answer to a publisher
RETURN_S = 10.0  # service, after the trouble is over
QUOTA_EXCEEDED = 0x97
BUSY = 0x89
FENCED_S = 2.0
PAYLOAD = b"x" * 2000
CONNECTIONS_MAX = 10
CONFIRMED_MAX = 5000
SETTINGS = ("storage.log_file_size=64KiB", "log.format=json")
MEBIBYTE = 1 << 20


class Station:
    """A broker on a disk in trouble, with a session that must get everything confirmed, and a queue."""

    def __init__(self, folder: Path, data_dir: Path | None = None) -> None:
        self._control = folder / "control"
        settings = SETTINGS if data_dir is None else (*SETTINGS, f"data_dir={data_dir}")
        self.broker = Broker(folder, settings, "crash.faulty")
        self.confirmed: list[bytes] = []
        self._count = 0
        self.start()
        with self.connect("keeper", expiry_s=NEVER) as keeper:
            assert keeper.subscribe(b"kept/#", 1) == 1
        with self.connect("filler") as filler:
            for payload in (b"first", b"second", b"third"):
                assert filler.publish(b"$queue/jobs/a", payload, 1) == 0
        self.worker = RawClient(self.broker.port)
        self.worker.connect("worker", properties=props(receive_maximum=1))
        self.worker.send(Subscribe(1, [SubscribeEntry(b"$queue/jobs/#", 1)], make_words(settlement="puback")))
        self.worker.expect_among(SubAck(1, [1]))  # a delivery may be faster
        self.listener = self.connect("listener")
        assert self.listener.subscribe(b"live/#", 0) == 0
        self._delivery = self.worker.expect_publish()
        self.publish_confirmed()

    def start(self) -> None:
        self.broker.start({VARIABLE: str(self._control)})

    def connect(self, client_id: str, version: int = 5, expiry_s: int | None = None) -> RawClient:
        client = RawClient(self.broker.port, version)
        client.connect(client_id, clean=expiry_s is None, expiry_s=expiry_s)
        return client

    def trouble(self, kind: str) -> None:
        self._control.write_text(kind)

    def relieve(self) -> None:
        self._control.unlink()

    def publish_confirmed(self) -> None:
        with self.connect("publisher") as publisher:
            assert self.publish(publisher) == 0

    def publish(self, client: RawClient) -> int:
        """The reason in its answer; when the broker ends the connection instead, BUSY."""
        self._count += 1
        payload = b"%d " % self._count + PAYLOAD
        client.send(Publish(b"kept/a", payload, 1, packet_id=1))
        try:
            answer = client.receive()
        except ConnectionEnded:
            return BUSY
        if isinstance(answer, Disconnect):
            return answer.reason
        assert isinstance(answer, PubAck)
        if answer.reason < 0x80:
            self.confirmed.append(payload)
        return answer.reason

    def try_publish(self, version: int) -> int:
        with self.connect(f"trying-{version}", version) as client:
            return self.publish(client)

    def fill(self, version: int) -> None:
        """Publish until that is refused in the words of the version; whoever had sent before that was known is sent
        away, for nobody can say whether it will be kept. Each answer comes in time."""
        wanted = QUOTA_EXCEEDED if version == 5 else BUSY
        for _ in range(CONNECTIONS_MAX):
            with self.connect(f"filling-{version}", version) as client:
                reason = 0
                while reason == 0:
                    assert len(self.confirmed) < CONFIRMED_MAX, "the disk is in trouble, and all is confirmed"
                    began = time.monotonic()
                    reason = self.publish(client)
                    took_s = time.monotonic() - began
                    assert took_s < PROMPT_S, f"answered with 0x{reason:02x} after {took_s:.1f} s"
                if reason == wanted:
                    return
                assert reason == BUSY
        pytest.fail(f"{CONNECTIONS_MAX} connections ended without a word on the publish")

    def assert_reading_goes_on(self) -> None:
        """At most once between clients, and what a queue had before the trouble."""
        with self.connect("speaker") as speaker:
            speaker.send(Publish(b"live/a", b"now"))
            assert self.listener.expect_publish().payload == b"now"
        self.worker.send(PubAck(self._delivery.packet_id))
        assert self.worker.expect_publish().payload == b"second"

    def assert_new_readers_are_served(self) -> None:
        with self.connect("newcomer") as newcomer, self.connect("speaker") as speaker:
            assert newcomer.subscribe(b"live/#", 0) == 0
            speaker.send(Publish(b"live/a", b"then"))
            assert newcomer.expect_publish().payload == b"then"

    def wait_service(self) -> None:
        """The same process confirms again."""
        assert self.broker.poll() is None
        deadline = time.monotonic() + RETURN_S
        while True:
            if self.try_publish(5) == 0:
                return
            assert time.monotonic() < deadline, f"no service {RETURN_S:.0f} s after the trouble was over"
            time.sleep(0.05)  # the broker looks at its disk now and then

    def assert_everything_confirmed_is_kept(self) -> None:
        self.broker.kill()
        self.start()
        left = dict.fromkeys(self.confirmed)
        with self.connect("keeper", expiry_s=NEVER) as keeper:
            while left:
                found = keeper.expect_publish()
                left.pop(found.payload, None)
                keeper.send(PubAck(found.packet_id))
        with self.connect("worker") as worker:
            worker.send(Subscribe(1, [SubscribeEntry(b"$queue/jobs/#", 1)]))
            worker.expect_among(SubAck(1, [1]))
            while worker.expect_publish().payload != b"third":
                pass


StartStation = Callable[..., Station]


@pytest.fixture
def start_station(tmp_path: Path) -> Iterator[StartStation]:
    started: list[Station] = []

    def start(data_dir: Path | None = None) -> Station:
        started.append(Station(tmp_path, data_dir))
        return started[-1]

    yield start
    for station in started:
        station.broker.kill()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a few megabytes, where this user may mount one."""
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("only root may mount a small file system")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def live_through(station: Station, relieve: Callable[[], object]) -> None:
    """What every trouble that passes has in common."""
    station.fill(5)
    station.fill(4)
    station.assert_reading_goes_on()
    station.assert_new_readers_are_served()
    relieve()
    station.wait_service()
    station.assert_everything_confirmed_is_kept()


def test_a_full_file_system(start_station: StartStation, small_disk: Path) -> None:
    station = start_station(small_disk / "data")
    ballast = small_disk / "ballast"
    free = os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_frsize
    ballast.write_bytes(b"\0" * (free - MEBIBYTE // 4))
    live_through(station, ballast.unlink)


def test_a_limit_on_the_size_of_files(start_station: StartStation) -> None:
    """As a quota would, without the rights to mount anything."""
    station = start_station()
    pid = station.broker.pid()
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (4096, before[1]))
    live_through(station, lambda: resource.prlimit(pid, resource.RLIMIT_FSIZE, before))


@pytest.mark.parametrize("kind", [FULL, IO_ERROR, STALL])
def test_a_disk_in_trouble_for_a_while(start_station: StartStation, kind: str) -> None:
    station = start_station()
    station.trouble(kind)
    live_through(station, station.relieve)


def test_after_a_failed_sync_nothing_is_confirmed_until_a_restart(start_station: StartStation) -> None:
    station = start_station()
    station.trouble(SYNC_ERROR)
    station.fill(5)
    station.fill(4)
    station.assert_reading_goes_on()
    station.assert_new_readers_are_served()
    station.relieve()
    deadline = time.monotonic() + FENCED_S
    while time.monotonic() < deadline:  # longer than any second attempt would take
        assert station.try_publish(5) == QUOTA_EXCEEDED
        assert station.try_publish(4) == BUSY
    before = len(station.confirmed)
    assert station.broker.poll() is None
    station.assert_everything_confirmed_is_kept()
    station.publish_confirmed()
    assert len(station.confirmed) == before + 1
