"""The gate: strangers are counted and bounded, in all and per address, and forgotten when they leave."""

from __future__ import annotations

import pytest
from fake_transport import FakeTransport, GateWorld
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.broker.conditions import CONNECTION_RATE, CONNECTIONS_FULL, HANDSHAKES_FULL, Condition
from millstream.model.limits import Limits
from millstream.runtime.transport.tcp import TcpConnection

NOW_NS = 10**12


def test_strangers_are_bounded_in_all() -> None:
    gate = GateWorld(Limits(unauthenticated_max=2)).gate
    assert gate.admit("192.0.2.1", NOW_NS)
    assert gate.admit("192.0.2.2", NOW_NS)
    assert not gate.admit("192.0.2.3", NOW_NS)
    gate.on_known("192.0.2.1")
    assert gate.admit("192.0.2.3", NOW_NS)
    assert gate.refused_full == 1


def test_strangers_are_bounded_per_address_and_a_v6_network_is_one_address() -> None:
    gate = GateWorld(Limits(unauthenticated_per_address_max=1)).gate
    assert gate.admit("192.0.2.1", NOW_NS)
    assert not gate.admit("192.0.2.1", NOW_NS)
    assert not gate.admit("::ffff:192.0.2.1", NOW_NS)
    assert gate.admit("192.0.2.2", NOW_NS)
    assert gate.admit("2001:db8::1", NOW_NS)
    assert not gate.admit("2001:db8::2", NOW_NS)
    assert gate.admit("2001:db8:0:1::1", NOW_NS)
    gate.on_known("192.0.2.1")
    assert gate.admit("192.0.2.1", NOW_NS)


def test_connections_are_bounded_though_they_are_no_strangers_any_more() -> None:
    gate = GateWorld(Limits(connections_max=2)).gate
    for address in ("192.0.2.1", "192.0.2.2"):
        assert gate.admit(address, NOW_NS)
        gate.on_known(address)
    assert not gate.admit("192.0.2.3", NOW_NS)
    gate.on_gone()
    assert gate.admit("192.0.2.3", NOW_NS)


def test_new_connections_of_an_address_are_bounded_in_rate() -> None:
    gate = GateWorld(Limits(connection_rate=1.0, connection_burst=2)).gate
    assert [gate.admit("192.0.2.1", NOW_NS) for _ in range(3)] == [True, True, False]
    assert gate.refused_rate == 1
    assert gate.admit("192.0.2.2", NOW_NS)
    assert gate.admit("192.0.2.1", NOW_NS + 10**9)


def test_one_that_was_refused_takes_nothing_from_the_rate_or_the_counts() -> None:
    gate = GateWorld(Limits(unauthenticated_max=1, connection_rate=1.0, connection_burst=2)).gate
    assert gate.admit("192.0.2.1", NOW_NS)
    for _ in range(10):
        assert not gate.admit("192.0.2.1", NOW_NS)
    gate.on_known("192.0.2.1")
    gate.on_gone()
    assert gate.admit("192.0.2.1", NOW_NS)
    assert (gate.connections, gate.strangers) == (1, 1)


def crowded(count: int, limits: Limits) -> tuple[GateWorld, list[FakeTransport]]:
    world = GateWorld(limits)
    transports = []
    for _ in range(count):
        transports.append(FakeTransport("192.0.2.66"))
        TcpConnection(world.gate).connection_made(transports[-1])
    return world, transports


@pytest.mark.parametrize("limits", [Limits(unauthenticated_max=3), Limits(connections_max=3)])
def test_when_strangers_fill_the_broker_the_oldest_of_the_most_crowded_address_gives_way_to_a_newcomer(
    limits: Limits,
) -> None:
    world, crowd = crowded(3, limits)
    newcomer = FakeTransport("192.0.2.1")
    TcpConnection(world.gate).connection_made(newcomer)
    assert not newcomer.is_aborted
    assert [each.is_aborted for each in crowd] == [True, False, False]
    assert (world.gate.connections, world.gate.strangers) == (3, 3)


def test_nobody_gives_way_to_an_address_that_has_as_many_or_one_less() -> None:
    world, crowd = crowded(2, Limits(unauthenticated_max=3))
    other = [FakeTransport("192.0.2.1"), FakeTransport("192.0.2.1"), FakeTransport("192.0.2.66")]
    for transport in other:
        TcpConnection(world.gate).connection_made(transport)
    assert [each.is_aborted for each in (*crowd, *other)] == [False, False, False, True, True]


