"""What a connection owes its client: answers and confirms, some of which wait until the store has made them last.

Invariants
- Nothing is promised before it is durable, whoever has made it.
- Answers to methods come in the order of the questions.
- Confirms of a channel come by ascending tags.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from millstream.model.errors import Reason, Refused
from millstream.protocols.amqp091.channel import Channel
from millstream.protocols.amqp091.wire.frames import write_ack
from millstream.protocols.amqp091.wire.methods import BasicNack, Method, name_of_method

if TYPE_CHECKING:
    from millstream.protocols.amqp091.endpoint import AmqpEndpoint

CONFIRMS_MAX: Final[i64] = 65_536  # publishes that may wait for the store; then the client is not read


@final
class Waiting:
    """An answer that waits for the store: a method, or confirms up to a tag."""

    def __init__(self, position: i64, channel: Channel, method: Method | None, tag: i64, count: i64) -> None:
        self.position: i64 = position
        self.channel = channel
        self.method = method
        self.tag: i64 = tag
        self.count: i64 = count


@final
class Answers:
    def __init__(self, endpoint: AmqpEndpoint) -> None:
        self.unconfirmed: i64 = 0  # publishes
        self._endpoint = endpoint
        self._store = endpoint.context.broker.store
        self._waiting: deque[Waiting] = deque()
        self._notices: list[tuple[Channel, Method]] = []
        self._confirming: dict[Channel, None] = {}  # with confirms to give at the end of this read

    def are_waiting(self) -> bool:
        return len(self._waiting) != 0

    # ----------------------------------------------------------------- methods

    def give(self, channel: Channel, method: Method, position_before: i64) -> None:
        """When all that has happened since is durable (-1: whatever has happened), and never before what was asked
        earlier."""
        waiting = self._waiting
        position = self._store.position()
        if position == position_before:
            position = waiting[-1].position if waiting else 0
        if not waiting and self._store.durable() >= position:
            self._endpoint.machine.send(channel.number, method)
        else:
            channel.awaited += 1
            self._wait(Waiting(position, channel, method, 0, 0))

    def reply(self, channel: Channel, method: Method) -> None:
        """To what needs no store: at once, but behind what was asked before on this channel."""
        if channel.awaited:
            self.give(channel, method, self._store.position())
        else:
            self._endpoint.machine.send(channel.number, method)

    def notify(self, channel: Channel, method: Method) -> None:
        """Tell the client something it did not ask for, behind the answer to what it did."""
        self._notices.append((channel, method))
        self._endpoint.outbox.open()  # so that it is flushed

    def send_notices(self) -> None:
        if not self._notices:
            return
        notices = self._notices
        self._notices = []
        for channel, method in notices:
            if not channel.is_ended:
                self.give(channel, method, -1)

    # ---------------------------------------------------------------- confirms

    def confirm_later(self, channel: Channel) -> None:
        """At the end of this read, all at once."""
        self._confirming[channel] = None

    def ask(self) -> bool:
        """At the end of a read: give the confirms of what is safe, the others wait. False when there are none."""
        self.send_notices()
        if not self._confirming:
            return False
        position = self._store.position()
        is_safe = self._store.durable() >= position and not self._waiting
        channels = self._confirming
        self._confirming = {}
        for channel in channels:
            publisher = channel.publisher
            count = publisher.taken
            publisher.taken = 0
            if is_safe:
                self._confirm(channel, publisher.last_taken, count)
            else:
                self._wait(Waiting(position, channel, None, publisher.last_taken, count))
        return True

    def _confirm(self, channel: Channel, tag: i64, count: i64) -> None:
        write_ack(self._endpoint.outbox.open(), channel.number, tag, count > 1)

    def _wait(self, waiting: Waiting) -> None:
        if not self._waiting:
            self._endpoint.context.broker.wait_durable(self._endpoint)
        self._waiting.append(waiting)
        self.unconfirmed += waiting.count
        if self.unconfirmed >= CONFIRMS_MAX:
            self._endpoint.stop_reading()

    # ------------------------------------------------------------------- store

    def on_durable(self, durable: i64) -> None:
        waiting = self._waiting
        while waiting and waiting[0].position <= durable:
            first = waiting.popleft()
            self.unconfirmed -= first.count
            channel = first.channel
            if channel.is_ended:
                continue
            method = first.method
            if method is not None:
                channel.awaited -= 1
                self._endpoint.machine.send(channel.number, method)
                continue
            count: i64 = first.count
            while waiting and waiting[0].position <= durable and waiting[0].channel is channel:
                if waiting[0].method is not None:
                    break
                first = waiting.popleft()
                self.unconfirmed -= first.count
                count += first.count
            self._confirm(channel, first.tag, count)

    def give_up(self) -> None:
        """The disk takes nothing: who waits for it is told that nothing is confirmed. The connection lives."""
        waiting = self._waiting
        self._waiting = deque()
        self.unconfirmed = 0
        for entry in waiting:
            channel = entry.channel
            if channel.is_ended:
                continue
            if entry.method is None:
                nack = BasicNack(int(entry.tag), entry.count > 1, False)
                self._endpoint.machine.send(channel.number, nack)
            else:
                text = f"{name_of_method(entry.method)} cannot be given: nothing can be made durable now"
                self._endpoint.refuse(channel, Refused(Reason.UNAVAILABLE, text), 0, 0)

    def owes(self, channel: Channel) -> bool:
        return channel.asking != 0 or any([entry.channel is channel for entry in self._waiting])

    def forget(self, channel: Channel) -> None:
        self._confirming.pop(channel, None)

    def clear(self) -> None:
        self._waiting.clear()
