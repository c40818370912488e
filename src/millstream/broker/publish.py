"""The one way from a publisher to everything that receives.

The route has been found and authorised before; here a message or a run of messages meets its targets.
"""

from __future__ import annotations

from collections import deque
from typing import Final, final

from mypy_extensions import i64

from millstream.broker.account import Account
from millstream.broker.conditions import LIMIT_REACHED
from millstream.broker.fan_out import (
    RECEIVERS_AT_ONCE,
    RECEIVERS_FEW,
    FanOut,
    name_for,
    receivers_of,
    stores_too_much,
)
from millstream.broker.health import Health
from millstream.broker.session import Session
from millstream.model.errors import Reason
from millstream.model.limits import Limits
from millstream.model.memory_budget import MESSAGE_OVERHEAD, NODE_OVERHEAD, RETAINED_OVERHEAD, MemoryBudget
from millstream.model.message import Message
from millstream.model.message_batch import MessageBatch
from millstream.model.outlet import Outlet, Run
from millstream.routing.router import Route
from millstream.security.quotas import ANYBODY

SUCCESS: Final = Reason.SUCCESS
NO_MATCHING_SUBSCRIBERS: Final = Reason.NO_MATCHING_SUBSCRIBERS
QUOTA_EXCEEDED: Final = Reason.QUOTA_EXCEEDED
UNAVAILABLE: Final = Reason.UNAVAILABLE
SYSTEM_PREFIX: Final = b"$SYS/"
QUEUE_PREFIXES: Final = (b"$queue/", b"$dlq/")
SHOWN_MAX: Final = 200  # bytes of a topic in a sentence
FAN_OUT_SLICE: Final = 256  # deferred publishes worked off per loop iteration


def weight_of(message: Message, route: Route) -> i64:
    """About how many bytes of memory it takes until all have it."""
    return (len(message.payload) + MESSAGE_OVERHEAD) * len(route.targets)


