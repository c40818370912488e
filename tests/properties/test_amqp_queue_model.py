"""A queue as AMQP clients use it against a tiny model: who gets which record next, what comes back where, what dies of what.

The model is a set of records that wait, in order of priority and offset, and a set of those in somebody's hands. Whatever the
queue does is checked when it does it; what it should have done is checked after each step.
"""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from queue_world import FactStore, FakeConsumer, FakeExchanges, QueueWorld, purge, words_of

from millstream.model.message import Message
from millstream.model.outcome import Outcome
from millstream.model.owner import Owner
from millstream.queues.consumers import AMQP_GROUP
from millstream.queues.group import Group
from millstream.queues.pending import Pending
from millstream.queues.queue import Queue

PICK = st.integers(0, 1 << 16)
LENGTH_MAX = 5
DELIVERIES_MAX = 3
TTL_MS = 3000


class Member(FakeConsumer):
    def __init__(self, rounds: AmqpRounds, credit: int) -> None:
        super().__init__("c", credit)
        self.hold_ms = -1
        self.rounds = rounds
        self.is_getter = False

    def deliver(self, pending: Pending) -> None:
        self.rounds.on_delivered(self, pending)
        if not self.accepts_at_once:
            super().deliver(pending)


class WatchedExchanges(FakeExchanges):
    rounds: AmqpRounds

    def post(self, exchange: str, key: bytes, letter: Message, owner: Owner | None, user: str) -> bool:
        self.rounds.on_posted(letter)
        return super().post(exchange, key, letter, owner, user)


