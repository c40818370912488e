"""Whose turn it is in a share group."""

from __future__ import annotations

from fakes import FakeOutlet

from millstream.model.outlet import Outlet
from millstream.routing.shares import Share
from millstream.routing.subscription import Subscription


def group(*outlets: FakeOutlet, turn: int = 0) -> Share:
    members: dict[Outlet, Subscription] = {}
    for outlet in outlets:
        members[outlet] = Subscription(outlet, b"t", b"g", 1, False, False, 4)
    return Share(members, b"t", turn)


def names(share: Share, count: int) -> list[str]:
    found = []
    for _ in range(count):
        target = share.choose(None)
        assert target is not None
        assert isinstance(target.outlet, FakeOutlet)
        found.append(target.outlet.name)
    return found


def test_members_take_turns_from_where_the_turn_begins() -> None:
    outlets = [FakeOutlet(name) for name in "abc"]
    assert names(group(*outlets), 6) == ["a", "b", "c", "a", "b", "c"]
    assert names(group(*outlets, turn=1), 3) == ["b", "c", "a"]


def test_absent_members_are_passed_over_while_one_is_present() -> None:
    a, b, c = (FakeOutlet(name) for name in "abc")
    b.present = False
    assert names(group(a, b, c), 4) == ["a", "c", "a", "c"]


def test_a_group_of_absent_members_still_takes_turns() -> None:
    outlets = [FakeOutlet(name) for name in "ab"]
    for outlet in outlets:
        outlet.present = False
    assert names(group(*outlets), 4) == ["a", "b", "a", "b"]
    assert group(*outlets).choose_present(FakeOutlet("nobody")) is None


def test_the_one_to_avoid_is_avoided_even_if_nobody_else_is_there() -> None:
    a, b = FakeOutlet("a"), FakeOutlet("b")
    share = group(a, b)
    for _ in range(3):
        target = share.choose(a)
        assert target is not None
        assert target.outlet is b
    assert group(a).choose(a) is None


def test_only_members_that_may_see_the_topic_are_in_it() -> None:
    a, b = FakeOutlet("a"), FakeOutlet("b")
    a.hidden = {b"t"}
    share = group(a, b)
    assert names(share, 2) == ["b", "b"]
    (target,) = share.targets
    assert (target.share, target.guarantee, target.identifiers) == (b"$share/g/t", 1, (4,))
