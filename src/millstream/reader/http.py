"""The words of HTTP as the reader speaks it: a request with its body, an answer, a refusal; pure but for `Body`.

Invariants
- A head is bounded and strict: one meaning or none. What could be read in two ways (two lengths, folded lines, a length
  beside chunks) is refused, and the connection ends with it.
- A body is handed on as it arrives and never beyond the bound its route sets.
"""

from __future__ import annotations

import base64
import binascii
import io
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol
from urllib.parse import parse_qsl, unquote

from millstream.runtime.transport.http_head import HeadFault, parse_request_head

QUERY_MAX: Final = 32
JSON_BYTES_MAX: Final = 1024 * 1024
CHUNK_LINE_MAX: Final = 64
CREDENTIAL_MAX: Final = 8 * 1024
JSON_TYPE: Final = "application/json"
ARROW_TYPE: Final = "application/vnd.apache.arrow.stream"

_NUMBER: Final = re.compile(r"[0-9]{1,18}\Z")
_HEX: Final = re.compile(rb"[0-9A-Fa-f]{1,8}\Z")


class HttpFault(Exception):
    """A refusal: a status, one clause, and a command to type (or nothing). `fields` are told beside them."""

    def __init__(
        self,
        status: int,
        error: str,
        hint: str = "",
        fields: Mapping[str, object] | None = None,
        retry_after_s: int = 0,
    ) -> None:
        super().__init__(error)
        self.status = status
        self.error = error
        self.hint = hint
        self.fields = dict(fields or {})
        self.retry_after_s = retry_after_s


class Connection(Protocol):
    """What a body is read from: blocks, and raises OSError when nothing comes in time."""

    def read_line(self, bytes_max: int) -> bytes:
        """Without its end; empty when there was none."""

    def read_some(self, bytes_max: int) -> bytes:
        """At least one byte, or empty at the end."""

    def hurry(self) -> None:
        """The rest is read away: a client that takes long with it is not waited for."""

    def send_continue(self) -> None:
        """Tell a client that waits for it to send the body."""


class Credentials:
    """What a caller shows: a user with a password, a token, or nothing at all; and where it calls from."""

    __slots__ = ("address", "has_password", "is_proven", "password", "token", "username")

    def __init__(
        self, username: str = "", password: str | None = None, token: str = "", address: str = ""
    ) -> None:
        self.username = username
        self.password = password or ""
        self.has_password = password is not None
        self.token = token
        self.address = address
        self.is_proven = False  # the broker has said who it is

    def to_fields(self) -> dict[str, object]:
        """As the broker takes them."""
        fields: dict[str, object] = {"username": self.username, "address": self.address}
        if self.token:
            fields["token"] = self.token
        elif self.has_password:
            fields["password"] = self.password
        return fields


class Body(io.RawIOBase):
    """The bytes behind a head, as a file: `read`, `readinto`. Longer than `bytes_max`: HttpFault 413."""

    def __init__(
        self, connection: Connection, length: int, is_chunked: bool, bytes_max: int, is_awaited: bool = False
    ) -> None:
        self._connection = connection
        self._left = length  # of the body, or of the chunk under way
        self._is_chunked = is_chunked
        self._bytes_max = bytes_max
        self.is_waiting = is_awaited  # the client sends it only when told to
        self._is_first = True
        self.taken = 0
        self.is_done = length == 0 and not is_chunked

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer).cast("B")  # type: ignore[arg-type]
        data = self.take(len(view))
        view[: len(data)] = data
        return len(data)

    def take(self, bytes_max: int) -> bytes:
        """Some bytes, empty at the end; HttpFault when it breaks off."""
        if self.is_done or bytes_max <= 0:
            return b""
        if self.is_waiting:
            self.is_waiting = False
            self._connection.send_continue()
        if self._is_chunked and self._left == 0:
            self._next_chunk()
            if self.is_done:
                return b""
        data = self._connection.read_some(min(bytes_max, self._left))
        if not data:
            raise HttpFault(400, "the body broke off")
        self._left -= len(data)
        self.taken += len(data)
        if self.taken > self._bytes_max:
            raise too_large(self._bytes_max)
        if self._left == 0 and not self._is_chunked:
            self.is_done = True
        return data

    def read_all(self, bytes_max: int) -> bytes:
        parts: list[bytes] = []
        size = 0
        while part := self.take(64 * 1024):
            size += len(part)
            if size > bytes_max:
                raise too_large(bytes_max)
            parts.append(part)
        return b"".join(parts)

    def discard(self, bytes_max: int) -> None:
        """Read away what is left, up to a bound; HttpFault when it breaks off."""
        self._connection.hurry()
        while self.taken < bytes_max and self.take(64 * 1024):
            pass

    def _next_chunk(self) -> None:
        if not self._is_first and self._connection.read_line(2) != b"":
            raise HttpFault(400, "a chunk of the body does not end where it says")
        self._is_first = False
        size, _, _ = self._connection.read_line(CHUNK_LINE_MAX).partition(b";")
        if _HEX.match(size.strip()) is None:
            raise HttpFault(400, "a chunk of the body has no length")
        self._left = int(size, 16)
        if self._left == 0:
            self.is_done = True
            if self._connection.read_line(CHUNK_LINE_MAX) != b"":
                raise HttpFault(400, "headers behind a body are not taken")


