"""The broker's side of the trials with Spark: a broker with its reader on ports that stay, somebody who publishes without
rest, and a look at what is in the queues and in the lake that asks neither Spark nor the connector.
"""

from __future__ import annotations

import json
import random
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import quote
from urllib.request import urlopen

import pyarrow as pa
import pyarrow.dataset

from crash.broker import Broker
from crash.copies import Place
from millstream.runtime.control.client import SOCKET_NAME, ControlClient, ControlEnd, ControlError

PORTS: Final = (20_000, 30_000)  # below those the kernel gives to clients: none of them takes it meanwhile
CALL_TIMEOUT_S: Final = 30.0
ANSWER_TIMEOUT_S: Final = 120.0
AWAY_S: Final = 0.05


class StreamBroker(Broker):
    """`kill` and `start` again: same data, same address."""

    def __init__(self, folder: Path, settings: tuple[str, ...] = ()) -> None:
        self.reader_port = find_port()
        super().__init__(folder, ("reader.enabled=true", f"reader.port={self.reader_port}", *settings))

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.reader_port}"

    def call(self, operation: str, **fields: object) -> object:
        with ControlClient(self.data_dir / SOCKET_NAME, CALL_TIMEOUT_S) as client:
            return client.call(operation, fields)

    def create_stream(self, name: str) -> None:
        self.call("queue.create", name=name, definition={"kind": "stream"})

    def end_of(self, name: str) -> int:
        with urlopen(
            f"{self.uri}/v1/queues/{quote(name, safe='')}?fresh=true", timeout=ANSWER_TIMEOUT_S
        ) as answer:
            end: int = json.load(answer)["end"]
            return end

    def read(self, name: str) -> Iterator[tuple[int, bytes]]:
        """Every record, through the reader."""
        url = f"{self.uri}/v1/queues/{quote(name, safe='')}/records?fresh=true&columns=offset,payload"
        with urlopen(url, timeout=ANSWER_TIMEOUT_S) as answer:
            for batch in pa.ipc.open_stream(answer):
                yield from zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)

    def read_sources(self, names: list[str]) -> dict[Place, bytes]:
        return {(name, offset): payload for name in names for offset, payload in self.read(name)}

    def read_copy(self, name: str) -> Iterator[tuple[str, int, bytes]]:
        """The records of the target; each begins with the place it came from."""
        for _, payload in self.read(name):
            queue, offset, rest = payload.split(b" ", 2)
            yield queue.decode(), int(offset), rest


def read_lake(folder: Path) -> Iterator[tuple[str, int, bytes]]:
    """As any reader of Parquet sees it: what has a visible name."""
    if not folder.is_dir():
        return
    table = pyarrow.dataset.dataset(folder, format="parquet", partitioning="hive")
    for batch in table.to_batches(columns=["queue", "offset", "payload"]):
        yield from zip(*(batch.column(at).to_pylist() for at in range(3)), strict=True)


def find_last_batch(folder: Path) -> int:
    """The last batch that is in the lake, by the lake's own notes; -1 before the first."""
    done = [json.loads(file.read_text(encoding="utf-8")) for file in folder.glob("_millstream/done-*.json")]
    return max((int(facts["batch"]) for facts in done), default=-1)


def find_port() -> int:
    chance = random.SystemRandom()
    while True:
        port = chance.randrange(*PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port


class Feed(threading.Thread):
    """Publishes numbered messages to all streams, over restarts of the broker. What got no answer is published again: it
    may be there twice then, at two offsets, and that is the truth the copies are held against."""

    def __init__(self, broker: StreamBroker, rate: int) -> None:
        super().__init__(name="feed", daemon=True)
        self._broker = broker
        self._rate = rate
        self._halt = threading.Event()
        self._queues: list[str] = []
        self.confirmed: dict[str, int] = {}  # how many of each queue
        self.refusal = ""

    def add_queue(self, name: str) -> None:
        self.confirmed[name] = 0
        self._queues.append(name)

    def run(self) -> None:
        pause_s = 0.1
        while not self._halt.wait(pause_s):
            for name in list(self._queues):
                try:
                    self._publish(name, max(1, int(self._rate * pause_s / len(self._queues))))
                except ControlError as error:
                    if error.end is ControlEnd.REFUSED:
                        self.refusal = f"{name} does not take messages: {error.text}"
                        return
                    self._halt.wait(AWAY_S)

    def _publish(self, name: str, count: int) -> None:
        first = self.confirmed[name]
        messages = [{"payload": f"{name}/{number}"} for number in range(first, first + count)]
        self._broker.call("queue.publish", name=name, messages=messages)
        self.confirmed[name] = first + count

    def halt(self) -> None:
        self._halt.set()
        self.join()

    def find_lost(self, source: dict[Place, bytes]) -> list[str]:
        """Confirmed messages that are in no stream."""
        there = set(source.values())
        wanted = (f"{name}/{number}" for name, count in self.confirmed.items() for number in range(count))
        return [text for text in wanted if text.encode() not in there]