def test_who_has_logged_in_never_gives_way() -> None:
    world = GateWorld(Limits(connections_max=2))
    links = [TcpConnection(world.gate) for _ in range(2)]
    known = [FakeTransport("192.0.2.66") for _ in range(2)]
    for link, transport in zip(links, known, strict=True):
        link.connection_made(transport)
        link.on_authenticated()
    newcomer = FakeTransport("192.0.2.1")
    TcpConnection(world.gate).connection_made(newcomer)
    assert newcomer.is_aborted
    assert not any(each.is_aborted for each in known)


def test_a_gate_that_is_shut_admits_nobody() -> None:
    gate = GateWorld().gate
    gate.is_open = False
    assert not gate.admit("192.0.2.1", NOW_NS)
    assert gate.connections == 0


actions = st.tuples(st.sampled_from(["open", "know", "lose", "lose again", "close"]), st.integers(0, 5))


@settings(max_examples=150, deadline=None)
@given(st.lists(actions, max_size=60))
def test_the_counts_are_right_after_any_order_of_events_and_zero_at_the_end(
    events: list[tuple[str, int]],
) -> None:
    world = GateWorld(Limits(unauthenticated_max=4, unauthenticated_per_address_max=2, connections_max=5))
    gate = world.gate
    live: list[tuple[TcpConnection, bool]] = []
    for action, number in events:
        if action == "open":
            transport = FakeTransport(f"192.0.2.{number % 3}")
            link = TcpConnection(gate)
            link.connection_made(transport)
            live.append((link, transport.is_aborted))
        elif live:
            link, _ = live[number % len(live)]
            if action == "know" and link.endpoint is not None:
                link.on_authenticated()
            elif action == "close":
                link.close()
            elif action == "lose":
                live.remove(live[number % len(live)])
                link.connection_lost(None)
            elif action == "lose again":
                link.connection_lost(None)
        assert 0 <= gate.strangers <= 4
        assert 0 <= gate.connections <= 5
        assert gate.strangers <= gate.connections
        assert sum(gate._strangers._counts.values()) == gate.strangers
        assert all(0 < count <= 2 for count in gate._strangers._counts.values())
    for link, _ in live:
        link.connection_lost(None)
    assert (gate.connections, gate.strangers, gate._strangers._counts) == (0, 0, {})


def cause_of(world: GateWorld, condition: Condition) -> str:
    active = world.broker.health.find(condition)
    return "" if active is None else active.cause


def test_refused_connections_are_a_condition_that_names_the_key_and_the_address() -> None:
    world = GateWorld(Limits(connections_max=1))
    for number in range(1, 4):
        world.gate.admit(f"192.0.2.{number}", NOW_NS)
    assert "mqtt.max_connections" in cause_of(world, CONNECTIONS_FULL)
    assert "192.0.2.2" in cause_of(world, CONNECTIONS_FULL)
    assert world.broker.health.totals()["connections_full"] == 2


def test_a_bound_by_descriptors_is_told_as_one() -> None:
    world = GateWorld(Limits(connections_max=100))
    world.gate.connections_max = 1
    world.gate.descriptors = 256
    assert world.gate.admit("192.0.2.1", NOW_NS)
    assert not world.gate.admit("192.0.2.1", NOW_NS)
    active = world.broker.health.find(CONNECTIONS_FULL)
    assert active is not None
    assert "256 file descriptors" in active.cause
    assert "LimitNOFILE" in active.advice


def test_strangers_over_their_bound_are_a_condition() -> None:
    world = GateWorld(Limits(unauthenticated_max=1))
    world.gate.admit("192.0.2.1", NOW_NS)
    world.gate.admit("192.0.2.2", NOW_NS)
    assert cause_of(world, HANDSHAKES_FULL).startswith("1 have not logged in (mqtt.max_unauthenticated)")
    world = GateWorld(Limits(unauthenticated_per_address_max=1))
    world.gate.admit("192.0.2.1", NOW_NS)
    world.gate.admit("192.0.2.1", NOW_NS)
    assert "1 from 192.0.2.1 have not logged in" in cause_of(world, HANDSHAKES_FULL)


def test_an_address_that_connects_too_often_is_a_condition() -> None:
    world = GateWorld(Limits(connection_rate=1.0, connection_burst=1))
    world.gate.admit("192.0.2.1", NOW_NS)
    world.gate.admit("192.0.2.1", NOW_NS)
    assert cause_of(world, CONNECTION_RATE).startswith("192.0.2.1 connects more often than")


def test_a_broker_that_stops_is_not_full() -> None:
    world = GateWorld(Limits())
    world.gate.is_open = False
    assert not world.gate.admit("192.0.2.1", NOW_NS)
    assert world.broker.health.active() == []