def too_large(bytes_max: int) -> HttpFault:
    return HttpFault(413, f"the body has more than {bytes_max} bytes")


class Head:
    """The first line and the headers of a request, taken apart."""

    __slots__ = ("headers", "is_chunked", "is_last", "length", "method", "path", "query")

    def __init__(self, method: str, path: str, query: dict[str, str], headers: dict[str, str]) -> None:
        self.method = method
        self.path = path  # as it was sent: still quoted
        self.query = query
        self.headers = headers  # names in small letters
        self.is_chunked = "transfer-encoding" in headers
        self.length = 0
        self.is_last = headers.get("connection", "").lower() == "close"


class Asked:
    """What was asked for: names and texts, from a query or from an order of Flight. HttpFault 400 for what makes no sense."""

    __slots__ = ("query",)

    def __init__(self, query: dict[str, str]) -> None:
        self.query = query

    def find_text(self, name: str, default: str = "") -> str:
        return self.query.get(name, default)

    def get_text(self, name: str) -> str:
        value = self.query.get(name, "")
        if not value:
            raise HttpFault(400, f"{name} is missing")
        return value

    def find_whole(self, name: str, default: int, low: int = 0, high: int = 1 << 62) -> int:
        value = self.query.get(name)
        if value is None:
            return default
        if _NUMBER.match(value) is None and not (len(value) == 19 and value.isascii() and value.isdigit()):
            raise HttpFault(400, f"{name} must be a whole number, not {value[:40]!r}")
        if not low <= int(value) <= high:
            raise HttpFault(400, f"{name} must be from {low} to {high}, not {value}")
        return int(value)

    def get_whole(self, name: str, low: int = 0, high: int = 1 << 62) -> int:
        self.get_text(name)
        return self.find_whole(name, 0, low, high)

    def find_switch(self, name: str) -> bool:
        value = self.query.get(name, "false")
        if value not in ("true", "false"):
            raise HttpFault(400, f"{name} must be true or false, not {value[:40]!r}")
        return value == "true"

    def find_choice(self, name: str, choices: Sequence[str]) -> str:
        """The first of the choices when nothing is said."""
        value = self.query.get(name, choices[0])
        if value not in choices:
            raise HttpFault(400, f"{name} must be one of {', '.join(choices)}, not {value[:40]!r}")
        return value


class Request(Asked):
    """What a route gets. `parts` are the words of the path that the pattern left open, unquoted."""

    __slots__ = ("body", "credentials", "headers", "method", "parts", "path")

    def __init__(self, head: Head, parts: Sequence[str], credentials: Credentials, body: Body) -> None:
        super().__init__(head.query)
        self.method = head.method
        self.path = head.path
        self.headers = head.headers
        self.parts = parts
        self.credentials = credentials
        self.body = body

    def read_json(self) -> dict[str, object]:
        """The body as an object; HttpFault 400 when it is none."""
        try:
            value = json.loads(self.body.read_all(JSON_BYTES_MAX))
        except (ValueError, RecursionError):
            raise HttpFault(400, "the body is not JSON") from None
        if not isinstance(value, dict):
            raise HttpFault(400, "the body must be a JSON object")
        return value


