"""Back-pressure: who waits for whom, for how long, and what is dropped when nobody waits any more."""

from __future__ import annotations

import pytest
from fakes import FakeLine, FakeRun, MqttPeer, MqttWorld, World, make_message

from millstream.broker.conditions import PUBLISHERS_SLOWED
from millstream.broker.health import Health
from millstream.broker.line import Ending
from millstream.broker.pressure import TICKS_TOLD, Pressure
from millstream.broker.session import Session
from millstream.model.clock import Clock
from millstream.model.holder import Holder
from millstream.model.limits import Limits
from millstream.model.outlet import Target
from millstream.protocols.mqtt.wire.packets import Connect, PubAck, Publish, Subscribe, SubscribeEntry
from millstream.protocols.mqtt.wire.properties import Properties
from millstream.security.principal import Principal


def reader(world: World, window: int = 2, name: str = "r") -> tuple[Session, FakeLine]:
    session, line = world.connect(name, window=window)
    world.subscribe(session, b"t")
    return session, line


def publish(world: World, payload: bytes = b"x", guarantee: int = 1) -> None:
    """A publish by somebody who can be made to wait."""
    pressure = world.broker.pressure
    pressure.source = Session(world.account, "source", Principal("source", "default", "user"), 1)
    world.publish(b"t", payload, guarantee)
    pressure.source = None


def hold(world: World, source: FakeLine) -> bool:
    """What an endpoint does after each read: wait for the full sessions it met."""
    return world.broker.pressure.end(source)


def block(line: FakeLine) -> None:
    assert line.session is not None
    line.is_lagging = True
    line.session.on_lagging()
    line.is_blocked = True
    line.session.on_blocked()


def catch_up(line: FakeLine) -> None:
    assert line.session is not None
    line.is_lagging = line.is_blocked = False
    line.session.on_caught_up()


def test_a_source_waits_while_the_queue_is_over_its_mark_and_goes_on_when_it_is_not() -> None:
    world = World(Limits(pending_messages_max=2))
    session, line = reader(world)
    source = FakeLine()
    for _ in range(3):
        publish(world)
        assert not hold(world, source)
    publish(world)
    assert hold(world, source)
    assert session.is_full
    session.on_settled(line.ids()[0], 1)
    assert source.resumed == 1
    assert not session.is_full
    assert world.account.counters.dropped_queue_full == 0


def test_a_source_waits_for_a_blocked_line_and_at_most_once_still_passes() -> None:
    world = World()
    _, line = reader(world)
    block(line)
    world.broker.pressure.forget_met()
    source = FakeLine()
    publish(world, b"0", 0)
    assert hold(world, source)
    assert line.plain == [(b"0", False, ())]
    catch_up(line)
    assert source.resumed == 1


def test_a_session_that_makes_progress_may_let_its_sources_wait_for_long() -> None:
    world = World(Limits(pending_messages_max=1, slow_grace_ms=100))
    session, line = reader(world, window=1)
    source = FakeLine()
    for _ in range(30):
        publish(world)
    assert hold(world, source)
    for number in range(25):
        world.move(0.09)
        session.on_settled(line.ids()[number], 1)
        assert source.resumed == 0
        assert not session.is_slow
    assert session.is_full


def test_a_session_that_stands_still_is_slow_after_the_grace_and_holds_nobody() -> None:
    world = World(Limits(pending_messages_max=1, slow_grace_ms=100, offline_messages_max=3))
    session, _line = reader(world, window=1)
    source = FakeLine()
    for _ in range(10):
        publish(world)
    assert hold(world, source)
    world.move(0.05)
    assert source.resumed == 0
    world.move(0.06)
    assert session.is_slow
    assert source.resumed == 1
    assert session.queued_count() == 3
    assert world.account.counters.dropped_queue_full == 6
    publish(world)
    assert not hold(world, source)
    assert world.account.counters.dropped_queue_full == 7
    assert not session.is_present()


def test_a_slow_session_that_has_caught_up_is_waited_for_again() -> None:
    world = World(Limits(pending_messages_max=1, slow_grace_ms=100, offline_messages_max=3))
    session, line = reader(world, window=1)
    for _ in range(4):
        publish(world)
    world.broker.pressure.forget_met()
    world.move(0.2)
    assert session.is_slow
    for _ in range(4):
        session.on_settled(line.ids()[-1], 1)
    assert session.queued_count() == 0
    assert not session.is_slow
    assert session.is_present()
    for _ in range(2):
        publish(world)
    assert hold(world, FakeLine())


