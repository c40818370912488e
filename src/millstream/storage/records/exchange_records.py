"""The facts of exchanges and their bindings as bodies of log records, and what survives of both.

Only what is durable is written: an exchange declared so, a binding between two ends that are. A binding has no name: its
whole body tells it apart, and taking it away repeats that body. Whoever removes an exchange or a queue takes its bindings away
by facts of their own.

    exchange   account, name, definition (JSON, so that a release may add to it)
    binding    account, source, then its identity: kind of the target (one byte), target, key, arguments (JSON, keys sorted)
    owned      owner (JSON), then a binding: it is there, and this owner has made it, beside those that had before

A binding that was saved without an owner is the account's own, whoever had made it before.
"""

from __future__ import annotations

import json
import struct
from typing import Final, final

from millstream.model.owner import OWNERS_MAX, Owner, read_owner
from millstream.storage.records.session_records import FactFault, Reader

EXCHANGE_SAVED: Final = 40
EXCHANGE_REMOVED: Final = 41
BINDING_SAVED: Final = 42
BINDING_REMOVED: Final = 43
BINDING_OWNED: Final = 44
FIRST_KIND: Final = EXCHANGE_SAVED
LAST_KIND: Final = BINDING_OWNED

TO_QUEUE: Final = b"q"
TO_EXCHANGE: Final = b"e"

_U32: Final = struct.Struct("<I")


@final
class StoredExchange:
    def __init__(
        self,
        account: str,
        name: str,
        kind: str,
        auto_delete: bool,
        internal: bool,
        arguments: dict[str, object],
        owner: Owner | None = None,
    ) -> None:
        self.account = account
        self.name = name
        self.kind = kind
        self.auto_delete = auto_delete
        self.internal = internal
        self.arguments = arguments
        self.owner = owner

    def key(self) -> tuple[str, str]:
        return (self.account, self.name)


@final
class StoredBinding:
    def __init__(
        self,
        account: str,
        source: str,
        to_exchange: bool,
        target: str,
        key: bytes,
        arguments: dict[str, object],
        identity: bytes,
    ) -> None:
        self.account = account
        self.source = source
        self.to_exchange = to_exchange
        self.target = target
        self.key = key
        self.arguments = arguments
        self.identity = identity
        self.owners: list[Owner] = []


def encode_exchange(exchange: StoredExchange) -> bytes:
    fields: dict[str, object] = {
        "kind": exchange.kind,
        "auto_delete": exchange.auto_delete,
        "internal": exchange.internal,
        "arguments": exchange.arguments,
    }
    if exchange.owner is not None:
        fields["owner"] = exchange.owner.to_fields()
    return encode_exchange_name(exchange.account, exchange.name) + _pack(_to_json(fields))


def decode_exchange(body: bytes) -> StoredExchange:
    reader = Reader(body, 0)
    account, name, definition = reader.take(), reader.take(), reader.take()
    fields = _from_json(definition)
    arguments = fields.get("arguments", {})
    if not isinstance(arguments, dict):
        raise FactFault("the arguments of an exchange are no table")
    return StoredExchange(
        account.decode(),
        name.decode(),
        str(fields.get("kind", "")),
        fields.get("auto_delete") is True,
        fields.get("internal") is True,
        arguments,
        _read_known_owner(fields["owner"]) if "owner" in fields else None,
    )


def encode_exchange_name(account: str, name: str) -> bytes:
    return _pack(account.encode()) + _pack(name.encode())


def decode_exchange_name(body: bytes) -> tuple[str, str]:
    """(account, name); an exchange begins with them too."""
    reader = Reader(body, 0)
    account, name = reader.take(), reader.take()
    return account.decode(), name.decode()


def encode_identity(to_exchange: bool, target: str, key: bytes, arguments: dict[str, object]) -> bytes:
    """What tells a binding from the others of its source."""
    kind = TO_EXCHANGE if to_exchange else TO_QUEUE
    table = _to_json(arguments) if arguments else b""
    return b"".join((kind, _pack(target.encode()), _pack(key), table))


def encode_binding(account: str, source: str, identity: bytes) -> bytes:
    return encode_exchange_name(account, source) + identity


def decode_binding(body: bytes) -> StoredBinding:
    reader = Reader(body, 0)
    account, source = reader.take(), reader.take()
    at = 8 + len(account) + len(source)
    identity = body[at:]
    kind = identity[:1]
    if kind not in (TO_QUEUE, TO_EXCHANGE):
        raise FactFault("a binding has no target")
    reader = Reader(identity, 1)
    target, key = reader.take(), reader.take()
    table = identity[9 + len(target) + len(key) :]
    arguments = _from_json(table) if table else {}
    return StoredBinding(
        account.decode(), source.decode(), kind == TO_EXCHANGE, target.decode(), key, arguments, identity
    )


def encode_owners(owners: list[Owner], binding: bytes) -> bytes:
    """One, as a fact tells it, or all of them, as a table keeps them."""
    return _pack(b"\n".join([_to_json(owner.to_fields()) for owner in owners])) + binding


def decode_owners(body: bytes) -> tuple[list[Owner], bytes]:
    """(owners, the binding)"""
    listed = Reader(body, 0).take()
    return [_read_known_owner(_from_json(text)) for text in listed.split(b"\n")], body[4 + len(listed) :]


def add_owner(owners: list[Owner], owner: Owner) -> None:
    """One that is there comes last now; where there are as many as are kept the first one goes."""
    for at, other in enumerate(owners):
        if other.is_same(owner):
            del owners[at]
            break
    if len(owners) >= OWNERS_MAX:
        del owners[0]
    owners.append(owner)


def _read_known_owner(fields: object) -> Owner:
    owner = read_owner(fields)
    if owner is None:
        raise FactFault("an owner cannot be read")
    return owner


def _pack(part: bytes) -> bytes:
    return _U32.pack(len(part)) + part


def _to_json(fields: dict[str, object]) -> bytes:
    return json.dumps(fields, separators=(",", ":"), sort_keys=True).encode()


def _from_json(text: bytes) -> dict[str, object]:
    try:
        fields = json.loads(text)
    except ValueError as error:
        raise FactFault("the table of an exchange cannot be read") from error
    if not isinstance(fields, dict):
        raise FactFault("the table of an exchange is none")
    return fields


@final
class ExchangeFold:
    """Folds the facts of exchanges, one after the other."""

    def __init__(self) -> None:
        self.exchanges: dict[tuple[str, str], StoredExchange] = {}
        self.bindings: dict[bytes, list[Owner]] = {}  # by their bodies
        self.orphans = 0  # taken away without having been there: only after damage

    def apply(self, kind: int, body: bytes) -> None:
        if kind == EXCHANGE_SAVED:
            exchange = decode_exchange(body)
            self.exchanges[exchange.key()] = exchange
        elif kind == EXCHANGE_REMOVED:
            if self.exchanges.pop(decode_exchange_name(body), None) is None:
                self.orphans += 1
        elif kind == BINDING_SAVED:
            self.bindings[body] = []
        elif kind == BINDING_OWNED:
            owners, binding = decode_owners(body)
            known = self.bindings.setdefault(binding, [])
            for owner in owners:
                add_owner(known, owner)
        elif body in self.bindings:
            del self.bindings[body]
        else:
            self.orphans += 1

    def decode_bindings(self) -> list[StoredBinding]:
        found: list[StoredBinding] = []
        for body, owners in self.bindings.items():
            binding = decode_binding(body)
            binding.owners = owners
            found.append(binding)
        return found
