"""Publishes numbered messages with a window, and repeats after every restart what was not confirmed."""

from __future__ import annotations

from typing import Final

from crash.client import Client
from crash.journal import Journal
from crash.label import Label, encode_label
from millstream.protocols.mqtt.wire.packets import Packet, PubAck, PubComp, Publish, PubRec, PubRel

WINDOW: Final = 20
BACKLOG_MAX: Final = 400  # readers that lag this far are waited for, so that a run can end
FAILED: Final = 0x80


class Open:
    """A publish without its last answer."""

    def __init__(self, label: Label, topic: bytes) -> None:
        self.label = label
        self.topic = topic
        self.is_received = False  # PUBREC came: only the release is repeated


class Publisher(Client):
    def __init__(
        self, journal: Journal, client_id: str, topics: list[str], qos: int, version: int = 5
    ) -> None:
        super().__init__(journal, client_id, version)
        self._topics = topics
        self._qos = qos
        self._open: dict[int, Open] = {}
        self._count = 0
        self.left = 0  # how many more to publish; -1: as many as can be

    def on_open(self, is_present: bool) -> None:
        self.is_ready = True
        for packet_id, publish in self._open.items():
            if publish.is_received:
                self.send(PubRel(packet_id))
            else:
                self._send_publish(packet_id, publish, True)
        self.pump()

    def pump(self) -> None:
        while self.is_open and self.left != 0 and len(self._open) < WINDOW:
            if self.left < 0 and self.journal.backlog() >= BACKLOG_MAX:
                break
            self.left -= 1 if self.left > 0 else 0
            at = self._count % len(self._topics)
            label = (self.client_id, self._topics[at], self._count // len(self._topics) + 1)
            self._count += 1
            packet_id = self.take_id(dict(self._open))
            publish = self._open[packet_id] = Open(label, self._topics[at].encode())
            self._send_publish(packet_id, publish, False)

    def is_finished(self) -> bool:
        return self.left == 0 and not self._open

    def _send_publish(self, packet_id: int, publish: Open, is_repeat: bool) -> None:
        self.journal.note_sent(publish.label)
        payload = encode_label(publish.label)
        self.send(Publish(publish.topic, payload, self._qos, False, is_repeat, packet_id))

    def on_answer(self, packet: Packet) -> None:
        if not isinstance(packet, PubAck | PubRec | PubComp) or packet.packet_id not in self._open:
            return
        publish = self._open[packet.packet_id]
        if isinstance(packet, PubComp):
            del self._open[packet.packet_id]
        elif packet.reason >= FAILED:
            self.journal.refused += 1
            del self._open[packet.packet_id]
        else:
            self.note_confirmed()
            self.journal.note_confirmed(publish.label)
            if isinstance(packet, PubRec):
                publish.is_received = True
                self.send(PubRel(packet.packet_id))
            else:
                del self._open[packet.packet_id]
        self.pump()
