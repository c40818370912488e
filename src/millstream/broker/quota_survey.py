"""How many bytes are stored for an account and for each of its users: added up now and then, where that is bounded.

Adding up costs nothing on the way of a message. It is done by the tick, less often the more there is to look at, so that it
takes no more than a few percent of the time; until then somebody may store more than its quota, as much as comes meanwhile.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from millstream.broker.account import Account
from millstream.security.quota import BYTES, Usage

ITEM_NS: Final[i64] = 2000  # between two looks, for each session and queue


@final
class QuotaSurvey:
    def __init__(self, account: Account) -> None:
        self._account = account
        self._is_needed = account.quotas.bounds_bytes()
        self._next_ns: i64 = 0

    def on_tick(self, now_ns: i64) -> None:
        if self._is_needed and now_ns >= self._next_ns:
            account = self._account
            count: i64 = len(account.sessions) + len(account.queues.catalog.queues)
            self._next_ns = now_ns + count * ITEM_NS
            self.look()

    def look(self) -> None:
        account = self._account
        quotas = account.quotas
        whole = quotas.whole
        total: i64 = account.retained.size_bytes
        by_user = dict(account.retained.bytes_by)
        for session in account.sessions.values():
            size: i64 = session.queued_bytes()
            if size:
                total += size
                name = session.usage.name
                by_user[name] = by_user.get(name, 0) + int(size)
        for queue in account.queues.catalog.queues.values():
            size = queue.size.bytes
            if size:
                total += size
                name = queue.usage.name
                by_user[name] = by_user.get(name, 0) + int(size)
        whole.used[BYTES] = int(total)
        whole.is_full = is_full(whole)
        for usage in quotas.users.values():
            usage.used[BYTES] = by_user.get(usage.name, 0)
            usage.is_full = whole.is_full or is_full(usage)


def is_full(usage: Usage) -> bool:
    bound = usage.quota.bounds[BYTES].value
    return bound != 0 and usage.used[BYTES] >= bound
