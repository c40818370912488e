"""What one must be allowed for each thing AMQP can do. The rules speak of topics; here is what stands for what.

    a queue (declare, passive too, consume, get, purge, delete, bind)   subscribe to $queue/<name>
    an exchange (declare, delete, bind into it)                         subscribe to <exchange>/#
    the source of a binding                                             subscribe to all that the binding can bring
    an exchange for dead letters or unrouted messages                   publish to all that can come to it
    a publish                                                           publish to the topic of the message
    an answer by direct reply-to                                        nothing: the address was given to who was asked

A binding goes on bringing messages when nobody looks any more, so it is granted only if no rule denies any part of what
it brings: there is no later moment at which a single message could be held back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from millstream.broker.account import Account
from millstream.broker.owner_rights import filter_of_exchange, filter_of_source, find_queue_topic
from millstream.model.errors import Reason, Refused
from millstream.model.owner import Owner
from millstream.model.queue_topic import queue_prefix
from millstream.protocols.amqp091.chores import CONSUMERS_PER_STEP, Chore
from millstream.protocols.amqp091.wire.methods import BasicCancel
from millstream.queues.queue import Queue
from millstream.routing.binding import Binding

if TYPE_CHECKING:
    from millstream.protocols.amqp091.channel import Channel
    from millstream.protocols.amqp091.consuming import AmqpConsumer
    from millstream.protocols.amqp091.endpoint import AmqpEndpoint

TOPIC_QUEUE: Final = (
    "x-topic"  # the argument of a queue that stands for a subscription: its bindings are what counts
)
STEPS_PER_RIGHT: Final[i64] = 3  # of a consumer that may stay
STEPS_PER_CANCEL: Final[i64] = 6  # of one that may not
STEPS_PER_BINDING: Final[i64] = 10  # whose right is asked


def check_queue(endpoint: AmqpEndpoint, name: str) -> None:
    if not can_use_queue(endpoint, name):
        raise _deny(endpoint, "configure", f"queue '{name}'", queue_prefix(name))


def can_use_queue(endpoint: AmqpEndpoint, name: str) -> bool:
    principal = endpoint.principal
    assert principal is not None
    authorizer = endpoint.context.broker.authorizer
    return authorizer.can_subscribe(principal, endpoint.connection_id, queue_prefix(name))


def check_exchange(endpoint: AmqpEndpoint, name: str) -> None:
    wanted = filter_of_exchange(name.encode())
    principal = endpoint.principal
    assert principal is not None
    authorizer = endpoint.context.broker.authorizer
    if not authorizer.can_subscribe(principal, endpoint.connection_id, wanted):
        raise _deny(endpoint, "configure", f"exchange '{name}'", wanted)


def check_source(endpoint: AmqpEndpoint, name: str, kind: str, key: bytes) -> None:
    """What a binding to this exchange with this key brings."""
    wanted = filter_of_source(name.encode(), kind, key)
    if not _has_all(endpoint, wanted, False):
        raise _deny(endpoint, "read", f"exchange '{name}'", wanted)


def check_destination(endpoint: AmqpEndpoint, name: str, key: bytes | None) -> None:
    """Where the broker will publish on behalf of who declared it; None: with whatever key comes. It is what a publish would
    need: behind the default exchange a key that names no queue is a topic. The right to the queue that it may name later is
    enough, because every dead letter asks again; but a key with levels, as topics are written, means the topic."""
    account = endpoint.account
    assert account is not None
    wanted = filter_of_exchange(name.encode()) if key is None else account.exchanges.topic_of(name, key)
    later = None if key is None or b"/" in key else find_queue_topic(name, key)
    if not _has_all(endpoint, wanted, True) and (later is None or not _has_all(endpoint, later, True)):
        raise _deny(endpoint, "write", f"exchange '{name or 'amq.default'}'", wanted)


def has_whole_exchange(endpoint: AmqpEndpoint, name: str) -> bool:
    """Whether it may publish there with every key."""
    return _has_all(endpoint, filter_of_exchange(name.encode()), True)


def enforce(endpoint: AmqpEndpoint) -> None:
    """The rules have changed: what this connection may not have any more is taken from it."""
    account = endpoint.account
    if account is None:
        return
    endpoint.chores.start(Enforcing(endpoint, account))


@final
class Enforcing(Chore):
    """The consumers of a connection and the bindings of its own queues, which may be very many: those whose right is gone are
    taken away."""

    def __init__(self, endpoint: AmqpEndpoint, account: Account) -> None:
        self._endpoint = endpoint
        self._account = account
        self._bindings: list[Binding] = []
        for queue in endpoint.exclusive_queues.all():
            self._bindings.extend(account.exchanges.bindings_of_queue(queue))
        self._consumers: list[AmqpConsumer] = []
        for channel in endpoint.channels.values():
            self._consumers.extend(channel.consumers.values())
        self._consumers.reverse()

    def run(self, steps: i64) -> i64:
        left: i64 = steps
        while left > 0 and self._consumers:
            left -= self._look_at(self._consumers.pop())
        exchanges = self._account.exchanges
        while left > 0 and self._bindings:
            binding = self._bindings.pop()
            left -= STEPS_PER_BINDING
            source = binding.source
            wanted = filter_of_source(source.name.encode(), source.kind, binding.key)
            if exchanges.is_there(binding) and not _has_all(self._endpoint, wanted, False):
                exchanges.remove_binding(binding)
                self._account.router.forget_all()
        return left if not self._bindings and not self._consumers else 0

    def _look_at(self, consumer: AmqpConsumer) -> i64:
        """How many steps it took."""
        group = consumer.group
        if not consumer.is_here or stands_for_subscription(group.queue):
            return 1
        if can_use_queue(self._endpoint, group.queue.name):
            return STEPS_PER_RIGHT
        others: i64 = len(group.consumers)
        _cancel(self._endpoint, consumer.channel, consumer)
        return STEPS_PER_CANCEL + others // CONSUMERS_PER_STEP

    def on_done(self) -> None:
        pass


def stands_for_subscription(queue: Queue) -> bool:
    """Only the broker makes such queues, for one connection; a lasting one of an earlier release may say so by its client's will."""
    definition = queue.definition
    return definition.exclusive and TOPIC_QUEUE in definition.arguments


