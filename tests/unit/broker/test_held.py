"""Deliveries that wait until they are safe."""

from __future__ import annotations

from fakes import HeldStore, World

from millstream.broker.held import AT_ONCE
from millstream.model.limits import Limits


def test_what_a_slow_disk_has_kept_waiting_leaves_in_slices_and_in_order() -> None:
    store = HeldStore()
    world = World(Limits(inflight_max=65_535), store)
    session, line = world.connect("c")
    world.subscribe(session, b"t", 1)
    store.hold()
    count = int(AT_ONCE) + 5000
    for number in range(count):
        world.publish(b"t", b"%d" % number)
    assert (world.broker.held.count(), line.deliveries) == (count, [])
    store.release()
    world.broker.on_durable()
    assert len(line.deliveries) == AT_ONCE
    world.publish(b"t", b"%d" % count)  # nothing overtakes
    assert len(line.deliveries) == AT_ONCE
    world.broker.held.run(10)
    assert AT_ONCE < len(line.deliveries) <= AT_ONCE + 50
    while world.broker.work_off():
        pass
    assert line.payloads() == [b"%d" % number for number in range(count + 1)]


def test_a_session_that_comes_back_again_and_again_is_held_for_its_last_connection_alone() -> None:
    """While a disk is slow, or takes nothing at all, clients come back as often as they like."""
    store = HeldStore()
    world = World(None, store)
    session, _ = world.connect("c")
    world.subscribe(session, b"t", 1)
    other, other_line = world.connect("other")
    world.subscribe(other, b"t", 1)
    store.hold()
    count = 250
    for number in range(count):
        world.publish(b"t", b"%d" % number)
    for _ in range(1000):
        world.drop(session)
        session, line = world.connect("c")
    assert world.broker.held.count() <= 2 * AT_ONCE
    store.release()
    world.broker.on_durable()
    while world.broker.work_off():
        pass
    assert line.payloads() == other_line.payloads() == [b"%d" % number for number in range(count)]
