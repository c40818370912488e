"""What was made under a right that is gone: consumers of queues that sessions have, bindings, alternate exchanges and dead-letter
exchanges, found when rights change.

Suspended, they stay as they were made and bring nothing until the right is back. Bindings are removed instead if the operator
wants it so (`auth.revoked_bindings`). A dead letter asks for its right by itself; here is only told whose would be refused.

Invariants
- A look goes over what was there when it began, in slices; what is made meanwhile was allowed by the new rules.
- A change of rights during a look makes it begin again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from millstream.broker.conditions import RIGHTS_REVOKED
from millstream.broker.health import Health
from millstream.broker.tasks import Task
from millstream.queues.queue import Queue
from millstream.routing.binding import Binding
from millstream.routing.exchange import Exchange

if TYPE_CHECKING:
    from millstream.broker.account import Account
    from millstream.broker.queue_consumer import SessionConsumer

REMOVE: Final = "remove"
STEPS_EACH: Final[i64] = 10  # what one costs, about
STEPS_PER_CONSUMER: Final[i64] = 2  # and a step for each delivery that it has open
WHOLE: Final[i64] = 1 << 30  # steps of a slice that is over when all is done, nearly always


@final
class RevokedRights:
    """For all accounts: how many are without their right, and of which the operator is told."""

    def __init__(self, health: Health) -> None:
        self._health = health
        self._by_account: dict[str, tuple[int, str]] = {}

    def note(self, account: str, count: int, first: str) -> None:
        self._by_account.pop(account, None)
        if count:
            self._by_account[account] = (count, first)
        if not self._by_account:
            self._health.end(RIGHTS_REVOKED)
            return
        total = sum([count for count, _ in self._by_account.values()])
        account, (_, first) = next(iter(self._by_account.items()))
        more = f" and {total - 1} more" if total > 1 else ""
        self._health.begin(RIGHTS_REVOKED, f"account {account!r}: {first}{more}")

    def note_removed(self, account: str, count: int, first: str) -> None:
        more = f" and {count - 1} more" if count > 1 else ""
        self._health.report(RIGHTS_REVOKED, f"account {account!r}: removed {first}{more}", count)


@final
class RightsReview(Task):
    """One look over an account."""

    def __init__(self, account: Account, is_removing: bool, revoked: RevokedRights) -> None:
        self._account = account
        self._is_removing = is_removing
        self._revoked = revoked
        self._sessions = [session for session in account.sessions.values() if session.consumers is not None]
        self._consumers: list[SessionConsumer] = []  # of the session whose turn it is
        self._bindings = account.exchanges.owned_bindings()
        self._exchanges = [exchange for exchange in account.exchanges.all() if exchange.owner is not None]
        self._queues = [
            queue
            for queue in account.queues.catalog.queues.values()
            if queue.definition.owner_of_letters() is not None
        ]
        self._at: i64 = 0
        self._suspended = 0
        self._removed = 0
        self._first = ""

    def run(self, steps: i64) -> i64:
        left: i64 = steps
        while left > 0 and (self._consumers or self._sessions):
            left -= self._review_next()
        if left <= 0:
            return steps
        used: i64 = self._look_at_some(left)
        return steps if used >= left else steps - left + used

    def _review_next(self) -> i64:
        """How many steps it took."""
        if not self._consumers:
            consumers = self._sessions.pop().consumers
            if consumers is not None:
                self._consumers = list(consumers.by_name.values())
            return 1
        consumer = self._consumers.pop()
        had_open: i64 = consumer.open
        consumer.on_rights_changed()
        return STEPS_PER_CONSUMER + had_open

    def _look_at_some(self, steps: i64) -> i64:
        end: i64 = self._at + max(steps // STEPS_EACH, 1)
        total: i64 = len(self._bindings) + len(self._exchanges) + len(self._queues)
        before: i64 = self._at
        has_changed = False
        while self._at < total and self._at < end:
            if self._look_at(self._at):
                has_changed = True
            self._at += 1
        if has_changed:
            self._account.router.forget_all()
        if self._at < total:
            return steps
        self._tell()
        return min((self._at - before) * STEPS_EACH, steps - 1)

    def on_task_failed(self, error: Exception) -> None:
        raise error

    def run_whole(self) -> None:
        """All at once, at start, before anybody is served."""
        while self.run(WHOLE) >= WHOLE:
            pass

    def _look_at(self, at: i64) -> bool:
        """Whether something goes other ways now."""
        if at < len(self._bindings):
            return self._look_at_binding(self._bindings[at])
        at -= len(self._bindings)
        if at < len(self._exchanges):
            return self._look_at_exchange(self._exchanges[at])
        self._look_at_queue(self._queues[at - len(self._exchanges)])
        return False

    def _look_at_binding(self, binding: Binding) -> bool:
        access = self._account.exchanges
        if not access.is_there(binding):
            return False
        rights = self._account.owner_rights
        allowed = [owner for owner in binding.owners if rights.may_bind(owner, binding)]
        if allowed:
            is_narrow = all([rights.is_narrow(owner, binding) for owner in allowed])
            has_changed = is_narrow != binding.is_narrow
            binding.is_narrow = is_narrow
            return access.suspend(binding, False) or has_changed
        shown = binding.key.decode(errors="backslashreplace")
        sentence = f"the binding of {binding.target!r} to exchange {binding.source.name!r} with key {shown!r} by {binding.owners[0].name!r}"
        if self._is_removing:
            self._removed += 1
            self._account.counters.bindings_revoked += 1
            access.remove_binding(binding)
            self._first = self._first or sentence
            return True
        self._count(sentence)
        if not access.suspend(binding, True):
            return False
        self._account.counters.bindings_revoked += 1
        return True

    def _look_at_exchange(self, exchange: Exchange) -> bool:
        access = self._account.exchanges
        owner = exchange.owner
        alternate = exchange.declared_alternate()
        if owner is None or alternate is None or access.find(exchange.name) is not exchange:
            return False
        is_gone = not self._account.owner_rights.may_lead_to(owner, alternate)
        if is_gone:
            self._count(f"the alternate {alternate!r} of exchange {exchange.name!r} by {owner.name!r}")
        if is_gone == exchange.is_alternate_suspended:
            return False
        exchange.is_alternate_suspended = is_gone
        self._account.counters.bindings_revoked += int(is_gone)
        return True

    def _look_at_queue(self, queue: Queue) -> None:
        definition = queue.definition
        owner = definition.owner_of_letters()
        exchange = definition.dead_letter_exchange
        if queue.is_removed or owner is None or exchange is None:
            return
        rights = self._account.owner_rights
        key = definition.dead_letter_key
        if key is None:
            is_gone = not rights.may_lead_to(owner, exchange)
        else:
            topic = self._account.exchanges.topic_of(exchange, key.encode())
            is_gone = not rights.may_dead_letter(owner, exchange, key.encode(), topic)
        if is_gone:
            self._count(f"the dead letters of {queue.name!r} to exchange {exchange!r} by {owner.name!r}")

    def _count(self, sentence: str) -> None:
        self._suspended += 1
        self._first = self._first or sentence

    def _tell(self) -> None:
        name = self._account.name
        if self._removed and not self._suspended:
            self._revoked.note_removed(name, self._removed, self._first)
        else:
            self._revoked.note(name, self._suspended, self._first)
