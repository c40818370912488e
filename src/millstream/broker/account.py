"""An account: one isolated topic space with its own sessions, retained messages and counters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from millstream.broker.account_options import AccountOptions
from millstream.broker.exchange_access import ExchangeAccess
from millstream.broker.health import Health
from millstream.broker.held import Held
from millstream.broker.letter_post import LetterPost
from millstream.broker.owner_rights import OwnerRights
from millstream.broker.pressure import Pressure
from millstream.broker.queue_access import QueueAccess
from millstream.broker.quota_health import QuotaHealth
from millstream.broker.revoked_rights import REMOVE, RevokedRights, RightsReview
from millstream.broker.tasks import TaskQueue
from millstream.model.clock import Clock
from millstream.model.counters import Counters
from millstream.model.delivery import QUEUED, Delivery
from millstream.model.limits import Limits
from millstream.model.memory_budget import MemoryBudget
from millstream.model.outlet import Target
from millstream.model.queue_topic import is_queue_topic
from millstream.queues.catalog import Catalog
from millstream.queues.scheduler import Scheduler
from millstream.routing.exchanges import Exchanges
from millstream.routing.retained import Retained
from millstream.routing.router import NODES_PER_STEP, Route, Router
from millstream.security.acl import Authorizer
from millstream.security.authentication import Authenticator
from millstream.security.principal import Principal
from millstream.security.quotas import Quotas
from millstream.storage.store import Store

if TYPE_CHECKING:
    from millstream.broker.session import Session

STEPS_PER_DELIVERY: Final[i64] = 4  # that is handed over


@final
class Account:
    def __init__(
        self,
        name: str,
        limits: Limits,
        store: Store,
        authorizer: Authorizer,
        pressure: Pressure,
        clock: Clock,
        held: Held,
        scheduler: Scheduler,
        tasks: TaskQueue,
        memory: MemoryBudget,
        authenticator: Authenticator | None,
        revoked: RevokedRights,
        health: Health,
        options: AccountOptions,
    ) -> None:
        self.name = name
        self.limits = limits
        self.store = store
        self.authorizer = authorizer
        self.pressure = pressure
        self.clock = clock
        self.held = held
        self.tasks = tasks
        self.memory = memory
        self.counters = Counters()
        self.quotas = Quotas(name, options.quotas, memory, QuotaHealth(health, self.counters))
        exchanges = Exchanges()
        self.router = Router(limits.route_cache_max, exchanges)
        catalog = Catalog(name, self.router, scheduler, self.quotas)
        self.queues = QueueAccess(catalog, limits.queue_auto_create)
        self.exchanges = ExchangeAccess(name, exchanges, self.router, self.queues, store, limits, tasks)
        self.retained = Retained(limits.retained_messages_max, limits.retained_bytes_max)
        self.owner_rights = OwnerRights(name, authorizer, authenticator)
        catalog.exchanges = LetterPost(
            self.exchanges, self.owner_rights, self.counters, limits, scheduler, tasks, health
        )
        self._revoked = revoked
        self._review: RightsReview | None = None
        self.sessions: dict[str, Session] = {}
        self.connected: i64 = 0
        self._ack_pending_max: i64 = options.ack_pending_max or limits.max_ack_pending

    def find_route(self, topic: bytes, user: str) -> Route:
        """Where a legal topic goes: to subscribers and queues bound to it, or into the queue it names, which may be made for
        that user."""
        if is_queue_topic(topic):
            return self.queues.make_route(topic, self.router.generation, user)
        return self.router.find_route(topic)

    def window_limit(self, receive_maximum: i64) -> i64:
        """Unsettled deliveries a connection may have: what the client, the operator and the account allow."""
        limit: i64 = self.limits.inflight_max
        if self._ack_pending_max and self._ack_pending_max < limit:
            limit = self._ack_pending_max
        return receive_maximum if receive_maximum < limit else limit

    def hand_over(self, session: Session, delivery: Delivery, to_absent: bool) -> i64:
        """A member of a shared subscription went away: another takes what it did not settle. Says how many steps it took."""
        router = self.router
        before: i64 = router.visited
        message = delivery.message
        if delivery.phase == QUEUED and delivery.message.is_expired(self.clock.now_ns):
            session.give_up(delivery)
            self.counters.dropped_expired += 1
            return STEPS_PER_DELIVERY
        share = router.find_share(message.topic, delivery.share)
        target: Target | None = None
        if share is not None:
            target = share.choose(session) if to_absent else share.choose_present(session)
        if target is not None:
            session.give_up(delivery)
            self.counters.deliveries_handed_over += 1
            target.outlet.deliver(message, target)
        return STEPS_PER_DELIVERY + (router.visited - before) // NODES_PER_STEP

    def on_rights_changed(self) -> None:
        """Routes hold verdicts: none of them may outlive the rules they came from."""
        self.router.forget_all()
        if self._review is not None:
            self.tasks.drop(self._review)
        self._review = self._make_review()
        self.tasks.start(self._review)

    def review_rights(self) -> None:
        """Of what the store kept, at start: the rules may be others than before."""
        self._make_review().run_whole()

    def resume(self, session: Session, principal: Principal) -> None:
        """It goes on by the rights of who came back to it."""
        session.principal = principal
        if session.consumers is not None:
            session.consumers.on_rights_changed()

    def _make_review(self) -> RightsReview:
        return RightsReview(self, self.limits.revoked_bindings == REMOVE, self._revoked)
