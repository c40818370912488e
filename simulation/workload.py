"""Random but sensible facts: what a broker with a few sessions would tell its store.

A fact is kept as data, so that the same ones can be told to a store on a simulated disk and, up to any of them, to a
store in memory that says what must be there.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from millstream.model.delivery import Delivery
from millstream.model.message import Message
from millstream.storage.memory_store import MemoryStore
from millstream.storage.records.exchange_records import StoredBinding, StoredExchange, encode_exchange
from millstream.storage.store import SessionKey, Store, StoredState, StoredSubscription, StoredWill

CLIENTS = 5
TOPICS = 6
IDS = 8


class Fact:
    """One call of the store. What the numbers mean depends on the kind; they decide everything about it."""

    def __init__(
        self, kind: str, client: int = 0, number: int = 0, value: int = 0, body: bytes = b""
    ) -> None:
        self.kind = kind
        self.client = client
        self.number = number
        self.value = value
        self.body = body  # of a fact about queues or exchanges, whose kind in the log is `number`

    def __repr__(self) -> str:
        return f"{self.kind}({self.client}, {self.number}, {self.value})"


def make_key(client: int) -> SessionKey:
    return SessionKey("default" if client % 2 else "other", f"client-{client}")


def make_topic(number: int) -> bytes:
    # some names are longer than a key of a table may be
    return b"topic/%d" % (number % TOPICS) + b"/long" * (200 if number % TOPICS == 5 else 0)


def make_message(number: int) -> Message:
    payload = b"payload %d;" % number * (number % 97 + 1)
    expires_ns = number * 1000 if number % 3 == 0 else 0
    properties = b"\x09\x00\x01x" if number % 4 == 0 else b""
    return Message(
        make_topic(number), payload, number % 3, number % 5 == 0, properties, expires_ns, f"p{number % 2}"
    )


def make_subscription(number: int, value: int) -> StoredSubscription:
    name = b"$share/g/" + make_topic(number) if number % 7 == 6 else make_topic(number)
    return StoredSubscription(name, value % 3, value % 2 == 0, value % 5 == 0, value)


class Teller:
    """Tells facts to one store, with objects of its own."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._messages: dict[int, Message] = {}
        self._deliveries: dict[tuple[tuple[str, str], int], Delivery] = {}

    def adopt(self, state: StoredState) -> None:
        """Go on with the objects a start has given."""
        for session in state.sessions:
            for sequence, delivery in session.deliveries.items():
                self._deliveries[(session.key.pair(), sequence)] = delivery

    def tell(self, fact: Fact) -> None:
        store, key = self._store, make_key(fact.client)
        match fact.kind:
            case "session":
                store.session_saved(key, f"user-{fact.client}", fact.number, fact.value)
            case "session gone":
                store.session_removed(key)
            case "subscription":
                store.subscription_saved(key, make_subscription(fact.number, fact.value))
            case "subscription gone":
                store.subscription_removed(key, make_subscription(fact.number, 0).name)
            case "id":
                store.id_received(key, fact.number)
            case "id gone":
                store.id_released(key, fact.number)
            case "will":
                will = StoredWill(self._message(fact.number), fact.value % 9, fact.value, fact.value % 4)
                store.will_saved(key, will)
            case "will gone":
                store.will_removed(key)
            case "retained":
                store.retained_saved(key.account, self._message(fact.number))
            case "retained gone":
                store.retained_removed(key.account, make_topic(fact.number))
            case "queue":
                store.queue_fact(fact.number, fact.body)
            case "exchange":
                store.exchange_fact(fact.number, fact.body)
            case _:
                self._tell_delivery(fact, key)

    def _tell_delivery(self, fact: Fact, key: SessionKey) -> None:
        place = (key.pair(), fact.value)
        if fact.kind == "delivery":
            identifiers = tuple(range(1, fact.number % 4))
            share = b"g" if fact.number % 6 == 0 else b""
            delivery = Delivery(self._message(fact.number), 1 + fact.number % 2, False, identifiers, share)
            delivery.sequence = fact.value
            self._deliveries[place] = delivery
            self._store.delivery_added(key, delivery)
        elif fact.kind == "delivery on":
            delivery = self._deliveries[place]
            delivery.phase = fact.number % 3
            delivery.packet_id = fact.number
            self._store.delivery_advanced(key, delivery)
        else:
            assert fact.kind == "delivery gone"
            self._store.delivery_removed(key, self._deliveries.pop(place))

    def _message(self, number: int) -> Message:
        return self._messages.setdefault(number, make_message(number))


class _Known:
    """What the workload remembers of a session, to say only what makes sense."""

    def __init__(self) -> None:
        self.deliveries: dict[int, None] = {}
        self.next_sequence = 0


