from __future__ import annotations

from fakes import World

from millstream.broker.schedule import Schedule


def test_deadlines_come_in_their_order_and_never_early() -> None:
    world = World()
    one, _ = world.connect("one")
    two, _ = world.connect("two")
    schedule = Schedule()
    assert schedule.next_ns() == 0
    schedule.add(200, two)
    schedule.add(100, one)
    schedule.add(100, two)
    assert schedule.next_ns() == 100
    assert schedule.take_due(99, 10) == []
    assert schedule.take_due(100, 10) == [one, two]
    assert schedule.next_ns() == 200
    assert schedule.take_due(10_000, 10) == [two]
    assert schedule.take_due(10_000, 10) == []
