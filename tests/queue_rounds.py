"""The model of a queue and its groups, as a machine of rules: who holds what, what was answered, what the store could still forget.

Consumers join, leave, die and return; durability comes late; the broker dies and comes back from what was safe.
At the end everything heals: whatever was not answered must have arrived, or lie with the dead letters.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from queue_world import MILLISECONDS, FactStore, FakeConsumer, QueueWorld, purge

from millstream.model.outcome import Outcome
from millstream.queues.group import Group
from millstream.queues.pending import Pending
from millstream.queues.queue import Queue

VISIBILITY_MS = 1000
BACKOFF_MS = 100
BACKOFF_MAX_MS = 400
MAX_DELIVERIES = 4
RETENTION_COUNT = 12
TITLES = ("a", "b")
PICK = st.integers(0, 1 << 16)


class Item:
    """One record of the model; times are wall time, 0: none."""

    def __init__(
        self, payload: bytes, not_before_ns: int, expires_ns: int, producer: str, number: int
    ) -> None:
        self.payload = payload
        self.not_before_ns = not_before_ns
        self.expires_ns = expires_ns
        self.producer = producer
        self.number = number
        self.position = 0


class Share:
    """What the model knows of a group."""

    def __init__(self, start: int) -> None:
        self.settled: dict[int, int] = {}  # offset: position in the store by which it is settled
        self.answered: set[int] = set(range(start))  # finally, whether the store kept it or not
        self.rejected: set[int] = set()
        self.tries: dict[int, int] = {}
        self.held: dict[int, tuple[ModelConsumer, int]] = {}  # offset: by whom, until when
        self.not_before: dict[int, tuple[int, int]] = {}  # offset: wall time, position
        self.committed: list[tuple[int, int]] = [(0, start)]  # position, committed
        self.before: tuple[int, Share] | None = None  # position of the seek, what was true without it

    def forget(self, offset: int) -> None:
        self.held.pop(offset, None)


class ModelConsumer(FakeConsumer):
    def __init__(self, rounds: Rounds, title: str, credit: int) -> None:
        super().__init__(title, credit)
        self.rounds = rounds
        self.is_alive = True

    def deliver(self, pending: Pending) -> None:
        assert self.is_alive, "a dead consumer was handed something"
        super().deliver(pending)
        self.rounds.on_delivered(self, pending)


class Rounds(RuleBasedStateMachine):
    """What work queues and streams have in common."""

    kind = "work"

    def __init__(self) -> None:
        super().__init__()
        self.store = FactStore()
        self.world = QueueWorld(self.store)
        self.items: dict[int, Item] = {}
        self.next = 0
        self.first: list[tuple[int, int]] = [(0, 0)]  # position, first
        self.shares: dict[str, Share] = {}
        self.consumers: list[ModelConsumer] = []
        self.late: list[Pending] = []  # deliveries that were taken back: answers to them mean nothing
        self.count = 0
        self.is_held = False
        self.letters_seen = 0

    @initialize()
    def begin(self) -> None:
        self.world.declare(
            kind=self.kind,
            visibility_ms=VISIBILITY_MS,
            backoff_ms=BACKOFF_MS,
            backoff_max_ms=BACKOFF_MAX_MS,
            max_deliveries=MAX_DELIVERIES if self.kind == "work" else 0,
            retention_count=RETENTION_COUNT if self.kind == "stream" else 0,
        )

    @property
    def queue(self) -> Queue:
        return self.world.queue()

    def group(self, title: str) -> Group:
        return self.world.group(title)

    def now(self) -> int:
        return int(self.world.clock.now_ns)

    def wall(self) -> int:
        return int(self.world.clock.wall_ns())

    def first_kept(self) -> int:
        return self.first[-1][1]

    # ------------------------------------------------------- what is observed

    def on_delivered(self, consumer: ModelConsumer, pending: Pending) -> None:
        title, offset = consumer.name, int(pending.offset)
        share = self.shares[title]
        item = self.items[offset]
        assert pending.message.payload == item.payload, "an offset has one value for ever"
        place = (int(self.queue.number), offset)
        assert self.store.places[place] <= self.store.durable(), "handed out before it was safe"
        assert offset not in share.settled, "settled, and handed out again"
        assert offset >= self.first_kept(), "purged or trimmed, and handed out"
        assert self.wall() >= item.not_before_ns, "handed out before its delay was over"
        assert not item.expires_ns or self.wall() < item.expires_ns, "expired, and handed out"
        assert self.wall() >= share.not_before.get(offset, (0, 0))[0], (
            "handed out before its back-off was over"
        )
        holder = share.held.get(offset)
        assert holder is None or self.now() >= holder[1], "two consumers of one group hold it"
        share.held[offset] = (consumer, self.now() + VISIBILITY_MS * MILLISECONDS)
        share.tries[offset] = share.tries.get(offset, 0) + 1

    def settled(self, share: Share, offset: int) -> None:
        self.world.scheduler.write_settled()
        share.settled[offset] = int(self.store.position())
        share.answered.add(offset)
        share.forget(offset)

    def read_letters(self, is_restart: bool = False) -> set[tuple[str, int]]:
        """Whose dead letters are there; the source of a new one is settled. After a crash it may not be: the letter
        goes to the store first."""
        found: set[tuple[str, int]] = set()
        letters = self.world.letters()
        seen, self.letters_seen = self.letters_seen, len(letters)
        for at, (payload, words) in enumerate(letters):
            title = words["_dlq_original_group"]
            offset = int(words["_dlq_original_id"].removeprefix("q:"))
            share = self.shares.get(title)
            assert payload == self.items[offset].payload
            found.add((title, offset))
            if share is None or at < seen or is_restart:
                continue
            if words["_dlq_reason"] == "rejected":
                assert offset in share.rejected
            else:
                assert words["_dlq_reason"] == "max_deliveries"
                assert share.tries[offset] >= MAX_DELIVERIES
            self.settled(share, offset)
        return found

    # ----------------------------------------------------------- publishers

    @rule(
        count=st.integers(1, 4),
        priority=st.sampled_from([0, 0, 0, 3, 9]),
        delay_ms=st.sampled_from([0, 0, 0, 300, 2000]),
        expiry_ms=st.sampled_from([0, 0, 0, 700, 10_000]),
    )
    def publish(self, count: int, priority: int, delay_ms: int, expiry_ms: int) -> None:
        words: dict[str, Any] = {}
        if priority:
            words["priority"] = priority
        if delay_ms:
            words["delay_ms"] = delay_ms
        for _ in range(count):
            self._append(words, delay_ms, expiry_ms, "", 0)

    @rule(producer=st.sampled_from(["p", "r"]), number=st.integers(0, 5))
    def publish_as(self, producer: str, number: int) -> None:
        last = [item.number for item in self.items.values() if item.producer == producer]
        if last and number <= max(last):
            words: dict[str, Any] = {"producer_id": producer, "sequence": number}
            assert self.world.publish(self.queue, b"again", **words) == -1
        else:
            self._append({"producer_id": producer, "sequence": number}, 0, 0, producer, number)

    def _append(
        self, words: dict[str, Any], delay_ms: int, expiry_ms: int, producer: str, number: int
    ) -> None:
        self.count += 1
        payload = b"%d" % self.count
        not_before = self.wall() + delay_ms * MILLISECONDS if delay_ms and self.kind == "work" else 0
        expires = self.wall() + expiry_ms * MILLISECONDS if expiry_ms else 0
        item = Item(payload, not_before, expires, producer, number)
        self.items[self.next] = item
        message = self.world.message(self.queue, payload, expiry_ms=expiry_ms, **words)
        assert self.queue.append(message) == self.next, "offsets count up without gaps"
        item.position = self.store.places[(int(self.queue.number), self.next)]
        self.next += 1
        self.world.loop()

    # ------------------------------------------------------------- consumers

    @rule(title=st.sampled_from(TITLES), credit=st.integers(0, 3))
    def join(self, title: str, credit: int) -> None:
        group = self.queue.get_group(title, b"")
        if title not in self.shares:
            start = int(group.committed)
            assert start >= self.first_kept()
            needed = [
                offset
                for offset in range(self.first_kept(), self.next)
                if not self.shares or any(offset not in share.answered for share in self.shares.values())
            ]
            assert start <= self.next
            alive = [offset for offset in needed if not self._is_too_old(offset)]
            assert not alive or start <= alive[0], "a new group begins at the oldest record somebody needs"
            self.shares[title] = Share(start)
        consumer = ModelConsumer(self, title, credit)
        self.consumers.append(consumer)
        group.join(consumer)
        self.world.loop()

    @precondition(lambda self: self.consumers)
    @rule(pick=PICK)
    def leave(self, pick: int) -> None:
        consumer = self.consumers.pop(pick % len(self.consumers))
        self._lose(consumer)
        self.group(consumer.name).leave(consumer)
        self.world.loop()

    @precondition(lambda self: self.consumers)
    @rule(pick=PICK)
    def die(self, pick: int) -> None:
        """The connection is gone; the consumer stays a member, as a durable session does."""
        consumer = self.consumers[pick % len(self.consumers)]
        self._lose(consumer)
        consumer.credit = 0
        self.group(consumer.name).take_back(consumer)
        self.world.loop()

    @precondition(lambda self: self.consumers)
    @rule(pick=PICK, credit=st.integers(0, 4))
    def grant(self, pick: int, credit: int) -> None:
        consumer = self.consumers[pick % len(self.consumers)]
        consumer.is_alive = True
        consumer.credit = credit
        self.group(consumer.name).dispatch()
        self.world.loop()

    def _lose(self, consumer: ModelConsumer) -> None:
        consumer.is_alive = False
        share = self.shares[consumer.name]
        for offset in [offset for offset, (holder, _) in share.held.items() if holder is consumer]:
            share.forget(offset)
        self.late.extend(consumer.got)
        consumer.got = []

    @precondition(lambda self: any(consumer.got for consumer in self.consumers))
    @rule(pick=PICK, outcome=st.sampled_from([*Outcome, Outcome.ACCEPTED, Outcome.ACCEPTED]))
    def settle(self, pick: int, outcome: Outcome) -> None:
        holders = [consumer for consumer in self.consumers if consumer.got]
        consumer = holders[pick % len(holders)]
        pending = consumer.got.pop(pick % len(consumer.got))
        share = self.shares[consumer.name]
        offset = int(pending.offset)
        if pending.consumer is None:
            return self.answer_late_to(pending, outcome)
        assert share.held[offset][0] is consumer
        if outcome is Outcome.RELEASED:
            share.tries[offset] -= 1
        share.forget(offset)
        if outcome is Outcome.REJECTED:
            share.rejected.add(offset)
        elif outcome is Outcome.MODIFIED:
            delay_ms = min(BACKOFF_MS << (int(pending.attempts) - 1), BACKOFF_MAX_MS)
            due_ns = self.wall() + delay_ms * MILLISECONDS
            share.not_before[offset] = (due_ns, int(self.store.position()) + 1)
        self.late.append(pending)
        pending.group.settle(pending, outcome, "")
        if outcome is Outcome.ACCEPTED or (outcome is Outcome.REJECTED and self.kind == "stream"):
            self.settled(share, offset)
        self.world.loop()

    @precondition(lambda self: self.late)
    @rule(pick=PICK, outcome=st.sampled_from(Outcome))
    def answer_late(self, pick: int, outcome: Outcome) -> None:
        self.answer_late_to(self.late[pick % len(self.late)], outcome)

    def answer_late_to(self, pending: Pending, outcome: Outcome) -> None:
        before = int(self.store.position())
        pending.group.settle(pending, outcome, "")
        self.world.scheduler.write_settled()
        assert self.store.position() == before, (
            "an answer to a delivery that was taken back changed something"
        )

    # ------------------------------------------------- time, store and deaths

    @rule(milliseconds=st.sampled_from([10, 100, 400, 1000, 5000]))
    def move(self, milliseconds: int) -> None:
        self.world.move(milliseconds)
        self.note_first()

    @precondition(lambda self: not self.is_held)
    @rule()
    def hold(self) -> None:
        self.store.hold()
        self.is_held = True

    @precondition(lambda self: self.is_held)
    @rule(count=st.integers(1, 6))
    def advance(self, count: int) -> None:
        self.store.advance(min(int(self.store.durable()) + count, int(self.store.position())))
        self.world.safe()

    @precondition(lambda self: self.is_held)
    @rule()
    def release(self) -> None:
        self.store.release()
        self.is_held = False
        self.world.safe()

    @rule(is_slow=st.booleans())
    def slow_down_segments(self, is_slow: bool) -> None:
        self.world.segments.is_slow = is_slow
        if not is_slow:
            self.world.segments.answer()
            self.world.loop()

    @rule()
    def purge(self) -> None:
        """What a consumer has at this moment stays with it; of a stream everything goes."""
        before: dict[str, set[int]] = {}
        for title, share in self.shares.items():
            before[title] = {offset for offset, held in share.held.items() if held[1] > self.now()}
        purge(self.queue)
        self.world.scheduler.write_settled()
        self.note_first()
        if self.kind == "work":
            for title, share in self.shares.items():
                for offset in set(range(self.next)) - before[title] - set(share.settled):
                    self.settled(share, offset)
                    share.rejected.discard(offset)
        self.world.loop()

    def note_first(self) -> None:
        first = int(self.queue.first)
        if first != self.first_kept():
            assert first > self.first_kept()
            self.first.append((int(self.store.position()), first))
            for share in self.shares.values():
                share.answered.update(range(first))
                for offset in [offset for offset in share.held if offset < first]:
                    share.forget(offset)

    @rule(folded=st.sampled_from([0.0, 0.3, 0.7, 1.0]), down_ms=st.sampled_from([0, 500, 3000]))
    def restart(self, folded: float, down_ms: int) -> None:
        self.world.scheduler.write_settled()
        durable = int(self.store.durable())
        self.is_held = False
        self.items = {offset: item for offset, item in self.items.items() if item.position <= durable}
        self.next = max(self.items, default=-1) + 1
        self.first = [entry for entry in self.first if entry[0] <= durable]
        self.consumers = []
        self.late = []
        self.world.restart(folded, down_ms)
        assert self.queue.next == self.next, "confirmed records are lost, or others have come"
        self.note_first()
        self.shares = {title: share for title, share in self.shares.items() if title in self.queue.groups}
        for title, share in list(self.shares.items()):
            while share.before is not None and share.before[0] > durable:
                share = share.before[1]
            self.shares[title] = share
            self._forget_unsafe(share, durable)
            assert self.group(title).committed >= share.committed[-1][1], "committed went back"
        self._check_letters()

    def _check_letters(self) -> None:
        """After a crash: what was buried has its letter, or is still there."""
        letters = self.read_letters(True)
        for title, share in self.shares.items():
            for offset in share.rejected & share.answered:
                is_gone = self.kind == "work" and self.group(title).is_settled(offset)
                assert not is_gone or (title, offset) in letters, "gone before its dead letter was safe"
            share.rejected = {offset for offset in share.rejected if self.group(title).is_settled(offset)}

    def _forget_unsafe(self, share: Share, durable: int) -> None:
        lost = [offset for offset, position in share.settled.items() if position > durable]
        for offset in lost:
            del share.settled[offset]
        share.committed = [entry for entry in share.committed if entry[0] <= durable]
        share.held = {}
        share.not_before = {at: entry for at, entry in share.not_before.items() if entry[1] <= durable}
        share.answered = {offset for offset in share.answered if offset < self.next}
        share.answered.update(range(self.first_kept()))
        share.rejected = {offset for offset in share.rejected if offset < self.next}
        share.tries = {offset: tries for offset, tries in share.tries.items() if offset < self.next}

    # -------------------------------------------------------------- invariants

    @invariant()
    def counts_are_right(self) -> None:
        queue = self.world.catalog.find("q")
        if queue is None:
            return
        self.read_letters()
        assert queue.next == self.next
        assert queue.visible <= queue.next
        for consumer in self.consumers:
            pending = self.group(consumer.name).pending.values()
            assert consumer.open == sum(1 for entry in pending if entry.consumer is consumer)
        for title, share in self.shares.items():
            committed = int(self.group(title).committed)
            assert committed >= share.committed[-1][1], "committed went back"
            if committed > share.committed[-1][1]:
                share.committed.append((int(self.store.position()), committed))

    # ------------------------------------------------------------------- heal

    def teardown(self) -> None:
        if self.world.catalog.find("q") is None:
            return
        self.store.release()
        self.world.segments.is_slow = False
        self.world.segments.answer()
        self.world.safe()
        for consumer in self.consumers:
            self._lose(consumer)
            self.group(consumer.name).leave(consumer)
        self.consumers = []
        for title in self.shares:
            self.join(title, 1000)
        for _ in range(8):
            for consumer in self.consumers:
                got, consumer.got = consumer.got, []
                for pending in got:
                    pending.group.settle(pending, Outcome.ACCEPTED, "")
                    self.settled(self.shares[consumer.name], int(pending.offset))
            self.move(1000)
        letters = self.read_letters()
        for title, share in self.shares.items():
            for offset in range(self.first_kept(), self.next):
                is_there = offset in share.answered or (title, offset) in letters or self._is_too_old(offset)
                assert is_there, f"{offset} was never settled by {title} and never came"
            assert self.group(title).committed == self.next
            assert not self.group(title).pending

    def _is_too_old(self, offset: int) -> bool:
        expires_ns = self.items[offset].expires_ns
        return expires_ns != 0 and expires_ns <= self.wall()


class WorkRounds(Rounds):
    kind = "work"


class StreamRounds(Rounds):
    kind = "stream"

    @precondition(lambda self: self.shares and self.next)
    @rule(pick=PICK)
    def commit(self, pick: int) -> None:
        title = sorted(self.shares)[pick % len(self.shares)]
        offset = pick % self.next
        share = self.shares[title]
        if offset < self.group(title).committed:
            return
        for below in range(offset + 1):
            share.forget(below)
            share.answered.add(below)
        # from here on none of them may come; after the next write the store knows
        share.settled.update({below: 1 << 62 for below in range(offset + 1) if below not in share.settled})
        self.group(title).commit(offset)
        self.world.scheduler.write_settled()
        position = int(self.store.position())
        share.settled.update({at: position for at, known in share.settled.items() if known == 1 << 62})
        self.world.loop()

    @precondition(lambda self: self.shares)
    @rule(pick=PICK)
    def seek(self, pick: int) -> None:
        title = sorted(self.shares)[pick % len(self.shares)]
        offset = max(self.first_kept(), pick % (self.next + 1))
        share = self.shares[title]
        start = Share(offset)
        start.tries = share.tries
        start.settled = dict.fromkeys(range(offset), int(self.store.position()) + 1)
        start.before = (int(self.store.position()) + 1, share)
        start.committed = [*share.committed, (int(self.store.position()) + 1, offset)]
        self.shares[title] = start
        self.group(title).seek(offset)
        self.world.loop()
