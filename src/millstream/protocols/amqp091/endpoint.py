"""The seam: what the machine reports goes to the broker, what queues deliver goes to the machine.

Invariants
- A confirm, and the answer to anything that lasts, waits until what it promises is durable.
- A refused operation closes its channel, a violation its connection; neither touches another's.
- Everything a connection had open goes back to the queues when it ends, and its exclusive queues go with it.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from millstream.broker.account import Account
from millstream.broker.conditions import LIMIT_REACHED
from millstream.broker.line import Ending
from millstream.model.errors import Reason, Refused
from millstream.model.outbox import Outbox
from millstream.model.outcome import Outcome
from millstream.protocols.amqp091.answers import CONFIRMS_MAX, Answers
from millstream.protocols.amqp091.channel import Channel
from millstream.protocols.amqp091.chores import ChannelEnd, Chores, ConnectionEnd
from millstream.protocols.amqp091.context import AmqpContext
from millstream.protocols.amqp091.exclusive_queues import ExclusiveQueues
from millstream.protocols.amqp091.handshake import Handshake
from millstream.protocols.amqp091.machine.connection import Connection
from millstream.protocols.amqp091.machine.events import (
    AckReceived,
    ChannelClosed,
    ChannelOpened,
    Closed,
    Event,
    MethodReceived,
    PublishReceived,
)
from millstream.protocols.amqp091.mapping import ENDING_CODES, ENDING_TEXTS, REPLY_CODES
from millstream.protocols.amqp091.methods import on_method
from millstream.protocols.amqp091.publishing import Place, must_wait
from millstream.protocols.amqp091.transaction import TransactionRoom
from millstream.protocols.amqp091.unread import Unread
from millstream.protocols.amqp091.wire import codes
from millstream.protocols.amqp091.wire.methods import (
    BasicAck,
    BasicPublish,
    ConnectionBlocked,
    ConnectionUnblocked,
    ConnectionUpdateSecret,
    Method,
    TxCommit,
)
from millstream.protocols.amqp091.wire.violation import Violation
from millstream.protocols.endpoint import Endpoint, Link
from millstream.security.authentication import Decision
from millstream.security.principal import Principal
from millstream.security.quota import Usage
from millstream.security.rate import Bucket

ACCEPTED: Final = Outcome.ACCEPTED
ANSWERS_MAX: Final[i64] = 8 * 1024 * 1024  # bytes of one turn; then a client gets no more by basic.get
LINGER_NS: Final[i64] = 5_000_000_000  # that a client which has closed may take to go
BLOCKED_BY_MEMORY: Final[i64] = 2  # the context has the other cause
MEMORY_TEXT: Final = b"low on memory"
BEHIND_MAX: Final[i64] = 50_000  # facts the store may be behind before publishers without confirms wait too


@final
class AmqpEndpoint(Endpoint):
    def __init__(self, context: AmqpContext, link: Link, now_ns: i64) -> None:
        super().__init__()
        self.context = context
        self.link = link
        self.outbox = Outbox(context.pool, self)
        self.machine = Connection(context.find_terms(link), self.outbox, now_ns)
        self.connection_id = f"amqp-{context.entropy.make_name()}"
        self.account: Account | None = None
        self.principal: Principal | None = None
        self.usage: Usage | None = None  # of its user
        self.user_name = b""  # as the client gave it
        self.virtual_host = "/"
        self.takes_cancel = False  # the client understands a cancel from the broker
        self.takes_blocked = False
        self._blocked_by: i64 = 0  # what it was told of by connection.blocked
        self.is_by_specification = False  # what basic.qos means to the client, see Channel.set_prefetch
        self.channels: dict[int, Channel] = {}
        self.exclusive_queues = ExclusiveQueues()
        self.views: dict[bytes, bytes] = {}  # of properties, for other protocols
        self.places: dict[tuple[bytes, bytes], Place] = {}  # where exchanges and keys lead this client
        self.transaction_room = TransactionRoom()
        self.unsettled_bytes: i64 = 0  # of deliveries that are open on all channels
        self.is_outbox_full = False  # deliveries wait for the next flush
        self.answers = Answers(self)
        self.chores = Chores(self, context.broker.tasks)
        self._handshake = Handshake(context, self)
        self._stalled: list[Event] = []  # what was read and cannot be stored now
        self._waits_for_store = False
        self._is_held = False  # until an outlet it publishes to has room
        self._unread = Unread()
        limits = context.limits
        self.subscribed: i64 = 0  # what it made and joined since its rate was looked at
        self.has_rate = limits.message_rate > 0 or limits.subscribe_rate > 0
        self._bucket = Bucket(limits.message_rate, limits.message_burst)
        self._subscribe_bucket = Bucket(limits.subscribe_rate, limits.subscribe_burst)
        self._paid_ns: i64 = 0  # until then its rate keeps it from being read
        self.early_bytes: i64 = 0  # received before it was known whose they are
        self._is_closing = False
        self._leaves_ns: i64 = 0  # when a client that has closed must be gone

    # ------------------------------------------------------------- from below

    def receive_data(self, data: bytes, now_ns: i64) -> None:
        broker = self.context.broker
        broker.clock.now_ns = now_ns
        account = self.account
        before: i64 = 0
        if account is not None:
            account.counters.bytes_received += len(data)
            before = account.counters.messages_received
        else:
            self.early_bytes += len(data)
        broker.pressure.begin(self)
        position = broker.store.position()
        self.handle(self.machine.receive_data(data, now_ns))
        if self.has_rate and account is not None:
            self._slow_down(account, account.counters.messages_received - before, now_ns)
        if not self.answers.ask() and broker.store.position() != position:
            self._hold_back()
        self._wait_for_holders()

    def _wait_for_holders(self) -> None:
        if self.context.broker.pressure.end(self):
            self._is_held = True
            self.link.pause_reading()

    def _slow_down(self, account: Account, published: i64, now_ns: i64) -> None:
        """It has published, made and joined so much: as with other protocols it is not read until its rates allow for it."""
        usage = self.usage
        debt_ns = max(
            self._bucket.charge(int(published), int(now_ns)),
            self._subscribe_bucket.charge(int(self.subscribed), int(now_ns)),
            0 if usage is None else usage.charge(int(published), int(now_ns)),
        )
        self.subscribed = 0
        if debt_ns:
            account.counters.rate_pauses += 1
            self._paid_ns = now_ns + debt_ns
            self.link.pause_for(debt_ns)

    def next_deadline(self) -> i64:
        return self._leaves_ns or self.machine.next_deadline()

    def on_deadline(self, now_ns: i64) -> None:
        if self._leaves_ns and now_ns >= self._leaves_ns:
            self.link.close()
        self.context.broker.clock.now_ns = now_ns
        is_waiting = (
            self._waits_for_store or self._is_held or self._unread.is_too_much or self.chores.is_busy()
        )
        if is_waiting or now_ns < self._paid_ns:
            self.machine.touch(now_ns)  # it is we who do not listen
        self.handle(self.machine.on_deadline(now_ns))

    def on_decision(self, decision: Decision, now_ns: i64) -> None:
        self.context.broker.clock.now_ns = now_ns
        if not self.machine.is_closed():
            self._handshake.on_decision(decision, now_ns)
            self.handle(self.machine.receive_data(b"", now_ns))

    def touch(self, now_ns: i64) -> None:
        self.machine.touch(now_ns)

    def held_bytes(self) -> i64:
        return self.machine.kept_bytes() + self.transaction_room.size_bytes

    def owned_bytes(self) -> i64:
        return self.exclusive_queues.memory_bytes(self.account)

    def describe(self) -> str:
        name = "" if self.principal is None else self.principal.name
        return f"{self.connection_id} ({name or 'anonymous'} from {self.link.address})"

    def on_memory_short(self, is_short: bool) -> None:
        self.set_blocked(BLOCKED_BY_MEMORY, is_short, MEMORY_TEXT)

    def set_blocked(self, cause: i64, is_blocked: bool, text: bytes) -> None:
        """Tell a client that understands it why it is not read, and when all causes are over."""
        before: i64 = self._blocked_by
        self._blocked_by = before | cause if is_blocked else before & ~cause
        if self.takes_blocked and self.machine.is_open and (before == 0) != (self._blocked_by == 0):
            self.machine.send(0, ConnectionUnblocked() if before else ConnectionBlocked(text))

    def on_lagging(self) -> None:
        self.is_lagging = True

    def on_caught_up(self) -> None:
        was_blocked = self.is_blocked
        self.is_lagging = False
        self.is_blocked = False
        if self._unread.take_caught_up():
            self._read_on()
        if was_blocked:
            self._pump()

    def on_lost(self, now_ns: i64) -> None:
        self.context.broker.clock.now_ns = now_ns
        self._forget_stalled()
        if not self.machine.is_closed():
            self._end_by(self.machine.fail(codes.CONNECTION_FORCED, "the connection was lost"))
        self._is_closing = True
        self.outbox.take_all()

    def flush(self) -> None:
        self.answers.send_notices()
        if self._stalled:
            self.on_durable()
        sent = self.outbox.send_to(self.link)
        if sent:
            account = self.account
            if account is not None:
                account.counters.bytes_sent += sent
            self.handed_bytes += sent
            if self.is_lagging and not self.is_blocked:
                self.is_blocked = self.link.unsent_bytes() >= self.context.broker.memory.unsent_high
            if self.is_blocked:
                self._unread.check(self)
        if self._is_closing and self._leaves_ns == 0 and not self.chores.is_busy():
            self.link.close()
        elif self.account is not None and not self.machine.is_open:
            self.link.on_authenticated()  # again: it has so long to answer our close, with heartbeats or without
        elif self.is_outbox_full:
            self.is_outbox_full = False
            self._pump()

    def on_flush_failed(self, error: Exception) -> None:
        self.link.on_fault(error)

    def unsent_bytes(self) -> i64:
        return self.link.unsent_bytes() + self.outbox.size_bytes()

    def is_send_buffer_full(self) -> bool:
        """Whether it has not taken what it asked for."""
        return self._unread.is_too_much or self.outbox.size_bytes() >= ANSWERS_MAX

    def _pump(self) -> None:
        """There is room again: queues hand out in their next turn."""
        for channel in self.channels.values():
            for consumer in channel.consumers.values():
                consumer.group.queue.reschedule()

    def count_sent(self) -> None:
        account = self.account
        if account is not None:
            account.counters.messages_sent += 1

    def on_tick(self, now_ns: i64) -> None:
        if self._stalled:
            self.on_durable()
        self._unread.on_tick(self, now_ns)

    # ----------------------------------------------------------------- events

    def handle(self, events: list[Event]) -> None:
        if self._stalled or self.chores.is_busy():
            self._stalled += events
            return
        self.chores.begin()
        for at, event in enumerate(events):
            if self._is_closing:
                return
            if isinstance(event, PublishReceived):
                channel = self.channels.get(int(event.channel))
                if channel is not None and not self._on_publish(channel, event):
                    self._stall(events[at:])
                    return
            elif isinstance(event, AckReceived):
                channel = self.channels.get(int(event.channel))
                if channel is not None and not self._on_ack(channel, event):
                    self._stall(events[at:])
                    return
            elif isinstance(event, MethodReceived):
                channel = self.channels.get(int(event.channel))
                if channel is not None:
                    if channel.must_wait(event.method) or not self._on_method(channel, event.method):
                        self._stall(events[at:])
                        return
                elif isinstance(event.method, ConnectionUpdateSecret):
                    self._handshake.on_update_secret(event.method, self.context.broker.clock.now_ns)
            elif isinstance(event, ChannelClosed) and self._is_awaited(event):
                self._stall(events[at:])
                return
            else:
                self._on_control(event)
            if self.chores.is_due():
                self._stall(events[at + 1 :])
                return

    def _is_awaited(self, event: ChannelClosed) -> bool:
        """Whether the client has asked for more than the end of its channel."""
        channel = self.channels.get(int(event.channel))
        return channel is not None and channel.awaited != 0 and self.machine.is_open

    def _stall(self, events: list[Event]) -> None:
        """What cannot be stored now, or comes behind something that is not answered yet, and the client with it."""
        if events:
            self._stalled = events
            self.context.broker.wait_durable(self)
            self.stop_reading()

    def on_chores_done(self) -> None:
        if self._stalled:
            self.on_durable()

    def on_answered(self) -> None:
        if self._stalled:  # what came behind can go on, when this turn is over
            self.outbox.open()

    def _go_on(self) -> None:
        """The store takes what it did not, or nothing at all and the client is told: go on where it stopped."""
        if self._stalled and not self.chores.is_busy() and not must_wait(self, self._stalled[0]):
            events = self._stalled
            self._stalled = []
            self.context.broker.pressure.begin(self)
            self.handle(events)
            self._wait_for_holders()
            self.answers.ask()
            if self.subscribed and self.has_rate and self.account is not None:
                self._slow_down(self.account, 0, self.context.broker.clock.now_ns)

    def _forget_stalled(self) -> None:
        """The client is gone, or has to go: what it said is not carried out any more, and what it ended is over."""
        events, self._stalled = self._stalled, []
        self._end_by(events)

    def _end_by(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, (ChannelClosed, Closed)):
                self._on_control(event)

    def _on_publish(self, channel: Channel, event: PublishReceived) -> bool:
        """False when it cannot be stored now and the client is not told: it waits, and the client with it."""
        try:
            return channel.publisher.on_publish(event)
        except Refused as refused:
            return self._refuse_in_turn(channel, refused, BasicPublish.class_id, BasicPublish.method_id)
        except Violation as violation:
            self._on_violation(channel, violation)
        return True

    def _on_ack(self, channel: Channel, event: AckReceived) -> bool:
        try:
            channel.settle(int(event.delivery_tag), event.multiple, ACCEPTED)
        except Refused as refused:
            return self._refuse_in_turn(channel, refused, BasicAck.class_id, BasicAck.method_id)
        return True

    def _on_method(self, channel: Channel, method: Method) -> bool:
        try:
            on_method(self, channel, method)
        except Refused as refused:
            if isinstance(method, TxCommit):  # which is over: it cannot be refused once more
                self.refuse(channel, refused, method.class_id, method.method_id)
                return True
            return self._refuse_in_turn(channel, refused, method.class_id, method.method_id)
        except Violation as violation:
            self._on_violation(channel, violation)
        return True

    def _refuse_in_turn(self, channel: Channel, refused: Refused, class_id: i64, method_id: i64) -> bool:
        """Behind the answers to what came before. False while some of them wait for the store: what was refused has
        changed nothing, and is tried and refused again behind them."""
        self.answers.ask()
        if self.answers.owes(channel) and self.machine.is_open:
            return False
        self.refuse(channel, refused, class_id, method_id)
        return True

    def _on_control(self, event: Event) -> None:
        now_ns = self.context.broker.clock.now_ns
        if isinstance(event, ChannelOpened):
            self.context.open_channel(self, event.channel)
        elif isinstance(event, ChannelClosed):
            if self.machine.is_closed():
                self.machine.end_channel(event.channel)  # it ends with the connection
            elif not self._end_channel(int(event.channel), True):
                self.machine.end_channel(event.channel)
        elif isinstance(event, Closed):
            self._on_closed(event)
        else:
            self._handshake.on_event(event, now_ns)
            self.handle(self.machine.receive_data(b"", now_ns))  # what came behind it and had to wait

    def refuse(self, channel: Channel, refused: Refused, class_id: i64, method_id: i64) -> None:
        """One operation is not granted: the channel ends, the connection lives."""
        code = REPLY_CODES[refused.reason]
        if refused.reason is Reason.QUOTA_EXCEEDED:
            self._tell_limited(refused)
        self._end_channel(int(channel.number))
        self.machine.close_channel(channel.number, code, refused.text, class_id, method_id)

    def _tell_limited(self, refused: Refused) -> None:
        name = "" if self.principal is None else self.principal.name
        address, text = self.link.address, refused.text
        self.context.observer.limited(self.connection_id, name, address, text)
        if not refused.is_reported:
            who = f"{name or self.connection_id} at {address}"
            self.context.broker.health.report(LIMIT_REACHED, f"{who}: {text}")
        if self.account is not None:
            self.account.counters.subscribes_limited += 1

    def _on_violation(self, channel: Channel, found: Violation) -> None:
        machine = self.machine
        if found.is_hard:
            self.handle(machine.close(found.code, found.text, found.class_id, found.method_id))
        else:
            self._end_channel(int(channel.number))
            machine.close_channel(channel.number, found.code, found.text, found.class_id, found.method_id)

    def _end_channel(self, number: int, is_asked: bool = False) -> bool:
        channel = self.channels.pop(number, None)
        if channel is None:
            return False
        self.context.channels -= 1
        self.answers.forget(channel)
        self.chores.start(ChannelEnd(self, channel, is_asked))
        return True

    def on_channel_ended(self, number: i64) -> None:
        if not self.machine.is_closed():
            self.machine.end_channel(number)

    def _on_closed(self, event: Closed) -> None:
        """Its channels and its own queues go before it does."""
        channels = list(self.channels.values())
        queues = self.exclusive_queues.take_all()
        self.context.channels -= len(self.channels)
        self.channels.clear()
        self._is_closing = True
        self.chores.start(ConnectionEnd(self, channels, queues, event))

    def on_ended(self, event: Closed) -> None:
        context = self.context
        if self.machine.send_farewell():
            self._leaves_ns = context.broker.clock.now_ns + LINGER_NS
        self.answers.clear()
        context.broker.forget_line(self)
        context.unregister(self)
        if self.account is not None:
            reason = codes.name_of(event.code)
            context.observer.disconnected(self.connection_id, self.link.address, reason, event.text)
        if not self.outbox.is_open:
            self.link.close()

    def end(self, ending: Ending) -> None:
        if ending is Ending.UNAVAILABLE:
            self.answers.give_up()
            if self._waits_for_store:
                self.context.broker.wait_durable(self)
            return
        self._forget_stalled()
        self.handle(self.machine.close(ENDING_CODES[ending], ENDING_TEXTS[ending], 0, 0))

    def resume(self) -> None:
        self._is_held = False
        self._read_on()

    def _read_on(self) -> None:
        if not self._is_held and not self._unread.is_too_much:
            self.link.resume_reading()

    # ------------------------------------------------------------------- store

    def _hold_back(self) -> None:
        """Nobody stores faster than the disk takes it, whether it waits for confirms or not."""
        store = self.context.broker.store
        if store.position() - store.durable() > BEHIND_MAX:
            self.context.broker.wait_durable(self)
            self.stop_reading()

    def stop_reading(self) -> None:
        if not self._waits_for_store:
            self._waits_for_store = True
            self.link.wait_for_store(True)

    def on_durable(self) -> None:
        store = self.context.broker.store
        durable = store.durable()
        self.answers.on_durable(durable)
        try:
            self._go_on()
        except Exception as fault:  # noqa: BLE001 our bug ends this connection, and those behind it get their confirms
            self.link.on_fault(fault)
        is_behind = store.position() - durable > BEHIND_MAX // 2 or len(self._stalled) != 0
        if self._waits_for_store and self.answers.unconfirmed < CONFIRMS_MAX // 2 and not is_behind:
            self._waits_for_store = False
            self.link.wait_for_store(False)
        if self.answers.are_waiting() or self._waits_for_store:
            self.context.broker.wait_durable(self)
