"""What the configuration says about one account."""

from __future__ import annotations

from typing import final

from millstream.security.quotas import QuotaTerms


@final
class AccountOptions:
    def __init__(self, ack_pending_max: int = 0, quotas: QuotaTerms | None = None) -> None:
        self.ack_pending_max = ack_pending_max
        self.quotas = quotas or QuotaTerms()
