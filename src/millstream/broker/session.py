"""A session: the state that outlives a connection, and the outlet its subscriptions deliver to.

Invariants
- A delivery is in exactly one place: in the queue, or numbered in the window.
- Nothing overtakes: while the queue holds anything, new numbered deliveries go behind it.
- Numbered deliveries are sent again only when a connection resumes the session [MQTT-4.4.0-1].
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from millstream.broker.consumers import Consumers
from millstream.broker.line import Ending, Line
from millstream.broker.subscription_set import SubscriptionSet
from millstream.broker.will import Will
from millstream.broker.window import Window
from millstream.model.delivery import QUEUED, RECEIVED, SENT, Delivery
from millstream.model.message import Message
from millstream.model.outlet import Outlet, Run, Target
from millstream.security.principal import Principal
from millstream.storage.store import SessionKey

if TYPE_CHECKING:
    from millstream.broker.account import Account
    from millstream.broker.doubt import Doubt

# how an answer from the receiver meets the deliveries that are open
FITS: Final[i64] = 0
UNKNOWN: Final[i64] = 1
WRONG: Final[i64] = 2

# what a client sends to itself cannot be held back: so many times the ordinary mark may wait, then the policy drops
OWN_FACTOR: Final = 10


@final
class Session(Outlet):
    def __init__(self, account: Account, client_id: str, principal: Principal, window_limit: i64) -> None:
        self.account = account
        self.usage = account.quotas.of(principal.name)
        self.key = SessionKey(account.name, client_id)
        self.principal = principal
        self.expiry_s: i64 = 0
        self.expires_ns: i64 = 0  # 0: connected, or never
        self.will: Will | None = None
        self.line: Line | None = None
        self.window = Window(window_limit)
        self.is_full = False
        self.is_slow = False
        self.is_ended = False
        self.is_stored = False
        self._is_watched = False
        self.subscriptions = SubscriptionSet()
        self._queue: deque[Delivery] | None = None
        self._queued_bytes: i64 = 0
        self._resend: list[Delivery] | None = None  # reversed: the oldest is last
        self._received_ids: dict[int, None] | None = None
        self.doubt: Doubt | None = None  # restored from a log that may lack its end
        self.consumers: Consumers | None = None  # of queues
        self._sequence: i64 = 0
        self._settled: i64 = 0

    # ---------------------------------------------------------------- outlet

    def deliver(self, message: Message, target: Target) -> None:
        guarantee: i64 = message.guarantee
        if target.guarantee < guarantee:
            guarantee = target.guarantee
        retain = message.retain and target.retain_as_published  # [MQTT-3.3.1-12, 3.3.1-13]
        if guarantee == 0:
            line = self.line
            if line is None:
                self.account.counters.dropped_offline += 1
            elif not line.is_blocked or self._admit(line, 1):
                line.transmit_plain(message, retain, target.identifiers)
            return
        self.take(Delivery(message, guarantee, retain, target.identifiers, target.share))

    def deliver_run(self, run: Run, target: Target) -> None:
        line = self.line
        if line is None:
            self.account.counters.dropped_offline += run.count
        elif not line.is_blocked or self._admit(line, run.count):
            line.transmit_run(run, target)

    def is_present(self) -> bool:
        line = self.line
        return line is not None and not line.is_blocked and not self.is_slow

    def is_connected(self) -> bool:
        return self.line is not None

    def is_gone(self) -> bool:
        return self.is_ended

    def has_room(self) -> bool:
        """Whether a numbered delivery would be handed out at once."""
        return self.window.open < self.window.limit and self._queue is None and self._resend is None

    def may_receive(self, topic: bytes) -> bool:
        account = self.account
        if account.authorizer.can_receive(self.principal, self.key.client_id, topic):
            return True
        account.counters.deliveries_denied += 1
        return False

    def take(self, delivery: Delivery) -> None:
        """A numbered delivery: hand it out if there is room, else queue it."""
        delivery.sequence = self._sequence
        self._sequence += 1
        line = self.line
        if (
            line is not None
            and not line.is_blocked
            and self.window.open < self.window.limit
            and self._queue is None
            and self._resend is None
        ):
            self._send(delivery, line, True)
        else:
            self._enqueue(delivery)

    # ---------------------------------------------------------- from the line

    def on_settled(self, packet_id: i64, phase: i64) -> i64:
        """The receiver is done with a delivery in that phase: FITS, UNKNOWN or WRONG."""
        delivery = self.window.find(packet_id)
        if delivery is None:
            return UNKNOWN
        if delivery.phase != phase or (phase == SENT and delivery.guarantee != 1):
            return WRONG  # exactly once ends with its release, not before
        self._finish(delivery)
        return FITS

    def on_received(self, packet_id: i64, is_refused: bool) -> i64:
        """Exactly once, half way: the receiver has the message [MQTT-4.3.3-4]."""
        delivery = self.window.find(packet_id)
        if delivery is None:
            return UNKNOWN
        if delivery.guarantee != 2:
            return WRONG
        if is_refused:
            self._finish(delivery)  # [MQTT-4.3.3-4]: nothing follows a refusal
            return FITS
        delivery.phase = RECEIVED
        line = self.line
        if self.expiry_s:
            self.account.store.delivery_advanced(self.key, delivery)
            if line is not None:
                self.account.held.hand_out(self, line, delivery, False)
        elif line is not None:
            line.transmit_release(packet_id)
        return FITS

    def _finish(self, delivery: Delivery) -> None:
        self._settle(delivery)
        if delivery.receipt is not None:
            delivery.receipt.on_taken()
        if self._queue is not None or self._resend is not None:
            self.drain()
        else:
            self._relax()
            if self.consumers is not None:
                self.consumers.pump()

    def on_lagging(self) -> None:
        self._watch()

    def on_blocked(self) -> None:
        self._hold()

    def on_caught_up(self) -> None:
        self.is_slow = False
        self.drain()

    def is_id_received(self, packet_id: i64) -> bool:
        ids = self._received_ids
        return ids is not None and int(packet_id) in ids

    def add_received_id(self, packet_id: i64, is_kept: bool = False) -> None:
        if self._received_ids is None:
            self._received_ids = {}
        self._received_ids[int(packet_id)] = None
        if self.expiry_s and not is_kept:
            self.account.store.id_received(self.key, packet_id)

    def remove_received_id(self, packet_id: i64) -> bool:
        ids = self._received_ids
        if ids is not None and int(packet_id) in ids:
            del ids[int(packet_id)]
            if len(ids) == 0:
                self._received_ids = None
        elif self.doubt is None or not self.doubt.forget(packet_id):
            return False
        if self.expiry_s:
            self.account.store.id_released(self.key, packet_id)
        return True

    def received_id_count(self) -> i64:
        return 0 if self._received_ids is None else len(self._received_ids)

    # ------------------------------------------------------------ attachment

    def attach(self, line: Line, window_limit: i64) -> None:
        """A connection takes over: what is open is sent again, then what waited."""
        self.line = line
        self.account.router.arrivals.add(self)
        self.is_slow = False
        self.window.limit = window_limit
        self.window.open = 0
        self._resend = self.window.in_order()[::-1] or None
        if self.doubt is not None:
            self.doubt.on_attached(self)
        self.drain()

    def detach(self) -> None:
        self.line = None
        self.account.router.arrivals.forget(self)
        if self.consumers is not None:
            self.consumers.let_go(self.window)
        self.window.open = 0
        self._resend = None
        self.window.shrink()
        self.is_slow = False
        self._unwatch()
        self._trim()

    def on_stuck(self) -> None:
        """No progress for too long: stop holding the sources."""
        self.is_slow = True
        self.is_full = False
        self.account.pressure.release(self)
        self._trim()
        if self.account.limits.disconnect_on_full and self.line is not None:
            self.line.end(Ending.TOO_SLOW)

    def title(self) -> str:
        return f"the subscriber {self.key.client_id}"

    def holds(self) -> bool:
        return self.is_full

    def progress_mark(self) -> tuple[int, int]:
        return (int(self._settled), 0 if self.line is None else int(self.line.left_bytes()))

    def drain(self) -> None:
        line = self.line
        if line is None:
            return
        now_ns = self.account.clock.now_ns
        while not line.is_blocked and self.window.open < self.window.limit:
            if self._resend is not None:
                self._send_again(self._resend.pop(), line)
                self._resend = self._resend or None
                continue
            queue = self._queue
            if queue is None:
                break
            delivery = queue.popleft()
            self._queued_bytes -= delivery.message.size_bytes()
            if len(queue) == 0:
                self._queue = None
            if delivery.message.is_expired(now_ns):
                self._discard(delivery)
                self.account.counters.dropped_expired += 1
            elif not self.account.authorizer.can_receive(
                self.principal, self.key.client_id, delivery.message.topic
            ):
                self._discard(delivery)
                self.account.counters.deliveries_denied += 1
            else:
                self._send(delivery, line, False)
        self._relax()
        if self.consumers is not None:
            self.consumers.pump()

    # -------------------------------------------------------------- queueing

    def queued_count(self) -> i64:
        return 0 if self._queue is None else len(self._queue)

    def queued_bytes(self) -> i64:
        return self._queued_bytes

    def restore(self, deliveries: list[Delivery], received_ids: list[int]) -> None:
        """Put back what the store kept, in order."""
        for delivery in deliveries:
            self._sequence = max(self._sequence, delivery.sequence + 1)
            if delivery.phase == QUEUED:
                self._append(delivery)
            else:
                self.window.put_back(delivery)
        if received_ids:
            self._received_ids = dict.fromkeys(received_ids)

    def take_shared(self) -> list[Delivery]:
        """Deliveries that others of their group may take over: not those half way through QoS 2 [MQTT-4.8.2-4, MQTT-4.8.2-5]."""
        taken = [each for each in self.window.in_order() if each.share and each.guarantee == 1]
        if self._queue is not None:
            taken.extend([delivery for delivery in self._queue if delivery.share])
        return taken

    def give_up(self, delivery: Delivery) -> None:
        """Another session has taken it over."""
        queue = self._queue
        if delivery.phase == QUEUED and queue is not None:
            queue.remove(delivery)
            self._queued_bytes -= delivery.message.size_bytes()
            self._queue = queue or None
        elif delivery.phase != QUEUED:
            self.window.remove(delivery)
        self._discard(delivery)

    def clear(self) -> None:
        """Forget everything that waits: the session has ended."""
        self._queue = None
        self._queued_bytes = 0
        self._resend = None
        self._received_ids = None
        self.window.clear()
        self._unwatch()

    def _send(self, delivery: Delivery, line: Line, is_new: bool) -> None:
        self.window.add(delivery)
        delivery.phase = SENT
        self.window.open += 1
        if self.expiry_s:
            if is_new:
                self.account.store.delivery_added(self.key, delivery)
            else:
                self.account.store.delivery_advanced(self.key, delivery)
            self.account.held.hand_out(self, line, delivery, False)
        else:
            self.transmit(line, delivery, False)

    def _send_again(self, delivery: Delivery, line: Line) -> None:
        self.window.open += 1
        if self.expiry_s:
            self.account.held.hand_out(self, line, delivery, True)
        else:
            self.transmit(line, delivery, True)

    def transmit(self, line: Line, delivery: Delivery, is_repeat: bool) -> None:
        """Hand it to the line, now that nothing about it can be forgotten any more."""
        if self.window.find(delivery.packet_id) is not delivery:
            return  # settled, or taken over by another, meanwhile
        if delivery.phase == RECEIVED:
            line.transmit_release(delivery.packet_id)
        elif not line.transmit(delivery, is_repeat):
            self._settle(delivery)
            self.account.counters.dropped_too_large += 1
            if delivery.receipt is not None:
                delivery.receipt.on_refused()

    def _settle(self, delivery: Delivery) -> None:
        self.window.remove(delivery)
        resend = self._resend
        if resend is not None and delivery in resend:  # answered before it could be sent again
            resend.remove(delivery)
            self._resend = resend or None
        elif self.window.open:
            self.window.open -= 1
        self._settled += 1
        self._discard(delivery)

    def _discard(self, delivery: Delivery) -> None:
        if self.expiry_s and delivery.receipt is None and not self.is_ended:
            self.account.store.delivery_removed(self.key, delivery)

    def _append(self, delivery: Delivery) -> None:
        if self._queue is None:
            self._queue = deque()
        self._queue.append(delivery)
        self._queued_bytes += delivery.message.size_bytes()

    def _enqueue(self, delivery: Delivery) -> None:
        if self.is_ended:
            return
        limits = self.account.limits
        waits = self.line is not None and not self.is_slow
        if waits and limits.inflight_overflow == "pending":
            if self.queued_count() >= limits.pending_messages_max:
                self.account.counters.dropped_queue_full += 1
                return
        elif waits and not self.account.pressure.can_wait_for(self):
            if not self._make_own_space():
                return
        elif not waits and not self._make_space(delivery):
            return
        self._append(delivery)
        if self.expiry_s:
            self.account.store.delivery_added(self.key, delivery)
        if waits:
            self._watch()
            if self._is_over_mark():
                self._hold()

    def _make_space(self, delivery: Delivery) -> bool:
        """Bound the queue of an absent or slow session by its policy; False: the new one is refused."""
        limits = self.account.limits
        size = delivery.message.size_bytes()
        has_quota = self.account.quotas.has_bytes(self.usage)
        if has_quota and self._fits(size):
            return True
        has_none = not has_quota and self._queue is None  # that could go for it
        if limits.offline_policy != "evict" or size > limits.offline_bytes_max or has_none:
            self.account.counters.dropped_queue_full += 1
            return False
        while self._queue is not None and not (has_quota and self._fits(size)):
            self._evict()
            has_quota = True
        return True

    def _make_own_space(self) -> bool:
        """The same for what nobody can be held for: a far bound, and one out for one in."""
        limits = self.account.limits
        count_max: i64 = OWN_FACTOR * limits.pending_messages_max
        if self.queued_count() < count_max and self._queued_bytes < OWN_FACTOR * limits.offline_bytes_max:
            return True
        if limits.offline_policy != "evict":
            self.account.counters.dropped_queue_full += 1
            return False
        self._evict()
        return True

    def _fits(self, size: i64) -> bool:
        limits = self.account.limits
        has_bytes = self._queued_bytes + size <= limits.offline_bytes_max
        return has_bytes and self.queued_count() < limits.offline_messages_max

    def _evict(self) -> None:
        """Drop one by policy: the oldest, or the newest."""
        queue = self._queue
        assert queue is not None
        dropped = queue.popleft() if self.account.limits.offline_policy == "evict" else queue.pop()
        self._queued_bytes -= dropped.message.size_bytes()
        self._queue = queue or None
        self._discard(dropped)
        self.account.counters.dropped_queue_full += 1

    def _trim(self) -> None:
        """The bound of a waiting queue is soft; once nobody waits for it, it is not."""
        self.trim(self.account.limits.offline_messages_max, self.account.limits.offline_bytes_max)

    def trim(self, count_max: i64, bytes_max: i64) -> None:
        while self.queued_count() > count_max or self._queued_bytes > bytes_max:
            self._evict()

    # -------------------------------------------------------------- pressure

    def _is_over_mark(self) -> bool:
        if self.line is None:
            return False
        return self.line.is_blocked or self.queued_count() >= self.account.limits.pending_messages_max

    def _admit(self, line: Line, count: i64) -> bool:
        """At most once towards a blocked line: passed while its sources can be held, else dropped."""
        if self.is_slow or line.unsent_bytes() >= self.account.memory.unsent_max:
            self.account.counters.dropped_slow += count
            return False
        self._hold()
        return True

    def _hold(self) -> None:
        """Let the sources wait, unless this session is known to stand still."""
        limits = self.account.limits
        is_blocked = self.line is not None and self.line.is_blocked
        if self.is_slow or (limits.inflight_overflow == "pending" and not is_blocked):
            return
        if self.account.pressure.is_stuck(self, self.account.clock.now_ns):
            self.on_stuck()
            return
        self.is_full = True
        self.account.pressure.hold(self)

    def _relax(self) -> None:
        """Something was settled or sent: the sources may go on, or need not be watched for any more."""
        if self.is_full and not self._is_over_mark():
            self.is_full = False
            self.account.pressure.release(self)
        if not self._is_watched or self._queue is not None or self._resend is not None:
            return
        if self.line is None or not self.line.is_lagging:
            self.is_slow = False
            self._unwatch()

    def _watch(self) -> None:
        if not self._is_watched:
            self._is_watched = True
            self.account.pressure.watch(self, self.account.clock.now_ns)

    def _unwatch(self) -> None:
        self.is_full = False
        if self._is_watched:
            self._is_watched = False
            self.account.pressure.unwatch(self)
