"""MQTT over WebSocket: the opening handshake and framing by the `websockets` library, without its I/O.

Compression stays off: it would let a few bytes from a stranger become megabytes. A frame from somebody not yet
authenticated may be no larger than a CONNECT.
"""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

from websockets.exceptions import InvalidHandshake
from websockets.frames import Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from millstream.runtime.gate import Gate
from millstream.runtime.transport import TransportLink

SUBPROTOCOLS: Final = [Subprotocol("mqtt"), Subprotocol("mqttv3.1")]
FRAME_OVERHEAD: Final = 1024
HTTP_START: Final = b"GET "
DATA: Final = (Opcode.BINARY, Opcode.CONT)
NORMAL_CLOSURE: Final = 1000
UNSUPPORTED_DATA: Final = 1003
_QUIET: Final = logging.getLogger("millstream.websocket")
_QUIET.setLevel(logging.CRITICAL)


class WebSocketOptions:
    def __init__(self, path: str, allowed_origins: tuple[str, ...]) -> None:
        self.path = path
        self.allowed_origins = allowed_origins

    def allows(self, origin: str | None, host: str | None) -> bool:
        """Whether a page from `origin` may connect; clients that are no browsers send none."""
        if origin is None or "*" in self.allowed_origins or origin in self.allowed_origins:
            return True
        name = urlsplit(origin).hostname
        if name is None:
            return False
        for allowed in self.allowed_origins:
            if allowed.startswith("*.") and name.endswith(allowed[1:]):
                return True
        return not self.allowed_origins and host is not None and name == urlsplit(f"//{host}").hostname


class WebSocketConnection(TransportLink):
    def __init__(self, gate: Gate, options: WebSocketOptions) -> None:
        super().__init__(gate)
        self._options = options
        self._protocol: ServerProtocol | None = ServerProtocol(
            subprotocols=SUBPROTOCOLS,
            max_size=gate.limits.connect_packet_size_max + FRAME_OVERHEAD,
            logger=_QUIET,
        )
        self._is_ready = False
        self._is_http = False

    def data_received(self, data: bytes) -> None:
        protocol = self._protocol
        if protocol is None or self.transport is None:
            return
        try:
            if not self._is_http and not self._looks_like_http(data):
                self.transport.abort()  # not a browser nor a WebSocket client; nothing to wait for
                return
            protocol.receive_data(data)
            for event in protocol.events_received():
                if isinstance(event, Request):
                    self._on_request(protocol, event)
                elif isinstance(event, Frame):
                    self._on_frame(protocol, event)
            self._write(protocol)
        except Exception as fault:  # noqa: BLE001 our bug ends this connection, not the broker
            self.on_fault(fault)

    def _looks_like_http(self, data: bytes) -> bool:
        self._is_http = len(data) >= len(HTTP_START)
        return data[: len(HTTP_START)] == HTTP_START[: len(data)]

    def on_authenticated(self) -> None:
        super().on_authenticated()
        if self._protocol is not None:
            self._protocol.max_message_size = 2 * self.gate.limits.packet_size_max + FRAME_OVERHEAD

    def send(self, data: bytes | memoryview) -> None:
        protocol = self._protocol
        if protocol is not None and self._is_ready and protocol.state is State.OPEN:
            protocol.send_binary(bytes(data))
            self._write(protocol)

    def close(self) -> None:
        protocol = self._protocol
        if protocol is not None and self._is_ready:
            self._is_ready = False
            if protocol.state is State.OPEN:
                protocol.send_close(NORMAL_CLOSURE)
                self._write(protocol)
        super().close()

    def _on_request(self, protocol: ServerProtocol, request: Request) -> None:
        response = self._find_refusal(protocol, request) or protocol.accept(request)
        protocol.send_response(response)
        self._is_ready = response.status_code == HTTPStatus.SWITCHING_PROTOCOLS

    def _find_refusal(self, protocol: ServerProtocol, request: Request) -> Response | None:
        path = urlsplit(request.path).path
        if path != self._options.path:
            text = f"MQTT is served at {self._options.path}, not at this path.\n"
            return protocol.reject(HTTPStatus.NOT_FOUND, text)
        try:
            origin = request.headers.get("Origin")
            host = request.headers.get("Host")
        except (KeyError, InvalidHandshake):
            return protocol.reject(HTTPStatus.BAD_REQUEST, "Origin and Host may be given once.\n")
        if not self._options.allows(origin, host):
            text = "Pages of this origin may not connect; see websocket.allowed_origins.\n"
            return protocol.reject(HTTPStatus.FORBIDDEN, text)
        return None

    def _on_frame(self, protocol: ServerProtocol, frame: Frame) -> None:
        endpoint = self.endpoint
        if frame.opcode in DATA:
            if endpoint is not None and self._is_ready:
                endpoint.receive_data(bytes(frame.data), self.gate.clock.read_ns())
        elif frame.opcode is Opcode.TEXT:  # [MQTT-6.0.0-1]
            protocol.fail(UNSUPPORTED_DATA, "MQTT needs binary frames")

    def _write(self, protocol: ServerProtocol) -> None:
        transport = self.transport
        parts = protocol.data_to_send()
        if transport is None:
            return
        data = b"".join(parts)
        if data:
            transport.write(data)
        if parts and parts[-1] == b"":  # the protocol is done
            super().close()
