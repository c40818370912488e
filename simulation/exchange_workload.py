"""Random facts of exchanges and bindings, and the plainest model of what they leave."""

from __future__ import annotations

import random
from collections.abc import Sequence

from millstream.storage.records import exchange_records
from millstream.storage.records.exchange_records import StoredBinding, StoredExchange
from simulation.workload import Fact

NAMES = 4
KEYS = (b"", b"key", b"#.\xff", b"k" * 255)
SAVED = (exchange_records.EXCHANGE_SAVED, exchange_records.BINDING_SAVED)
# told of the same thing, one takes back the other
PAIRS = {
    exchange_records.EXCHANGE_REMOVED: exchange_records.EXCHANGE_SAVED,
    exchange_records.BINDING_REMOVED: exchange_records.BINDING_SAVED,
}


class ExchangeModel:
    """What is there: bodies of facts, by what they are about."""

    def __init__(self) -> None:
        self.bodies: dict[tuple[int, object], bytes] = {}

    def tell(self, fact: Fact) -> None:
        kind, body = fact.number, fact.body
        if kind in SAVED:
            self.bodies[(kind, self._name(kind, body))] = body
        else:
            del self.bodies[(PAIRS[kind], self._name(PAIRS[kind], body))]

    def _name(self, kind: int, body: bytes) -> object:
        return exchange_records.decode_exchange_name(body) if kind == SAVED[0] else body

    def exchanges(self) -> list[StoredExchange]:
        return [
            exchange_records.decode_exchange(body)
            for (kind, _), body in self.bodies.items()
            if kind == SAVED[0]
        ]

    def bindings(self) -> list[StoredBinding]:
        return [
            exchange_records.decode_binding(body)
            for (kind, _), body in self.bodies.items()
            if kind == SAVED[1]
        ]


def model_after(told: Sequence[Fact]) -> ExchangeModel:
    model = ExchangeModel()
    for fact in told:
        if fact.kind == "exchange":
            model.tell(fact)
    return model


class ExchangeWorkload:
    """Has a chance of its own: what others tell does not depend on it."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._model = ExchangeModel()

    def remember(self, told: Sequence[Fact]) -> None:
        self._model = model_after(told)

    def next_atom(self) -> list[Fact]:
        """Mostly nothing: exchanges change far less often than messages come."""
        chance = self._chance
        if chance.random() < 0.7:
            return []
        bodies = self._model.bodies
        if bodies and chance.random() < 0.4:
            (kind, _), body = chance.choice(list(bodies.items()))
            if kind == exchange_records.EXCHANGE_SAVED:
                account, name = exchange_records.decode_exchange_name(body)
                gone = _fact(
                    exchange_records.EXCHANGE_REMOVED, exchange_records.encode_exchange_name(account, name)
                )
            else:
                gone = _fact(exchange_records.BINDING_REMOVED, body)
            facts = [gone]
        else:
            facts = [self._make()]
        for fact in facts:
            self._model.tell(fact)
        return facts

    def _make(self) -> Fact:
        chance = self._chance
        account, source = chance.choice(("default", "other")), f"exchange-{chance.randrange(NAMES)}"
        arguments: dict[str, object] = {"n": chance.randrange(3)} if chance.random() < 0.5 else {}
        if chance.random() < 0.4:
            kind = chance.choice(("direct", "topic"))
            stored = StoredExchange(account, source, kind, chance.random() < 0.5, False, arguments)
            return _fact(exchange_records.EXCHANGE_SAVED, exchange_records.encode_exchange(stored))
        target = "t" * 255 if chance.random() < 0.2 else f"target-{chance.randrange(NAMES)}"
        identity = exchange_records.encode_identity(
            chance.random() < 0.5, target, chance.choice(KEYS), arguments
        )
        return _fact(
            exchange_records.BINDING_SAVED, exchange_records.encode_binding(account, source, identity)
        )


def _fact(kind: int, body: bytes) -> Fact:
    return Fact("exchange", number=kind, body=body)
