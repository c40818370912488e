"""Who makes a call over Arrow Flight, how many calls there are, and how a refusal is told.

Invariants
- Every call is known by what it shows itself: a header `authorization`, as over HTTP. A handshake only turns a name and a
  password into a token for that header; the token holds them sealed, so that each use of it is checked like the password.
- At most `calls_max` calls are under way; who comes then is told to come back. A place is given back when its call ends,
  however it ends.
- Whatever goes wrong reaches a client as one sentence: pyarrow would send the traceback of any other exception.
"""

from __future__ import annotations

import base64
import contextlib
import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final
from urllib.parse import unquote

import structlog
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from pyarrow import flight

from millstream.reader.access import Access
from millstream.reader.http import CREDENTIAL_MAX, Credentials, HttpFault, parse_credentials

TOKEN_S: Final = 8 * 3600.0
TOKEN_MARK: Final = "flight."  # noqa: S105 - what a token of ours begins with; no JWT does
TOKEN_MAX: Final = 2 * CREDENTIAL_MAX
NONCE_SIZE: Final = 12
ERROR_BYTES_MAX: Final = 500  # gRPC tells errors in headers, several times over; beyond 8 KiB they are lost
HINT_BYTES_MAX: Final = 300
BEARER: Final = "Bearer "

_HINTS: Final = {
    401: "client.authenticate_basic_token(NAME, PASSWORD)",
    410: 'ask with "gap": "skip"',
    416: 'ask with "fresh": true',
}
_KINDS: Final = {
    401: flight.FlightUnauthenticatedError,
    403: flight.FlightUnauthorizedError,
    500: flight.FlightInternalError,
    503: flight.FlightUnavailableError,
}


class Tokens:
    """Credentials, sealed with a key that nobody else has and that ends with this process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._cipher = AESGCM(AESGCM.generate_key(256))

    def seal(self, credentials: Credentials) -> str:
        until_s = self._clock() + TOKEN_S
        plain = json.dumps([credentials.username, credentials.password, until_s]).encode()
        nonce = secrets.token_bytes(NONCE_SIZE)
        sealed = nonce + self._cipher.encrypt(nonce, plain, None)
        return TOKEN_MARK + base64.urlsafe_b64encode(sealed).decode().rstrip("=")

    def open(self, token: str) -> Credentials:
        """HttpFault 401: not one of this process, or too old."""
        text = token.removeprefix(TOKEN_MARK)
        try:
            sealed = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
            plain = self._cipher.decrypt(sealed[:NONCE_SIZE], sealed[NONCE_SIZE:], None)
        except (ValueError, InvalidTag):
            raise HttpFault(
                401, "the token is not one of this reader, which may have been restarted"
            ) from None
        username, password, until_s = json.loads(plain)
        if self._clock() >= until_s:
            raise HttpFault(401, "the token is too old")
        return Credentials(username=username, password=password)


class Call(flight.ServerMiddleware):  # type: ignore[misc]
    """One call under way. `credentials` lack the address: only the method itself is told it."""

    def __init__(self, credentials: Credentials, on_end: Callable[[], None], token: str = "") -> None:
        self.credentials = credentials
        self._on_end = on_end
        self._token = token

    def sending_headers(self) -> Mapping[str, str]:
        return {"authorization": BEARER + self._token} if self._token else {}

    def call_completed(self, exception: BaseException | None) -> None:
        self._on_end()


class CallGate(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Lets a call in, knowing what it shows."""

    def __init__(self, access: Access, calls_max: int) -> None:
        self._access = access
        self._tokens = Tokens()
        self._calls_max = calls_max
        self._calls = 0
        self._lock = threading.Lock()

    def start_call(self, info: flight.CallInfo, headers: Mapping[str, Sequence[str]]) -> Call:
        with told():
            if "origin" in headers:
                raise HttpFault(403, "pages of a browser are not served")
            credentials = self._read(headers)
            self._enter()
            try:
                token = ""
                if info.method == flight.FlightMethod.HANDSHAKE:
                    token = self._shake(credentials)
                return Call(credentials, self._leave, token)
            except BaseException:
                self._leave()
                raise

    def _read(self, headers: Mapping[str, Sequence[str]]) -> Credentials:
        shown = headers.get("authorization", ())
        if len(shown) > 1:
            raise HttpFault(401, "the header authorization may stand there once")
        header = shown[0] if shown else None
        if header is not None:
            kind, _, token = header.partition(" ")
            if kind.lower() == "bearer" and token.startswith(TOKEN_MARK) and len(token) <= TOKEN_MAX:
                return self._tokens.open(token)
        return parse_credentials(header)

    def _shake(self, credentials: Credentials) -> str:
        """The token for who has proven a password; a token is given back as it came. A handshake is not told where it comes
        from: wrong guesses at a name are counted together here."""
        self._access.identify(credentials)
        return credentials.token or self._tokens.seal(credentials)

    def _enter(self) -> None:
        with self._lock:
            if self._calls >= self._calls_max:
                raise HttpFault(503, f"{self._calls_max} calls are being served; come back in a moment")
            self._calls += 1

    def _leave(self) -> None:
        with self._lock:
            self._calls -= 1


class OpenHandshake(flight.ServerAuthHandler):  # type: ignore[misc]
    """Flight wants one before it takes a handshake; who somebody is was found out when the call began."""

    def authenticate(self, outgoing: object, incoming: object) -> None:
        return None

    def is_valid(self, token: bytes) -> bytes:
        return b""


def address_of(peer: str) -> str:
    """`ipv4:10.0.0.7:5123` or `ipv6:[::1]:5123`, the brackets perhaps quoted, without the port."""
    place = unquote(peer.partition(":")[2])
    return place.rpartition(":")[0].strip("[]")


@contextlib.contextmanager
def told() -> Iterator[None]:
    """Tell what goes wrong inside as Flight does."""
    try:
        yield
    except flight.FlightError:
        raise
    except HttpFault as fault:
        raise make_error(fault) from None
    except Exception as error:  # our bug costs this call, not the reader
        log = structlog.get_logger("millstream.reader")
        log.exception("flight_failed")
        text = f"something went wrong inside the reader ({type(error).__name__})"
        raise make_error(HttpFault(500, text)) from None


def make_error(fault: HttpFault) -> flight.FlightError:
    """The sentence with what to do next; `extra_info` holds the same as JSON, as it is told over HTTP."""
    hint = _HINTS.get(fault.status, fault.hint)
    if len(hint.encode()) > HINT_BYTES_MAX:
        hint = ""  # half a command helps nobody
    error = fault.error.encode()[:ERROR_BYTES_MAX].decode(errors="ignore")
    text = f"{error} (next: {hint})" if hint else error
    fields = {"status": fault.status, "error": error, "hint": hint, **fault.fields}
    kind = _KINDS.get(fault.status, flight.FlightServerError)
    return kind(text, json.dumps(fields, ensure_ascii=False).encode())
