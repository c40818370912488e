"""The facts of exchanges: what is left of them, in memory and in the table of a checkpoint."""

from __future__ import annotations

import random

import pytest
from fold_and_checkpoint import FoldAndCheckpoint

from millstream.storage.records import exchange_records
from millstream.storage.records.exchange_records import StoredExchange
from millstream.storage.records.session_records import FactFault
from millstream.storage.store import StoredState
from millstream.storage.table.check import check_table
from millstream.storage.table.checkpoint import binding_entry


def describe(state: StoredState) -> tuple[list[object], list[object]]:
    exchanges: list[object] = [
        (one.account, one.name, one.kind, one.auto_delete, one.internal, str(one.arguments))
        for one in state.exchanges
    ]
    bindings: list[object] = [
        (one.account, one.source, one.to_exchange, one.target, one.key, str(one.arguments), one.identity)
        for one in state.bindings
    ]
    return sorted(map(str, exchanges)), sorted(map(str, bindings))  # type: ignore[return-value]


class Both(FoldAndCheckpoint):
    """They must agree."""

    def declare(self, name: str, kind: str = "direct", arguments: dict[str, object] | None = None) -> None:
        stored = StoredExchange("default", name, kind, False, True, arguments or {})
        self.tell(exchange_records.EXCHANGE_SAVED, exchange_records.encode_exchange(stored))

    def state(self) -> StoredState:
        loaded = self.load()
        assert describe(loaded.state()) == describe(self.fold.state())
        return loaded.state()


def binding(source: str, target: str, key: bytes, arguments: dict[str, object] | None = None) -> bytes:
    identity = exchange_records.encode_identity(False, target, key, arguments or {})
    return exchange_records.encode_binding("default", source, identity)


@pytest.fixture
def both() -> Both:
    return Both()


def test_an_exchange_is_known_with_all_it_was_declared_with(both: Both) -> None:
    both.declare("ä", "topic", {"alternate-exchange": "other", "x-n": 5})
    (found,) = both.state().exchanges
    assert (found.account, found.name, found.kind) == ("default", "ä", "topic")
    assert (found.auto_delete, found.internal) == (False, True)
    assert found.arguments == {"alternate-exchange": "other", "x-n": 5}


def test_a_binding_is_known_with_all_that_tells_it_apart(both: Both) -> None:
    both.tell(exchange_records.BINDING_SAVED, binding("x", "q", b"\xff.#", {"k": [1, None, "v"]}))
    (found,) = both.state().bindings
    assert (found.account, found.source, found.to_exchange, found.target) == ("default", "x", False, "q")
    assert (found.key, found.arguments) == (b"\xff.#", {"k": [1, None, "v"]})


def test_the_order_of_arguments_does_not_make_another_binding() -> None:
    assert binding("x", "q", b"", {"a": 1, "b": 2}) == binding("x", "q", b"", {"b": 2, "a": 1})
    assert binding("x", "q", b"", {"a": 1}) != binding("x", "q", b"", {"a": 2})
    assert binding("x", "q", b"k") != binding("x", "qk", b"")


def test_names_longer_than_a_key_of_the_table_are_kept_whole(both: Both) -> None:
    long = binding("s" * 255, "t" * 255, b"k" * 255, {"a": "v" * 1000})
    other = binding("s" * 255, "t" * 255, b"k" * 255, {"a": "v" * 999})
    both.tell(exchange_records.BINDING_SAVED, long)
    both.tell(exchange_records.BINDING_SAVED, other)
    assert len(both.state().bindings) == 2
    both.tell(exchange_records.BINDING_REMOVED, long)
    (left,) = both.state().bindings
    assert left.arguments == {"a": "v" * 999}


def test_a_checkpoint_at_any_place_changes_nothing() -> None:
    for seed in range(20):
        chance = random.Random(seed)
        both = Both()
        saved: set[bytes] = set()
        names: set[str] = set()
        for _ in range(100):
            name = f"x{chance.randrange(4)}"
            body = binding(name, f"q{chance.randrange(3)}", b"%d" % chance.randrange(3))
            step = chance.randrange(6)
            if step < 2:
                both.declare(name, chance.choice(["direct", "topic"]))
                names.add(name)
            elif step == 2 and name in names:
                body = exchange_records.encode_exchange_name("default", name)
                both.tell(exchange_records.EXCHANGE_REMOVED, body)
                names.remove(name)
            elif step < 5:
                both.tell(exchange_records.BINDING_SAVED, body)
                saved.add(body)
            elif body in saved:
                both.tell(exchange_records.BINDING_REMOVED, body)
                saved.remove(body)
            if chance.random() < 0.1:
                both.checkpoint.finish(1)
        state = both.state()
        assert {one.name for one in state.exchanges} == names
        assert len(state.bindings) == len(saved)
        assert both.fold.exchanges.orphans == both.checkpoint.orphans == 0


def test_taking_away_what_is_not_there_is_counted_as_damage(both: Both) -> None:
    both.tell(exchange_records.BINDING_REMOVED, binding("x", "q", b""))
    both.tell(exchange_records.EXCHANGE_REMOVED, exchange_records.encode_exchange_name("default", "x"))
    assert both.fold.exchanges.orphans == both.checkpoint.orphans == 2


def test_an_entry_of_the_table_that_is_damaged_is_named(both: Both) -> None:
    both.declare("x")
    body = binding("x", "q", b"k")
    both.tell(exchange_records.BINDING_SAVED, body)
    both.state()
    ((place, exchange),) = both.table.items(b"e")
    both.table.put(place, exchange[:-3])
    both.table.put(binding_entry(body), binding("x", "q", b"other"))
    texts = [entry.text for entry in check_table(both.table).bad]
    assert texts == ["an exchange cannot be read", "a binding of an exchange stands in the place of another"]


@pytest.mark.parametrize("cut", range(0, 40, 3))
def test_a_body_cut_short_is_a_fault_and_nothing_else(cut: int) -> None:
    body = binding("source", "target", b"key", {"a": 1})
    try:
        exchange_records.decode_binding(body[:cut])
    except FactFault:
        return
    assert cut >= len(binding("source", "target", b"key"))
