"""Server side of one SCRAM-SHA-256 exchange: messages in, messages out [RFC5802, RFC7677].

Used by MQTT 5 enhanced authentication, and by SASL later. The caller brings the nonce (chance) and the key
from which salts for unknown users are made; that key must stay the same across restarts, or a changing salt
gives them away.

Invariants
- client-first, then client-final, each once; after a fault nothing more is accepted.
- An unknown user, or one without a SCRAM record, sees the same messages as a wrong password.
- No channel binding: a client that asks for one is refused.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from enum import IntEnum
from typing import Final, final

from millstream.security.scram_record import KEY_LENGTH, SALT_LENGTH, ScramRecord
from millstream.security.users import UserTable

MESSAGE_LENGTH_MAX: Final = 4096
NONCE_LENGTH_MIN: Final = 16
NONCE_LENGTH_MAX: Final = 256


class ScramState(IntEnum):
    AWAIT_FIRST = 0
    AWAIT_FINAL = 1
    CLOSED = 2


AWAIT_FIRST: Final = ScramState.AWAIT_FIRST
AWAIT_FINAL: Final = ScramState.AWAIT_FINAL
CLOSED: Final = ScramState.CLOSED


class ScramFault(Exception):
    """The exchange failed. `code` is the word the specification gives to it, for an `e=` message."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


@final
class ScramServer:
    __slots__ = (
        "_client_first_bare",
        "_full_nonce",
        "_header",
        "_is_known",
        "_nonce",
        "_record",
        "_server_first",
        "_server_key",
        "_state",
        "_user_name",
        "_users",
    )

    def __init__(self, users: UserTable, nonce: str, server_key: bytes) -> None:
        if not _is_nonce(nonce) or len(nonce) < NONCE_LENGTH_MIN:
            raise ValueError(
                f"the nonce must be {NONCE_LENGTH_MIN} or more printable characters without a comma"
            )
        if len(server_key) < KEY_LENGTH:
            raise ValueError(f"the server key must have at least {KEY_LENGTH} bytes")
        self._users = users
        self._nonce = nonce
        self._server_key = server_key
        self._state = AWAIT_FIRST
        self._user_name = ""
        self._header = b""
        self._client_first_bare = b""
        self._server_first = b""
        self._full_nonce = b""
        self._is_known = False
        self._record: ScramRecord | None = None

    @property
    def user_name(self) -> str:
        """Whom the client claims to be; proven only once `on_client_final` has returned."""
        return self._user_name

    def on_client_first(self, data: bytes) -> bytes:
        """The server-first message that answers `data`."""
        self._enter(AWAIT_FIRST, data)
        self._header, bare, authorization_name = _split_client_first(data)
        attributes = bare.split(b",")
        if attributes[0].startswith(b"m="):
            raise ScramFault("extensions-not-supported", "the client demands an extension")
        if len(attributes) < 2:
            raise ScramFault("other-error", "the first message is incomplete")
        self._user_name = _decode_name(_take_value(attributes[0], b"n="))
        client_nonce = _take_value(attributes[1], b"r=")
        if not _is_nonce(client_nonce.decode("latin-1")):
            raise ScramFault("other-error", "the client's nonce is not sound")
        if authorization_name is not None and authorization_name != self._user_name:
            raise ScramFault("other-error", "one user cannot act for another")
        record = self._find_record()
        self._client_first_bare = bare
        self._full_nonce = client_nonce + self._nonce.encode("ascii")
        salt = base64.b64encode(record.salt)
        self._server_first = b"r=%b,s=%b,i=%d" % (self._full_nonce, salt, record.iterations)
        self._record = record
        self._state = AWAIT_FINAL
        return self._server_first

    def on_client_final(self, data: bytes) -> tuple[bytes, str]:
        """(server-final message, user name), once the proof holds."""
        self._enter(AWAIT_FINAL, data)
        record = self._record
        assert record is not None
        without_proof, comma, proof_attribute = data.rpartition(b",")
        if not comma:
            raise ScramFault("other-error", "the final message is incomplete")
        attributes = without_proof.split(b",")
        if len(attributes) < 2:
            raise ScramFault("other-error", "the final message is incomplete")
        if _decode_base64(_take_value(attributes[0], b"c=")) != self._header:
            raise ScramFault("channel-bindings-dont-match", "the channel binding changed during the exchange")
        if not hmac.compare_digest(_take_value(attributes[1], b"r="), self._full_nonce):
            raise ScramFault("other-error", "the nonce changed during the exchange")
        proof = _decode_base64(_take_value(proof_attribute, b"p="))
        if len(proof) != KEY_LENGTH:
            raise ScramFault("invalid-proof", "the proof is not sound")
        exchange = b",".join((self._client_first_bare, self._server_first, without_proof))
        signature = hmac.digest(record.stored_key, exchange, "sha256")
        client_key = (int.from_bytes(proof, "big") ^ int.from_bytes(signature, "big")).to_bytes(
            KEY_LENGTH, "big"
        )
        is_proven = hmac.compare_digest(hashlib.sha256(client_key).digest(), record.stored_key)
        if not is_proven or not self._is_known:
            raise ScramFault("invalid-proof", "the user name or password is wrong")
        verifier = hmac.digest(record.server_key, exchange, "sha256")
        return b"v=" + base64.b64encode(verifier), self._user_name

    def _enter(self, state: ScramState, data: bytes) -> None:
        """Only `state` may be the current one. It is left at once, so that a fault ends the exchange."""
        current = self._state
        self._state = CLOSED
        if current is not state:
            raise ScramFault("other-error", "the message came out of turn")
        if len(data) > MESSAGE_LENGTH_MAX:
            raise ScramFault("other-error", "the message is too long")

    def _find_record(self) -> ScramRecord:
        """The user's record, or one that looks like it and that no password fits."""
        user = self._users.find_user(self._user_name)
        # Made for known users too, so that both take the same time.
        seed = hmac.digest(self._server_key, b"scram" + self._user_name.encode(), "sha512")
        if user is not None and user.scram is not None:
            self._is_known = True
            return user.scram
        iterations = self._users.scram_iterations_for(seed[SALT_LENGTH:])
        return ScramRecord(iterations, seed[:SALT_LENGTH], seed[-KEY_LENGTH:], seed[-KEY_LENGTH:])


