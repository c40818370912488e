"""Who takes much of a broker's time is named, once, and only when there is little of it left."""

from __future__ import annotations

from fake_transport import FakeTransport, GateWorld

from millstream.broker.conditions import CLIENT_BUSY
from millstream.broker.health import Health
from millstream.broker.tasks import STEP_NS
from millstream.protocols.mqtt.wire.encode import encode_packet
from millstream.protocols.mqtt.wire.packets import Connect, PingReq, Subscribe, SubscribeEntry, Unsubscribe
from millstream.runtime.transport.busy_clients import (
    ABANDONED_ALL_PER_S,
    ABANDONED_PER_S,
    FILTERS_PER_S,
    OPENED_ALL_PER_S,
    OPENED_PER_S,
    BusyClients,
    ThreadTime,
)
from millstream.runtime.transport.tcp import TcpConnection

SECOND_NS = 10**9


class BusyWorld(GateWorld):
    """A gate with connections, whose thread is as busy as the test says."""

    def __init__(self) -> None:
        super().__init__()
        self.time_ns = 10**12
        self.busy_ns = 0
        self.health = Health(self.broker.clock)
        self.busy_clients = BusyClients(self.gate, self.health, lambda: self.busy_ns)
        self.busy_clients.on_tick(self.time_ns)

    def connect_from(self, address: str) -> TcpConnection:
        link = TcpConnection(self.gate)
        link.connection_made(FakeTransport(address))
        return link

    def pass_second(self, busy_share: float, spent: dict[TcpConnection, float]) -> None:
        self.time_ns += SECOND_NS
        self.broker.clock.now_ns = self.time_ns
        self.busy_ns += int(busy_share * SECOND_NS)
        for link, share in spent.items():
            link.spent_ns += int(share * SECOND_NS)
        self.busy_clients.on_tick(self.time_ns)

    def cause(self) -> str:
        found = self.health.find(CLIENT_BUSY)
        return "" if found is None else found.cause

    def named(self) -> list[str]:
        return [address for what, address, _ in self.observer.lines if what == "busy"]


def test_a_client_that_takes_most_of_a_busy_broker_is_named() -> None:
    world = BusyWorld()
    heavy, light = world.connect_from("192.0.2.1"), world.connect_from("192.0.2.2")
    for _ in range(3):
        world.pass_second(0.9, {heavy: 0.7, light: 0.05})
    assert world.named() == ["192.0.2.1"]
    assert "192.0.2.1" in world.cause()
    assert "70 % of the time" in world.cause()


def test_many_connections_from_one_address_count_together() -> None:
    world = BusyWorld()
    heavy = [world.connect_from("192.0.2.1") for _ in range(20)]
    others = [world.connect_from(f"192.0.2.{number}") for number in range(2, 20)]
    spent = dict.fromkeys(heavy, 0.02) | dict.fromkeys(others, 0.02)
    for _ in range(3):
        world.pass_second(0.9, spent)
    assert world.named() == ["192.0.2.1"]
    assert "20 connections" in world.cause()


def test_a_broker_with_time_to_spare_names_nobody() -> None:
    world = BusyWorld()
    heavy = world.connect_from("192.0.2.1")
    for _ in range(5):
        world.pass_second(0.4, {heavy: 0.4})
    assert world.named() == []
    assert world.cause() == ""


def test_a_busy_moment_names_nobody() -> None:
    world = BusyWorld()
    heavy = world.connect_from("192.0.2.1")
    for _ in range(3):
        world.pass_second(0.9, {heavy: 0.8})
        world.pass_second(0.1, {heavy: 0.1})
    assert world.named() == []


def test_an_address_is_named_again_after_a_minute_and_counted_meanwhile() -> None:
    world = BusyWorld()
    heavy = world.connect_from("192.0.2.1")
    for _ in range(62):
        world.pass_second(0.9, {heavy: 0.8})
    assert world.named() == ["192.0.2.1"] * 2
    found = world.health.find(CLIENT_BUSY)
    assert found is not None
    assert found.count == 61


def test_equal_shares_of_very_many_are_nobodys_fault() -> None:
    world = BusyWorld()
    spent = {world.connect_from(f"192.0.2.{number}"): 0.09 for number in range(1, 11)}
    for _ in range(3):
        world.pass_second(0.9, spent)
    assert world.named() == []


def test_an_address_that_opens_very_many_connections_is_named_though_there_is_time() -> None:
    world = BusyWorld()
    for _ in range(OPENED_PER_S):
        world.gate.admit("192.0.2.1", world.time_ns)
    for _ in range(OPENED_PER_S - 1):
        world.gate.admit("192.0.2.2", world.time_ns)
    world.pass_second(0.1, {})
    assert world.named() == ["192.0.2.1"]
    assert f"opens {OPENED_PER_S} connections a second (ratelimit.connection.rate)" in world.cause()
    world.pass_second(0.1, {})
    assert world.named() == ["192.0.2.1"]


def test_a_storm_from_very_many_addresses_names_the_first_of_them() -> None:
    world = BusyWorld()
    for number in range(OPENED_ALL_PER_S):
        world.gate.admit(f"192.0.2.{number % 250}", world.time_ns)
    world.pass_second(0.1, {})
    assert world.named() == ["192.0.2.0"]
    assert f"with 249 other addresses opens {OPENED_ALL_PER_S} connections a second" in world.cause()


