"""Looks at every entry of the table of a checkpoint: whether it can be decoded and stands where it belongs."""

from __future__ import annotations

import struct
from typing import Final, final

from millstream.storage.records import session_records
from millstream.storage.records.batch_records import decode_query
from millstream.storage.records.exchange_records import decode_binding, decode_exchange, decode_owners
from millstream.storage.records.fold import PLACEHOLDER
from millstream.storage.records.session_records import FactFault
from millstream.storage.records.stored_queue import decode_state
from millstream.storage.segments.inventory import is_entry
from millstream.storage.table.checkpoint import (
    META,
    binding_entry,
    exchange_entry,
    owners_entry,
    query_entry,
    to_key,
)
from millstream.storage.table.port import Table

_KEY: Final = struct.Struct(">Q")
_PAIR: Final = struct.Struct(">QQ")
_USES_SIZE: Final = 4
_META_SIZE: Final = 16
_PREFIXES: Final = b"msuidwrqxbekgo"
_WORDS: Final = {
    "m": "a message",
    "s": "a session",
    "u": "a subscription",
    "i": "a received packet id",
    "d": "a delivery",
    "w": "a will",
    "r": "a retained message",
    "q": "a queue with its groups",
    "x": "the mark of a removed queue",
    "b": "a query that writes batches",
    "e": "an exchange",
    "k": "a binding of an exchange",
    "g": "the name of a segment",
    "o": "the owners of a binding",
}


@final
class BadEntry:
    def __init__(self, key: bytes, text: str) -> None:
        self.key = key
        self.text = text


@final
class CheckedTable:
    def __init__(self) -> None:
        self.entries = 0
        self.bad: list[BadEntry] = []
        self.fault = ""  # of the table as a whole


def check_table(table: Table) -> CheckedTable:
    checked = CheckedTable()
    for key, body in table.items(b""):
        checked.entries += 1
        text = "its checksum is wrong" if table.is_damaged(key) else find_fault(table, key, body)
        if text is not None:
            checked.bad.append(BadEntry(key, text))
    if not checked.bad:
        checked.fault = table.find_fault()
    return checked


def find_fault(table: Table, key: bytes, body: bytes) -> str | None:
    if key == META:
        return None if len(body) == _META_SIZE else "how far the log is folded cannot be read"
    if key[:1] == META[:1]:
        return None  # other numbers the checkpoint keeps
    if not key or key[0] not in _PREFIXES:
        return "an entry no release has written"
    word = _WORDS[chr(key[0])]
    try:
        is_right = _is_right(key, body)
    except (FactFault, struct.error, ValueError, KeyError, TypeError, IndexError, AttributeError):
        return f"{word} cannot be read"
    if not is_right:
        return f"{word} stands in the place of another"
    message = _message_of(key, body)
    if message >= 0 and table.get(b"m" + _KEY.pack(message)) is None:
        return f"{word} lacks its message"
    if key[0] in b"uidw" and table.get(b"s" + key[1:9]) is None:
        return f"{word} lacks its session"
    return None


def _is_right(key: bytes, body: bytes) -> bool:
    kind = key[:1]
    rest = key[1:]
    if kind == b"m":
        session_records.decode_message(body[_USES_SIZE:], 0)
        return len(rest) == _KEY.size
    if kind == b"s":
        return rest == _KEY.pack(session_records.decode_session(body).session)
    if kind == b"u":
        session, subscription = session_records.decode_subscription(body)
        return rest == _KEY.pack(session) + to_key(subscription.name)
    if kind == b"i":
        return rest == _PAIR.pack(*session_records.decode_id(body))
    if kind == b"d":
        fact = session_records.decode_delivery(body, PLACEHOLDER)
        return rest == _PAIR.pack(fact.session, int(fact.delivery.sequence))
    if kind == b"w":
        return rest == _KEY.pack(session_records.decode_will(body).session)
    if kind == b"r":
        session_records.decode_retained(body)
        return bool(rest)
    if kind == b"g":
        return is_entry(key, body)
    if kind == b"x":
        return len(rest) == _KEY.size
    if kind == b"b":
        return key == query_entry(*decode_query(body).key())
    if kind == b"e":
        decode_exchange(body)
        return key == exchange_entry(body)
    if kind == b"k":
        decode_binding(body)
        return key == binding_entry(body)
    if kind == b"o":
        return key == owners_entry(decode_owners(body)[1])
    decode_state(_KEY.unpack(rest)[0], body)
    return True


def _message_of(key: bytes, body: bytes) -> int:
    """The message an entry names; -1: none."""
    kind = key[:1]
    if kind == b"d":
        return session_records.decode_delivery(body, PLACEHOLDER).message
    if kind == b"w":
        return session_records.decode_will(body).message
    if kind == b"r":
        return session_records.decode_retained(body)[1]
    return -1