def _split_client_first(data: bytes) -> tuple[bytes, bytes, str | None]:
    """(header with its commas, the bare message, the name to act for) of `n,[a=name],bare`."""
    parts = data.split(b",", 2)
    if len(parts) != 3:
        raise ScramFault("other-error", "the first message is incomplete")
    binding, authorization, bare = parts
    if binding.startswith(b"p="):
        raise ScramFault("server-does-support-no-channel-binding", "channel binding is not offered")
    if binding not in (b"n", b"y"):
        raise ScramFault("other-error", "the first message has no channel binding flag")
    name: str | None = None
    if authorization:
        name = _decode_name(_take_value(authorization, b"a="))
    return b"%b,%b," % (binding, authorization), bare, name


def _take_value(attribute: bytes, prefix: bytes) -> bytes:
    if not attribute.startswith(prefix):
        raise ScramFault("other-error", f"expected the attribute {prefix.decode('ascii')}")
    return attribute[len(prefix) :]


def _decode_name(value: bytes) -> str:
    """A user name with `=2C` for a comma and `=3D` for an equals sign [RFC5802 5.1]."""
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError:
        raise ScramFault("invalid-username-encoding", "the user name is not UTF-8") from None
    pieces = text.split("=")
    name = pieces[0]
    for piece in pieces[1:]:
        if piece.startswith("2C"):
            name += "," + piece[2:]
        elif piece.startswith("3D"):
            name += "=" + piece[2:]
        else:
            raise ScramFault("invalid-username-encoding", "the user name has a bare equals sign")
    if not name or "\0" in name:
        raise ScramFault("invalid-username-encoding", "the user name is empty")
    return name


def _decode_base64(value: bytes) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except ValueError:
        raise ScramFault("invalid-encoding", "a value is not base64") from None


def _is_nonce(nonce: str) -> bool:
    if not 1 <= len(nonce) <= NONCE_LENGTH_MAX:
        return False
    return all("!" <= character <= "~" and character != "," for character in nonce)
