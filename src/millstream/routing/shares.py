"""Shared subscriptions: each message goes to one member of the group, in turn.

A member that is present is preferred; among absent ones (persistent sessions) the turn decides, so
nothing is lost while the whole group is away.
"""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from millstream.model.outlet import Outlet, Target
from millstream.routing.subscription import Subscription


@final
class Share:
    """The members of one group on one filter that may see one topic."""

    def __init__(self, members: dict[Outlet, Subscription], topic: bytes, turn: i64) -> None:
        self.targets: list[Target] = []
        self._turn: i64 = turn
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
        count: i64 = len(self.targets)
        fallback: Target | None = None
        fallback_turn: i64 = 0
        tried: i64 = 0
        while tried < count:
            target = self.targets[self._turn % count]
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

    def choose_present(self, avoid: Outlet) -> Target | None:
        target = self.choose(avoid)
        return target if target is not None and target.outlet.is_present() else None
