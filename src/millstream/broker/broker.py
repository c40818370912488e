"""The broker: accounts, sessions and their lives, wills, subscriptions. Driven from outside, one call at a time.

Invariants
- A session belongs to one principal; nobody else can take it over.
- A will is sent at most once: when its delay is over or its session ends, whichever comes first.
- Rights are asked for a will when it is set and again when it is sent.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from millstream.broker.account import Account
from millstream.broker.account_options import AccountOptions
from millstream.broker.conditions import LIMIT_REACHED
from millstream.broker.confirm_waiters import ConfirmWaiters
from millstream.broker.doubt import Doubt, Doubts
from millstream.broker.fan_out import steps_of
from millstream.broker.health import Health
from millstream.broker.held import Held
from millstream.broker.line import Ending, Line
from millstream.broker.pressure import Pressure
from millstream.broker.publish import FAN_OUT_SLICE, Publishing
from millstream.broker.queue_access import ConsumeRequest
from millstream.broker.queue_consumer import EPHEMERAL_QUEUE, EXPLICIT
from millstream.broker.quota_survey import QuotaSurvey
from millstream.broker.restored_accounts import restore_accounts
from millstream.broker.retained_sweep import RetainedSweep
from millstream.broker.revoked_rights import RevokedRights
from millstream.broker.schedule import Schedule
from millstream.broker.session import Session
from millstream.broker.session_end import HandOver, SessionEnd
from millstream.broker.subscription_set import to_stored
from millstream.broker.tasks import TaskQueue
from millstream.broker.turn_figures import TurnFigures
from millstream.broker.will import Will
from millstream.broker.wills import Wills
from millstream.model.clock import Clock
from millstream.model.errors import Reason, Refused
from millstream.model.limits import NEVER_EXPIRES, Limits
from millstream.model.memory_budget import MemoryBudget
from millstream.model.message import NANOSECONDS, Message
from millstream.model.outbox import Wakeup
from millstream.model.queue_topic import is_queue_topic, make_canonical, split_queue_topic
from millstream.model.topic import split_share
from millstream.queues.definition import EPHEMERAL, Definition
from millstream.queues.scheduler import NoSegments, Scheduler
from millstream.routing.subscription import Subscription
from millstream.security.acl import Authorizer
from millstream.security.authentication import Authenticator
from millstream.security.principal import KIND_UNKNOWN, Principal
from millstream.security.quota import CONNECTIONS, SESSIONS, SUBSCRIPTIONS, Usage
from millstream.security.quotas import ANYBODY
from millstream.storage.segments.record_source import RecordSource
from millstream.storage.store import Store, StoredSession, StoredSubscription

DEFAULT_ACCOUNT: Final = "default"
RETAINED_SWEEP_NS: Final[i64] = 60 * NANOSECONDS
DUE_PER_TICK: Final = 500  # sessions whose time has come; the others at the next tick


@final
class Broker:
    def __init__(
        self,
        limits: Limits,
        store: Store,
        authorizer: Authorizer,
        accounts: dict[str, AccountOptions],
        source: RecordSource | None = None,
        wakeup: Wakeup | None = None,
        clock: Clock | None = None,
        health: Health | None = None,
        memory: MemoryBudget | None = None,
        authenticator: Authenticator | None = None,
    ) -> None:
        self.limits = limits
        self.store = store
        self.authorizer = authorizer
        self.clock = clock or Clock()
        self.health = health or Health(self.clock)
        self.pressure = Pressure(limits.slow_grace_ms, self.health)
        self.scheduler = Scheduler(store, source or NoSegments(), self.clock, wakeup, self.pressure, limits)
        self.tasks = TaskQueue(wakeup)
        self.held = Held(store, self.tasks)
        self.turns = TurnFigures(self.health)
        self.memory = memory or MemoryBudget(limits)
        self.publishing = Publishing(limits, self.memory, self.health)
        self.wills = Wills(store, self.clock, self.memory, self.publish_internal)
        self._authenticator = authenticator
        self._revoked = RevokedRights(self.health)
        self.accounts: dict[str, Account] = {}
        self.session_count: i64 = 0
        self._schedule = Schedule()
        self._doubts = Doubts()
        self._confirm_waiters = ConfirmWaiters(store)
        self._retained_swept_ns: i64 = 0
        self._add_account(DEFAULT_ACCOUNT, AccountOptions())
        for name, options in accounts.items():
            self._add_account(name, options)
        self._quota_surveys = [QuotaSurvey(account) for account in self.accounts.values()]

    # --------------------------------------------------------------- accounts

    def get_account(self, name: str) -> Account:
        account = self.accounts.get(name)
        if account is None:
            raise Refused(Reason.NOT_AUTHORIZED, f"the account {name!r} is not configured")
        return account

    def _add_account(self, name: str, options: AccountOptions) -> None:
        self.accounts[name] = Account(
            name,
            self.limits,
            self.store,
            self.authorizer,
            self.pressure,
            self.clock,
            self.held,
            self.scheduler,
            self.tasks,
            self.memory,
            self._authenticator,
            self._revoked,
            self.health,
            options,
        )

    # --------------------------------------------------------------- sessions

    def open_session(
        self, account: Account, client_id: str, principal: Principal, clean_start: bool, line: Line
    ) -> tuple[Session, bool]:
        """The session to use and whether it was there before. An older connection of it is ended first."""
        session = account.sessions.get(client_id)
        if session is not None and session.line is None:
            self._on_due(session, self.clock.now_ns)  # its time may be over since the last tick
            session = account.sessions.get(client_id)
        if session is not None and session.principal.name != principal.name:
            account.counters.connections_refused += 1
            raise Refused(Reason.NOT_AUTHORIZED, "the client id belongs to a session of another user")
        usage = account.quotas.of(principal.name)
        if session is None or session.line is None:
            account.quotas.admit(CONNECTIONS, usage)
        if session is not None and session.line is not None:
            older = session.line
            older.end(Ending.TAKEN_OVER)  # calls back into `close_line`, which may end the session
            session = account.sessions.get(client_id)
        if session is not None and clean_start:
            self.end_session(session, line)
            session = None
        if session is None:
            if self.session_count >= self.limits.sessions_max:
                account.counters.connections_refused += 1
                text = f"the broker holds as many sessions as it may (session.max_sessions = {self.limits.sessions_max})"
                self.health.report(LIMIT_REACHED, f"{client_id}: {text}")
                raise Refused(Reason.QUOTA_EXCEEDED, text)
            account.quotas.admit(SESSIONS, usage)
            session = Session(account, client_id, principal, account.window_limit(65_535))
            account.sessions[client_id] = session
            usage.add(SESSIONS, 1)
            self.session_count += 1
            self._count_connection(account, usage)
            return session, False
        account.resume(session, principal)
        session.expires_ns = 0
        self.wills.drop(session)  # resumed before its delay was over: it is not sent [MQTT-3.1.3-9]
        self._schedule.update(session)
        self._count_connection(account, usage)
        return session, True

    def _count_connection(self, account: Account, usage: Usage) -> None:
        account.connected += 1
        account.counters.connections_total += 1
        usage.add(CONNECTIONS, 1)

    def start_session(self, session: Session, expiry_s: i64, will: Will | None) -> None:
        """Terms of this connection: how long the session outlives it, and what it leaves behind."""
        session.expiry_s = expiry_s
        if will is not None:
            self.wills.put(session, will)
        if expiry_s or will is not None or session.is_stored:
            session.is_stored = True
            self.store.session_saved(session.key, session.principal.name, expiry_s, 0)
        if will is not None:
            self.wills.store(session, will)

    def change_expiry(self, session: Session, expiry_s: i64) -> None:
        session.expiry_s = expiry_s

    def close_line(self, session: Session, line: Line, with_will: bool) -> None:
        """The connection is gone; the session lives on for its expiry interval, or ends."""
        if session.line is not line:
            return
        session.detach()
        self.held.on_detached(session.window.count)
        account = session.account
        account.connected -= 1
        session.usage.add(CONNECTIONS, -1)
        if not with_will:
            self.wills.drop(session)
        if session.expiry_s == 0:
            self.end_session(session, line)
            return
        self.tasks.start(HandOver(session))
        now_ns = self.clock.now_ns
        will = session.will
        if will is not None:
            will.due_ns = now_ns + will.delay_s * NANOSECONDS
            if will.delay_s == 0:
                self.wills.send(session)
            else:
                self.wills.store(session, will)
        if session.expiry_s != NEVER_EXPIRES:
            session.expires_ns = now_ns + session.expiry_s * NANOSECONDS
        self._schedule.update(session)
        self.store.session_saved(session.key, session.principal.name, session.expiry_s, session.expires_ns)

    def end_session(self, session: Session, line: Line | None = None) -> None:
        """Its subscriptions, queue and will go with it; a will that waits is sent now [MQTT-3.1.2-8]."""
        if session.is_ended:
            return
        session.is_ended = True
        account = session.account
        subscriptions = session.subscriptions.count()
        self._schedule.update(session)
        self.tasks.start(SessionEnd(session, line))
        if session.will is not None:
            self.wills.send(session)
        if account.sessions.get(session.key.client_id) is session:
            del account.sessions[session.key.client_id]
            self.session_count -= 1
            session.usage.add(SESSIONS, -1)
            session.usage.add(SUBSCRIPTIONS, -int(subscriptions))
        if session.is_stored:
            self.store.session_removed(session.key)

    def publish_internal(self, account: Account, message: Message, publisher: Session | None) -> Reason:
        """Publish something the broker itself has to say, or says for someone who left."""
        user = ANYBODY if publisher is None else publisher.principal.name
        route = account.find_route(message.topic, user)
        self.tasks.spend(steps_of(route))
        return self.publishing.publish(account, route, message, publisher)

    def publish_state(self, account: Account, message: Message) -> None:
        """Tell the broker's own state below `$SYS`, which needs no disk."""
        self.publishing.publish_state(account, account.find_route(message.topic, ANYBODY), message)

    # ---------------------------------------------------------- subscriptions

    def subscribe(self, session: Session, subscription: Subscription) -> bool:
        """Add or replace it; True when the session had that filter already."""
        name = subscription.name()
        account = session.account
        existed = session.subscriptions.admit(subscription, self.limits, account.router.tree)
        if not existed:
            account.quotas.admit(SUBSCRIPTIONS, session.usage)
            session.usage.add(SUBSCRIPTIONS, 1)
        session.subscriptions.put(name, subscription)
        account.router.subscribe(subscription)
        self._save_subscription(session, subscription, b"", 0)
        if session.doubt is not None:
            session.doubt.on_subscribed(session)
        return existed

    def consume(self, session: Session, subscription: Subscription, request: ConsumeRequest) -> None:
        """Join a group of the queue that the filter names; Refused when there is no such queue."""
        name = subscription.name()
        account = session.account
        existed = session.subscriptions.admit(subscription, self.limits, account.router.tree)
        if not existed:
            account.quotas.admit(SUBSCRIPTIONS, session.usage)
        consumer = account.queues.join(session, name, subscription.filter, request)
        if not existed:
            session.usage.add(SUBSCRIPTIONS, 1)
        session.subscriptions.put(name, subscription)
        terms = EXPLICIT if consumer.is_explicit else 0
        if not consumer.group.queue.is_durable:
            terms |= EPHEMERAL_QUEUE
        self._save_subscription(session, subscription, request.group.encode(), terms)

    def _save_subscription(
        self, session: Session, subscription: Subscription, group: bytes, terms: int
    ) -> None:
        if not session.expiry_s:
            return
        self.store.subscription_saved(session.key, to_stored(subscription, group, terms))

    def unsubscribe(self, session: Session, name: bytes) -> bool:
        subscription = session.subscriptions.remove(name)
        if subscription is None:
            return False
        session.usage.add(SUBSCRIPTIONS, -1)
        if not session.account.queues.leave(session, name):
            session.account.router.unsubscribe(subscription.filter, subscription.group, session)
        if session.expiry_s:
            self.store.subscription_removed(session.key, name)
        return True

    # --------------------------------------------------------------- confirms

    def wait_durable(self, line: Line) -> None:
        self._confirm_waiters.add(line)

    def forget_line(self, line: Line) -> None:
        self._confirm_waiters.forget(line)
        self.pressure.forget_source(line)
        self.pressure.forget_met()  # in the read that ends it: nobody would forget it any more

    def on_durable(self) -> None:
        """The store has made progress: confirms that waited for it may go out."""
        self.held.on_durable()
        self.scheduler.on_durable(self.store.durable())
        self._confirm_waiters.on_durable()

    # ------------------------------------------------------------------- time

    def on_tick(self, now_ns: i64, wall_s: i64) -> None:
        self.clock.now_ns = now_ns
        self.clock.wall_s = wall_s
        self.pressure.source = None
        self.store.on_tick(now_ns)
        self.health.on_tick(now_ns)
        self.turns.on_tick(now_ns)
        self._confirm_waiters.on_tick(now_ns)
        self.pressure.on_tick(now_ns)
        self._doubts.on_tick(now_ns)
        self.scheduler.begin_turn()
        for account in self.accounts.values():
            account.queues.catalog.on_tick(now_ns)
        for survey in self._quota_surveys:
            survey.on_tick(now_ns)
        for _ in range(DUE_PER_TICK):
            due = self._schedule.take_due(now_ns, 1)
            if due:
                self._on_due(due[0], now_ns)
            if not due or self.tasks.left <= 0:
                break  # wills to very many: others have their turn between them
        if now_ns - self._retained_swept_ns >= RETAINED_SWEEP_NS:
            self._retained_swept_ns = now_ns
            for account in self.accounts.values():
                self.tasks.add(RetainedSweep(account))

    def end_overdue(self, now_ns: i64) -> None:
        """At start, before any client comes: sessions whose time is over end, and wills that are due are sent."""
        while due := self._schedule.take_due(now_ns, DUE_PER_TICK):
            for session in due:
                self._on_due(session, now_ns)

    def write_settled(self) -> None:
        """Facts that were gathered over the iteration, before the log takes its batch."""
        self.scheduler.write_settled()

    def halt_queues(self) -> None:
        """The broker stops: no queue hands out anything any more."""
        for account in self.accounts.values():
            account.queues.catalog.halt()

    def take_back_all(self) -> None:
        """Everybody is gone: what they left open, and all they have settled, goes to the log before it ends."""
        for account in self.accounts.values():
            account.queues.catalog.take_back_all()
        self.scheduler.write_settled()

    def on_folded(self, sequence: i64) -> None:
        """All facts up to `sequence` are in segments: queues need not remember them."""
        for account in self.accounts.values():
            account.queues.catalog.forget_folded(sequence)

    def work_off(self) -> bool:
        """What is left to do at the end of a turn; True while there is more."""
        has_tasks = self.work_off_tasks()
        return self.scheduler.work_off() or has_tasks  # tasks may wake queues

    def work_off_tasks(self) -> bool:
        """The same without the queues."""
        has_tasks = self.tasks.work_off()
        return self.publishing.work_off(FAN_OUT_SLICE) or has_tasks

    def _on_due(self, session: Session, now_ns: i64) -> None:
        if session.is_ended or session.line is not None:
            return
        will = session.will
        if will is not None and will.due_ns and will.due_ns <= now_ns:
            self.wills.send(session)
        if session.expires_ns and session.expires_ns <= now_ns:
            session.account.counters.sessions_expired += 1
            self.end_session(session)
        else:
            self._schedule.update(session)

    # -------------------------------------------------------------- recovery

    def restore(self, now_ns: i64) -> None:
        """Take over what the store kept: subscriptions route at once, before any client returns."""
        self.clock.now_ns = now_ns
        state = self.store.load()
        restore_accounts(self.accounts, state, self.scheduler)
        for stored in state.sessions:
            self._restore_session(stored, now_ns)
        for survey in self._quota_surveys:
            survey.on_tick(now_ns)

    def _restore_session(self, stored: StoredSession, now_ns: i64) -> None:
        account = self.accounts.get(stored.key.account)
        if account is None:
            return
        principal = Principal(stored.principal, account.name, KIND_UNKNOWN)
        session = Session(account, stored.key.client_id, principal, account.window_limit(65_535))
        session.expiry_s = stored.expiry_s
        session.is_stored = True
        account.sessions[stored.key.client_id] = session
        session.usage.add(SESSIONS, 1)
        self.session_count += 1
        for entry in stored.subscriptions.values():
            share = split_share(entry.name)
            group, filter = (b"", entry.name) if share is None else share
            filter = make_canonical(filter)  # an earlier release took other spellings of queues
            subscription = Subscription(
                session,
                filter,
                group,
                entry.guarantee,
                entry.no_local,
                entry.retain_as_published,
                entry.identifier,
            )
            session.subscriptions.put(entry.name, subscription)
            session.usage.add(SUBSCRIPTIONS, 1)
            if is_queue_topic(filter):
                self._restore_consumer(session, subscription, entry)
            else:
                account.router.subscribe(subscription)
        deliveries = list(stored.deliveries.values())
        if stored.may_lack_end:
            session.doubt = Doubt(self._doubts, stored)
        session.restore(deliveries, [] if stored.may_lack_end else list(stored.received_ids))
        self._restore_deadlines(session, stored, now_ns)

    def _restore_consumer(
        self, session: Session, subscription: Subscription, entry: StoredSubscription
    ) -> None:
        request = ConsumeRequest(
            entry.group.decode(), entry.guarantee, entry.identifier, bool(entry.terms & EXPLICIT), True, b""
        )
        access = session.account.queues
        place = split_queue_topic(subscription.filter)
        try:
            if entry.terms & EPHEMERAL_QUEUE and place is not None and access.catalog.find(place[0]) is None:
                access.catalog.declare(place[0], Definition(EPHEMERAL), session.principal.name)
            access.join(session, entry.name, subscription.filter, request)
        except Refused:
            return  # its queue is gone, and none is made: it gets nothing

    def _restore_deadlines(self, session: Session, stored: StoredSession, now_ns: i64) -> None:
        if stored.will is not None:
            message = stored.will.message
            message.topic = make_canonical(message.topic)
            will = Will(message, stored.will.delay_s, stored.will.lifetime_s)
            will.due_ns = stored.will.due_ns or now_ns + will.delay_s * NANOSECONDS
            self.wills.put(session, will)
        if session.expiry_s == 0:
            session.expires_ns = now_ns if session.will is None else session.will.due_ns or now_ns
        elif session.expiry_s != NEVER_EXPIRES:
            session.expires_ns = stored.expires_ns or now_ns + session.expiry_s * NANOSECONDS
        self._schedule.update(session)