class Workload:
    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._sessions: dict[int, _Known] = {}
        self._next_message = 1

    def remember(self, told: Sequence[Fact]) -> None:
        """Stand where these facts lead."""
        self._sessions = {}
        for fact in told:
            self._note(fact)

    def next_atom(self) -> list[Fact]:
        """Facts that belong together: all or none of them may survive."""
        facts = self._choose()
        for fact in facts:
            self._note(fact)
        return facts

    def _choose(self) -> list[Fact]:
        chance = self._chance
        client = chance.randrange(CLIENTS)
        known = self._sessions.get(client)
        if known is None:
            return [Fact("session", client, chance.randrange(1, 9999), 0)]
        kind = chance.choices(
            ("publish", "settle", "advance", "small", "will", "retained", "session", "session gone"),
            (30, 15, 15, 15, 6, 12, 5, 2),
        )[0]
        if kind == "publish":
            return self._publish(client)
        if kind in ("settle", "advance"):
            if not known.deliveries:
                return self._publish(client)
            sequence = chance.choice(list(known.deliveries))
            name = "delivery gone" if kind == "settle" else "delivery on"
            return [Fact(name, client, chance.randrange(1, 60000), sequence)]
        if kind == "small":
            name = chance.choice(("subscription", "subscription gone", "id", "id gone"))
            return [Fact(name, client, chance.randrange(1, IDS), chance.randrange(1, 1000))]
        if kind in ("will", "retained"):
            name = kind if chance.random() < 0.6 else f"{kind} gone"
            return [Fact(name, client, self._message(), chance.randrange(1, 1000))]
        return [Fact(kind, client, chance.randrange(1, 9999), chance.choice((0, 5000)))]

    def _publish(self, client: int) -> list[Fact]:
        """One message to some sessions, sometimes retained too, with the id of an exactly-once publisher."""
        number = self._message()
        facts: list[Fact] = []
        for receiver, known in self._sessions.items():
            if self._chance.random() < 0.5:
                facts.append(Fact("delivery", receiver, number, known.next_sequence))
        if self._chance.random() < 0.2:
            facts.append(Fact("retained", client, number))
        if self._chance.random() < 0.4 or not facts:
            facts.append(Fact("id", client, self._chance.randrange(1, IDS)))
        return facts

    def _message(self) -> int:
        """Mostly a new one; sometimes one that was there, and may be forgotten by now."""
        if self._next_message > 3 and self._chance.random() < 0.2:
            return self._next_message - self._chance.randrange(1, 4)
        self._next_message += 1
        return self._next_message - 1

    def _note(self, fact: Fact) -> None:
        if fact.kind == "session":
            self._sessions.setdefault(fact.client, _Known())
        elif fact.kind == "session gone":
            self._sessions.pop(fact.client, None)
        elif fact.kind == "delivery":
            known = self._sessions[fact.client]
            known.deliveries[fact.value] = None
            known.next_sequence = fact.value + 1
        elif fact.kind == "delivery gone":
            self._sessions[fact.client].deliveries.pop(fact.value)
        if fact.kind in ("delivery", "will", "retained"):
            self._next_message = max(self._next_message, fact.number + 1)


def state_after(told: Sequence[Fact]) -> StoredState:
    """What a store must give back after these facts."""
    store = MemoryStore()
    teller = Teller(store)
    for fact in told:
        teller.tell(fact)
    return store.load()


def describe_message(message: Message) -> tuple[object, ...]:
    return (
        message.topic,
        message.payload,
        int(message.guarantee),
        message.retain,
        message.properties,
        int(message.expires_ns),
        message.publisher,
    )


def describe(state: StoredState) -> dict[object, object]:
    """A state as plain values, for comparison."""
    found: dict[object, object] = {}
    for session in state.sessions:
        pair = session.key.pair()
        found[pair] = (session.principal, session.expiry_s, session.expires_ns)
        for one in session.subscriptions.values():
            fields = (
                one.guarantee,
                one.no_local,
                one.retain_as_published,
                one.identifier,
                one.group,
                one.terms,
            )
            found[(pair, "subscription", one.name)] = fields
        for sequence, delivery in session.deliveries.items():
            found[(pair, "delivery", sequence)] = (
                int(delivery.sequence),
                int(delivery.guarantee),
                delivery.retain,
                delivery.identifiers,
                delivery.share,
                int(delivery.phase),
                int(delivery.packet_id),
                describe_message(delivery.message),
            )
        found[(pair, "order")] = list(session.deliveries)
        found[(pair, "ids")] = sorted(session.received_ids)
        will = session.will
        if will is not None:
            found[(pair, "will")] = (
                will.delay_s,
                will.due_ns,
                will.lifetime_s,
                describe_message(will.message),
            )
    for account, message in state.retained:
        found[(account, "retained", message.topic)] = describe_message(message)
    return found


def describe_exchanges(
    exchanges: list[StoredExchange], bindings: list[StoredBinding]
) -> dict[object, object]:
    found: dict[object, object] = {}
    for exchange in exchanges:
        found[("exchange", *exchange.key())] = encode_exchange(exchange)
    for binding in bindings:
        fields = (binding.to_exchange, binding.target, binding.key, str(binding.arguments))
        found[("binding", binding.account, binding.source, binding.identity)] = fields
    return found
