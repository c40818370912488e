"""A message to very many receivers is handed out in slices: each gets it once, share groups too, in order."""

from __future__ import annotations

from fakes import FakeLine, FakeRun, World, make_message

from millstream.broker.fan_out import RECEIVERS_AT_ONCE, RECEIVERS_FEW, FanOut, receivers_of, steps_of
from millstream.model.errors import Reason

GROUPS = int(RECEIVERS_AT_ONCE) + 10
SLICE = 100


def subscribe_groups(world: World, groups: int, sessions: int = 10) -> list[FakeLine]:
    """Share groups of one filter with one member each."""
    lines = []
    for number in range(sessions):
        session, line = world.connect(f"member-{number}")
        for group in range(number, groups, sessions):
            world.subscribe(session, b"$share/g%d/t" % group)
        lines.append(line)
    return lines


def payloads(lines: list[FakeLine]) -> list[bytes]:
    return [
        *(payload for line in lines for payload, _, _ in line.plain),
        *(payload for line in lines for _, payload, _ in line.sent),
    ]


def take_slices(rest: FanOut, lines: list[FakeLine]) -> list[int]:
    """How many had been delivered after each slice."""
    seen = []
    while rest.run(SLICE) == SLICE:
        seen.append(len(payloads(lines)))
    return [*seen, len(payloads(lines))]


def test_share_groups_of_a_message_get_it_in_slices() -> None:
    world = World()
    lines = subscribe_groups(world, GROUPS)
    route = world.account.router.find_route(b"t")
    publishing = world.broker.publishing
    message = make_message(b"t", b"x")
    assert publishing.publish(world.account, route, message, None, False, True) is Reason.SUCCESS
    assert payloads(lines) == []
    rest = publishing.take_rest()
    assert rest is not None
    seen = take_slices(rest, lines)
    assert max(after - before for before, after in zip([0, *seen], seen, strict=False)) == 2 * SLICE
    assert seen[-1] == GROUPS


def test_share_groups_of_a_run_get_its_messages_in_order_and_in_slices() -> None:
    world = World()
    lines = subscribe_groups(world, 50, sessions=50)
    route = world.account.router.find_route(b"t")
    run = FakeRun([make_message(b"t", b"%d" % number) for number in range(30)])
    publishing = world.broker.publishing
    publishing.publish_run(world.account, route, run, None)
    rest = publishing.take_rest()
    assert rest is not None
    seen = take_slices(rest, lines)
    assert len(seen) > 5
    for line in lines:
        assert payloads([line]) == [b"%d" % number for number in range(30)]


def test_few_share_groups_get_a_run_at_once() -> None:
    world = World()
    lines = subscribe_groups(world, 10)
    route = world.account.router.find_route(b"t")
    run = FakeRun([make_message(b"t", b"x")] * 30)
    world.broker.publishing.publish_run(world.account, route, run, None)
    assert world.broker.publishing.take_rest() is None
    assert len(payloads(lines)) == 300


def test_exactly_once_is_not_cut() -> None:
    world = World()
    lines = subscribe_groups(world, GROUPS)
    route = world.account.router.find_route(b"t")
    message = make_message(b"t", b"x", 2)
    world.broker.publishing.publish(world.account, route, message, None, False, True)
    assert world.broker.publishing.take_rest() is None
    assert len(payloads(lines)) == GROUPS


def test_a_share_group_costs_as_much_as_a_subscriber() -> None:
    world = World()
    subscribe_groups(world, 2 * int(RECEIVERS_FEW))
    route = world.account.router.find_route(b"t")
    assert receivers_of(route) == 2 * RECEIVERS_FEW
    assert receivers_of(route, 5) == 10 * RECEIVERS_FEW
    assert steps_of(route) == RECEIVERS_FEW
