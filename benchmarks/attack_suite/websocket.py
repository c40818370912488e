"""A WebSocket in the place of a socket, so that the MQTT client need not know which one it has."""

from __future__ import annotations

import socket
import struct
from typing import Final

REQUEST: Final = (
    b"GET /mqtt HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Protocol: mqtt\r\n\r\n"
)
BINARY: Final = 0x2
CLOSE: Final = 0x8
PING: Final = 0x9
FINAL: Final = 0x80
MASKED: Final = 0x80


def encode_frame(opcode: int, payload: bytes, flags: int = FINAL) -> bytes:
    """A frame of a client. Its mask is zeros: the payload stays as it is."""
    size = len(payload)
    if size < 126:
        head = struct.pack(">BB", flags | opcode, MASKED | size)
    elif size < 1 << 16:
        head = struct.pack(">BBH", flags | opcode, MASKED | 126, size)
    else:
        head = struct.pack(">BBQ", flags | opcode, MASKED | 127, size)
    return head + bytes(4) + payload


class WebSocket:
    """What the MQTT client needs of a socket."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._unread = b""
        connection.sendall(REQUEST)
        while b"\r\n\r\n" not in self._unread:
            data = connection.recv(1 << 16)
            if not data:
                raise ConnectionError("the broker closed the connection during the upgrade")
            self._unread += data
        head, _, self._unread = self._unread.partition(b"\r\n\r\n")
        if b" 101 " not in head.split(b"\r\n")[0]:
            raise ConnectionError(head.split(b"\r\n")[0].decode(errors="replace"))

    def sendall(self, data: bytes) -> None:
        self.connection.sendall(encode_frame(BINARY, bytes(data)))

    def recv(self, size: int) -> bytes:
        """The payload of the next data frame; the end of the connection and a close frame are empty."""
        while True:
            opcode, payload = self._read_frame(size)
            if opcode == CLOSE:
                return b""
            if opcode < CLOSE and payload:
                return payload

    def _read_frame(self, size: int) -> tuple[int, bytes]:
        while True:
            end, start = find_frame(self._unread)
            if 0 < end <= len(self._unread):
                opcode, payload = self._unread[0] & 0x0F, self._unread[start:end]
                self._unread = self._unread[end:]
                return opcode, payload
            data = self.connection.recv(size)
            if not data:
                return CLOSE, b""
            self._unread += data

    def settimeout(self, seconds: float) -> None:
        self.connection.settimeout(seconds)

    def close(self) -> None:
        self.connection.close()


def find_frame(data: bytes) -> tuple[int, int]:
    """Where a frame of a server ends and where its payload begins; (-1, 0) while its head is incomplete."""
    if len(data) < 2:
        return -1, 0
    size, start = data[1] & 0x7F, 2
    if size >= 126:
        start = 4 if size == 126 else 10
        if len(data) < start:
            return -1, 0
        size = int.from_bytes(data[2:start], "big")
    return start + size, start
