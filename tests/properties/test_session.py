"""A session and its window against a small model: two lists, and the rules of the specification."""

from __future__ import annotations

from fakes import FakeLine, World, make_message
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from millstream.broker.session import FITS, UNKNOWN, WRONG
from millstream.model.delivery import RECEIVED, SENT, Delivery
from millstream.model.limits import Limits
from millstream.model.outlet import Target

QUEUE_MAX = 5
PENDING_MAX = 4


class Item:
    """One message of the model. `packet_id` 0: still queued."""

    def __init__(self, number: int, guarantee: int, expires_ns: int) -> None:
        self.payload = str(number).encode()
        self.guarantee = guarantee
        self.expires_ns = expires_ns
        self.packet_id = 0
        self.is_received = False
        self.is_open = False  # handed out on the connection at hand


class OrderedLine(FakeLine):
    """Writes deliveries and releases into one list."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[tuple[str, bytes, int]] = []

    def transmit(self, delivery: Delivery, is_repeat: bool) -> bool:
        self.log.append(("again" if is_repeat else "new", delivery.message.payload, int(delivery.packet_id)))
        return True

    def transmit_release(self, packet_id: int) -> None:
        self.log.append(("release", b"", int(packet_id)))


class SessionMachine(RuleBasedStateMachine):
    @initialize(
        policy=st.sampled_from(["evict", "reject"]),
        overflow=st.sampled_from(["backpressure", "pending"]),
        window=st.integers(1, 4),
        expiry_s=st.sampled_from([0, 100]),
    )
    def start(self, policy: str, overflow: str, window: int, expiry_s: int) -> None:
        self.policy, self.overflow = policy, overflow
        self.world = World(
            Limits(
                offline_messages_max=QUEUE_MAX,
                offline_policy=policy,
                inflight_overflow=overflow,
                pending_messages_max=PENDING_MAX,
                slow_grace_ms=1 << 40,
            )
        )
        self.session, _ = self.world.connect("s", expiry_s=expiry_s)
        self.session.detach()
        self.target = Target(self.session, 2, False, (), b"")
        # somebody who can be made to wait publishes: while connected, the queue has no hard bound
        self.world.broker.pressure.source, _ = self.world.connect("source", expiry_s=0)
        self.count = 0
        self.queue: list[Item] = []
        self.window: list[Item] = []
        self.settled: set[bytes] = set()
        self.dropped = self.expired = 0
        self.line: OrderedLine | None = None
        self.limit = 0
        self.wanted: list[tuple[str, bytes, int]] = []
        self.attach(window)

    # ------------------------------------------------------------------ model

    def open_count(self) -> int:
        return sum(1 for item in self.window if item.is_open)

    def can_send(self) -> bool:
        return self.line is not None and not self.line.is_blocked and self.open_count() < self.limit

    def pump(self) -> None:
        """What must leave now: first what is open already, then what waits."""
        for item in self.window:
            if not item.is_open and self.can_send():
                item.is_open = True
                kind = ("release", b"") if item.is_received else ("again", item.payload)
                self.wanted.append((*kind, item.packet_id))
        while self.queue and self.can_send():
            item = self.queue.pop(0)
            if item.expires_ns and item.expires_ns <= self.world.now_ns:
                self.expired += 1
                continue
            item.is_open = True
            item.packet_id = -1  # the session chooses it
            self.window.append(item)
            self.wanted.append(("new", item.payload, -1))

    def compare(self) -> None:
        """Everything that left is what the model says, and new packet ids are free ones."""
        assert self.line is not None
        assert [(kind, payload) for kind, payload, _ in self.line.log] == [
            (kind, payload) for kind, payload, _ in self.wanted
        ]
        for (kind, payload, packet_id), (_, _, wanted_id) in zip(self.line.log, self.wanted, strict=True):
            assert payload not in self.settled
            if kind != "new":
                assert packet_id == wanted_id
                continue
            assert 1 <= packet_id <= 65_535
            assert all(item.packet_id != packet_id for item in self.window)
            next(item for item in self.window if item.payload == payload).packet_id = packet_id
        self.line.log.clear()
        self.wanted.clear()

    # ------------------------------------------------------------------ rules

    @rule(guarantee=st.integers(1, 2), lifetime_s=st.sampled_from([0, 0, 0, 3]))
    def publish(self, guarantee: int, lifetime_s: int) -> None:
        self.count += 1
        expires_ns = self.world.now_ns + lifetime_s * 1_000_000_000 if lifetime_s else 0
        item = Item(self.count, guarantee, expires_ns)
        if self.line is None:
            if len(self.queue) < QUEUE_MAX:
                self.queue.append(item)
            else:
                self.dropped += 1
                if self.policy == "evict":
                    self.queue = [*self.queue[1:], item]
        elif self.overflow == "pending" and not self.can_take_at_once() and len(self.queue) >= PENDING_MAX:
            self.dropped += 1
        else:
            self.queue.append(item)
        self.session.deliver(make_message(b"t", item.payload, guarantee, False, expires_ns), self.target)
        if self.line is not None:
            self.pump()
            self.compare()

    def can_take_at_once(self) -> bool:
        return self.can_send() and not self.queue and all(item.is_open for item in self.window)

    @precondition(lambda self: self.line is not None and self.open_count())
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        item = data.draw(st.sampled_from([item for item in self.window if item.is_open]))
        if item.guarantee == 2 and not item.is_received:
            is_refused = data.draw(st.sampled_from([False, False, True]))
            assert self.session.on_received(item.packet_id, is_refused) == FITS
            item.is_received = True
            if not is_refused:
                self.wanted.append(("release", b"", item.packet_id))
                self.compare()
                return
        else:
            phase = RECEIVED if item.guarantee == 2 else SENT
            assert self.session.on_settled(item.packet_id, phase) == FITS
        self.window.remove(item)
        self.settled.add(item.payload)
        self.pump()
        self.compare()

    @precondition(lambda self: self.line is not None and self.open_count() < len(self.window))
    @rule(data=st.data())
    def answer_early(self, data: st.DataObject) -> None:
        """What the client got on an older connection, before it was sent again on this one."""
        item = data.draw(st.sampled_from([item for item in self.window if not item.is_open]))
        phase = RECEIVED if item.is_received else SENT
        if item.guarantee == 2 and not item.is_received:
            assert self.session.on_received(item.packet_id, True) == FITS
        else:
            assert self.session.on_settled(item.packet_id, phase) == FITS
        self.window.remove(item)
        self.settled.add(item.payload)
        self.pump()
        self.compare()

    @precondition(lambda self: self.line is not None and self.open_count())
    @rule(data=st.data())
    def answer_wrongly(self, data: st.DataObject) -> None:
        item = data.draw(st.sampled_from([item for item in self.window if item.is_open]))
        if item.guarantee == 1:
            assert self.session.on_received(item.packet_id, False) == WRONG
            assert self.session.on_settled(item.packet_id, RECEIVED) == WRONG
        else:
            assert self.session.on_settled(item.packet_id, SENT) == WRONG
            if not item.is_received:
                assert self.session.on_settled(item.packet_id, RECEIVED) == WRONG
        self.compare()

    @precondition(lambda self: self.line is not None)
    @rule(packet_id=st.integers(1, 65_535), phase=st.sampled_from([SENT, RECEIVED]))
    def answer_for_nothing(self, packet_id: int, phase: int) -> None:
        if all(item.packet_id != packet_id for item in self.window):
            assert self.session.on_settled(packet_id, phase) == UNKNOWN
            assert self.session.on_received(packet_id, False) == UNKNOWN
            self.compare()

    @precondition(lambda self: self.line is not None and not self.line.is_blocked)
    @rule()
    def block(self) -> None:
        assert self.line is not None
        self.line.is_lagging = True
        self.session.on_lagging()
        self.line.is_blocked = True
        self.session.on_blocked()
        self.compare()

    @precondition(lambda self: self.line is not None and self.line.is_blocked)
    @rule()
    def unblock(self) -> None:
        assert self.line is not None
        self.line.is_blocked = self.line.is_lagging = False
        self.session.on_caught_up()
        self.pump()
        self.compare()

    @precondition(lambda self: self.line is not None)
    @rule()
    def detach(self) -> None:
        self.session.detach()
        self.line = None
        for item in self.window:
            item.is_open = False
        excess = max(0, len(self.queue) - QUEUE_MAX)  # while somebody reads, the bound is soft
        self.queue = self.queue[excess:] if self.policy == "evict" else self.queue[:QUEUE_MAX]
        self.dropped += excess

    @precondition(lambda self: self.line is None)
    @rule(window=st.integers(1, 4))
    def attach(self, window: int) -> None:
        self.line = OrderedLine()
        self.limit = window
        self.session.attach(self.line, window)
        self.pump()
        self.compare()

    @rule(seconds=st.integers(1, 4))
    def move_the_clock(self, seconds: int) -> None:
        self.world.move(seconds)

    # ------------------------------------------------------------- invariants

    @invariant()
    def no_more_is_open_than_allowed(self) -> None:
        if self.line is not None:
            assert self.session.window.open == self.open_count() <= self.limit

    @invariant()
    def everything_is_in_one_place(self) -> None:
        session, counters = self.session, self.world.account.counters
        assert session.queued_count() == len(self.queue)
        assert session.window.count == len(self.window)
        assert counters.dropped_queue_full == self.dropped
        assert counters.dropped_expired == self.expired
        parts = len(self.queue) + len(self.window) + len(self.settled) + self.dropped + self.expired
        assert parts == self.count

    @invariant()
    def the_queue_knows_its_size(self) -> None:
        sizes = [1 + len(item.payload) + 64 for item in self.queue]
        assert self.session.queued_bytes() == sum(sizes)

    @invariant()
    def what_is_stored_is_what_is_there(self) -> None:
        if self.session.expiry_s:
            stored = self.world.store.load().sessions[0].deliveries
            kept = {(one.message.payload, int(one.packet_id)) for one in stored.values()}
            assert kept == {(item.payload, item.packet_id) for item in [*self.window, *self.queue]}
            assert list(stored) == sorted(stored)


TestSession = SessionMachine.TestCase
TestSession.settings = settings(
    max_examples=120, stateful_step_count=50, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
