"""What one connection has asked for and takes more than a slice of a turn: many deliveries answered at once, channels and
connections with much open that end.

Invariants
- While a chore goes on the connection is not read, and nothing it sent is acted on.
- A chore that was begun is carried out to its end, whatever becomes of the connection.
- Small ones are over on the spot.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from millstream.broker.binding_removal import BindingRemoval
from millstream.broker.fan_out import FanOut
from millstream.broker.tasks import STEP_NS, STEPS_PER_SLICE, Task, TaskQueue
from millstream.model.errors import Reason
from millstream.model.outcome import Outcome
from millstream.protocols.amqp091.wire.methods import QueuePurgeOk
from millstream.queues.group import Group
from millstream.queues.purge import Purge
from millstream.queues.queue import Queue

if TYPE_CHECKING:
    from millstream.protocols.amqp091.channel import Channel
    from millstream.protocols.amqp091.endpoint import AmqpEndpoint
    from millstream.protocols.amqp091.machine.events import Closed, PublishReceived

STEPS_PER_ACCEPTED: Final[i64] = 1
STEPS_PER_RETURNED: Final[i64] = 3
STEPS_PER_REJECTED: Final[i64] = 30  # it may become a dead letter
STEPS_PER_CONSUMER: Final[i64] = 2
CONSUMERS_PER_STEP: Final[i64] = 500  # of a queue, that are looked through for the one that leaves
STEPS_PER_CHANNEL: Final[i64] = 2
STEPS_PER_QUEUE: Final[i64] = 10


def steps_of(outcome: Outcome) -> i64:
    if outcome is Outcome.REJECTED:
        return STEPS_PER_REJECTED
    return STEPS_PER_ACCEPTED if outcome is Outcome.ACCEPTED else STEPS_PER_RETURNED


class Chore(ABC):
    @abstractmethod
    def run(self, steps: i64) -> i64:
        """Take about so many steps; what is left of them. 0 or less: there is more to do."""

    @abstractmethod
    def on_done(self) -> None: ...

    def is_waiting(self) -> bool:
        """Whether it does nothing by itself but wait."""
        return False


@final
class Chores(Task):
    def __init__(self, endpoint: AmqpEndpoint, tasks: TaskQueue) -> None:
        self._endpoint = endpoint
        self._tasks = tasks
        self._waiting: deque[Chore] = deque()
        self._left: i64 = 0  # of this turn when events began to be acted on

    def is_busy(self) -> bool:
        return len(self._waiting) != 0

    def begin(self) -> None:
        """Events are acted on from here on."""
        self._left = self._tasks.left

    def is_due(self) -> bool:
        """Whether what follows has to wait: something goes on, or what came before has cost a slice on the spot by the dead letters
        it made."""
        if not self._waiting and self._left - self._tasks.left >= STEPS_PER_SLICE:
            self.start(Pause())
        return len(self._waiting) != 0

    def start(self, chore: Chore) -> None:
        """Behind those that go on."""
        if not self._waiting and chore.run(STEPS_PER_SLICE) > 0:
            chore.on_done()
            return
        if not self._waiting:
            self._endpoint.link.wait_for_turn(True)
            self._tasks.add(self)
        self._waiting.append(chore)

    def run(self, steps: i64) -> i64:
        left: i64 = steps
        used: i64 = 0
        while left > 0 and self._waiting:
            chore = self._waiting[0]
            before: i64 = left
            left = chore.run(left)
            if not chore.is_waiting():
                used += before - left
            if left > 0:
                self._waiting.popleft()
                chore.on_done()
        self._endpoint.link.charge(used * STEP_NS)
        if self._waiting:
            return steps
        self._endpoint.link.wait_for_turn(False)
        self._endpoint.on_chores_done()
        return steps - 1

    def on_task_failed(self, error: Exception) -> None:
        self._waiting.clear()
        self._endpoint.link.on_fault(error)


@final
class Pause(Chore):
    """What the connection sent has cost a slice on the spot: what follows waits for the next turn."""

    def __init__(self) -> None:
        self._is_over = False

    def run(self, steps: i64) -> i64:
        if self._is_over:
            return steps
        self._is_over = True
        return 0

    def on_done(self) -> None:
        pass

    def is_waiting(self) -> bool:
        return True


@final
class Removal(Chore):
    """What the client has deleted had very many bindings: what it asks for next waits until they are gone, and what went with
    the last of them. What others have deleted is not waited for."""

    def __init__(self, removal: BindingRemoval, queue: str, exchange: str) -> None:
        self._removal = removal
        self._queue = queue
        self._exchange = exchange

    def run(self, steps: i64) -> i64:
        removal = self._removal
        is_left = removal.has_queue(self._queue) or removal.has_exchange(self._exchange)
        return 0 if is_left or removal.has_urgent() else steps

    def on_done(self) -> None:
        pass

    def is_waiting(self) -> bool:
        return True


def wait_for_removal(endpoint: AmqpEndpoint, queue: str, exchange: str) -> None:
    """One of the two was just deleted; the other is empty."""
    account = endpoint.account
    if account is None:
        return
    removal = account.exchanges.removal
    if removal.has_queue(queue) or removal.has_exchange(exchange):
        endpoint.chores.start(Removal(removal, queue, exchange))


@final
class FanningOut(Chore):
    """A message on its way to very many receivers; confirmed behind the last of them."""

    def __init__(
        self, endpoint: AmqpEndpoint, channel: Channel, rest: FanOut, event: PublishReceived, reason: Reason
    ) -> None:
        self._endpoint = endpoint
        self._channel = channel
        self._rest = rest
        self._event = event
        self._reason = reason

    def run(self, steps: i64) -> i64:
        used: i64 = self._rest.run(steps)
        return steps - used if used < steps else 0

    def on_done(self) -> None:
        if not self._channel.is_ended:
            self._channel.publisher.on_fanned_out(self._event, self._reason)


@final
class Purging(Chore):
    """A queue that is emptied. `position`: of the store before it; -1: the answer waits for what was written."""

    def __init__(
        self, endpoint: AmqpEndpoint, channel: Channel, purge: Purge, is_answered: bool, position: i64
    ) -> None:
        self._endpoint = endpoint
        self._channel = channel
        self._purge = purge
        self._is_answered = is_answered
        self._position: i64 = position

    def run(self, steps: i64) -> i64:
        return self._purge.run(steps)

    def on_done(self) -> None:
        if self._is_answered and not self._channel.is_ended:
            answer = QueuePurgeOk(int(self._purge.count))
            self._endpoint.answers.give(self._channel, answer, self._position)


@final
class Settling(Chore):
    """Open deliveries that are answered at once. Their groups hand out again when all of them are."""

    def __init__(self, channel: Channel, tags: list[int], outcome: Outcome) -> None:
        self._channel = channel
        self._tags = tags
        self._outcome = outcome
        self._steps: i64 = steps_of(outcome)
        self._at: i64 = 0
        self._groups: dict[Group, None] = {}

    def run(self, steps: i64) -> i64:
        left: i64 = steps
        channel = self._channel
        tasks = channel.endpoint.context.broker.tasks
        while left > 0 and self._at < len(self._tags):
            before: i64 = tasks.left
            group = channel.settle_one(self._tags[self._at], self._outcome)
            if group is not None:
                self._groups[group] = None
            self._at += 1
            left -= self._steps + before - tasks.left  # a dead letter may be costly
        return left if self._at >= len(self._tags) else 0

    def on_done(self) -> None:
        for group in self._groups:
            group.dispatch()


@final
class Answering(Chore):
    """The same, asked for by a client that goes on."""

    def __init__(self, channel: Channel, tags: list[int], outcome: Outcome, must_pump: bool) -> None:
        self._channel = channel
        self._settling = Settling(channel, tags, outcome)
        self._must_pump = must_pump

    def run(self, steps: i64) -> i64:
        return self._settling.run(steps)

    def on_done(self) -> None:
        self._settling.on_done()
        self._channel.on_answered(self._must_pump)


@final
class ChannelEnd(Chore):
    def __init__(self, endpoint: AmqpEndpoint, channel: Channel, is_asked: bool) -> None:
        self._endpoint = endpoint
        self._channel = channel
        self._is_asked = is_asked  # by the client, which waits for the answer
        self._consumers = channel.begin_end()
        self._consumers.reverse()
        self._settling = Settling(channel, list(channel.unsettled), Outcome.MODIFIED)

    def run(self, steps: i64) -> i64:
        left: i64 = self._settling.run(steps - STEPS_PER_CHANNEL)
        while left > 0 and self._consumers:
            consumer = self._consumers.pop()
            left -= STEPS_PER_CONSUMER + len(consumer.group.consumers) // CONSUMERS_PER_STEP
            self._channel.part_with(consumer)
        return left if not self._consumers else 0

    def on_done(self) -> None:
        self._settling.on_done()
        if self._is_asked:
            self._endpoint.on_channel_ended(self._channel.number)


@final
class ConnectionEnd(Chore):
    """Its channels, then the queues that are its own, then the connection itself."""

    def __init__(
        self, endpoint: AmqpEndpoint, channels: list[Channel], queues: list[Queue], event: Closed
    ) -> None:
        self._endpoint = endpoint
        self._ends = [ChannelEnd(endpoint, channel, False) for channel in channels]
        self._ends.reverse()
        self._queues = queues
        self._event = event

    def run(self, steps: i64) -> i64:
        left: i64 = steps
        while left > 0 and self._ends:
            left = self._ends[-1].run(left)
            if left > 0:
                self._ends.pop().on_done()
        while left > 0 and self._queues:
            queue = self._queues.pop()
            left -= STEPS_PER_QUEUE
            if not queue.is_removed:
                queue.catalog.delete(queue)
        return left if not self._ends and not self._queues else 0

    def on_done(self) -> None:
        self._endpoint.on_ended(self._event)
