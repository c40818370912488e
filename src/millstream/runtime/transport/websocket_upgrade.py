"""The opening handshake of WebSocket, server side: a request head in, an answer out. Pure, and without state.

A request that is refused never gets a frame parser: what stands behind it is nobody's to read.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Sequence
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

from millstream.runtime.transport.http_head import (
    HeadFault,
    HostNames,
    RequestHead,
    host_name_of,
    parse_request_head,
)

SUBPROTOCOLS: Final = ("mqtt", "mqttv3.1")  # the first that the client offers too is taken
VERSION: Final = "13"
_KEY_LENGTH: Final = 16
_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # of RFC 6455


class WebSocketOptions:
    def __init__(
        self,
        path: str,
        allowed_origins: tuple[str, ...] = (),
        allowed_hosts: tuple[str, ...] = (),
        is_loopback: bool = False,
    ) -> None:
        self.path = path
        self._origins = allowed_origins
        is_checked = is_loopback or len(allowed_hosts) > 0
        self._hosts = HostNames(is_loopback, _names_of(allowed_hosts, allowed_origins) if is_checked else ())

    def find_refusal(self, head: RequestHead) -> HeadFault | None:
        """Whether this page may connect, and by this name. Clients that are no browsers send no Origin."""
        if head.target.partition("?")[0] != self.path:
            return HeadFault(HTTPStatus.NOT_FOUND, f"MQTT is served at {self.path}, not at this path.")
        host = head.headers["host"]
        if not self._hosts.allows(host):
            text = "This name is not served here; call the broker by its address, or see websocket.allowed_hosts."
            return HeadFault(HTTPStatus.MISDIRECTED_REQUEST, text)
        if not self._allows_origin(head.headers.get("origin"), host):
            text = "Pages of this origin may not connect; see websocket.allowed_origins."
            return HeadFault(HTTPStatus.FORBIDDEN, text)
        return None

    def _allows_origin(self, origin: str | None, host: str) -> bool:
        if origin is None or "*" in self._origins or origin in self._origins:
            return True
        name = _origin_name(origin)
        if name is None:
            return False
        for allowed in self._origins:
            if allowed.startswith("*.") and name.endswith(allowed[1:].lower()):
                return True
        return not self._origins and name == host_name_of(host)


def _names_of(hosts: tuple[str, ...], origins: tuple[str, ...]) -> tuple[str, ...]:
    """A broker that serves the pages of a host may also be called by its name: the same proxy serves both."""
    if "*" in origins:
        return ("*",)
    named = [_origin_name(origin) for origin in origins if "://" in origin]
    return (*hosts, *(name for name in named if name))


def _origin_name(origin: str) -> str | None:
    try:
        return urlsplit(origin).hostname
    except ValueError:  # brackets that hold no address
        return None


def answer_upgrade(data: bytes | bytearray, options: WebSocketOptions) -> tuple[bool, bytes]:
    """Whether the upgrade is granted, and the answer to send. `data` is the head without its empty line."""
    try:
        head = parse_request_head(data)
        fault = options.find_refusal(head)
        if fault is not None:
            return False, encode_refusal(fault)
        return True, _accept(head)
    except HeadFault as fault:
        return False, encode_refusal(fault)


def encode_refusal(fault: HeadFault) -> bytes:
    body = f"{fault.text}\n".encode()
    lines = [
        f"HTTP/1.1 {fault.status:d} {HTTPStatus(fault.status).phrase}",
        "Connection: close",
        f"Content-Length: {len(body)}",
        "Content-Type: text/plain; charset=utf-8",
    ]
    if fault.status == HTTPStatus.UPGRADE_REQUIRED:
        lines += ["Upgrade: websocket", f"Sec-WebSocket-Version: {VERSION}"]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + body


def _accept(head: RequestHead) -> bytes:
    headers = head.headers
    if head.method != "GET":
        raise HeadFault(HTTPStatus.METHOD_NOT_ALLOWED, "A WebSocket is opened with GET.")
    if "transfer-encoding" in headers or headers.get("content-length", "0") != "0":
        raise HeadFault(HTTPStatus.BAD_REQUEST, "A request for a WebSocket has no body.")
    if "upgrade" not in _words(headers, "connection") or _words(headers, "upgrade") != ["websocket"]:
        raise HeadFault(
            HTTPStatus.UPGRADE_REQUIRED, "This is MQTT over WebSocket; it needs a WebSocket client."
        )
    if headers.get("sec-websocket-version") != VERSION:
        raise HeadFault(HTTPStatus.UPGRADE_REQUIRED, f"Sec-WebSocket-Version must be {VERSION}.")
    key = headers.get("sec-websocket-key", "")
    if not _is_key(key):
        raise HeadFault(HTTPStatus.BAD_REQUEST, "Sec-WebSocket-Key must be 16 bytes in base64.")
    offered = _words(headers, "sec-websocket-protocol", keeps_case=True)
    subprotocol = _choose(offered)
    if subprotocol is None:  # [MQTT-6.0.0-3]
        text = f"Sec-WebSocket-Protocol must offer one of {', '.join(SUBPROTOCOLS)}."
        raise HeadFault(HTTPStatus.BAD_REQUEST, text)
    digest = hashlib.sha1(key.encode() + _GUID, usedforsecurity=False).digest()
    return (
        "HTTP/1.1 101 Switching Protocols\r\n"
        "Upgrade: websocket\r\n"
        "Connection: Upgrade\r\n"
        f"Sec-WebSocket-Accept: {base64.b64encode(digest).decode()}\r\n"
        f"Sec-WebSocket-Protocol: {subprotocol}\r\n\r\n"
    ).encode("latin-1")


def _words(headers: dict[str, str], name: str, *, keeps_case: bool = False) -> list[str]:
    value = headers.get(name, "")
    words = [word.strip(" \t") for word in value.split(",")]
    return [word if keeps_case else word.lower() for word in words if word]


def _choose(offered: Sequence[str]) -> str | None:
    return next((known for known in SUBPROTOCOLS if known in offered), None)


def _is_key(key: str) -> bool:
    try:
        return len(base64.b64decode(key.encode("ascii"), validate=True)) == _KEY_LENGTH
    except (binascii.Error, UnicodeEncodeError):
        return False
