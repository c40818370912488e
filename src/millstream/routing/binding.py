"""A binding of an exchange: which of its messages go to a queue or on to another exchange."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from millstream.model.outlet import Outlet
from millstream.model.owner import Owner
from millstream.routing.header_match import HeaderPattern

if TYPE_CHECKING:
    from millstream.routing.exchange import Exchange


@final
class Binding:
    """Goes to `queue` or to `exchange`, never to both. `identity` tells the bindings of one source apart: two that agree
    in target, key and arguments are one."""

    def __init__(
        self,
        source: Exchange,
        target: str,
        queue: Outlet | None,
        exchange: Exchange | None,
        key: bytes,
        arguments: dict[str, object],
        identity: bytes,
        is_durable: bool,
    ) -> None:
        self.source = source
        self.target = target  # the name of the queue or exchange
        self.queue = queue
        self.exchange = exchange
        self.key = key
        self.arguments = arguments
        self.identity = identity
        self.is_durable = is_durable
        self.owners: list[
            Owner
        ] = []  # none: it is the account's own; else it stands while one of them has the right
        self.is_narrow = False  # they may not publish with every key to the exchange it goes to
        self.is_suspended = False  # none of them has it now
        self.pattern: HeaderPattern | None = None  # of a headers exchange