def test_at_most_once_to_a_slow_session_is_dropped_and_counted() -> None:
    world = World(Limits(slow_grace_ms=100))
    session, line = reader(world)
    block(line)
    world.move(0.2)
    assert session.is_slow
    publish(world, guarantee=0)
    session.deliver_run(FakeRun([make_message(b"t")] * 5), Target(session, 0, False, (), b""))
    assert line.plain == []
    assert line.runs == []
    assert world.account.counters.dropped_slow == 6
    catch_up(line)
    publish(world, guarantee=0)
    assert len(line.plain) == 1


def test_at_most_once_is_dropped_once_the_unsent_bytes_reach_their_end() -> None:
    world = World(Limits(unsent_bytes_max=1000))
    _, line = reader(world)
    block(line)
    line.unsent = 999
    publish(world, guarantee=0)
    line.unsent = 1000
    publish(world, guarantee=0)
    assert len(line.plain) == 1
    assert world.account.counters.dropped_slow == 1


def test_one_that_stood_still_before_it_was_full_holds_nobody_at_all() -> None:
    world = World(Limits(slow_grace_ms=100, pending_messages_max=3))
    session, _line = reader(world, window=1)
    publish(world)
    publish(world)  # waits for the window: from now on it is watched
    world.move(0.2)
    assert not session.is_slow  # nobody waits for it yet
    for _ in range(3):
        publish(world)
        assert not hold(world, FakeLine())
    assert session.is_slow


def test_a_source_that_has_gone_is_not_resumed() -> None:
    world = World(Limits(pending_messages_max=1))
    session, _line = reader(world, window=1)
    stays, goes = FakeLine(), FakeLine()
    for _ in range(3):
        publish(world)
    assert hold(world, stays)
    publish(world)
    assert hold(world, goes)
    world.broker.forget_line(goes)
    world.drop(session)
    assert (stays.resumed, goes.resumed) == (1, 0)


def test_sources_go_on_when_the_full_session_leaves_or_ends() -> None:
    for expiry_s in (0, 100):
        world = World(Limits(pending_messages_max=1))
        session, _ = world.connect("r", expiry_s=expiry_s, window=1)
        world.subscribe(session, b"t")
        source = FakeLine()
        for _ in range(3):
            publish(world)
        assert hold(world, source)
        world.drop(session)
        assert source.resumed == 1
        assert not session.is_full
        world.move(10)
        assert source.resumed == 1


def test_under_pending_nobody_waits_for_a_window_and_the_excess_is_dropped_and_counted() -> None:
    world = World(Limits(inflight_overflow="pending", pending_messages_max=2))
    session, line = reader(world, window=1)
    source = FakeLine()
    for number in range(5):
        publish(world, b"%d" % number)
        assert not hold(world, source)
    assert session.queued_count() == 2
    assert world.account.counters.dropped_queue_full == 2
    for _ in range(3):
        session.on_settled(line.ids()[-1], 1)
    assert line.payloads() == [b"0", b"1", b"2"]


def test_under_pending_sources_still_wait_for_a_line_that_is_blocked() -> None:
    world = World(Limits(inflight_overflow="pending"))
    _, line = reader(world)
    block(line)
    world.broker.pressure.forget_met()
    source = FakeLine()
    publish(world)
    assert hold(world, source)
    catch_up(line)
    assert source.resumed == 1
    assert len(line.sent) == 1


@pytest.mark.parametrize("disconnects", [False, True])
def test_a_slow_session_is_disconnected_only_if_the_operator_wants_it(disconnects: bool) -> None:
    world = World(Limits(disconnect_on_full=disconnects, slow_grace_ms=100))
    session, line = reader(world)
    block(line)
    world.move(0.2)
    assert line.endings == ([Ending.TOO_SLOW] if disconnects else [])
    assert (session.line is None) == disconnects


# ------------------------------------------------------------------- through MQTT endpoints


def subscriber(world: MqttWorld, client_id: str, window: int) -> MqttPeer:
    properties = Properties()
    properties.receive_maximum = window
    peer = world.client(Connect(5, client_id, properties=properties))
    peer.send(Subscribe(1, [SubscribeEntry(b"t", 1)]))
    return peer


def test_a_publisher_is_not_read_while_its_subscriber_is_full() -> None:
    world = MqttWorld(Limits(pending_messages_max=2))
    slow = subscriber(world, "slow", 1)
    publisher = world.client(Connect(4, "publisher"))
    publisher.send(*[Publish(b"t", b"x", 1, packet_id=number) for number in range(1, 4)])
    assert publisher.link.is_paused
    slow.send(PubAck(1))
    assert not publisher.link.is_paused


def test_a_publisher_waits_for_another_full_session_even_when_its_own_is_full_too() -> None:
    world = MqttWorld(Limits(pending_messages_max=2))
    subscriber(world, "slow", 1)
    publisher = subscriber(world, "publisher", 1)
    publisher.send(*[Publish(b"t", b"x", 1, packet_id=number) for number in range(1, 5)])
    assert publisher.link.is_paused


