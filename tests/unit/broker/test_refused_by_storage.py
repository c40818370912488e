"""What cannot be made durable is refused, not taken and lost."""

from __future__ import annotations

from fakes import HeldStore, World

from millstream.model.errors import Reason
from millstream.model.message import Message


class BrokenStore(HeldStore):
    """A store whose disk takes nothing."""

    def refusal(self) -> Reason:
        return Reason.UNAVAILABLE


class RepairedStore(HeldStore):
    """A store whose disk takes nothing while `reason` says so."""

    def __init__(self) -> None:
        super().__init__()
        self.reason = Reason.SUCCESS

    def refusal(self) -> Reason:
        return self.reason


def publish(world: World, guarantee: int, retain: bool, payload: bytes = b"x", topic: bytes = b"t") -> Reason:
    message = Message(topic, payload, guarantee, retain, b"", 0, "c")
    return world.broker.publish_internal(world.account, message, None)


def test_a_confirmed_or_retained_publish_is_refused_and_counted() -> None:
    world = World(store=BrokenStore())
    assert publish(world, 1, False) is Reason.UNAVAILABLE
    assert publish(world, 2, False) is Reason.UNAVAILABLE
    assert publish(world, 0, True) is Reason.UNAVAILABLE
    assert world.account.counters.dropped_no_storage == 3
    assert world.account.retained.count == 0


def test_what_is_refused_reaches_nobody() -> None:
    """Its publisher will send it again: who got it now would get it twice."""
    world = World(store=BrokenStore())
    session, line = world.connect("reader")
    world.subscribe(session, b"t")
    assert publish(world, 1, False) is Reason.UNAVAILABLE
    assert publish(world, 2, False) is Reason.UNAVAILABLE
    assert publish(world, 0, True) is Reason.UNAVAILABLE
    assert line.sent == []
    assert line.plain == []
    assert publish(world, 0, False) is Reason.SUCCESS
    assert len(line.plain) == 1


def test_removing_a_retained_message_is_refused_too() -> None:
    store = RepairedStore()
    world = World(store=store)
    assert publish(world, 0, True) is Reason.NO_MATCHING_SUBSCRIBERS
    store.reason = Reason.UNAVAILABLE
    assert publish(world, 0, True, b"") is Reason.UNAVAILABLE
    assert world.account.retained.count == 1
    store.reason = Reason.SUCCESS
    assert publish(world, 0, True, b"") is Reason.NO_MATCHING_SUBSCRIBERS
    assert world.account.retained.count == 0


def test_at_most_once_needs_no_disk() -> None:
    world = World(store=BrokenStore())
    assert publish(world, 0, False) is Reason.NO_MATCHING_SUBSCRIBERS
    assert world.account.counters.dropped_no_storage == 0


def test_the_brokers_own_state_is_retained_but_not_stored() -> None:
    store = HeldStore()
    world = World(store=store)
    publish(world, 0, True, b"1", b"$SYS/broker/uptime")
    assert world.account.retained.count == 1
    publish(world, 0, True, b"", b"$SYS/broker/uptime")
    assert world.account.retained.count == 0
    assert store.facts == []


def test_what_clients_retain_is_stored() -> None:
    store = HeldStore()
    world = World(store=store)
    publish(world, 0, True)
    publish(world, 0, True, b"")
    assert store.facts == ["retained_saved", "retained_removed"]
