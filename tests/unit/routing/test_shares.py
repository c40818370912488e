"""Whose turn it is in a share group."""

from __future__ import annotations

from fakes import FakeOutlet

from millstream.model.outlet import Outlet
from millstream.routing.arrivals import KEPT_MAX, Arrivals
from millstream.routing.shares import LARGE, Share
from millstream.routing.subscription import Subscription


class Member(FakeOutlet):
    """Says how often it was looked at."""

    looks = 0

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.connected = True

    def is_present(self) -> bool:
        Member.looks += 1
        return self.connected and self.present

    def is_connected(self) -> bool:
        Member.looks += 1
        return self.connected


def group(*outlets: FakeOutlet, turn: int = 0, arrivals: Arrivals | None = None) -> Share:
    members: dict[Outlet, Subscription] = {}
    for outlet in outlets:
        members[outlet] = Subscription(outlet, b"t", b"g", 1, False, False, 4)
    return Share(members, b"t", turn, arrivals or Arrivals())


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


def large_group(count: int = 1000) -> tuple[Share, list[Member], Arrivals]:
    """Everybody is away."""
    members = [Member(str(number)) for number in range(count)]
    for member in members:
        member.connected = False
    arrivals = Arrivals()
    return group(*members, arrivals=arrivals), members, arrivals


def test_in_a_large_group_the_absent_cost_a_message_nothing() -> None:
    share, members, arrivals = large_group()
    assert names(share, 3) == ["0", "1", "2"]
    for number in (700, 300):
        members[number].connected = True
        arrivals.add(members[number])
    names(share, 1)
    Member.looks = 0
    assert sorted(names(share, 4)) == ["300", "300", "700", "700"]
    assert Member.looks <= 4 * 4
    members[700].connected = False
    assert names(share, 3) == ["300"] * 3
    members[300].present = False  # connected, without room
    Member.looks = 0
    assert len(set(names(share, 20))) == 20, "the absent take turns"
    assert Member.looks <= 20 * 4
    members[300].present = True
    assert names(share, 2) == ["300"] * 2


def test_a_member_of_a_large_group_that_comes_and_goes_has_one_turn() -> None:
    share, members, arrivals = large_group()
    for member in members[:2]:
        member.connected = True
        arrivals.add(member)
        arrivals.add(member)
    assert sorted(names(share, 4)) == ["0", "0", "1", "1"]
    members[0].connected = False
    assert names(share, 2) == ["1", "1"]
    members[0].connected = True
    arrivals.add(members[0])
    assert sorted(names(share, 4)) == ["0", "0", "1", "1"]


def test_a_large_group_that_was_not_asked_for_long_finds_who_is_there() -> None:
    share, members, arrivals = large_group(int(LARGE))
    names(share, 1)
    members[5].connected = True
    arrivals.add(members[5])
    for _ in range(2 * int(KEPT_MAX)):
        arrivals.add(FakeOutlet("other"))
    assert arrivals.count() <= KEPT_MAX
    assert names(share, 2) == ["5", "5"]


def test_a_member_that_left_is_remembered_by_nobody() -> None:
    share, members, arrivals = large_group()
    names(share, 1)
    for member in members[:3]:
        member.connected = True
        arrivals.add(member)
    members[1].connected = False
    arrivals.forget(members[1])
    arrivals.forget(members[1])
    assert arrivals.count() == 2
    assert sorted(names(share, 4)) == ["0", "0", "2", "2"]
    members[1].connected = True
    arrivals.add(members[1])
    assert sorted(names(share, 3)) == ["0", "1", "2"]
