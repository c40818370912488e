"""MQTT over WebSocket: the handshake is ours, the framing that of the `websockets` library, without its I/O.

Invariants
- A stranger costs a bounded number of bytes: a head of `HEAD_BYTES_MAX`, then frames no larger than a CONNECT.
- The frame parser exists only behind a granted upgrade. Whoever is refused gets the answer, and what follows it is
  read away for a moment, so that the answer is not lost with a reset.
- Nothing of the library outlives the connection: its parser and its exceptions are cycles, which would wait for the
  garbage collector.
- Frames are parsed by turns, as what is in them is acted on: a large read of tiny frames does not keep the others waiting.
- Compression stays off: it would let a few bytes from a stranger become megabytes.
"""

from __future__ import annotations

import logging
import time
from http import HTTPStatus
from typing import Final

from mypy_extensions import i64
from websockets.frames import Frame, Opcode
from websockets.protocol import Protocol, Side, State

from millstream.protocols.endpoint import Endpoint
from millstream.runtime.transport.gate import Gate
from millstream.runtime.transport.http_head import HEAD_BYTES_MAX, HEAD_END, HeadFault
from millstream.runtime.transport.link import TransportLink
from millstream.runtime.transport.websocket_upgrade import WebSocketOptions, answer_upgrade, encode_refusal

FRAME_OVERHEAD: Final = 1024
PIECE_FRAMES: Final = 2048  # bytes parsed before it is looked how long that takes; the smallest frame has six
HTTP_START: Final = b"GET "
DATA: Final = (Opcode.BINARY, Opcode.CONT)
NORMAL_CLOSURE: Final = 1000
UNSUPPORTED_DATA: Final = 1003
PONG_START: Final = 0x80 | Opcode.PONG
STRANGER_UNSENT_MAX: Final = (
    64 * 1024
)  # answers to pings that somebody who is not authenticated may leave unread
REFUSED_LINGER_NS: Final[i64] = 1_000_000_000
REFUSED_BYTES_MAX: Final = 256 * 1024  # read away behind a refusal, at most
_QUIET: Final = logging.getLogger("millstream.websocket")
_QUIET.setLevel(logging.CRITICAL)


