"""The store in memory, beyond the contract: it is safe at once, and shares deliveries with their session."""

from __future__ import annotations

from fakes import make_message

from millstream.model.delivery import RECEIVED, Delivery
from millstream.storage.memory_store import MemoryStore
from millstream.storage.store import SessionKey

KEY = SessionKey("default", "c")


def test_every_fact_is_durable_as_soon_as_it_is_told() -> None:
    store = MemoryStore()
    for number in range(5):
        store.retained_saved("default", make_message(b"%d" % number))
        assert store.durable() == store.position() == number + 1


def test_a_delivery_that_advances_is_the_same_object() -> None:
    store = MemoryStore()
    store.session_saved(KEY, "u", 1, 0)
    delivery = Delivery(make_message(b"t"), 2, False, (), b"")
    store.delivery_added(KEY, delivery)
    delivery.phase = RECEIVED
    store.delivery_advanced(KEY, delivery)
    assert store.load().sessions[0].deliveries[0] is delivery
