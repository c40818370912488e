"""Sockets to listen on, plain or with TLS."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl
from pathlib import Path

from millstream.runtime.start_fault import StartFault
from millstream.runtime.transport.acceptor import PlainServer
from millstream.runtime.transport.gate import Gate, Reception
from millstream.runtime.transport.link import TransportLink
from millstream.runtime.transport.tcp import TcpConnection
from millstream.runtime.transport.tls_server import TlsDoor, TlsServer
from millstream.runtime.transport.websocket import WebSocketConnection
from millstream.runtime.transport.websocket_upgrade import WebSocketOptions

Server = PlainServer | TlsServer


class ListenFault(StartFault):
    """A socket could not be opened: which and why, and the command that would help."""


def make_tls_context(
    cert_file: Path, key_file: Path, ca_file: Path | None, needs_client_certificate: bool, key: str = ""
) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(cert_file, key_file)
        if ca_file is not None:
            context.load_verify_locations(ca_file)
    except (OSError, ssl.SSLError) as error:
        text = f"the TLS files {cert_file} and {key_file} cannot be used: {error}"
        raise ListenFault(text, "millstream config check", key, is_setting=True) from None
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
    door: TlsDoor,
) -> Server:
    loop = asyncio.get_running_loop()

    def make_link() -> TransportLink:
        if websocket is not None:
            return WebSocketConnection(gate, websocket)
        return TcpConnection(gate, reception)

    def make_connection() -> asyncio.Protocol:
        connection: object = make_link()
        return connection  # type: ignore[return-value]  # duck-typed, so that it can be compiled

    try:
        if tls is not None:
            server = TlsServer(door, tls, make_link)
            await server.open(host, port)
            return server
        plain = PlainServer(gate, loop, make_connection)
        await plain.open(host, port)
        return plain
    except OSError as error:
        section = name.removesuffix("_tls")
        raise listen_fault(host, port, error, section, f"{name.replace('_tls', '.tls')}.port") from None


def listen_fault(host: str, port: int, error: OSError, section: str, port_key: str) -> ListenFault:
    """Named by the setting that is in the way: another port helps against one in use, not against a foreign address."""
    # asyncio puts a sentence of its own into `strerror`
    is_gai = isinstance(error, socket.gaierror)
    reason = os.strerror(error.errno) if error.errno and not is_gai else error.strerror or str(error)
    text = f"{host} port {port} cannot be listened on: {reason}"
    if is_gai or error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
        hint = f"millstream serve --set {section}.host=127.0.0.1"
        return ListenFault(text, hint, f"{section}.host", is_setting=True)
    if error.errno in (errno.EACCES, errno.EPERM):
        text += "; ports below 1024 need the capability CAP_NET_BIND_SERVICE"
        return ListenFault(
            text, f"millstream serve --set {port_key}={port + 10_000}", port_key, is_setting=True
        )
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return ListenFault(text, "ulimit -n", port_key)
    return ListenFault(text, f"millstream serve --set {port_key}=0", port_key)


def address_of(server: Server) -> tuple[str, int]:
    sockets: tuple[socket.socket, ...] = tuple(server.sockets)
    host, port = sockets[0].getsockname()[:2]
    return str(host), int(port)
