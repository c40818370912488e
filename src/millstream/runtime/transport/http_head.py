"""The head of an HTTP/1.1 request, for the reader and for WebSocket upgrades: bounded, strict, pure.

Invariants
- A head has one meaning or none: two values of a header that may stand once, folded lines and control characters are
  refused.
- A browser may be told that a foreign name means this machine (DNS rebinding). A listener on loopback therefore serves
  only requests that name it by an address, as localhost, or by a name from the configuration.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from typing import Final

HEAD_BYTES_MAX: Final = 16 * 1024
HEADERS_MAX: Final = 64
HEAD_END: Final = b"\r\n\r\n"

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_ONCE: Final = frozenset(
    (
        "authorization",
        "content-length",
        "content-type",
        "expect",
        "host",
        "origin",
        "sec-websocket-key",
        "sec-websocket-version",
        "transfer-encoding",
    )
)


class HeadFault(Exception):
    """A head that is not served: the status to answer with, and one clause."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


class RequestHead:
    """`target` is the path with its query, as it was sent. Names of headers are in small letters."""

    __slots__ = ("headers", "method", "target")

    def __init__(self, method: str, target: str, headers: dict[str, str]) -> None:
        self.method = method
        self.target = target
        self.headers = headers


def parse_request_head(data: bytes | bytearray) -> RequestHead:
    """`data` is everything before the empty line. HeadFault: not HTTP/1.1, or not in a form that is served."""
    lines = data.decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if len(words) != 3 or _TOKEN.match(words[0]) is None or not words[1].startswith("/"):
        raise HeadFault(400, "the first line is not one of HTTP")
    if words[2] != "HTTP/1.1":  # an older client could not tell a body that broke off from a whole one
        raise HeadFault(505, "only HTTP/1.1 is spoken here")
    if any(not "!" <= character <= "~" for character in words[1]):
        raise HeadFault(400, "the path holds characters that must be quoted")
    headers = parse_headers(lines[1:])
    if "host" not in headers:
        raise HeadFault(400, "a request needs a Host")
    return RequestHead(words[0], words[1], headers)


def parse_headers(lines: Sequence[str]) -> dict[str, str]:
    if len(lines) > HEADERS_MAX:
        raise HeadFault(431, f"a request has at most {HEADERS_MAX} headers")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        name = name.lower()
        if not colon or _TOKEN.match(name) is None:
            raise HeadFault(400, "a header is not one of HTTP")
        value = value.strip(" \t")
        if _CONTROL.search(value):
            raise HeadFault(400, "a header holds control characters")
        if name in headers:
            if name in _ONCE:
                raise HeadFault(400, f"the header {name} may stand there once")
            value = f"{headers[name]}, {value}"
        headers[name] = value
    return headers


def host_name_of(host: str) -> str:
    """The name or address in a Host header, in small letters, without its port and without the brackets of IPv6."""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    if name.startswith("[") and name.endswith("]"):
        name = name[1:-1]
    return name.lower().removesuffix(".")


def is_local_name(host: str) -> bool:
    """Whether a Host header names an address or localhost: names that nobody can make mean this machine."""
    name = host_name_of(host)
    if name == "localhost":
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class HostNames:
    """The names by which a listener may be called. On loopback these are addresses, localhost and the configured ones;
    elsewhere every name, unless some are configured."""

    def __init__(self, is_loopback: bool, names: Sequence[str] = ()) -> None:
        self._names = frozenset(name.lower() for name in names)
        self._is_open = "*" in names or (not is_loopback and not names)

    def allows(self, host: str) -> bool:
        return self._is_open or is_local_name(host) or host_name_of(host) in self._names
