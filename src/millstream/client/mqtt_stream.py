"""The byte stream under the MQTT client: TCP, TLS, or WebSocket over either.

Invariants
- `on_data` and `on_lost` are called from the event loop; `on_lost` once, and last.
- Bytes not yet taken by the system are bounded by whoever waits for `wait_writable`.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Final

from websockets.client import ClientProtocol
from websockets.exceptions import WebSocketException
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

MQTT_SUBPROTOCOL: Final = Subprotocol("mqtt")  # [MQTT-6.0.0-3]
CLOSE_NORMAL: Final = 1000
CLOSE_UNSUPPORTED: Final = 1003


class StreamFault(Exception):
    """The stream could not be made, for a reason the system does not name: TLS or WebSocket."""


class ClientStream(asyncio.Protocol):
    """Plain bytes over TCP or TLS."""

    def __init__(self, on_data: Callable[[bytes], None], on_lost: Callable[[str], None]) -> None:
        self._on_data = on_data
        self._on_lost = on_lost
        loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[None] = loop.create_future()
        self._closed = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._transport: asyncio.Transport | None = None

    # ------------------------------------------------- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._begin()

    def data_received(self, data: bytes) -> None:
        self._on_data(data)

    def connection_lost(self, error: Exception | None) -> None:
        self._writable.set()
        self._closed.set()
        text = "the broker closed it" if error is None else str(error)
        if not self.ready.done():
            self.ready.set_exception(StreamFault(text))
        self._on_lost(text)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    # ------------------------------------------------------ called by the client

    def write(self, data: bytes) -> None:
        self._write_raw(data)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def pause_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    async def wait_writable(self) -> None:
        await self._writable.wait()

    async def wait_closed(self, timeout_s: float) -> None:
        """Until all is sent and the transport is gone; after the time-out it is cut."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._closed.wait()
        except TimeoutError:
            self.abort()

    def _begin(self) -> None:
        self.ready.set_result(None)

    def _write_raw(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)


class WebSocketStream(ClientStream):
    """The same bytes in binary WebSocket messages."""

    def __init__(
        self, uri: str, size_max: int, on_data: Callable[[bytes], None], on_lost: Callable[[str], None]
    ) -> None:
        super().__init__(on_data, on_lost)
        self._protocol = ClientProtocol(parse_uri(uri), subprotocols=[MQTT_SUBPROTOCOL], max_size=size_max)

    def _begin(self) -> None:
        self._protocol.send_request(self._protocol.connect())
        self._pump()

    def data_received(self, data: bytes) -> None:
        self._protocol.receive_data(data)
        self._pump()
        for event in self._protocol.events_received():
            if isinstance(event, Response):
                self._on_response()
            elif isinstance(event, Frame):
                self._on_frame(event)

    def eof_received(self) -> bool:
        self._protocol.receive_eof()
        self._pump()
        return False

    def _on_response(self) -> None:
        if self.ready.done():
            return
        fault = self._protocol.handshake_exc
        if fault is not None:
            self.ready.set_exception(StreamFault(f"the WebSocket handshake failed: {fault}"))
        elif self._protocol.subprotocol != MQTT_SUBPROTOCOL:
            self.ready.set_exception(StreamFault("the server does not speak MQTT over WebSocket"))
        else:
            self.ready.set_result(None)

    def _on_frame(self, frame: Frame) -> None:
        if frame.opcode in (Opcode.BINARY, Opcode.CONT):
            self._on_data(bytes(frame.data))
        elif frame.opcode is Opcode.TEXT:  # [MQTT-6.0.0-1]
            self._protocol.fail(CLOSE_UNSUPPORTED, "MQTT needs binary messages")
            self._pump()

    def write(self, data: bytes) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        try:
            self._protocol.send_binary(data)
        except WebSocketException:
            return  # the closing handshake has begun; on_lost tells the client
        self._pump()

    def close(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            try:
                self._protocol.send_close(CLOSE_NORMAL)
            except WebSocketException:
                pass  # it was closed from the other side first
            self._pump()
        super().close()

    def _pump(self) -> None:
        for data in self._protocol.data_to_send():
            if data:
                self._write_raw(data)
            elif self._transport is not None:  # the end of the stream, in the words of the library
                self._transport.close()


async def open_stream(
    host: str,
    port: int,
    tls: ssl.SSLContext | None,
    websocket_path: str | None,
    size_max: int,
    on_data: Callable[[bytes], None],
    on_lost: Callable[[str], None],
) -> ClientStream:
    """A stream that is ready for MQTT bytes. Raises OSError or StreamFault."""
    if websocket_path is None:
        stream = ClientStream(on_data, on_lost)
    else:
        place = f"[{host}]" if ":" in host else host
        scheme = "ws" if tls is None else "wss"
        uri = f"{scheme}://{place}:{port}/{websocket_path.lstrip('/')}"
        try:
            stream = WebSocketStream(uri, size_max, on_data, on_lost)
        except WebSocketException as error:
            raise StreamFault(str(error)) from error
    loop = asyncio.get_running_loop()
    try:
        await loop.create_connection(
            lambda: stream, host, port, ssl=tls, server_hostname=None if tls is None else host
        )
        await stream.ready
    except ssl.SSLCertVerificationError as error:
        raise StreamFault(f"its certificate is not trusted: {error.verify_message}") from error
    except ssl.SSLError as error:
        raise StreamFault(f"TLS failed: {error.reason or error}") from error
    except (UnicodeError, OverflowError) as error:
        raise StreamFault(f"that is no address ({error})") from error
    except BaseException:
        stream.abort()
        raise
    return stream
