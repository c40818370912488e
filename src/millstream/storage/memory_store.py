"""The store in memory: it survives a broker object, not the process. Everything is safe at once.

Queues and exchanges are their own memory: nothing of them is kept here."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from millstream.model.delivery import Delivery
from millstream.model.message import Message
from millstream.storage.store import (
    SessionKey,
    Store,
    StoredSession,
    StoredState,
    StoredSubscription,
    StoredWill,
)


@final
class MemoryStore(Store):
    def __init__(self) -> None:
        self._sessions: dict[tuple[str, str], StoredSession] = {}
        self._retained: dict[tuple[str, bytes], Message] = {}
        self._position: i64 = 0

    def load(self) -> StoredState:
        retained = [(account, message) for (account, _), message in self._retained.items()]
        return StoredState(list(self._sessions.values()), retained, [])

    def position(self) -> i64:
        return self._position

    def durable(self) -> i64:
        return self._position

    def on_tick(self, now_ns: i64) -> None:
        return

    def session_saved(self, key: SessionKey, principal: str, expiry_s: i64, expires_ns: i64) -> None:
        self._position += 1
        stored = self._sessions.get(key.pair())
        if stored is None:
            stored = StoredSession(key, principal, int(expiry_s), int(expires_ns))
            self._sessions[key.pair()] = stored
            return
        stored.principal = principal
        stored.expiry_s = int(expiry_s)
        stored.expires_ns = int(expires_ns)

    def session_removed(self, key: SessionKey) -> None:
        self._position += 1
        self._sessions.pop(key.pair(), None)

    def subscription_saved(self, key: SessionKey, subscription: StoredSubscription) -> None:
        self._position += 1
        self._sessions[key.pair()].subscriptions[subscription.name] = subscription

    def subscription_removed(self, key: SessionKey, name: bytes) -> None:
        self._position += 1
        self._sessions[key.pair()].subscriptions.pop(name, None)

    def delivery_added(self, key: SessionKey, delivery: Delivery) -> None:
        self._position += 1
        self._sessions[key.pair()].deliveries[int(delivery.sequence)] = delivery

    def delivery_advanced(self, key: SessionKey, delivery: Delivery) -> None:
        self._position += 1  # the delivery itself is shared with the session: nothing to copy

    def delivery_removed(self, key: SessionKey, delivery: Delivery) -> None:
        self._position += 1
        self._sessions[key.pair()].deliveries.pop(int(delivery.sequence), None)

    def id_received(self, key: SessionKey, packet_id: i64) -> None:
        self._position += 1
        self._sessions[key.pair()].received_ids[int(packet_id)] = None

    def id_released(self, key: SessionKey, packet_id: i64) -> None:
        self._position += 1
        self._sessions[key.pair()].received_ids.pop(int(packet_id), None)

    def will_saved(self, key: SessionKey, will: StoredWill) -> None:
        self._position += 1
        self._sessions[key.pair()].will = will

    def will_removed(self, key: SessionKey) -> None:
        self._position += 1
        self._sessions[key.pair()].will = None

    def retained_saved(self, account: str, message: Message) -> None:
        self._position += 1
        self._retained[(account, message.topic)] = message

    def retained_removed(self, account: str, topic: bytes) -> None:
        self._position += 1
        self._retained.pop((account, topic), None)

    def queue_fact(self, kind: i64, body: bytes) -> i64:
        self._position += 1
        return self._position

    def exchange_fact(self, kind: i64, body: bytes) -> i64:
        self._position += 1
        return self._position