@final
class Publishing:
    """Fan-out, retained messages, and the queue of deferred fan-outs (`async_fan_out`)."""

    def __init__(self, limits: Limits, memory: MemoryBudget, health: Health) -> None:
        self._memory = memory
        self._health = health
        self._async_fan_out = limits.async_fan_out
        self._pending_max: i64 = limits.fan_out_pending_max
        self._queues_max: i64 = limits.queues_per_message_max
        self._stored_bytes_max: i64 = limits.stored_bytes_per_message_max
        self._pending: deque[tuple[Account, Route, Message, Outlet | None]] = deque()
        self._rest: FanOut | None = None  # of what was just published

    def take_rest(self) -> FanOut | None:
        """What is left to do of what was just published by somebody who can wait for it."""
        rest = self._rest
        self._rest = None
        return rest

    def publish_run(self, account: Account, route: Route, run: Run, publisher: Outlet | None) -> None:
        """The caller asks for the rest."""
        if route.is_stored or route.refusal is not SUCCESS:
            for message in run.messages():
                self.publish(account, route, message, publisher)
            return
        memory = self._memory
        weight: i64 = run.size_bytes * len(route.targets)
        memory.intake += weight
        if memory.intake >= memory.check_at:
            memory.look()
        if memory.is_critical and memory.refuses(weight):
            account.counters.dropped_memory += run.count
            return
        if receivers_of(route, run.count) > RECEIVERS_AT_ONCE:
            self._rest = FanOut(route, None, run, publisher)
            return
        for target in route.targets:
            if target.has_no_local and target.outlet is publisher:
                own = target.for_own
                if own is not None:
                    own.outlet.deliver_run(run, own)
                continue
            target.outlet.deliver_run(run, target)
        if route.shares is not None:
            for message in run.messages():
                self._deliver_shares(route, message)
        elif not route.targets:
            account.counters.dropped_no_receiver += run.count

    def publish_batch(self, account: Account, route: Route, batch: MessageBatch) -> bool:
        """Into the one queue a route leads to. False: nothing has happened, and each is to be published by itself."""
        single = route.single
        if single is None or route.settles or route.refusal is not SUCCESS:
            return False
        memory = self._memory
        weight: i64 = len(batch.buffer) + batch.count * MESSAGE_OVERHEAD
        memory.intake += weight
        if memory.intake >= memory.check_at:
            memory.look()
        if memory.is_critical and memory.refuses(weight):
            return False
        return account.store.refusal() is SUCCESS and single.outlet.deliver_batch(batch)

    def publish(
        self,
        account: Account,
        route: Route,
        message: Message,
        publisher: Outlet | None,
        is_part: bool = False,
        may_wait: bool = False,
    ) -> Reason:
        """Store what is retained, hand out the rest; says whether anybody was there to receive it. A part of something
        whole, which has begun, is stored however much waits for the disk. Who `may_wait` asks for the rest: until it is
        done nothing is promised."""
        memory = self._memory
        weight: i64 = weight_of(message, route)
        memory.intake += weight
        if memory.intake >= memory.check_at:
            memory.look()
        if memory.is_critical and not is_part and memory.refuses(weight):
            account.counters.dropped_memory += 1
            return UNAVAILABLE
        if (message.guarantee or message.retain or route.is_stored) and not is_part:
            refusal = account.store.refusal()
            if refusal is not SUCCESS:
                account.counters.dropped_no_storage += 1
                return refusal
        if route.is_stored or route.refusal is not SUCCESS:
            account.queues.catalog.begin_letters()
            refusal = self._find_refusal(route, message)
            if refusal is not SUCCESS:
                account.counters.dropped_queue_full += 1
                return refusal
        if message.retain and not self._retain(account, message, publisher):
            return QUOTA_EXCEEDED
        if not route.targets and route.shares is None:
            account.counters.dropped_no_receiver += 1
            return NO_MATCHING_SUBSCRIBERS
        if self._async_fan_out and message.guarantee == 2 and not route.is_stored:
            if len(self._pending) < self._pending_max:
                self._pending.append((account, route, message, publisher))
                return SUCCESS
            if self.work_off(
                FAN_OUT_SLICE
            ):  # saturated: never ahead of what waits, and never all of that at once
                self._pending.append((account, route, message, publisher))
                return SUCCESS
        if may_wait and receivers_of(route) > RECEIVERS_AT_ONCE and message.guarantee < 2:
            self._rest = FanOut(route, name_for(route, message), None, publisher)
            self._store(route, message)
        else:
            self._fan_out(route, message, publisher)
        return SUCCESS

    def _store(self, route: Route, message: Message) -> None:
        """Queues, which do not wait for the others."""
        if route.is_stored:
            for target in route.targets:
                if target.outlet.is_storing():
                    target.outlet.deliver(message, target)

    def publish_state(self, account: Account, route: Route, message: Message) -> None:
        """The broker's own state: kept and told whatever the disk does. A queue that is bound to it gets it when it can."""
        self._retain(account, message, None)
        account.queues.catalog.begin_letters()
        can_store = not route.is_stored or (
            account.store.refusal() is SUCCESS and self._find_refusal(route, message) is SUCCESS
        )
        for target in route.targets:
            if can_store or not target.outlet.is_storing():
                target.outlet.deliver(message, target)
        if route.shares is not None:
            self._deliver_shares(route, message)

    def work_off(self, count_max: i64) -> bool:
        """Do deferred fan-outs, of which one to many receivers counts for several; True while some are left. Called after the
        confirms were flushed."""
        done: i64 = 0
        while self._pending and done < count_max:
            account, route, message, publisher = self._pending.popleft()
            if route.generation != account.router.generation:
                route = account.router.find_route(message.topic)
            self._fan_out(route, message, publisher)
            done += 1 + receivers_of(route) // RECEIVERS_FEW
        return len(self._pending) > 0

    def has_pending(self) -> bool:
        return len(self._pending) > 0

    def _fan_out(self, route: Route, message: Message, publisher: Outlet | None) -> None:
        told = name_for(route, message)
        for target in route.targets:
            outlet = target.outlet
            if target.has_no_local and outlet is publisher:
                own = target.for_own
                if own is not None:
                    own.outlet.deliver(told, own)
                continue
            outlet.deliver(message if told is message or outlet.is_storing() else told, target)
        if route.shares is not None:
            self._deliver_shares(route, told)

    def _find_refusal(self, route: Route, message: Message) -> Reason:
        """One that keeps it and cannot take it refuses for all: nobody gets what is not confirmed."""
        if route.refusal is not SUCCESS:
            return route.refusal
        count: i64 = 0
        for target in route.targets:
            if target.outlet.is_storing():
                refusal = target.outlet.find_refusal(message)
                if refusal is not SUCCESS:
                    return refusal
                count += 1
        if count > self._queues_max:
            limit = f"{self._queues_max} queues, as many as broker.max_queues_per_message allows"
            return self._refuse_wide(message, f"go to more than {limit}")
        if stores_too_much(route, message, self._stored_bytes_max):
            limit = f"store more than {self._stored_bytes_max} bytes (broker.max_stored_bytes_per_message)"
            return self._refuse_wide(message, f"{limit} in {count} queues")
        return SUCCESS

    def _refuse_wide(self, message: Message, limit: str) -> Reason:
        topic = message.topic[:SHOWN_MAX].decode("utf-8", "replace")
        self._health.report(LIMIT_REACHED, f"a message of {message.publisher} would {limit}: {topic}")
        return QUOTA_EXCEEDED

    def _deliver_shares(self, route: Route, message: Message) -> None:
        assert route.shares is not None
        for share in route.shares:
            target = share.choose(None)
            if target is not None:
                target.outlet.deliver(message, target)

    def _retain(self, account: Account, message: Message, publisher: Outlet | None) -> bool:
        if message.topic.startswith(QUEUE_PREFIXES):
            return True  # the queue is what keeps it
        lasts = not message.topic.startswith(SYSTEM_PREFIX)  # our own state is told anew after a start
        if not message.payload:  # [MQTT-3.3.1-6, 3.3.1-7]
            if account.retained.remove(message.topic) and lasts:
                account.store.retained_removed(account.name, message.topic)
            return True
        memory = self._memory
        size = message.size_bytes() + RETAINED_OVERHEAD
        has_room = memory.retained + size <= memory.retained_max or not lasts
        if not has_room and account.retained.find(message.topic) is None:
            return self._refuse_retained(account, message, "memory.limit leaves no room for")
        user = ANYBODY
        if isinstance(publisher, Session):
            user = publisher.principal.name
            if not account.quotas.has_bytes(publisher.usage):
                account.counters.retained_refused += 1
                return False
        nodes: i64 = account.retained.nodes
        if not account.retained.store(message, user):
            limits = "broker.max_retained_messages or broker.max_retained_bytes leaves no room for"
            return self._refuse_retained(account, message, limits)
        memory.retained += size + max(0, account.retained.nodes - nodes - 1) * NODE_OVERHEAD
        if lasts:
            account.store.retained_saved(account.name, message)
        return True

    def _refuse_retained(self, account: Account, message: Message, limit: str) -> bool:
        account.counters.retained_refused += 1
        topic = message.topic[:SHOWN_MAX].decode("utf-8", "replace")
        self._health.report(LIMIT_REACHED, f"{limit} a retained message of {message.publisher}: {topic}")
        return False