def test_an_address_whose_connections_end_before_they_log_in_is_named() -> None:
    world = BusyWorld()
    for number in range(ABANDONED_PER_S):
        world.connect_from("192.0.2.1").connection_lost(None)
        if number:
            world.connect_from("192.0.2.2").connection_lost(None)
    world.pass_second(0.1, {})
    assert world.named() == ["192.0.2.1"]
    assert f"abandons {ABANDONED_PER_S} connections a second before it has logged in" in world.cause()


def test_connections_abandoned_by_very_many_addresses_name_the_first_of_them() -> None:
    world = BusyWorld()
    for number in range(ABANDONED_ALL_PER_S):
        world.connect_from(f"192.0.2.{number}").connection_lost(None)
    world.pass_second(0.1, {})
    assert world.named() == ["192.0.2.0"]
    assert "1 of them alone" in world.cause()


def test_an_address_that_changes_very_many_subscriptions_is_named_though_there_is_time() -> None:
    world = BusyWorld()
    for _ in range(3):
        for _ in range(10):  # each a connection of its own, as sessions that are made and ended
            link = world.connect_from("192.0.2.1")
            link.count_filters(FILTERS_PER_S // 10)
            link.connection_lost(None)
        world.connect_from("192.0.2.2").count_filters(FILTERS_PER_S - 1)
        world.pass_second(0.1, {})
    assert world.named() == ["192.0.2.1"]
    text = f"subscribes to and leaves {FILTERS_PER_S:,} filters a second (ratelimit.subscribe.rate)"
    assert text in world.cause()
    found = world.health.find(CLIENT_BUSY)
    assert found is not None
    assert found.count == 2, "the first second alone is no storm"


def test_an_address_is_named_for_each_kind_of_storm() -> None:
    world = BusyWorld()
    heavy = world.connect_from("192.0.2.1")
    for _ in range(3):
        world.pass_second(0.9, {heavy: 0.8})
    for _ in range(3):
        heavy.count_filters(FILTERS_PER_S)
        world.pass_second(0.1, {})
    assert world.named() == ["192.0.2.1"] * 2


def test_many_subscriptions_in_one_moment_name_nobody() -> None:
    world = BusyWorld()
    link = world.connect_from("192.0.2.1")
    for _ in range(3):
        link.count_filters(10 * FILTERS_PER_S)
        world.pass_second(0.1, {})
        world.pass_second(0.1, {})
    assert world.named() == []


def test_the_filters_of_subscribe_and_unsubscribe_are_counted_for_their_address() -> None:
    world = BusyWorld()
    link = world.connect_from("192.0.2.1")
    entries = [SubscribeEntry(b"a/%d" % number, 0) for number in range(30)]
    packets = [
        Connect(4, "c"),
        Subscribe(1, entries),
        Unsubscribe(2, [entry.filter for entry in entries[:10]]),
    ]
    for packet in packets:
        link.data_received(encode_packet(packet, 4))
    world.settle_down()
    assert world.gate.filters.take() == {"192.0.2.1": 40}


def test_the_time_of_connections_that_have_ended_counts_for_their_address() -> None:
    world = BusyWorld()
    for _ in range(3):
        short = [world.connect_from("192.0.2.1") for _ in range(7)]
        for link in short:
            link.spent_ns += SECOND_NS // 10
            link.connection_lost(None)
        world.pass_second(0.9, {})
    assert world.named() == ["192.0.2.1"]
    assert "70 % of the time (7 connections)" in world.cause()
    assert world.gate.ended == {}


def test_what_a_connection_sends_takes_time_that_is_counted_for_it() -> None:
    world = BusyWorld()
    link = world.connect_from("192.0.2.1")
    link.data_received(encode_packet(Connect(4, "client"), 4))
    world.settle_down()
    for _ in range(40):  # one read in about nine is measured
        link.data_received(encode_packet(PingReq(), 4))
    world.settle_down()
    assert link.spent_ns > 0


def test_the_time_of_a_thread_goes_on() -> None:
    meter = ThreadTime()
    before = meter.read_ns()
    while meter.read_ns() == before:
        sum(range(1000))


def test_a_session_that_takes_long_to_end_counts_for_the_address_that_has_left() -> None:
    world = BusyWorld()
    link = world.connect_from("192.0.2.1")
    link.data_received(encode_packet(Connect(4, "c"), 4))
    for first in range(0, 10_000, 1000):
        names = [b"t/%d" % number for number in range(first, first + 1000)]
        link.data_received(encode_packet(Subscribe(1, [SubscribeEntry(name) for name in names]), 4))
        world.settle_down()
    link.spent_ns = 0
    link.connection_lost(None)
    for _ in range(3):
        world.broker.tasks.work_off()
    assert world.account.router.tree.count == 0
    assert 10_000 * STEP_NS <= link.spent_ns <= 11_000 * STEP_NS
    assert world.gate.take_ended() == [link]


def test_what_a_lost_connection_took_before_is_counted_once() -> None:
    world = BusyWorld()
    link = world.connect_from("192.0.2.1")
    world.pass_second(0.9, {link: 0.5})
    world.pass_second(0.9, {link: 0.05})
    link.connection_lost(None)
    world.pass_second(0.9, {})
    link.charge(SECOND_NS // 20)
    world.pass_second(0.9, {})
    assert world.named() == []
