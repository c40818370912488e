"""What sessions leave behind when their connections end badly: kept, sent, and bounded in memory.

Invariants
- A will is sent at most once.
- Rights are asked for a will when it is set (by who sets it) and again when it is sent: a user who is gone by then has none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from millstream.broker.session import Session
from millstream.broker.will import Will
from millstream.model.clock import Clock
from millstream.model.errors import Reason
from millstream.model.memory_budget import MESSAGE_OVERHEAD, MemoryBudget
from millstream.model.message import NANOSECONDS, Message
from millstream.model.owner import Owner
from millstream.storage.store import Store, StoredWill

if TYPE_CHECKING:
    from millstream.broker.account import Account

Publish = Callable[["Account", Message, "Session | None"], Reason]


@final
class Wills:
    def __init__(self, store: Store, clock: Clock, memory: MemoryBudget, publish: Publish) -> None:
        self._store = store
        self._clock = clock
        self._memory = memory
        self._publish = publish

    def check_room(self, account: Account, will: Will) -> None:
        """Refused while memory is short and wills have a good part of it."""
        memory = self._memory
        account.quotas.check_memory("the wills of others", size_of(will), memory.wills)

    def put(self, session: Session, will: Will) -> None:
        """Without storing it: the store has it, or gets it when the session has its terms."""
        before = session.will
        if before is not None:
            self._memory.wills -= size_of(before)
        session.will = will
        self._memory.wills += size_of(will)

    def store(self, session: Session, will: Will) -> None:
        fact = StoredWill(will.message, int(will.delay_s), int(will.due_ns), int(will.lifetime_s))
        self._store.will_saved(session.key, fact)

    def drop(self, session: Session) -> None:
        will = session.will
        if will is not None:
            self._memory.wills -= size_of(will)
            session.will = None
            self._store.will_removed(session.key)

    def send(self, session: Session) -> None:
        will = session.will
        assert will is not None
        self.drop(session)
        account = session.account
        message = will.message
        principal = session.principal
        owner = Owner(principal.name, principal.kind, session.key.client_id)
        if not account.owner_rights.can_publish(owner, message.topic):
            account.counters.publishes_denied += 1
            return
        account.counters.wills_sent += 1
        if will.lifetime_s:
            message = Message(
                message.topic,
                message.payload,
                message.guarantee,
                message.retain,
                message.properties,
                self._clock.now_ns + will.lifetime_s * NANOSECONDS,
                message.publisher,
            )
        self._publish(account, message, session)


def size_of(will: Will) -> i64:
    return will.message.size_bytes() + MESSAGE_OVERHEAD
