"""Who takes part on each path: publishers and readers, and the journal they share."""

from __future__ import annotations

from typing import Final

from crash.client import Client
from crash.consumer import Reader, Undertaker, Worker
from crash.journal import QOS1, QOS2, STREAM, WORK, Journal
from crash.publisher import Publisher
from crash.subscriber import Subscriber

QUEUES: Final = ("work-1", "work-2")
LATE_GROUP: Final = "latecomer"

# small files, so that a run sees many of them end; room for what comes while a client is away
SETTINGS: Final = (
    "storage.log_file_size=256KiB",
    "storage.segment_size=256KiB",
    "session.max_offline_queue_size=1000000",
    "session.max_offline_queue_bytes=1GiB",
    "queues.stream-1.kind=stream",
    "storage.stall_timeout=30s",  # others may use the disk too: that it is slow is no fault
)


class Workload:
    def __init__(self, paths: tuple[str, ...]) -> None:
        self.journals: list[Journal] = []
        self.clients: list[Client] = []
        self.publishers: list[Publisher] = []
        self._stream: Journal | None = None
        if QOS1 in paths:
            self._add_topic(QOS1, 1)
        if QOS2 in paths:
            self._add_topic(QOS2, 2)
        if WORK in paths:
            for queue in QUEUES:
                self._add_work(queue)
        if STREAM in paths:
            self._add_stream("stream-1")

    def _add_topic(self, path: str, qos: int) -> None:
        readers = tuple(f"{path}-subscriber-{number}" for number in (1, 2))
        journal = Journal(path, path, readers)
        self._add(journal)
        for number in (1, 2):
            topics = [f"crash/{path}/{number}/a", f"crash/{path}/b"]
            self._publish(Publisher(journal, f"{path}-publisher-{number}", topics, qos, 6 - number))
        for number, reader in enumerate(readers):
            self.clients.append(Subscriber(journal, reader, f"crash/{path}/#", qos, 5 - number))

    def _add_work(self, queue: str) -> None:
        """`crew` is of clients of both versions, whose 3.1.1 members are named by it; `audit` gets everything too."""
        crew = f"crew{queue[-1]}"
        journal = Journal(WORK, queue, (crew, "audit"))
        self._add(journal)
        self._publish(Publisher(journal, f"{queue}-publisher", [f"$queue/{queue}/a", f"$queue/{queue}"], 1))
        workers = [
            Worker(journal, f"{crew}-1", queue, crew, 4, True),
            Worker(journal, f"{crew}-2", queue, crew, 4, False),
            Worker(journal, f"{crew}-3", queue, crew, 5, True),
            Worker(journal, f"{crew}-4", queue, crew, 5, False),
            Worker(journal, f"audit-{queue}", queue, "audit", 5, True),
        ]
        self.clients += workers
        self.clients.append(Undertaker(journal, f"undertaker-{queue}", queue))

    def _add_stream(self, queue: str) -> None:
        journal = self._stream = Journal(STREAM, queue, ("received", "committed"))
        self._add(journal)
        for number in (1, 2):
            topics = [f"$queue/{queue}/{number}", f"$queue/{queue}/both"]
            self._publish(Publisher(journal, f"{queue}-publisher-{number}", topics, 1, 6 - number))
        readers = [
            Reader(journal, f"{queue}-received", queue, "received", False),
            Reader(journal, f"{queue}-committed", queue, "committed", True),
        ]
        self.clients += readers

    def add_latecomer(self) -> None:
        """A group that reads the whole stream when all is over: it must find the same as the others."""
        if self._stream is not None:
            self._stream.add_reader(LATE_GROUP)
            self.clients.append(Reader(self._stream, LATE_GROUP, self._stream.name, LATE_GROUP, False))

    def _add(self, journal: Journal) -> None:
        self.journals.append(journal)

    def _publish(self, publisher: Publisher) -> None:
        self.publishers.append(publisher)
        self.clients.append(publisher)

    def be_patient(self) -> None:
        for client in self.clients:
            if isinstance(client, Worker):
                client.is_patient = True

    def is_ready(self) -> bool:
        return all(client.is_ready for client in self.clients if not isinstance(client, Publisher))

    def is_loading(self) -> bool:
        return all(publisher.is_open for publisher in self.publishers)

    def is_published(self) -> bool:
        return all(publisher.is_finished() for publisher in self.publishers)

    def is_complete(self) -> bool:
        return self.is_published() and all(journal.is_complete() for journal in self.journals)