class AmqpRounds(RuleBasedStateMachine):
    kind = "work"

    def __init__(self) -> None:
        super().__init__()
        self.world = QueueWorld(FactStore())
        self.priorities: dict[int, int] = {}
        self.expires: dict[int, int] = {}  # wall time
        self.waiting: set[int] = set()
        self.held: dict[int, Member] = {}
        self.attempts: dict[int, int] = {}
        self.noted: dict[int, int] = {}  # attempts, as a restart finds them
        self.dead: list[tuple[int, str]] = []
        self.members: list[Member] = []
        self.getters: list[Member] = []
        self.active: Member | None = None
        self.rejecting = -1
        self.is_single = False

    @initialize(is_single=st.booleans(), has_bound=st.booleans(), has_limit=st.booleans())
    def begin(self, is_single: bool, has_bound: bool, has_limit: bool) -> None:
        self.is_single = is_single
        self._watch()
        self.world.declare("dlx")
        self.world.declare(
            kind=self.kind,
            auto_delete=False,
            backoff_ms=0,
            max_deliveries=DELIVERIES_MAX if has_limit else 0,
            length_max=LENGTH_MAX if has_bound else 0,
            overflow="drop_head",
            bounds_ready=True,
            message_ttl_ms=TTL_MS,
            single_active=is_single,
            dead_letter="off",
            dead_letter_exchange="dlx",
        ).get_group(AMQP_GROUP, b"")

    def _watch(self) -> None:
        exchanges = WatchedExchanges(self.world.catalog)
        exchanges.rounds = self
        self.world.exchanges = exchanges
        self.world.catalog.exchanges = exchanges

    @property
    def queue(self) -> Queue:
        return self.world.queue()

    @property
    def group(self) -> Group:
        return self.queue.groups[AMQP_GROUP]

    def wall(self) -> int:
        return int(self.world.clock.wall_ns())

    def order(self) -> list[int]:
        return sorted(self.waiting, key=lambda offset: (-self.priorities[offset], offset))

    # ------------------------------------------------------- what is observed

    def on_delivered(self, member: Member, pending: Pending) -> None:
        offset = int(pending.offset)
        assert offset == self.order()[0], "not the first of those that wait"
        assert self.expires[offset] > self.wall(), "expired, and handed out"
        if not member.is_getter:
            self._check_turn(member)
        tries = self.attempts.get(offset, 0) + 1
        assert pending.attempts == tries
        limit = self.queue.definition.max_deliveries
        assert not limit or tries <= limit, "handed out more often than allowed"
        self.attempts[offset] = tries
        self.waiting.remove(offset)
        if not member.accepts_at_once:
            self.held[offset] = member

    def _check_turn(self, member: Member) -> None:
        assert member in self.members
        if self.is_single:
            assert member is self.active, "not the active one"
            return
        # its own credit is spent already, or it never spends any
        able = [other for other in self.members if other is member or other.has_credit()]
        assert member.priority == max(other.priority for other in able), "a higher priority had credit"

    def on_posted(self, letter: Message) -> None:
        death: dict[str, Any] = json.loads(words_of(letter)["x-death"])[0]
        offset = int(letter.payload)
        reason = str(death["reason"])
        assert (death["queue"], death["count"]) == ("q", 1)
        if reason == "rejected":
            assert offset == self.rejecting
        elif reason == "delivery_limit":
            assert self.attempts[offset] >= DELIVERIES_MAX
        elif reason == "expired":
            assert offset == self.order()[0], "a record expired that was not the first"
            assert self.expires[offset] <= self.wall()
        else:
            assert reason == "maxlen"
            assert offset == min(self.waiting)
            assert len(self.waiting) > LENGTH_MAX, "dropped while there was room"
        self.waiting.discard(offset)
        self.held.pop(offset, None)
        self.dead.append((offset, reason))

    # ------------------------------------------------------------------ steps

    @rule(
        count=st.integers(1, 4),
        priority=st.sampled_from([0, 0, 0, 2, 9]),
        expiry_ms=st.sampled_from([0, 0, 0, 500, 9000]),
    )
    def publish(self, count: int, priority: int, expiry_ms: int) -> None:
        words: dict[str, Any] = {"priority": priority} if priority else {}
        for _ in range(count):
            offset = int(self.queue.next)
            self.priorities[offset] = priority
            lives_ms = min(TTL_MS, expiry_ms or TTL_MS)
            self.expires[offset] = self.wall() + lives_ms * 1_000_000
            self.waiting.add(offset)
            message = self.world.message(self.queue, b"%d" % offset, expiry_ms=expiry_ms, **words)
            assert self.queue.append(message) == offset
        self.world.loop()
        assert not self.queue.is_bounded or len(self.waiting) <= LENGTH_MAX, "longer than it may be"

    @rule(credit=st.integers(0, 3), priority=st.sampled_from([0, 0, 1, 5, -3]), is_final=st.booleans())
    def join(self, credit: int, priority: int, is_final: bool) -> None:
        member = Member(self, credit)
        member.priority = priority
        member.accepts_at_once = is_final
        self.members.append(member)
        if self.active is None:
            self.active = member
        self.group.join(member)
        self.world.loop()

    @precondition(lambda self: self.members)
    @rule(pick=PICK, is_whole=st.booleans())
    def leave(self, pick: int, is_whole: bool) -> None:
        """It cancels and keeps what it has, or goes with everything."""
        member = self.members.pop(pick % len(self.members))
        if member is self.active:
            best = sorted(self.members, key=lambda other: -other.priority)
            self.active = best[0] if best else None
        if is_whole:
            self._lose(member)
            self.group.leave(member)
        else:
            self.group.withdraw(member)
            self.getters.append(member)
        self.world.loop()

    def _lose(self, member: Member) -> None:
        for offset in [offset for offset, holder in self.held.items() if holder is member]:
            del self.held[offset]
            self.waiting.add(offset)
            self.noted[offset] = self.attempts[offset]
        member.got = []

    @precondition(lambda self: self.members)
    @rule(pick=PICK, credit=st.integers(0, 4))
    def grant(self, pick: int, credit: int) -> None:
        self.members[pick % len(self.members)].credit = credit
        self.group.dispatch()
        self.world.loop()

    @rule(is_final=st.booleans())
    def get(self, is_final: bool) -> None:
        getter = Member(self, 1)
        getter.accepts_at_once = is_final
        getter.is_getter = True
        before = len(self.waiting) + len(self.dead)
        self.group.get(getter)
        self.world.loop()
        if getter.empty:
            assert not self.waiting, "told that there is nothing, and there is"
            assert not getter.got
        else:
            assert before == len(self.waiting) + len(self.dead) + 1, "one record, not more"
            assert is_final or len(getter.got) == 1
            self.getters.append(getter)

    @precondition(lambda self: self.held)
    @rule(pick=PICK, count=st.integers(1, 3), outcome=st.sampled_from([*Outcome, Outcome.ACCEPTED]))
    def settle(self, pick: int, count: int, outcome: Outcome) -> None:
        offsets = sorted(self.held)
        if outcome is Outcome.REJECTED:
            count = 1
        at = pick % len(offsets)
        answered = [self.group.pending[offset] for offset in offsets[at : at + count]]
        for pending in answered:
            self._answer(pending, outcome)
        if count == 1:
            self.group.settle(answered[0], outcome, "")
        else:
            self.group.settle_many(answered, outcome, "")
        self.rejecting = -1
        self.world.loop()

    def _answer(self, pending: Pending, outcome: Outcome) -> None:
        offset = int(pending.offset)
        holder = self.held[offset]
        holder.got = [other for other in holder.got if other is not pending]
        limit = int(self.queue.definition.max_deliveries)
        if outcome is Outcome.REJECTED:
            self.rejecting = offset
        elif outcome is Outcome.ACCEPTED:
            del self.held[offset]
        elif outcome is Outcome.RELEASED or not limit or self.attempts[offset] < limit:
            del self.held[offset]
            self.waiting.add(offset)
            self.attempts[offset] -= outcome is Outcome.RELEASED
            if self.attempts[offset] > 0:
                self.noted[offset] = self.attempts[offset]

    @precondition(lambda self: self.getters)
    @rule(pick=PICK)
    def hang_up(self, pick: int) -> None:
        """One that is no member (any more) goes, with what it has."""
        getter = self.getters.pop(pick % len(self.getters))
        self._lose(getter)
        self.group.take_back(getter)
        self.world.loop()

    @rule(milliseconds=st.sampled_from([10, 400, 1000, 4000]))
    def move(self, milliseconds: int) -> None:
        self.world.move(milliseconds)
        for _ in range(2 + len(self.waiting)):  # what has to be read first comes a few records a look
            self.world.move(0)
        order = self.order()
        assert not order or self.expires[order[0]] > self.wall(), "the first is too old and still there"

    @rule()
    def purge(self) -> None:
        count = len(self.waiting)
        self.waiting.clear()
        assert purge(self.queue) == count
        self.world.loop()

    # -------------------------------------------------------------- invariants

    @invariant()
    def counts_are_true(self) -> None:
        queue = self.world.catalog.find("q")
        if queue is None:
            return
        assert queue.ready() == len(self.waiting)
        assert queue.unsettled() == len(self.held)
        assert queue.consumer_count() == len(self.members)
        assert set(self.group.pending) == set(self.held)
        assert self.group.pending_deliveries.bytes == sum(
            pending.size for pending in self.group.pending.values()
        )
        for member in [*self.members, *self.getters]:
            assert member.open == sum(holder is member for holder in self.held.values())

    @invariant()
    def nobody_waits_who_could_have_something(self) -> None:
        if self.world.catalog.find("q") is None or not self.waiting:
            return
        if self.is_single:
            assert self.active is None or not self.active.has_credit()
        else:
            assert not any(member.has_credit() for member in self.members)

    @invariant()
    def letters_are_where_they_should_be(self) -> None:
        letters = [int(payload) for payload, _ in self.world.letters("dlx")]
        assert letters == [offset for offset, _ in self.dead]


class DurableRounds(AmqpRounds):
    @rule(folded=st.sampled_from([0.0, 0.5, 1.0]))
    def restart(self, folded: float) -> None:
        self.world.scheduler.write_settled()
        self.waiting.update(self.held)
        self.held = {}
        self.attempts = dict(self.noted)
        self.members = []
        self.getters = []
        self.active = None
        self.world.restart(folded)
        self._watch()


class MemoryRounds(AmqpRounds):
    kind = "ephemeral"


ROUNDS = settings(
    max_examples=40,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestDurableQueue = DurableRounds.TestCase
TestDurableQueue.settings = ROUNDS
TestQueueInMemory = MemoryRounds.TestCase
TestQueueInMemory.settings = ROUNDS
