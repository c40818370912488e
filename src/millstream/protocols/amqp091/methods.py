"""Each method a client may send on a channel, and what is done about it. Publishes and acks come another way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.model.outcome import Outcome
from millstream.protocols.amqp091 import declaring
from millstream.protocols.amqp091.chores import Purging, wait_for_removal
from millstream.protocols.amqp091.reply_to import ADDRESS_PREFIX
from millstream.protocols.amqp091.wire import codes
from millstream.protocols.amqp091.wire.methods import (
    AccessRequest,
    AccessRequestOk,
    BasicCancel,
    BasicConsume,
    BasicGet,
    BasicNack,
    BasicQos,
    BasicQosOk,
    BasicRecover,
    BasicRecoverAsync,
    BasicRecoverOk,
    BasicReject,
    ConfirmSelect,
    ConfirmSelectOk,
    ExchangeBind,
    ExchangeBindOk,
    ExchangeDeclare,
    ExchangeDeclareOk,
    ExchangeDelete,
    ExchangeDeleteOk,
    ExchangeUnbind,
    ExchangeUnbindOk,
    Method,
    QueueBind,
    QueueBindOk,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
    QueuePurge,
    QueueUnbind,
    QueueUnbindOk,
    TxCommit,
    TxCommitOk,
    TxRollback,
    TxRollbackOk,
    TxSelect,
    TxSelectOk,
)
from millstream.protocols.amqp091.wire.violation import Violation

if TYPE_CHECKING:
    from millstream.protocols.amqp091.channel import Channel
    from millstream.protocols.amqp091.endpoint import AmqpEndpoint

MODIFIED: Final = Outcome.MODIFIED
REJECTED: Final = Outcome.REJECTED


def on_method(endpoint: AmqpEndpoint, channel: Channel, method: Method) -> None:
    """Refused closes the channel, a Violation says what it closes."""
    if isinstance(method, BasicNack):
        outcome = MODIFIED if method.requeue else REJECTED
        channel.settle(method.delivery_tag, method.multiple, outcome)
    elif isinstance(method, BasicReject):
        channel.settle(method.delivery_tag, False, MODIFIED if method.requeue else REJECTED)
    elif isinstance(method, BasicGet):
        channel.get(method)
    elif isinstance(method, BasicConsume):
        endpoint.subscribed += 1
        channel.consume(method)
    elif isinstance(method, BasicCancel):
        channel.cancel(method)
    elif isinstance(method, BasicQos):
        channel.set_prefetch(method)
        endpoint.answers.reply(channel, BasicQosOk())
    elif isinstance(method, (BasicRecover, BasicRecoverAsync)):
        _recover(endpoint, channel, method)
    elif not _on_mode(endpoint, channel, method) and not _on_declaration(endpoint, channel, method):
        raise Violation(
            codes.COMMAND_INVALID, "a client must not send this", method.class_id, method.method_id, True
        )


def _recover(endpoint: AmqpEndpoint, channel: Channel, method: BasicRecover | BasicRecoverAsync) -> None:
    if not method.requeue:
        text = "requeue=false"
        raise Violation(codes.NOT_IMPLEMENTED, text, method.class_id, method.method_id, True)
    if isinstance(method, BasicRecover):
        endpoint.machine.send(channel.number, BasicRecoverOk())
    channel.recover()


def _on_mode(endpoint: AmqpEndpoint, channel: Channel, method: Method) -> bool:
    """Confirms and transactions; False when it is none of these."""
    if isinstance(method, ConfirmSelect):
        channel.select_confirms()
        if not method.no_wait:
            endpoint.answers.reply(channel, ConfirmSelectOk())
    elif isinstance(method, TxSelect):
        channel.select_transactions()
        endpoint.answers.reply(channel, TxSelectOk())
    elif isinstance(method, TxCommit):
        before = endpoint.context.broker.store.position()
        channel.commit()
        endpoint.answers.give(channel, TxCommitOk(), before)
    elif isinstance(method, TxRollback):
        channel.roll_back()
        endpoint.answers.reply(channel, TxRollbackOk())
    elif isinstance(method, AccessRequest):
        endpoint.answers.reply(channel, AccessRequestOk(1))
    else:
        return False
    return True


def _on_declaration(endpoint: AmqpEndpoint, channel: Channel, method: Method) -> bool:
    """What makes, binds and removes; the answer to what lasts waits for the store. False when it is none of these."""
    before = endpoint.context.broker.store.position()
    answer: Method | None = None
    if isinstance(method, QueueDeclare) and method.passive and method.queue.startswith(ADDRESS_PREFIX):
        channel.check_reply_address(method.queue)
        answer = None if method.no_wait else QueueDeclareOk(method.queue, 0, 1)
    elif isinstance(method, QueueDeclare):
        endpoint.subscribed += 0 if method.passive else 1
        name, ready, consumers = declaring.declare_queue(endpoint, method)
        channel.last_queue = name
        answer = None if method.no_wait else QueueDeclareOk(name, ready, consumers)
    elif isinstance(method, QueueBind):
        endpoint.subscribed += 1
        if not method.routing_key and not method.queue:
            method.routing_key = channel.last_queue  # [AMQP091 queue.bind]
        method.queue = method.queue or channel.last_queue
        declaring.bind_queue(endpoint, method)
        answer = None if method.no_wait else QueueBindOk()
    elif isinstance(method, QueueUnbind):
        if not method.routing_key and not method.queue:
            method.routing_key = channel.last_queue
        method.queue = method.queue or channel.last_queue
        declaring.unbind_queue(endpoint, method)
        answer = QueueUnbindOk()
    elif isinstance(method, QueuePurge):
        method.queue = method.queue or channel.last_queue
        purge = declaring.begin_purge(endpoint, method)
        is_durable = declaring.has_durable_queue(endpoint, method.queue)
        position = -1 if is_durable else before
        endpoint.chores.start(Purging(endpoint, channel, purge, not method.no_wait, position))
    elif isinstance(method, QueueDelete):
        method.queue = method.queue or channel.last_queue
        count = declaring.delete_queue(endpoint, method)
        wait_for_removal(endpoint, declaring.read_name(method.queue), "")
        answer = None if method.no_wait else QueueDeleteOk(count)
    else:
        return _on_exchange(endpoint, channel, method, before)
    if answer is not None:
        endpoint.answers.give(
            channel, answer, -1 if declaring.has_durable_queue(endpoint, method.queue) else before
        )
    return True


def _on_exchange(endpoint: AmqpEndpoint, channel: Channel, method: Method, before: int) -> bool:
    answer: Method | None = None
    name = b""
    if isinstance(method, ExchangeDeclare):
        endpoint.subscribed += 0 if method.passive else 1
        name = method.exchange
        declaring.declare_exchange(endpoint, method)
        answer = None if method.no_wait else ExchangeDeclareOk()
    elif isinstance(method, ExchangeDelete):
        name = method.exchange
        declaring.delete_exchange(endpoint, method)
        wait_for_removal(endpoint, "", declaring.read_exchange(name))
        answer = None if method.no_wait else ExchangeDeleteOk()
    elif isinstance(method, ExchangeBind):
        endpoint.subscribed += 1
        name = method.destination
        declaring.bind_exchange(endpoint, method)
        answer = None if method.no_wait else ExchangeBindOk()
    elif isinstance(method, ExchangeUnbind):
        name = method.destination
        declaring.unbind_exchange(endpoint, method)
        answer = None if method.no_wait else ExchangeUnbindOk()
    else:
        return False
    if answer is not None:
        endpoint.answers.give(
            channel, answer, -1 if declaring.has_durable_exchange(endpoint, name) else before
        )
    return True
