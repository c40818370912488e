"""What cannot be made durable is refused, not taken and lost."""

from __future__ import annotations

from fakes import HeldStore, World

from millstream.model.errors import Reason
from millstream.model.message import Message


class BrokenStore(HeldStore):
    """A store whose disk takes nothing."""

    def refusal(self) -> Reason:
        return Reason.UNAVAILABLE


def publish(world: World, guarantee: int, retain: bool) -> Reason:
    message = Message(b"t", b"x", guarantee, retain, b"", 0, "c")
    return world.broker.publish_internal(world.account, message, None)


def test_a_confirmed_or_retained_publish_is_refused_and_counted() -> None:
    world = World(store=BrokenStore())
    assert publish(world, 1, False) is Reason.UNAVAILABLE
    assert publish(world, 2, False) is Reason.UNAVAILABLE
    assert publish(world, 0, True) is Reason.UNAVAILABLE
    assert world.account.counters.dropped_no_storage == 3
    assert world.account.retained.count == 0


def test_at_most_once_needs_no_disk() -> None:
    world = World(store=BrokenStore())
    assert publish(world, 0, False) is Reason.NO_MATCHING_SUBSCRIBERS


def test_the_brokers_own_state_is_retained_but_not_stored() -> None:
    world = World(store=HeldStore())
    message = Message(b"$SYS/broker/uptime", b"1", 0, True, b"", 0, "")
    position = world.broker.store.position()
    world.broker.publish_internal(world.account, message, None)
    assert world.account.retained.count == 1
    assert world.broker.store.position() == position
