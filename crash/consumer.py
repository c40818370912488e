"""Consumers of queues: members of a group that settle, readers of a stream, and the one who collects dead letters."""

from __future__ import annotations

from typing import Final

from crash.client import Client, make_words, words_of
from crash.journal import UNKNOWN, Journal
from crash.label import Label, find_label
from millstream.protocols.mqtt.wire.packets import (
    Packet,
    PubAck,
    Publish,
    SubAck,
    Subscribe,
    SubscribeEntry,
)
from millstream.protocols.mqtt.wire.properties import Properties

ACCEPT: Final = "$ack"
RETURN: Final = "$nack"
REJECT: Final = "$reject"
COMMIT_EVERY: Final = 20
FAILED: Final = 0x80


class QueueClient(Client):
    """Joins a group by subscribing; a session that lasts subscribes once and is a member again after a restart."""

    def __init__(
        self,
        journal: Journal,
        client_id: str,
        filter: str,
        group: str,
        version: int = 5,
        is_lasting: bool = True,
        words: dict[str, str] | None = None,
    ) -> None:
        super().__init__(journal, client_id, version, is_lasting)
        self._filter = filter.encode()
        self.group = group
        self._words = {"consumer-group": group} | (words or {})
        self._is_joined = False

    def on_open(self, is_present: bool) -> None:
        if is_present and self._is_joined:
            self.is_ready = True
            return
        properties: Properties | None = None
        if self.version == 5:
            properties = make_words(**self._words)
        self.send(Subscribe(self.take_id(), [SubscribeEntry(self._filter, 1)], properties))

    def on_answer(self, packet: Packet) -> None:
        if isinstance(packet, SubAck):
            if packet.reasons[0] >= FAILED:
                self.journal.oddities.append(f"{self.client_id} may not join: 0x{packet.reasons[0]:02x}")
            self._is_joined = True
            self.is_ready = True
            self.note_confirmed()
        elif isinstance(packet, PubAck):
            self.on_confirm(packet)
        elif isinstance(packet, Publish):
            self.on_delivery(packet)
            if packet.qos:
                self.send(PubAck(packet.packet_id))

    def on_delivery(self, packet: Publish) -> None:
        raise NotImplementedError

    def on_confirm(self, packet: PubAck) -> None:
        """Only those who publish get one."""


class Worker(QueueClient):
    """A 3.1.1 client settles by PUBACK; a 5 client in words, and now and then it returns or rejects."""

    is_patient = False  # from now on accept everything but what is poison

    def __init__(
        self, journal: Journal, client_id: str, queue: str, group: str, version: int, is_lasting: bool
    ) -> None:
        super().__init__(journal, client_id, f"$queue/{queue}/#", group, version, is_lasting)
        self._queue = queue
        self._answers: dict[int, tuple[str, Label, int]] = {}  # by packet id: verb, message, place

    def on_delivery(self, packet: Publish) -> None:
        words = words_of(packet)
        place = int(words.get(b"offset", b"%d" % UNKNOWN))
        is_marked = self.version < 5 or b"redelivered" in words  # older clients cannot be told
        label = self.journal.note_delivered(self.group, packet.payload, place, is_marked)
        if label is None:
            return
        if self.version < 5:
            self.journal.note_done(self.group, label)
            return
        verb = self._choose(label, int(words.get(b"delivery-count", b"1")))
        packet_id = self.take_id(dict(self._answers))
        self._answers[packet_id] = (verb, label, place)
        if verb == ACCEPT:
            self.journal.note_done(self.group, label)
        answer = make_words(
            message_id=words[b"message-id"].decode(), group_id=words[b"group-id"].decode(), reason="poison"
        )
        self.send(
            Publish(f"$queue/{self._queue}/{verb}".encode(), b"", 1, packet_id=packet_id, properties=answer)
        )

    def _choose(self, label: Label, attempt: int) -> str:
        number = label[2]
        if number % 61 == 7:
            return REJECT
        if number % 97 == 11:
            return RETURN  # always: it ends among the dead letters
        if number % 23 == 5 and attempt < 3 and not self.is_patient:
            return RETURN
        return ACCEPT

    def on_confirm(self, packet: PubAck) -> None:
        answer = self._answers.pop(packet.packet_id, None)
        if answer is None:
            return
        verb, label, place = answer
        if packet.reason >= FAILED:
            self.journal.oddities.append(
                f"{self.client_id}: {verb} of offset {place} was refused: 0x{packet.reason:02x}"
            )
        elif packet.reason == 0 and verb != RETURN:
            self.journal.note_settled(self.group, label, place)

    def on_gone(self) -> None:
        self._answers.clear()


class Undertaker(QueueClient):
    """Takes the dead letters of a queue and says for which group each of them is done."""

    def __init__(self, journal: Journal, client_id: str, queue: str) -> None:
        super().__init__(journal, client_id, f"$dlq/{queue}", "undertaker", words={"settlement": "puback"})
        self.count = 0

    def on_delivery(self, packet: Publish) -> None:
        group = words_of(packet).get(b"_dlq_original_group", b"").decode()
        label = find_label(packet.payload)
        if label is None or label not in self.journal.sent or group not in self.journal.done:
            self.journal.oddities.append(f"a dead letter of nobody: {packet.payload[:60]!r} of {group!r}")
            return
        self.count += 1
        self.journal.note_done(group, label)


class Reader(QueueClient):
    """Reads a whole stream. `commits`: says in words how far it has come, else having received is enough."""

    def __init__(self, journal: Journal, client_id: str, queue: str, group: str, commits: bool) -> None:
        words = {"x-stream-offset": "first"}
        if commits:
            words["auto-commit"] = "false"
        super().__init__(journal, client_id, f"$queue/{queue}/#", group, words=words)
        self._queue = queue
        self._commits = commits
        self._count = 0
        self._wanted: dict[int, int] = {}  # packet id: offset

    def on_delivery(self, packet: Publish) -> None:
        words = words_of(packet)
        place = int(words.get(b"offset", b"%d" % UNKNOWN))
        label = self.journal.note_delivered(self.group, packet.payload, place)
        if label is None:
            return
        self.journal.note_done(self.group, label)
        self._count += 1
        if self._commits and self._count % COMMIT_EVERY == 0:
            packet_id = self.take_id(dict(self._wanted))
            self._wanted[packet_id] = place
            properties = make_words(group_id=words[b"group-id"].decode(), offset=str(place))
            topic = f"$queue/{self._queue}/$commit".encode()
            self.send(Publish(topic, b"", 1, packet_id=packet_id, properties=properties))

    def on_confirm(self, packet: PubAck) -> None:
        place = self._wanted.pop(packet.packet_id, UNKNOWN)
        if packet.reason >= FAILED:
            self.journal.oddities.append(
                f"{self.client_id}: commit of {place} refused: 0x{packet.reason:02x}"
            )
        elif place != UNKNOWN:
            self.journal.note_committed(self.group, place)

    def on_gone(self) -> None:
        self._wanted.clear()
