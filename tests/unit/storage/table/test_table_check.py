"""Entries of the table that cannot be read, or stand where they do not belong, are found."""

from __future__ import annotations

import struct

import pytest

from millstream.model.message import Message
from millstream.storage.records import session_records
from millstream.storage.records.stored_queue import StoredQueue, encode_state
from millstream.storage.store import StoredSubscription
from millstream.storage.table.check import check_table
from millstream.storage.table.checkpoint import META, to_key
from millstream.storage.table.port import Table


class DictTable(Table):
    def __init__(self) -> None:
        self.content: dict[bytes, bytes] = {}

    def get(self, key: bytes) -> bytes | None:
        return self.content.get(key)

    def put(self, key: bytes, value: bytes) -> None:
        self.content[key] = value

    def delete(self, key: bytes) -> None:
        self.content.pop(key, None)

    def items(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        return sorted((key, value) for key, value in self.content.items() if key.startswith(prefix))

    def commit(self) -> None:
        pass


def number(value: int) -> bytes:
    return value.to_bytes(8, "big")


@pytest.fixture
def table() -> DictTable:
    table = DictTable()
    table.put(META, struct.pack("<QQ", 10, 1))
    session = session_records.SessionFact(1, "default", "client", "", 60, 0)
    table.put(b"s" + number(1), session_records.encode_session(session))
    table.put(
        b"u" + number(1) + to_key(b"a/#"),
        session_records.encode_subscription(1, StoredSubscription(b"a/#", 1, False, False, 0)),
    )
    table.put(b"i" + number(1) + number(7), session_records.encode_id(1, 7))
    message = session_records.encode_message(Message(b"a/b", b"payload", 1, True, b"", 0, "p"), 0)
    table.put(b"m" + number(4), struct.pack("<I", 1) + message)
    table.put(b"r" + to_key(b"default\0a/b"), session_records.encode_retained("default", 4))
    table.put(b"q" + number(3), encode_state(StoredQueue(3, "default", "orders", b'{"kind":"work"}')))
    return table


def bad_in(table: DictTable) -> list[bytes]:
    return [entry.key[:1] for entry in check_table(table).bad]


def test_a_good_table_has_nothing_to_say(table: DictTable) -> None:
    assert bad_in(table) == []
    assert check_table(table).entries == len(table.content)


@pytest.mark.parametrize("kind", [b"s", b"u", b"i", b"m", b"q"])
def test_an_entry_cut_short_is_found(table: DictTable, kind: bytes) -> None:
    ((key, value),) = table.items(kind)
    table.put(key, value[:5])
    assert kind in bad_in(table)


@pytest.mark.parametrize("kind", [b"s", b"u", b"i"])
def test_an_entry_in_the_place_of_another_is_found(table: DictTable, kind: bytes) -> None:
    ((key, value),) = table.items(kind)
    table.put(key[:8] + b"\x09" + key[9:], value)
    assert kind in bad_in(table)


def test_what_names_a_message_or_a_session_that_is_not_there_is_found(table: DictTable) -> None:
    table.delete(b"m" + number(4))
    assert bad_in(table) == [b"r"]
    table.delete(b"s" + number(1))
    assert bad_in(table) == [b"i", b"r", b"u"]


def test_a_key_of_no_kind_is_found(table: DictTable) -> None:
    table.put(b"Z" + number(1), b"")
    assert bad_in(table) == [b"Z"]
