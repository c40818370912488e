"""The subscriptions of one session by the name its client gave them. Most have one or none: no dict for those."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from millstream.routing.subscription import Subscription


@final
class SubscriptionSet:
    def __init__(self) -> None:
        self._only: Subscription | None = None
        self._more: dict[bytes, Subscription] | None = None
        self.name_bytes: i64 = 0  # of all names

    def all(self) -> list[Subscription]:
        if self._more is not None:
            return list(self._more.values())
        return [] if self._only is None else [self._only]

    def count(self) -> i64:
        if self._more is not None:
            return len(self._more)
        return 0 if self._only is None else 1

    def find(self, name: bytes) -> Subscription | None:
        if self._more is not None:
            return self._more.get(name)
        only = self._only
        return only if only is not None and only.name() == name else None

    def put(self, name: bytes, subscription: Subscription) -> None:
        if self.find(name) is None:
            self.name_bytes += len(name)
        only = self._only
        if self._more is not None:
            self._more[name] = subscription
        elif only is None or only.name() == name:
            self._only = subscription
        else:
            self._more = {only.name(): only, name: subscription}
            self._only = None

    def remove(self, name: bytes) -> Subscription | None:
        more = self._more
        if more is not None:
            found = more.pop(name, None)
            if len(more) == 0:
                self._more = None
        else:
            found = self.find(name)
            if found is not None:
                self._only = None
        if found is not None:
            self.name_bytes -= len(name)
        return found
