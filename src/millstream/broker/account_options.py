"""What the configuration says about one account."""

from __future__ import annotations

from typing import final


@final
class AccountOptions:
    def __init__(self, connections_max: int = 0, ack_pending_max: int = 0) -> None:
        self.connections_max = connections_max
        self.ack_pending_max = ack_pending_max
