"""One channel: consumers, open deliveries, publishes, and the mode it is in.

Invariants
- A delivery tag is answered once; an unknown one closes the channel [AMQP091 basic.ack].
- When the channel ends, everything it did not answer goes back to its queue, in order.
- A transaction is carried out as one batch of the log, or not at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from millstream.broker.account import Account
from millstream.broker.group_round import CONSUMERS_FEW, GroupRound, groups_once
from millstream.broker.queue_access import check_group, find_start, pattern_title
from millstream.broker.tasks import STEPS_PER_SLICE
from millstream.model.errors import Reason, Refused
from millstream.model.message import Message
from millstream.model.outcome import Outcome
from millstream.model.queue_topic import find_spelling_fault, split_queue_topic
from millstream.model.topic import find_filter_fault
from millstream.protocols.amqp091.chores import Answering, steps_of
from millstream.protocols.amqp091.consuming import AmqpConsumer, Getter, read_start
from millstream.protocols.amqp091.declaring import catch_up, find_known, find_queue, make_topic_queue
from millstream.protocols.amqp091.from_message import Native, NativeCache
from millstream.protocols.amqp091.publishing import Publisher
from millstream.protocols.amqp091.queue_arguments import QUORUM, read_priority
from millstream.protocols.amqp091.reply_to import REPLY_TO
from millstream.protocols.amqp091.transaction import Transaction
from millstream.protocols.amqp091.wire import codes
from millstream.protocols.amqp091.wire.methods import (
    BasicCancel,
    BasicCancelOk,
    BasicConsume,
    BasicConsumeOk,
    BasicGet,
    BasicNack,
    BasicQos,
    BasicRecover,
    BasicReject,
    Method,
    TxCommit,
)
from millstream.protocols.amqp091.wire.violation import Violation
from millstream.queues.consumers import AMQP_GROUP
from millstream.queues.definition import EPHEMERAL, Definition
from millstream.queues.group import Group
from millstream.queues.pending import Pending
from millstream.queues.queue import Queue
from millstream.security.quota import SUBSCRIPTIONS

if TYPE_CHECKING:
    from millstream.protocols.amqp091.endpoint import AmqpEndpoint

MILLISECONDS: Final[i64] = 1_000_000
DELIVERY_BYTES: Final[i64] = (
    2048  # what an open one counts for beside its payload: to take very many back takes time
)
FILTER_SIZE_MAX: Final = 255  # a name is a short string
LEVELS_MAX: Final = 128
CONSUMERS_MAX: Final = 100_000  # per connection
SETTLED_MAX: Final = 1024  # deliveries; then their traces may be as many as those that are open
ACCEPTED: Final = Outcome.ACCEPTED
MODIFIED: Final = Outcome.MODIFIED
REJECTED: Final = Outcome.REJECTED


@final
class Channel:
    def __init__(self, endpoint: AmqpEndpoint, number: i64, account: Account) -> None:
        self.endpoint = endpoint
        self.number: i64 = number
        self.account = account
        self.consumers: dict[bytes, AmqpConsumer] = {}
        self.unsettled: dict[int, Pending] = {}  # by delivery tag, ascending
        self.prefetch: i64 = 0  # of consumers to come; 0: no bound
        self.prefetch_all: i64 = 0  # of the channel as a whole
        self.is_ended = False
        self.awaited: i64 = 0  # answers that wait for the store: no other comes before them
        self.asking: i64 = 0  # basic.get that are not answered yet
        self.last_queue = b""  # what an empty name stands for [AMQP091 queue.declare]
        self.reply_token = b""  # set while it consumes direct replies
        self.reply_tag = b""
        self.transaction: Transaction | None = None
        self.publisher = Publisher(self)
        self.is_prefetch_exhausted = False  # a consumer met a bound that is not its own
        self._next_tag: i64 = 1
        self._settled = 0  # deliveries since `unsettled` was made anew
        self._got: dict[int, None] = {}  # of `unsettled`: by basic.get, which no prefetch counts
        self._turn = 0  # which consumer is asked first when a bound of all has room again
        self._is_settling = False
        self._round = GroupRound(account.tasks)
        self._natives = NativeCache()

    # ------------------------------------------------------------- deliveries

    def take_tag(self) -> i64:
        tag = self._next_tag
        self._next_tag = tag + 1
        return tag

    def read_native(self, message: Message) -> Native:
        return self._natives.read(message, self.endpoint.context.broker.clock.now_ns)

    def keep(self, tag: i64, pending: Pending) -> None:
        """It is open until it is answered, or for so long as a consumer may take."""
        context = self.endpoint.context
        timeout_ms: i64 = context.limits.amqp_consumer_timeout_ms
        pending.deadline_ns = context.broker.clock.now_ns + timeout_ms * MILLISECONDS if timeout_ms else 0
        self.unsettled[int(tag)] = pending
        self.endpoint.unsettled_bytes += len(pending.message.payload) + DELIVERY_BYTES

    def keep_got(self, tag: i64, pending: Pending) -> None:
        self.keep(tag, pending)
        self._got[int(tag)] = None

    def is_full(self) -> bool:
        """Whether its consumers hold as much as the prefetch of the whole channel lets them."""
        if not self.prefetch_all:
            return False
        # The room an answer makes is for the queue whose turn it is, not for the one that was answered.
        return self._is_settling or len(self.unsettled) - len(self._got) >= self.prefetch_all

    def _take(self, tag: int) -> Pending | None:
        pending = self.unsettled.pop(tag, None)
        if pending is not None:
            self._settled += 1
            if self._got:
                self._got.pop(tag, None)
            self.endpoint.unsettled_bytes -= len(pending.message.payload) + DELIVERY_BYTES
        return pending

    def settle(self, tag: int, multiple: bool, outcome: Outcome) -> None:
        transaction = self.transaction
        if transaction is None:
            if not multiple:
                pending = self._take(tag)
                if pending is None:
                    raise self._unknown(tag)
                self._is_settling = len(self.consumers) > 1
                pending.group.settle(pending, outcome, "")
            else:
                tags = self._tags_to(tag, {})
                self._is_settling = len(self.consumers) > 1
                may_dead_letter = (
                    outcome is not Outcome.ACCEPTED and len(tags) > 1
                )  # nobody knows what letters cost
                if may_dead_letter or len(tags) * steps_of(outcome) > STEPS_PER_SLICE:
                    self.endpoint.chores.start(Answering(self, tags, outcome, False))
                    return
                self._settle_all(tags, outcome)
            self._is_settling = False
            self._pump_all()
            return
        if not multiple and (tag not in self.unsettled or tag in transaction.named):
            raise self._unknown(tag)
        tags = self._tags_to(tag, transaction.named) if multiple else [tag]
        transaction.add_settlement(tags, outcome)

    def _settle_all(self, tags: list[int], outcome: Outcome) -> None:
        """Those of one group at once: it looks for the next to hand out once, not for each."""
        together: list[Pending] = []
        for tag in tags:
            pending = self._take(tag)
            if pending is None:
                continue
            if together and together[0].group is not pending.group:
                together[0].group.settle_many(together, outcome, "")
                together = []
            together.append(pending)
        if together:
            together[0].group.settle_many(together, outcome, "")

    def _tags_to(self, tag: int, without: dict[int, None]) -> list[int]:
        """All up to a tag, or simply all for tag 0. The tag itself must be known [AMQP091 basic.ack]."""
        if tag and (tag not in self.unsettled or tag in without):
            raise self._unknown(tag)
        if self._settled > SETTLED_MAX and self._settled > len(self.unsettled):
            self._settled = 0
            self.unsettled = dict(self.unsettled)  # a search from the front would pass all that are gone
        tags: list[int] = []
        for each in self.unsettled:
            if tag and each > tag:
                break
            if each not in without:
                tags.append(each)
        return tags

    def _unknown(self, tag: int) -> Refused:
        return Refused(Reason.PRECONDITION_FAILED, f"unknown delivery tag {tag}")

    def _pump_all(self) -> None:
        """A bound of the whole channel or connection has room again: other queues may hand out too."""
        if self.is_prefetch_exhausted:
            self.is_prefetch_exhausted = False
            self.pump()

    def pump(self) -> None:
        """In the next turn, each queue once, and each time another first."""
        if len(self.consumers) > CONSUMERS_FEW:
            if not self._round.goes_on():
                self._round.begin(groups_once([consumer.group for consumer in self.consumers.values()]))
            return
        consumers = list(self.consumers.values())
        if self.prefetch_all and consumers:
            self._turn = (self._turn + 1) % len(consumers)
            consumers = consumers[self._turn :] + consumers[: self._turn]
        for consumer in consumers:
            consumer.group.queue.reschedule()

    def recover(self) -> None:
        """Everything open goes back to its queue and comes again [AMQP091 basic.recover]; what a transaction has answered
        waits for its end."""
        transaction = self.transaction
        tags = self._tags_to(0, {} if transaction is None else transaction.named)
        self.endpoint.chores.start(Answering(self, tags, Outcome.MODIFIED, True))

    def must_wait(self, method: Method) -> bool:
        """Whether it would be answered before what was asked earlier: answers come in the order of the questions."""
        if self.asking:
            return not isinstance(method, (BasicNack, BasicReject))
        if isinstance(method, TxCommit):  # a disk that is only behind takes it soon
            store = self.account.store
            return store.refusal() is not Reason.SUCCESS and not store.is_stuck()
        return self.awaited != 0 and isinstance(method, (BasicConsume, BasicGet, BasicRecover))

    def is_overdue(self, now_ns: i64) -> bool:
        """Whether a delivery was not answered in time."""
        for pending in self.unsettled.values():
            return pending.deadline_ns != 0 and pending.deadline_ns <= now_ns
        return False

    def time_out(self) -> Refused:
        timeout_ms = self.endpoint.context.limits.amqp_consumer_timeout_ms
        text = (
            f"delivery acknowledgement on channel {int(self.number)} timed out. "
            f"Timeout value used: {timeout_ms} ms"
        )
        return Refused(Reason.PRECONDITION_FAILED, text)

    def set_prefetch(self, method: BasicQos) -> None:
        if method.prefetch_size:
            text = f"prefetch_size!=0 ({method.prefetch_size})"
            raise Violation(codes.NOT_IMPLEMENTED, text, method.class_id, method.method_id, True)
        if method.is_global:
            self.prefetch_all = method.prefetch_count
            self.pump()
            return
        self.prefetch = method.prefetch_count
        if self.endpoint.is_by_specification:
            # RabbitMQ bounds consumers to come; kombu expects the specification of a broker that is not RabbitMQ, where
            # this holds for those that are there too: a Celery worker raises its bound while it consumes
            for consumer in self.consumers.values():
                consumer.prefetch = 0 if consumer.no_ack else self.prefetch
            self.pump()

    # ---------------------------------------------------------------- consume

    def consume(self, method: BasicConsume) -> None:
        endpoint = self.endpoint
        if not method.queue and not self.last_queue:
            raise Refused(Reason.NOT_FOUND, "no previously declared queue")
        tag = method.consumer_tag or f"amq.ctag-{endpoint.context.entropy.make_name()}".encode()
        if tag in self.consumers or (tag == self.reply_tag and self.reply_token):
            shown = tag.decode(errors="replace")
            text = f"attempt to reuse consumer tag '{shown}'"
            raise Violation(codes.NOT_ALLOWED, text, method.class_id, method.method_id, True)
        if sum([len(channel.consumers) for channel in endpoint.channels.values()]) >= CONSUMERS_MAX:
            raise Refused(Reason.PRECONDITION_FAILED, f"a connection has at most {CONSUMERS_MAX} consumers")
        if method.queue == REPLY_TO:
            self._consume_replies(method, tag)
            return
        usage = endpoint.usage
        assert usage is not None
        self.account.quotas.admit(SUBSCRIPTIONS, usage)
        queue, filter = self._find_source(method)
        place = f"queue '{queue.name}' in vhost '{endpoint.virtual_host}'"
        priority = read_priority(method.arguments, queue.definition, place)
        catch_up(queue)
        group, owns_group = self._find_group(queue, filter, tag, method)
        if group.is_exclusive or (method.exclusive and (group.consumers or queue.definition.single_active)):
            raise Refused(Reason.NOT_AUTHORIZED, f"{place} in exclusive use")
        consumer = AmqpConsumer(
            self,
            group,
            tag,
            method.no_ack and not queue.is_stream,
            priority,
            owns_group,
            usage,
        )
        self.consumers[tag] = consumer
        queue.touch()
        if not method.no_wait:
            endpoint.machine.send(self.number, BasicConsumeOk(tag))
        group.join(consumer)
        if method.exclusive:
            group.is_exclusive = True

    def _find_source(self, method: BasicConsume) -> tuple[Queue, bytes]:
        """The queue a name stands for, and the filter behind it; a name with wildcards is a subscription."""
        place = split_queue_topic(method.queue)
        if place is not None:
            name, filter = place
            spelling = find_spelling_fault(method.queue)
            if spelling is not None:
                shown = method.queue.decode(errors="replace")
                raise Refused(Reason.NOT_AUTHORIZED, f"'{shown}' is not the name of a queue: {spelling}")
            fault = find_filter_fault(filter, FILTER_SIZE_MAX, LEVELS_MAX) if filter else None
            if fault is not None:
                raise Refused(Reason.PRECONDITION_FAILED, fault)
            return find_known(self.endpoint, name), b"" if filter == b"#" else filter
        name_bytes = method.queue or self.last_queue
        known = self.account.queues.catalog.find(name_bytes.decode(errors="replace"))
        if known is None and (b"*" in name_bytes or b"#" in name_bytes):
            # before anything is made
            read_priority(method.arguments, Definition(EPHEMERAL), "a subscription")
            return make_topic_queue(self.endpoint, name_bytes), b""
        return find_queue(self.endpoint, name_bytes), b""

    def _find_group(
        self, queue: Queue, filter: bytes, tag: bytes, method: BasicConsume
    ) -> tuple[Group, bool]:
        named = method.arguments.get(b"x-consumer-group")
        if named is not None and (
            not isinstance(named, bytes) or not named or b"@" in named or len(named) > 256
        ):
            raise Refused(Reason.PRECONDITION_FAILED, "x-consumer-group is 1 to 256 characters without @")
        if not queue.is_stream:
            name = AMQP_GROUP if named is None else named.decode(errors="replace")
            check_group(queue, pattern_title(name, filter))
            return queue.get_group(name, filter), False
        if self.prefetch == 0:
            text = f"consumer prefetch count is not set for 'queue '{queue.name}' in vhost '{self.endpoint.virtual_host}''"
            raise Refused(Reason.PRECONDITION_FAILED, text)
        if method.no_ack:
            text = self._say_stream("automatic acknowledgement", queue)
            raise Violation(codes.NOT_IMPLEMENTED, text, method.class_id, method.method_id, True)
        name = f"{self.endpoint.connection_id}.{self.number}.{tag.decode(errors='replace')}".replace(
            "@", "%40"
        )
        if named is not None:
            name = named.decode(errors="replace")
        title = pattern_title(name, filter)
        check_group(queue, title)
        start = find_start(queue, read_start(method.arguments.get(b"x-stream-offset")))
        is_new = title not in queue.groups
        group = queue.get_group(name, filter, named is not None)
        if is_new:
            group.seek(start)
        return group, named is None

    def _say_stream(self, what: str, queue: Queue) -> str:
        host = self.endpoint.virtual_host
        return f"{what} not supported by stream queues queue '{queue.name}' in vhost '{host}'"

    def cancel(self, method: BasicCancel) -> None:
        tag = method.consumer_tag
        if tag == self.reply_tag and self.reply_token:
            self._end_replies()
        else:
            consumer = self.consumers.pop(tag, None)
            if consumer is not None:
                catch_up(consumer.group.queue)
                self._leave(consumer)
        if not method.no_wait:
            self.endpoint.answers.reply(self, BasicCancelOk(tag))

    def _leave(self, consumer: AmqpConsumer) -> None:
        group = consumer.group
        consumer.leave()
        if not group.consumers:
            group.is_exclusive = False

    def get(self, method: BasicGet) -> None:
        queue = find_queue(self.endpoint, method.queue or self.last_queue)
        if queue.is_stream:
            text = self._say_stream("basic.get", queue)
            raise Violation(codes.NOT_IMPLEMENTED, text, method.class_id, method.method_id, True)
        if queue.definition.single_active and queue.definition.arguments.get("x-queue-type") == QUORUM:
            text = (
                f"cannot obtain access to locked queue '{queue.name}' in vhost '{self.endpoint.virtual_host}'. "
                "basic.get operations are not supported by quorum queues with single active consumer"
            )
            raise Refused(Reason.LOCKED, text)
        queue.touch()
        catch_up(queue)
        group = queue.get_group(AMQP_GROUP, b"")
        self.asking += 1
        group.get(Getter(self, group, method.no_ack))

    # --------------------------------------------------------- direct replies

    def _consume_replies(self, method: BasicConsume, tag: bytes) -> None:
        if not method.no_ack:
            raise Refused(Reason.PRECONDITION_FAILED, "reply consumer cannot acknowledge")
        if self.reply_token:
            raise Refused(Reason.PRECONDITION_FAILED, "reply consumer already set")
        context = self.endpoint.context
        self.reply_token = context.entropy.make_name().encode()
        self.reply_tag = tag
        context.reply_addresses.add(self.account.name, self.reply_token, self)
        if not method.no_wait:
            self.endpoint.machine.send(self.number, BasicConsumeOk(tag))

    def _end_replies(self) -> None:
        if self.reply_token:
            self.endpoint.context.reply_addresses.remove(self.account.name, self.reply_token)
            self.reply_token = b""

    def check_reply_address(self, name: bytes) -> None:
        """A server may ask whether the one who asked it is still there."""
        if self.endpoint.context.reply_addresses.find(self.account.name, name) is None:
            text = f"no queue '{name.decode(errors='replace')}' in vhost '{self.endpoint.virtual_host}'"
            raise Refused(Reason.NOT_FOUND, text)

    def deliver_reply(self, routing_key: bytes, properties: bytes, body: bytes) -> None:
        self.endpoint.machine.deliver(
            self.number, self.reply_tag, self.take_tag(), False, b"", routing_key, properties, body
        )
        self.endpoint.count_sent()

    # ------------------------------------------------------------------ modes

    def select_confirms(self) -> None:
        if self.transaction is not None:
            raise Refused(Reason.PRECONDITION_FAILED, "cannot switch from tx to confirm mode")
        self.publisher.is_confirming = True

    def select_transactions(self) -> None:
        if self.publisher.is_confirming:
            raise Refused(Reason.PRECONDITION_FAILED, "cannot switch from confirm to tx mode")
        if self.transaction is None:
            self.transaction = Transaction(self.endpoint.transaction_room)

    def commit(self) -> None:
        """All of it now: nothing else comes between, so it is one batch of the log. What a queue refuses is not confirmed:
        the channel is closed instead."""
        transaction = self._get_transaction()
        refusal = self.account.store.refusal()
        if refusal is not Reason.SUCCESS:
            raise Refused(refusal, "the transaction cannot be made durable now")
        transaction.check_letters(self.unsettled, self.account.exchanges)
        refused = self.publisher.commit(transaction.publishes)
        for tags, outcome in transaction.settlements:
            self._settle_all(tags, outcome)
        self.account.queues.catalog.scheduler.write_settled()
        self._renew(transaction)
        self._pump_all()
        if refused:
            raise Refused(Reason.PRECONDITION_FAILED, f"{refused} messages of the transaction were refused")

    def roll_back(self) -> None:
        self._renew(self._get_transaction())

    def _renew(self, transaction: Transaction) -> None:
        transaction.end()
        self.transaction = Transaction(self.endpoint.transaction_room)

    def _get_transaction(self) -> Transaction:
        if self.transaction is None:
            raise Refused(Reason.PRECONDITION_FAILED, "channel is not transactional")
        return self.transaction

    # -------------------------------------------------------------------- end

    def settle_one(self, tag: int, outcome: Outcome) -> Group | None:
        """Of very many: the group, which is to hand out when all are settled."""
        pending = self._take(tag)
        if pending is None:
            return None
        pending.group.settle_one(pending, outcome, "")
        return pending.group

    def on_answered(self, must_pump: bool) -> None:
        """Very many were settled, and their groups hand out again."""
        self._is_settling = False
        self._pump_all()
        if must_pump:
            self.pump()

    def begin_end(self) -> list[AmqpConsumer]:
        """Closed by either side, or with its connection. Its consumers leave when all that is open went back: nothing of it may
        come to one of these."""
        self.is_ended = True
        self._round.drop()
        self._end_replies()
        if self.transaction is not None:
            self.transaction.end()
        consumers = list(self.consumers.values())
        self.consumers.clear()
        for consumer in consumers:
            consumer.is_here = False
        return consumers

    def part_with(self, consumer: AmqpConsumer) -> None:
        consumer.is_here = True
        self._leave(consumer)
