"""Retained messages on their way to new subscriptions, a few at a time and as fast as the connection takes them.

Invariants
- A replay holds a place among the retained messages, never a copy of them.
- What was stored after the subscription is not replayed: the subscriber has got it as it came.
- Subscribed again before its replay has begun, a filter is replayed once.
- Whoever unsubscribes gets no more of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from millstream.broker.line import Line
from millstream.broker.session import Session
from millstream.broker.tasks import STEPS_PER_SLICE, Task
from millstream.model.delivery import Delivery
from millstream.model.message import Message
from millstream.routing.retained import RetainedCursor
from millstream.routing.subscription import Subscription

if TYPE_CHECKING:
    from millstream.protocols.mqtt.outgoing import Outgoing

SLICE_BYTES: Final = 256 * 1024  # that may wait in the outbox
STEPS_PER_MESSAGE: Final[i64] = 3


@final
class Replay:
    def __init__(self, session: Session, subscription: Subscription) -> None:
        self.subscription = subscription
        self.steps: i64 = 0  # taken so far
        self._session = session
        self._sequence: i64 = session.account.retained.sequence
        self._cursor: RetainedCursor | None = None

    def send_next(self, line: Line, now_ns: i64, steps_max: i64) -> bool:
        """Look for one and send it; False when none is left, or nobody wants it any more."""
        session = self._session
        subscription = self.subscription
        cursor = self._cursor
        if cursor is None:
            if session.subscriptions.find(subscription.filter) is not subscription:
                return False  # [MQTT-3.10.4-2]
            cursor = RetainedCursor(session.account.retained, subscription.filter, self._sequence, False)
            self._cursor = cursor
        before: i64 = cursor.steps
        message = cursor.find_next(steps_max)
        self.steps += cursor.steps - before
        if message is None:
            return not cursor.is_done()
        self.steps += STEPS_PER_MESSAGE
        self._send(message, line, now_ns)
        return True

    def pause(self) -> None:
        if self._cursor is not None:
            self._cursor.pause()

    def close(self) -> None:
        if self._cursor is not None:
            self._cursor.close()
            self._cursor = None

    def _send(self, message: Message, line: Line, now_ns: i64) -> None:
        session = self._session
        subscription = self.subscription
        account = session.account
        if message.is_expired(now_ns):
            account.counters.dropped_expired += 1
            return
        if not account.authorizer.can_receive(session.principal, session.key.client_id, message.topic):
            account.counters.deliveries_denied += 1
            return
        identifiers = (int(subscription.identifier),) if subscription.identifier else ()
        guarantee: i64 = message.guarantee
        if subscription.guarantee < guarantee:
            guarantee = subscription.guarantee
        if guarantee == 0:
            line.transmit_plain(message, True, identifiers)  # [MQTT-3.3.1-8]
        else:
            session.take(Delivery(message, guarantee, True, identifiers, b""))


@final
class Replays(Task):
    """Those of one connection, one after another."""

    def __init__(self, line: Outgoing, session: Session) -> None:
        self._line = line
        self._session = session
        self._tasks = session.account.tasks
        self._current: Replay | None = None
        self._waiting: dict[bytes, Replay] = {}  # by filter

    def is_empty(self) -> bool:
        return self._current is None and not self._waiting

    def add(self, replay: Replay) -> None:
        self._waiting[replay.subscription.filter] = replay

    def remove(self, filter: bytes) -> None:
        """Nobody subscribes to it any more [MQTT-3.10.4-2]."""
        self._waiting.pop(filter, None)
        current = self._current
        if current is not None and current.subscription.filter == filter:
            current.close()
            self._current = None

    def close(self) -> None:
        self._tasks.drop(self)
        self._waiting.clear()
        if self._current is not None:
            self._current.close()
            self._current = None

    def pump(self) -> None:
        """Send what fits into this turn; the rest follows in the next ones, or when the connection has room."""
        steps = self._tasks.left
        if steps > STEPS_PER_SLICE:
            steps = STEPS_PER_SLICE
        if steps <= 0:
            self._tasks.add(self)
            return
        used = self.run(steps)
        self._tasks.spend(used)
        if used >= steps:
            self._tasks.add(self)

    def run(self, steps: i64) -> i64:
        used: i64 = 0
        line = self._line
        now_ns = self._session.account.clock.now_ns
        while used < steps and self._can_go_on():
            replay = self._current
            if replay is None:
                replay = self._take_next()
                if replay is None:
                    break
                self._current = replay
                used += 1
            before: i64 = replay.steps
            if not replay.send_next(line, now_ns, steps - used):
                replay.close()
                self._current = None
            used += replay.steps - before
        if self._current is not None:
            self._current.pause()
        elif not self._waiting:
            line.drop_replays()  # else each flush would ask for another turn
        return used

    def on_task_failed(self, error: Exception) -> None:
        self._line.on_flush_failed(error)

    def _can_go_on(self) -> bool:
        line = self._line
        return not line.is_blocked and self._session.has_room() and line.outbox.size_bytes() < SLICE_BYTES

    def _take_next(self) -> Replay | None:
        for name in self._waiting:
            return self._waiting.pop(name)
        return None
