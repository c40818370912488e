"""The `$SYS` tree: retained, refreshed at its interval, and only what has changed."""

from __future__ import annotations

from fakes import START_NS, World

from millstream.broker.system_topics import SystemTopics
from millstream.model.message import NANOSECONDS


def value(world: World, name: str) -> str:
    found = world.account.retained.find(b"$SYS/broker/" + name.encode())
    assert found is not None
    return found.payload.decode()


def test_the_broker_tells_its_version_and_counts_as_retained_messages() -> None:
    world = World()
    topics = SystemTopics(world.broker, "1.2.3", 10, START_NS)
    session, _ = world.connect("c")
    world.subscribe(session, b"t")
    world.connect("d")
    world.drop(session)
    world.publish(b"t")
    topics.on_tick(START_NS)
    assert value(world, "version") == "millstream 1.2.3"
    assert value(world, "clients/connected") == "1"
    assert value(world, "clients/disconnected") == "1"
    assert value(world, "clients/total") == "2"
    assert value(world, "subscriptions/count") == "1"
    assert value(world, "messages/queued") == "1"
    assert value(world, "messages/dropped/no_receiver") == "0"


def test_nothing_is_told_between_two_intervals_and_then_only_what_has_changed() -> None:
    world = World()
    topics = SystemTopics(world.broker, "1", 10, START_NS)
    topics.on_tick(START_NS)
    session, line = world.connect("c")
    world.subscribe(session, b"$SYS/#", 0)
    topics.on_tick(START_NS + 9 * NANOSECONDS)
    assert line.plain == []
    topics.on_tick(START_NS + 10 * NANOSECONDS)
    told = [payload for payload, _, _ in line.plain]
    assert b"10 seconds" in told
    assert b"millstream 1" not in told


def test_an_interval_of_zero_turns_it_off() -> None:
    world = World()
    SystemTopics(world.broker, "1", 0, START_NS).on_tick(START_NS)
    assert world.account.retained.count == 0


def test_a_wildcard_at_the_front_does_not_see_it() -> None:
    world = World()
    session, line = world.connect("c")
    world.subscribe(session, b"#", 0)
    SystemTopics(world.broker, "1", 10, START_NS).on_tick(START_NS)
    assert line.plain == []