class Answer:
    """A status and an object, told as JSON."""

    def __init__(self, fields: Mapping[str, object], status: int = 200) -> None:
        self.fields = fields
        self.status = status

    def encode(self) -> bytes:
        return json.dumps(self.fields, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


Buffer = bytes | memoryview
Send = Callable[[Sequence[Buffer]], None]


class StreamAnswer:
    """A body whose length is not known before. `produce` calls `send` with the buffers of each piece, in order, and returns
    when all is said; whatever it raises breaks the body off, so that the client sees it is not whole."""

    def __init__(self, produce: Callable[[Send], None], content_type: str = ARROW_TYPE) -> None:
        self.produce = produce
        self.content_type = content_type


Handle = Callable[[Request], Answer | StreamAnswer]


class Route:
    """`pattern` is a path in which `*` stands for one word: `/v1/queues/*/records`. `query` names what may stand behind `?`;
    `body_bytes_max` bounds the body, 0: there must be none."""

    def __init__(
        self,
        method: str,
        pattern: str,
        handle: Handle,
        query: Sequence[str] = (),
        body_bytes_max: int = 0,
    ) -> None:
        self.method = method
        self.words = pattern.split("/")[1:]
        self.handle = handle
        self.query = frozenset(query)
        self.body_bytes_max = body_bytes_max

    def match(self, words: Sequence[str]) -> list[str] | None:
        """The words at the stars (still quoted), or None: another path."""
        if len(words) != len(self.words):
            return None
        pairs = list(zip(self.words, words, strict=True))
        if any(own not in ("*", word) for own, word in pairs):
            return None
        return [word for own, word in pairs if own == "*"]


def find_route(routes: Sequence[Route], head: Head) -> tuple[Route, list[str]]:
    """The route and the words at its stars; HttpFault 404, 405 or 400."""
    words = head.path.split("/")[1:]
    others: list[str] = []
    for route in routes:
        parts = route.match(words)
        if parts is None:
            continue
        if route.method != head.method:
            others.append(route.method)
            continue
        for name in head.query:
            if name not in route.query:
                known = ", ".join(sorted(route.query)) or "nothing"
                raise HttpFault(400, f"{name[:40]!r} is not understood here; {known} is")
        return route, [unquote_part(part) for part in parts]
    if others:
        raise HttpFault(405, f"{head.method} is not understood here; {', '.join(others)} is")
    raise HttpFault(404, f"there is nothing at {head.path[:200]}", "curl URL/v1/queues")


def unquote_part(part: str) -> str:
    try:
        return unquote(part, errors="strict")
    except UnicodeDecodeError:
        raise HttpFault(400, "the path is not UTF-8") from None


# ------------------------------------------------------------------------- heads


def parse_head(data: bytes) -> Head:
    """`data` is everything up to the empty line, without it. HttpFault: not HTTP as we take it."""
    try:
        request = parse_request_head(data)
    except HeadFault as fault:
        raise HttpFault(fault.status, fault.text) from None
    path, _, tail = request.target.partition("?")
    head = Head(request.method, path, parse_query(tail), request.headers)
    _set_length(head)
    return head


def parse_query(text: str) -> dict[str, str]:
    if not text:
        return {}
    try:
        pairs = parse_qsl(
            text, keep_blank_values=True, strict_parsing=True, errors="strict", max_num_fields=QUERY_MAX
        )
    except ValueError:
        raise HttpFault(400, "what stands behind the question mark is not name=value&…") from None
    query = dict(pairs)
    if len(query) != len(pairs):
        raise HttpFault(400, "a name stands twice behind the question mark")
    return query


def _set_length(head: Head) -> None:
    length = head.headers.get("content-length")
    if head.is_chunked:
        if head.headers["transfer-encoding"].lower() != "chunked":
            raise HttpFault(501, "of transfer encodings only chunked is understood")
        if length is not None:
            raise HttpFault(400, "a body has a length or comes in chunks, not both")
    elif length is not None:
        if _NUMBER.match(length) is None:
            raise HttpFault(400, "the length of the body is not a number")
        head.length = int(length)


def parse_credentials(header: str | None, address: str = "") -> Credentials:
    """Of the header Authorization: Basic, Bearer, or none at all."""
    if header is None:
        return Credentials(address=address)
    kind, _, rest = header.partition(" ")
    rest = rest.strip()
    if not rest or len(rest) > CREDENTIAL_MAX:
        raise HttpFault(401, "the credentials are not understood")
    if kind.lower() == "bearer":
        return Credentials(token=rest, address=address)
    if kind.lower() != "basic":
        raise HttpFault(401, "credentials are Basic (a user of the broker) or Bearer (a token)")
    try:
        text = base64.b64decode(rest, validate=True).decode()
    except (binascii.Error, ValueError):
        raise HttpFault(401, "the Basic credentials are not base64 of USER:PASSWORD") from None
    username, _, password = text.partition(":")
    return Credentials(username=username, password=password, address=address)