def test_a_publisher_that_feeds_itself_faster_than_it_answers_is_bounded() -> None:
    world = MqttWorld(Limits(pending_messages_max=10, offline_messages_max=20, slow_grace_ms=100))
    client = subscriber(world, "self", 1)
    for number in range(1, 300):
        client.send(Publish(b"t", b"x", 1, packet_id=number), PubAck(number))
        client.send(*[Publish(b"t", b"x", 1, packet_id=1000 + more) for more in range(10)])
        world.move(0.05)
    session = world.account.sessions["self"]
    assert session.queued_count() <= 100
    assert world.account.counters.dropped_queue_full > 0


def test_what_nobody_can_wait_for_costs_no_more_than_what_is_over_the_bound() -> None:
    """The broker's own publishes: wills, `$SYS`. One too many drops one, not the whole backlog."""
    world = World(Limits(pending_messages_max=2, offline_messages_max=3))
    session, _ = reader(world, window=1)
    for _ in range(200):
        world.publish(b"t")
    before = session.queued_count()
    assert before >= 2 * 2
    world.publish(b"t")
    assert session.queued_count() == before
    dropped = world.account.counters.dropped_queue_full
    world.publish(b"t")
    assert world.account.counters.dropped_queue_full == dropped + 1


# ------------------------------------------------------------- other holders


class Store(Holder):
    """Anything that can be full."""

    def __init__(self) -> None:
        self.is_full = True
        self.progress = 0
        self.stuck = 0

    def holds(self) -> bool:
        return self.is_full

    def progress_mark(self) -> tuple[int, int]:
        return (self.progress, 0)

    def on_stuck(self) -> None:
        self.stuck += 1


def make_watched(pressure: Pressure) -> Store:
    store = Store()
    pressure.watch(store, 0)
    return store


def test_a_source_that_met_two_full_holders_goes_on_when_both_have_room() -> None:
    pressure = Pressure(100)
    first, second = make_watched(pressure), make_watched(pressure)
    source = FakeLine()
    pressure.begin(source)
    pressure.hold(first)
    pressure.hold(second)
    assert pressure.end(source)
    pressure.release(first)
    assert source.resumed == 0
    assert pressure.is_waiting(source)
    pressure.release(second)
    assert source.resumed == 1
    assert not pressure.is_waiting(source)


def test_a_source_that_left_is_forgotten_by_all_it_waited_for() -> None:
    pressure = Pressure(100)
    holders = [make_watched(pressure) for _ in range(3)]
    source = FakeLine()
    pressure.begin(source)
    for holder in holders:
        pressure.hold(holder)
    assert pressure.end(source)
    pressure.forget_source(source)
    for holder in holders:
        pressure.release(holder)
    assert source.resumed == 0


def test_a_holder_is_told_when_it_stands_still_while_it_is_full() -> None:
    pressure = Pressure(100)
    store = make_watched(pressure)
    pressure.on_tick(90_000_000)
    store.progress += 1
    pressure.on_tick(100_000_000)
    pressure.on_tick(190_000_000)
    assert store.stuck == 0
    pressure.on_tick(200_000_000)
    assert store.stuck == 1
    store.is_full = False
    pressure.on_tick(400_000_000)
    assert store.stuck == 1


def test_what_is_met_outside_a_read_holds_nobody() -> None:
    pressure = Pressure(100)
    store = make_watched(pressure)
    pressure.hold(store)
    source = FakeLine()
    pressure.begin(source)
    assert not pressure.end(source)


class Full(Holder):
    def holds(self) -> bool:
        return True

    def title(self) -> str:
        return "the queue orders"


def test_publishers_that_wait_most_of_the_time_are_told_to_the_operator() -> None:
    health = Health(Clock())
    pressure = Pressure(100, health)
    holder = Full()
    pressure.watch(holder, 0)
    for tick in range(TICKS_TOLD - 1):
        make_wait(pressure, holder)
        pressure.on_tick(tick)
    assert health.find(PUBLISHERS_SLOWED) is None
    make_wait(pressure, holder)
    pressure.on_tick(TICKS_TOLD)
    told = health.find(PUBLISHERS_SLOWED)
    assert told is not None
    assert "waits for the queue orders" in told.cause


def test_publishers_that_wait_for_a_moment_now_and_then_are_not_told() -> None:
    health = Health(Clock())
    pressure = Pressure(100, health)
    holder = Full()
    pressure.watch(holder, 0)
    for tick in range(10 * TICKS_TOLD):
        if tick % 2:
            make_wait(pressure, holder)
        pressure.on_tick(tick)
        pressure.release(holder)
    assert health.find(PUBLISHERS_SLOWED) is None


def make_wait(pressure: Pressure, holder: Holder) -> None:
    source = FakeLine()
    pressure.begin(source)
    pressure.hold(holder)
    assert pressure.end(source)
