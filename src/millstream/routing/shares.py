"""Shared subscriptions: each message goes to one member of the group, in turn.

A member that is present is preferred; among absent ones (persistent sessions) the turn decides, so
nothing is lost while the whole group is away. Of a large group those that are connected are kept apart: what a message costs
does not grow with the members that are away.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from millstream.model.outlet import Outlet, Target
from millstream.routing.arrivals import Arrivals
from millstream.routing.subscription import Subscription

LARGE: Final[i64] = 64  # members from which on the connected ones are kept apart


@final
class Share:
    """The members of one group on one filter that may see one topic."""

    def __init__(
        self, members: dict[Outlet, Subscription], topic: bytes, turn: i64, arrivals: Arrivals
    ) -> None:
        self.targets: list[Target] = []
        self._turn: i64 = turn
        self._arrivals = arrivals
        self._seen: i64 = -1  # arrivals it has heard of
        self._connected: list[Target] = []  # of a large group; some of them may have left
        self._places: dict[Outlet, Target] = {}  # of a large group, once somebody has arrived
        self._known: dict[Outlet, None] = {}  # those in `_connected`
        for subscription in members.values():
            if not subscription.outlet.may_receive(topic):
                continue
            identifiers = (int(subscription.identifier),) if subscription.identifier else ()
            target = Target(
                subscription.outlet,
                subscription.guarantee,
                subscription.retain_as_published,
                identifiers,
                subscription.name(),
            )
            self.targets.append(target)

    def choose(self, avoid: Outlet | None) -> Target | None:
        """The next member in turn that is present; else the next in turn at all."""
        if len(self.targets) < LARGE:
            return self._choose_of(self.targets, avoid)
        self._hear()
        found = self._choose_connected(avoid)
        return found if found is not None else self._choose_absent(avoid)

    def _choose_of(self, targets: list[Target], avoid: Outlet | None) -> Target | None:
        count: i64 = len(targets)
        fallback: Target | None = None
        fallback_turn: i64 = 0
        tried: i64 = 0
        while tried < count:
            target = targets[self._turn % count]
            self._turn += 1
            tried += 1
            if target.outlet is avoid:
                continue
            if target.outlet.is_present():
                return target
            if fallback is None and not target.outlet.is_gone():
                fallback = target
                fallback_turn = self._turn
        if fallback is not None:
            self._turn = fallback_turn  # the next absent member is next
        return fallback

    # ------------------------------------------------------------ large groups

    def _hear(self) -> None:
        """Who has come since the last look."""
        arrivals = self._arrivals
        if self._seen == arrivals.end():
            return
        if self._seen < arrivals.first:
            self._look_at_all()
        else:
            if not self._places:
                for target in self.targets:
                    self._places[target.outlet] = target
            for outlet in arrivals.since(self._seen):
                place = self._places.get(outlet)
                if place is not None and outlet not in self._known:
                    self._known[outlet] = None
                    self._connected.append(place)
        self._seen = arrivals.end()

    def _look_at_all(self) -> None:
        self._connected = []
        self._known = {}
        for target in self.targets:
            if target.outlet.is_connected():
                self._connected.append(target)
                self._known[target.outlet] = None

    def _choose_connected(self, avoid: Outlet | None) -> Target | None:
        connected = self._connected
        tried: i64 = 0
        while tried < len(connected):
            at: i64 = self._turn % len(connected)
            target = connected[at]
            outlet = target.outlet
            if not outlet.is_connected():
                del self._known[outlet]
                last = connected.pop()
                if last is not target:
                    connected[at] = last
                continue
            self._turn += 1
            tried += 1
            if outlet is not avoid and outlet.is_present():
                return target
        return None

    def _choose_absent(self, avoid: Outlet | None) -> Target | None:
        count: i64 = len(self.targets)
        tried: i64 = 0
        while tried < count:
            target = self.targets[self._turn % count]
            self._turn += 1
            tried += 1
            if target.outlet is not avoid and not target.outlet.is_gone():
                return target
        return None

    def choose_present(self, avoid: Outlet) -> Target | None:
        target = self.choose(avoid)
        return target if target is not None and target.outlet.is_present() else None