class WebSocketConnection(TransportLink):
    def __init__(self, gate: Gate, options: WebSocketOptions) -> None:
        super().__init__(gate)
        self._options = options
        self._head: bytearray | None = bytearray()  # of the upgrade request, until it is whole
        self._protocol: Protocol | None = None  # behind a granted upgrade
        self._is_ready = False
        self._discarded = 0
        self._piece = PIECE_FRAMES

    def data_received(self, data: bytes) -> None:
        if self.transport is None:
            return
        try:
            if self._head is not None:
                data = self._read_head(self._head, data)
            protocol = self._protocol
            if protocol is None:
                self._discard(len(data))
            elif data and self.endpoint is not None:
                self.receive(self.endpoint, data, self.gate.clock.read_ns())
        except Exception as fault:  # noqa: BLE001 our bug ends this connection, not the broker
            self.on_fault(fault)

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self._head = None
        if self.endpoint is None:  # else it ends behind what it had sent
            self._forget_protocol()

    def _end(self) -> None:
        super()._end()
        self._forget_protocol()

    def _forget_protocol(self) -> None:
        protocol, self._protocol = self._protocol, None
        if protocol is not None:
            protocol.parser.close()
            protocol.parser_exc = None

    def on_authenticated(self) -> None:
        super().on_authenticated()
        if self._protocol is not None:
            self._protocol.max_message_size = 2 * self.gate.limits.packet_size_max + FRAME_OVERHEAD

    def send(self, data: bytes | memoryview) -> None:
        protocol = self._protocol
        if protocol is not None and self._is_ready and protocol.state is State.OPEN:
            protocol.send_binary(bytes(data))
            self._write(protocol)

    def send_parts(self, parts: list[bytes | memoryview]) -> None:
        self.send(b"".join(parts))

    def close(self) -> None:
        protocol = self._protocol
        if protocol is not None and self._is_ready:
            self._is_ready = False
            if protocol.state is State.OPEN:
                protocol.send_close(NORMAL_CLOSURE)
                self._write(protocol)
        super().close()

    # ---------------------------------------------------------------- the upgrade

    def _read_head(self, head: bytearray, data: bytes) -> bytes:
        """Gather the head and answer it when it is whole; gives what stands behind it."""
        before = len(head)
        head += data[: HEAD_BYTES_MAX + len(HEAD_END) - before]
        transport = self.transport
        assert transport is not None
        if head[: len(HTTP_START)] != HTTP_START[: len(head)]:
            self._head = None
            transport.abort()  # not a browser nor a WebSocket client; nothing to wait for
            return b""
        end = head.find(HEAD_END, max(0, before - len(HEAD_END) + 1))
        if end < 0:
            if len(head) >= HEAD_BYTES_MAX + len(HEAD_END):
                text = f"The head of a request has at most {HEAD_BYTES_MAX} bytes."
                self._refuse(encode_refusal(HeadFault(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, text)))
            return b""
        is_granted, answer = answer_upgrade(head[:end], self._options)
        if not is_granted:
            self._refuse(answer)
            return b""
        self._head = None
        self._protocol = Protocol(
            Side.SERVER,
            state=State.OPEN,
            max_size=self.gate.limits.connect_packet_size_max + FRAME_OVERHEAD,
            logger=_QUIET,
        )
        self._is_ready = True
        transport.write(answer)
        return data[end + len(HEAD_END) - before :]

    def _refuse(self, answer: bytes) -> None:
        self._head = None
        transport = self.transport
        assert transport is not None
        transport.write(answer)
        if not transport.can_write_eof():  # TLS: its own end says that nothing was cut off
            super().close()
            return
        transport.write_eof()
        self.abort_at(time.monotonic_ns() + REFUSED_LINGER_NS)

    def _discard(self, size: int) -> None:
        """Behind a refusal: the peer may still be sending."""
        self._discarded += size
        if self._discarded > REFUSED_BYTES_MAX and self.transport is not None:
            self.transport.abort()

    # ------------------------------------------------------------------- frames

    def _take(self, endpoint: Endpoint, data: bytes, now_ns: i64) -> None:
        """A piece of what came, frames and parts of frames."""
        protocol = self._protocol
        if protocol is None:
            return
        protocol.receive_data(data)
        for event in protocol.events_received():
            if isinstance(event, Frame):
                self._on_frame(protocol, event, now_ns)
        self.spent_ns += self.gate.clock.lap_ns()
        self._write(protocol)

    def _on_frame(self, protocol: Protocol, frame: Frame, now_ns: i64) -> None:
        endpoint = self.endpoint
        if frame.opcode in DATA:
            if endpoint is not None and self._is_ready:
                super()._take(endpoint, bytes(frame.data), now_ns)
        elif frame.opcode is Opcode.TEXT:  # [MQTT-6.0.0-1]
            protocol.fail(UNSUPPORTED_DATA, "MQTT needs binary frames")

    def _write(self, protocol: Protocol) -> None:
        transport = self.transport
        parts = protocol.data_to_send()
        if transport is None or not parts:
            return
        is_done = parts[-1] == b""
        data = b"".join(self._without_stale_pongs(parts, transport.get_write_buffer_size()))
        if data:
            transport.write(data)
            self.check_sent(transport, len(data))
        if is_done:
            super().close()

    def _without_stale_pongs(self, parts: list[bytes], unsent: int) -> list[bytes]:
        """A pong answers the newest ping only, and none is queued for a peer that does not read (RFC 6455, 5.5.3)."""
        pongs = [index for index, part in enumerate(parts) if part and part[0] == PONG_START]
        if not pongs:
            return parts
        unsent_max = STRANGER_UNSENT_MAX if self._is_stranger else self.gate.limits.unsent_bytes_high
        kept = -1 if unsent > unsent_max else pongs[-1]
        return [
            part for index, part in enumerate(parts) if index == kept or not part or part[0] != PONG_START
        ]
