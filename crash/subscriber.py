"""A subscriber with a lasting session; exactly once keeps the ids it has taken until they are released."""

from __future__ import annotations

from crash.client import Client
from crash.journal import Journal
from millstream.protocols.mqtt.wire.packets import (
    Packet,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    SubscribeEntry,
)


class Subscriber(Client):
    def __init__(self, journal: Journal, client_id: str, filter: str, qos: int, version: int = 5) -> None:
        super().__init__(journal, client_id, version)
        self._filter = filter.encode()
        self._qos = qos
        self._taken_ids: dict[int, None] = {}
        self._is_subscribed = False

    def on_open(self, is_present: bool) -> None:
        if not is_present:
            self._taken_ids.clear()
        if is_present and self._is_subscribed:
            self.is_ready = True
        else:
            self.send(Subscribe(1, [SubscribeEntry(self._filter, self._qos)]))

    def on_answer(self, packet: Packet) -> None:
        if isinstance(packet, SubAck):
            self._is_subscribed = True
            self.is_ready = True
            self.note_confirmed()
        elif isinstance(packet, PubRel):
            self._taken_ids.pop(packet.packet_id, None)
            self.send(PubComp(packet.packet_id))
        elif isinstance(packet, Publish):
            if packet.qos == 2:
                if packet.packet_id not in self._taken_ids:
                    self._taken_ids[packet.packet_id] = None
                    self._take(packet)
                self.send(PubRec(packet.packet_id))
            else:
                self._take(packet)
                if packet.qos == 1:
                    self.send(PubAck(packet.packet_id))

    def _take(self, packet: Publish) -> None:
        label = self.journal.note_delivered(self.client_id, packet.payload)
        if label is not None:
            self.journal.note_done(self.client_id, label)