def _cancel(endpoint: AmqpEndpoint, channel: Channel, consumer: AmqpConsumer) -> None:
    """The client is told; one that would not understand it loses the channel."""
    name = consumer.group.queue.name
    if channel.is_ended:
        return
    if not endpoint.takes_cancel:
        refused = _deny(endpoint, "read", f"queue '{name}'", queue_prefix(name))
        endpoint.refuse(channel, refused, 0, 0)
        return
    channel.consumers.pop(consumer.tag, None)
    consumer.leave()
    endpoint.machine.send(channel.number, BasicCancel(consumer.tag, True))


def owner_of(endpoint: AmqpEndpoint) -> Owner:
    """By whose right it is that this connection makes something that outlives it."""
    principal = endpoint.principal
    assert principal is not None
    return Owner(principal.name, principal.kind, endpoint.connection_id)


def _has_all(endpoint: AmqpEndpoint, filter: bytes, on_publish: bool) -> bool:
    principal = endpoint.principal
    assert principal is not None
    authorizer = endpoint.context.broker.authorizer
    return authorizer.has_all(principal, endpoint.connection_id, filter, on_publish)


def _deny(endpoint: AmqpEndpoint, access: str, what: str, topic: bytes) -> Refused:
    principal = endpoint.principal
    assert principal is not None
    endpoint.context.observer.denied(endpoint.connection_id, principal.name, access, topic)
    text = f"{access} access to {what} in vhost '{endpoint.virtual_host}' refused for user '{principal.name}'"
    return Refused(Reason.NOT_AUTHORIZED, text)
