"""Sockets to listen on, plain or with TLS."""

from __future__ import annotations

import asyncio
import socket
import ssl
from pathlib import Path
from typing import Final

from millstream.runtime.gate import Gate, Reception
from millstream.runtime.tcp import TcpConnection
from millstream.runtime.websocket import WebSocketConnection
from millstream.runtime.websocket_upgrade import WebSocketOptions

BACKLOG: Final = 4096


class ListenFault(Exception):
    """A socket could not be opened: which and why, and the command that would help."""

    def __init__(self, text: str, hint: str) -> None:
        super().__init__(text)
        self.hint = hint


def make_tls_context(
    cert_file: Path, key_file: Path, ca_file: Path | None, needs_client_certificate: bool
) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(cert_file, key_file)
        if ca_file is not None:
            context.load_verify_locations(ca_file)
    except (OSError, ssl.SSLError) as error:
        text = f"the TLS files {cert_file} and {key_file} cannot be used: {error}"
        raise ListenFault(text, "millstream config check") from None
    if needs_client_certificate:
        context.verify_mode = ssl.CERT_REQUIRED
    elif ca_file is not None:
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


async def listen(
    gate: Gate,
    reception: Reception,
    name: str,
    host: str,
    port: int,
    websocket: WebSocketOptions | None,
    tls: ssl.SSLContext | None,
) -> asyncio.Server:
    loop = asyncio.get_running_loop()

    def make_connection() -> asyncio.Protocol:
        connection: object = (
            TcpConnection(gate, reception) if websocket is None else WebSocketConnection(gate, websocket)
        )
        return connection  # type: ignore[return-value]  # duck-typed, so that it can be compiled

    timeout_s = gate.limits.handshake_timeout_ms / 1000
    try:
        return await loop.create_server(
            make_connection,
            host,
            port,
            backlog=BACKLOG,
            reuse_address=True,
            ssl=tls,
            ssl_handshake_timeout=timeout_s if tls is not None else None,
        )
    except OSError as error:
        key = f"{name.replace('_tls', '.tls')}.port"
        text = f"{host}:{port} cannot be listened on for {name}: {error.strerror or error}"
        raise ListenFault(text, f"millstream serve --set {key}=0") from None


def address_of(server: asyncio.Server) -> tuple[str, int]:
    sockets: tuple[socket.socket, ...] = tuple(server.sockets)
    host, port = sockets[0].getsockname()[:2]
    return str(host), int(port)
