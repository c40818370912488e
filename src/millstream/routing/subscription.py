"""A subscription: filter to outlet, with the options its owner asked for."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from millstream.model.outlet import Outlet


@final
class Subscription:
    """`filter` is without the share prefix; `group` is empty for an ordinary subscription."""

    def __init__(
        self,
        outlet: Outlet,
        filter: bytes,
        group: bytes,
        guarantee: i64,
        no_local: bool,
        retain_as_published: bool,
        identifier: i64,
    ) -> None:
        self.outlet = outlet
        self.filter = filter
        self.group = group
        self.guarantee: i64 = guarantee
        self.no_local = no_local
        self.retain_as_published = retain_as_published
        self.identifier: i64 = identifier  # 0: none

    def name(self) -> bytes:
        """The filter as the client wrote it."""
        return b"$share/" + self.group + b"/" + self.filter if self.group else self.filter
