"""One MQTT connection that never blocks: packets out, packets in, until the other side is gone."""

from __future__ import annotations

import socket
from typing import Final

from millstream.protocols.mqtt.wire.decode import decode_frame
from millstream.protocols.mqtt.wire.encode import encode_packet
from millstream.protocols.mqtt.wire.packets import Packet

READ_SIZE: Final = 1 << 18
PACKET_SIZE_MAX: Final = 1 << 22
CONNECT_TIMEOUT_S: Final = 5.0


class Wire:
    def __init__(self, port: int, version: int) -> None:
        self.version = version
        self.socket = socket.create_connection(("127.0.0.1", port), CONNECT_TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.is_gone = False
        self._unread = b""
        self._unsent = bytearray()

    def send(self, *packets: Packet) -> None:
        """Kept until `flush`, so that what belongs to one step leaves in one write."""
        for packet in packets:
            self._unsent += encode_packet(packet, self.version)

    def has_unsent(self) -> bool:
        return len(self._unsent) > 0

    def flush(self) -> None:
        if not self._unsent or self.is_gone:
            return
        try:
            del self._unsent[: self.socket.send(self._unsent)]
        except BlockingIOError:
            return
        except OSError:
            self._unsent.clear()  # gone; what it had sent before may still be read

    def receive(self) -> list[Packet]:
        """What has come. The end shows only when everything before it has been read."""
        try:
            data = self.socket.recv(READ_SIZE)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if not data:
            self.is_gone = True
            return []
        buffer = self._unread + data
        packets: list[Packet] = []
        position = 0
        while True:
            packet, position = decode_frame(buffer, position, self.version, PACKET_SIZE_MAX)
            if packet is None:
                break
            packets.append(packet)
        self._unread = buffer[position:]
        return packets

    def close(self) -> None:
        self.is_gone = True
        self.socket.close()
