"""What all clients of the harness share: connect, keep what MQTT asks a client to keep, and come back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

from crash.journal import Journal
from crash.wire import Wire
from millstream.protocols.mqtt.wire.packets import ConnAck, Connect, Disconnect, Packet, Publish
from millstream.protocols.mqtt.wire.properties import Properties

NEVER_S: Final = 0xFFFF_FFFF
PACKET_ID_MAX: Final = 65_535


class Client(ABC):
    """`is_lasting`: its session is to outlive its connections."""

    def __init__(self, journal: Journal, client_id: str, version: int = 5, is_lasting: bool = True) -> None:
        self.journal = journal
        self.client_id = client_id
        self.version = version
        self.is_lasting = is_lasting
        self.wire: Wire | None = None
        self.is_open = False  # CONNACK is here
        self.is_ready = False  # and what it needs at the broker is confirmed
        self._was_tried = False
        self._is_confirmed = False  # the session is safe: something later than it was confirmed
        self._last_id = 0

    def connect(self, port: int) -> Wire:
        self.wire = wire = Wire(port, self.version)
        properties = Properties()
        if self.is_lasting:
            properties.session_expiry_interval = NEVER_S
        clean = not self.is_lasting
        wire.send(Connect(self.version, self.client_id, clean, 0, properties=properties))
        return wire

    def on_packet(self, packet: Packet) -> None:
        if isinstance(packet, ConnAck):
            self._on_connack(packet)
        elif isinstance(packet, Disconnect):
            self.journal.oddities.append(f"{self.client_id} was disconnected: 0x{packet.reason:02x}")
        elif self.is_open:
            self.on_answer(packet)

    def _on_connack(self, packet: ConnAck) -> None:
        if packet.reason != 0:
            self.journal.oddities.append(f"{self.client_id} was refused: 0x{packet.reason:02x}")
            return
        if not self._was_tried or self._is_confirmed or not self.is_lasting:
            wanted = self._is_confirmed and self.is_lasting
            self.journal.presences.append((self.client_id, wanted, packet.session_present))
        self._was_tried = True
        self.is_open = True
        self.on_open(packet.session_present)

    def note_confirmed(self) -> None:
        """The broker confirmed something that came after the session: from now on it must be there."""
        self._is_confirmed = True

    def leave(self) -> None:
        """The connection is gone, whoever ended it."""
        if self.wire is not None:
            self.wire.close()
        self.wire = None
        self._was_tried = True  # the broker may have made the session without being able to say so
        self.is_open = False
        self.is_ready = False
        self.on_gone()

    def send(self, *packets: Packet) -> None:
        if self.wire is not None:
            self.wire.send(*packets)

    def take_id(self, used: dict[int, object] | None = None) -> int:
        while True:
            self._last_id = self._last_id % PACKET_ID_MAX + 1
            if used is None or self._last_id not in used:
                return self._last_id

    @abstractmethod
    def on_open(self, is_present: bool) -> None: ...

    @abstractmethod
    def on_answer(self, packet: Packet) -> None: ...

    def on_gone(self) -> None:  # noqa: B027 -- most have nothing to forget
        """For what does not survive a connection."""


def words_of(packet: Publish) -> dict[bytes, bytes]:
    return {} if packet.properties is None else dict(packet.properties.user_properties)


def make_words(**words: str) -> Properties:
    properties = Properties()
    properties.user_properties = [
        (name.replace("_", "-").encode(), text.encode()) for name, text in words.items()
    ]
    return properties
