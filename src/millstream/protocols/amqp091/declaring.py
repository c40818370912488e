"""Queues, exchanges and bindings as clients make, look up, bind and remove them.

Everything here happens at once or not at all: a refusal changes nothing. The codes and the words are RabbitMQ's.

Invariants
- Nothing is made, found, bound or removed without the right to it (see `rights`).
- An exclusive queue is for its connection only, and for no other whatever it asks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.broker.account import Account
from millstream.broker.exchange_rules import RESERVED, check_not_default
from millstream.model.errors import Reason, Refused
from millstream.model.queue_topic import (
    DEAD_LETTER_PREFIX,
    find_spelling_fault,
    queue_prefix,
    split_queue_topic,
)
from millstream.model.routing_key import TOPIC_EXCHANGE, key_of_topic
from millstream.protocols.amqp091 import rights
from millstream.protocols.amqp091.json_values import plain_arguments, type_name
from millstream.protocols.amqp091.queue_arguments import (
    CLASSIC,
    check_arguments,
    check_equivalent,
    check_flag,
    check_properties,
    make_definition,
    type_of,
)
from millstream.protocols.amqp091.reply_to import REPLY_TO
from millstream.protocols.amqp091.wire import codes
from millstream.protocols.amqp091.wire.methods import (
    ExchangeBind,
    ExchangeDeclare,
    ExchangeDelete,
    ExchangeUnbind,
    QueueBind,
    QueueDeclare,
    QueueDelete,
    QueuePurge,
    QueueUnbind,
)
from millstream.protocols.amqp091.wire.violation import Violation
from millstream.queues.definition import EPHEMERAL, Definition, check_name
from millstream.queues.limits import GROUPS_FEW, bound_now, is_awaited
from millstream.queues.purge import Purge
from millstream.queues.queue import Queue
from millstream.routing.exchange import DIRECT, KINDS, TOPIC

if TYPE_CHECKING:
    from millstream.protocols.amqp091.endpoint import AmqpEndpoint

GENERATED: Final = "amq.gen-"
ALTERNATE: Final = b"alternate-exchange"
BOUND_SLICES_MAX: Final = 32  # more than one read can fill; what a new limit leaves over goes in other turns
GROUPS_AT_ONCE: Final = 1000  # of a queue, that hand out while somebody asks for it


# ---------------------------------------------------------------------- queues


def find_queue(endpoint: AmqpEndpoint, name: bytes) -> Queue:
    """The queue of that name, for somebody who may use it."""
    _check_named(name)
    return find_known(endpoint, read_name(name))


def find_known(endpoint: AmqpEndpoint, text: str) -> Queue:
    """The same by the name that the queue itself has."""
    rights.check_queue(endpoint, text)  # whether there is one is nobody's business who may not use it
    queue = _account_of(endpoint).queues.catalog.find(text)
    if queue is None:
        raise Refused(Reason.NOT_FOUND, f"no {_queue_place(endpoint, text)}")
    _check_owner(endpoint, queue)
    return queue


def catch_up(queue: Queue) -> None:
    """Queues hand out, and make room, when all that was read at once is dealt with. Who asks for a queue in between finds it
    as if that had happened: consumers have what they can take of what came before, and the rest is within the limits. Very
    many groups have their turn later: who asks often must not be answered by a look at all of them each time."""
    if queue.scheduler.is_awake(queue) and len(queue.groups) <= GROUPS_AT_ONCE:
        queue.dispatch()
    slices_max = BOUND_SLICES_MAX if len(queue.groups) <= GROUPS_FEW else 1
    slices = 0
    mark = queue.scheduler.letter_mark()
    while queue.is_to_bound and slices < slices_max and not is_awaited(queue):
        if queue.scheduler.is_costly(mark):
            return
        queue.is_to_bound = False
        bound_now(queue)
        slices += 1


def declare_queue(endpoint: AmqpEndpoint, method: QueueDeclare) -> tuple[bytes, int, int]:
    """(name, records ready, consumers) of a queue that is there now."""
    if method.queue == REPLY_TO:
        return REPLY_TO, 0, 1
    name = read_name(method.queue)
    if method.passive:
        if not name:
            raise Refused(Reason.NOT_FOUND, f"no {_queue_place(endpoint, name)}")
        found = find_queue(endpoint, method.queue)
        found.touch()
        return _count(found)
    if not name:
        if type_of(method.arguments) != CLASSIC:
            check_arguments(method.arguments, _queue_place(endpoint, name))
            text = f"Cannot declare a server-named queue for type rabbit_{type_of(method.arguments)}_queue"
            raise Refused(Reason.PRECONDITION_FAILED, text)
        name = GENERATED + endpoint.context.entropy.make_name()
    elif name.startswith(RESERVED):
        raise Refused(Reason.NOT_AUTHORIZED, f"queue name '{name}' contains reserved prefix '{RESERVED}*'")
    check_name(name)
    rights.check_queue(endpoint, name)
    queue = _account_of(endpoint).queues.catalog.find(name)
    if queue is None:
        queue = _make_queue(endpoint, name, method)
    else:
        _check_same(endpoint, queue, method)
    queue.touch()
    return _count(queue)


def _make_queue(endpoint: AmqpEndpoint, name: str, method: QueueDeclare) -> Queue:
    place = _queue_place(endpoint, name)
    arguments = method.arguments
    check_arguments(arguments, place)
    check_properties(arguments, method.durable, method.exclusive, method.auto_delete, place)
    definition = make_definition(arguments, method.durable, method.exclusive, method.auto_delete)
    if definition.dead_letter_exchange is not None:
        key = definition.dead_letter_key
        rights.check_destination(
            endpoint, definition.dead_letter_exchange, None if key is None else key.encode()
        )
    definition.owner = rights.owner_of(endpoint)
    definition.arguments.pop(rights.TOPIC_QUEUE, None)  # only the broker says so of a queue
    endpoint.context.policies.shape(name, definition)
    return _add_queue(endpoint, name, definition)


def _add_queue(endpoint: AmqpEndpoint, name: str, definition: Definition) -> Queue:
    principal = endpoint.principal
    assert principal is not None
    queue = _account_of(endpoint).queues.catalog.declare(name, definition, principal.name)
    if definition.exclusive:
        queue.owner = endpoint
        endpoint.exclusive_queues.add(queue)
    return queue


def _check_same(endpoint: AmqpEndpoint, queue: Queue, method: QueueDeclare) -> None:
    """It is there: it must be what is declared now."""
    place = _queue_place(endpoint, queue.name)
    _check_owner(endpoint, queue)
    if method.exclusive != (queue.owner is not None):
        raise _lock(place)
    definition = queue.definition
    check_flag("durable", method.durable and not method.exclusive, queue.is_durable, place)
    check_flag("auto_delete", method.auto_delete, definition.auto_delete, place)
    check_equivalent(definition, method.arguments, place)


def make_topic_queue(endpoint: AmqpEndpoint, name: bytes) -> Queue:
    """A subscription to topics, for who consumes from a name with wildcards: a queue of this connection alone, gone with
    its consumer. With slashes the name is a filter, else a binding key."""
    key = name
    if b"/" in name:
        key = b".".join([b"*" if word == b"+" else word for word in key_of_topic(name).split(b".")])
    source = TOPIC_EXCHANGE.decode()
    rights.check_source(endpoint, source, TOPIC, key)
    definition = Definition(EPHEMERAL)
    definition.exclusive = True
    definition.backoff_ms = 0
    definition.max_deliveries = 0
    definition.dead_letter = "off"
    definition.bounds_ready = True
    definition.arguments = {rights.TOPIC_QUEUE: key.decode(errors="replace")}
    queue = _add_queue(endpoint, GENERATED + endpoint.context.entropy.make_name(), definition)
    _account_of(endpoint).exchanges.bind_queue(queue, source, key, {})
    return queue


def delete_queue(endpoint: AmqpEndpoint, method: QueueDelete) -> int:
    """How many records went with it; none when there was no such queue."""
    name = read_name(method.queue)
    if name and _account_of(endpoint).queues.catalog.find(name) is None:
        rights.check_queue(endpoint, name)
        return 0
    queue = find_queue(endpoint, method.queue)
    catch_up(queue)
    place = _queue_place(endpoint, queue.name)
    if method.if_unused and queue.consumer_count():
        raise Refused(Reason.PRECONDITION_FAILED, f"{place} in use")
    count = int(queue.ready())
    if method.if_empty and count:
        raise Refused(Reason.PRECONDITION_FAILED, f"{place} not empty")
    endpoint.exclusive_queues.remove(queue.name)
    queue.catalog.delete(queue)
    return count


def begin_purge(endpoint: AmqpEndpoint, method: QueuePurge) -> Purge:
    queue = find_queue(endpoint, method.queue)
    if queue.is_stream:
        text = f"queue.purge not supported by stream queues {_queue_place(endpoint, queue.name)}"
        raise Violation(codes.NOT_IMPLEMENTED, text, method.class_id, method.method_id, True)
    catch_up(queue)
    return Purge(queue)


def bind_queue(endpoint: AmqpEndpoint, method: QueueBind) -> None:
    _check_named(method.queue)
    source = read_exchange(method.exchange)
    exchanges = _account_of(endpoint).exchanges
    kind = exchanges.get(source).kind
    queue = find_queue(endpoint, method.queue)
    rights.check_source(endpoint, source, kind, method.routing_key)
    owner = (
        None if queue.owner is not None else rights.owner_of(endpoint)
    )  # that of one connection is looked after there
    exchanges.bind_queue(queue, source, method.routing_key, plain_arguments(method.arguments), owner)


def unbind_queue(endpoint: AmqpEndpoint, method: QueueUnbind) -> None:
    """What is not there is unbound already."""
    _check_named(method.queue)
    source = read_exchange(method.exchange)
    name = read_name(method.queue)
    account = _account_of(endpoint)
    rights.check_queue(endpoint, name)
    arguments = plain_arguments(method.arguments)
    known = account.queues.catalog.find(name)
    if known is None or not account.exchanges.is_bound(known, source, method.routing_key, arguments):
        return
    queue = find_queue(endpoint, method.queue)
    account.exchanges.unbind_queue(queue, source, method.routing_key, arguments)


# ------------------------------------------------------------------- exchanges


def declare_exchange(endpoint: AmqpEndpoint, method: ExchangeDeclare) -> None:
    exchanges = _account_of(endpoint).exchanges
    kind = method.type.decode(errors="replace")
    if not method.passive and kind not in KINDS:
        text = f"unknown exchange type '{kind}'"
        raise Violation(codes.COMMAND_INVALID, text, method.class_id, method.method_id, True)
    name = read_exchange(method.exchange)
    if not name.startswith(RESERVED):  # those of the broker are no secret, and none can be added to them
        rights.check_exchange(endpoint, name)
    if method.passive:
        exchanges.get(name)
        return
    arguments = plain_arguments(method.arguments)
    if ALTERNATE in method.arguments and exchanges.find(name) is None:
        _check_alternate(endpoint, name, method.arguments[ALTERNATE], arguments[ALTERNATE.decode()])
    owner = rights.owner_of(endpoint)
    exchange = exchanges.declare(
        name, kind, method.durable, method.auto_delete, method.internal, arguments, owner
    )
    exchanges.set_alternate(exchange, endpoint.context.policies.find_alternate(name))


def _check_alternate(endpoint: AmqpEndpoint, name: str, value: object, stored: object) -> None:
    """The right is asked for the very text that is stored: of other types there is none that is what the client wrote."""
    if not isinstance(value, bytes) or not isinstance(stored, str):
        place = f"exchange '{name}' in vhost '{endpoint.virtual_host}'"
        text = f"invalid type '{type_name(value)}' for arg '{ALTERNATE.decode()}' in {place}"
        raise Refused(Reason.PRECONDITION_FAILED, text)
    rights.check_destination(endpoint, stored, None)


def delete_exchange(endpoint: AmqpEndpoint, method: ExchangeDelete) -> None:
    """What is not there is deleted already."""
    name = read_exchange(method.exchange)
    if name.startswith(RESERVED):
        text = f"deletion of system exchange '{name}' in vhost '{endpoint.virtual_host}' not allowed"
        raise Refused(Reason.NOT_AUTHORIZED, text)
    rights.check_exchange(endpoint, name)
    _account_of(endpoint).exchanges.delete(name, method.if_unused)


def bind_exchange(endpoint: AmqpEndpoint, method: ExchangeBind) -> None:
    target = read_exchange(method.destination)
    source = read_exchange(method.source)
    exchanges = _account_of(endpoint).exchanges
    kind = exchanges.get(source).kind
    rights.check_exchange(endpoint, target)
    rights.check_source(endpoint, source, kind, method.routing_key)
    # who publishes to the source publishes to the target from now on
    rights.check_destination(endpoint, target, method.routing_key if kind == DIRECT else None)
    is_narrow = kind == DIRECT and not rights.has_whole_exchange(endpoint, target)
    owner = rights.owner_of(endpoint)
    arguments = plain_arguments(method.arguments)
    exchanges.bind_exchange(target, source, method.routing_key, arguments, owner, is_narrow)


def unbind_exchange(endpoint: AmqpEndpoint, method: ExchangeUnbind) -> None:
    target = read_exchange(method.destination)
    source = read_exchange(method.source)
    exchanges = _account_of(endpoint).exchanges
    rights.check_exchange(endpoint, target)
    if exchanges.find(source) is not None and exchanges.find(target) is not None:
        exchanges.unbind_exchange(target, source, method.routing_key, plain_arguments(method.arguments))


# ------------------------------------------------------------------ what lasts


def has_durable_queue(endpoint: AmqpEndpoint, name: bytes) -> bool:
    """Whether an answer about it is a promise, even if somebody else has just made it. One that is gone may have been."""
    queue = _account_of(endpoint).queues.catalog.find(read_name(name))
    return queue.is_durable if queue is not None else not name.startswith(REPLY_TO) and name != b""


def has_durable_exchange(endpoint: AmqpEndpoint, name: bytes) -> bool:
    """The same; those that are always there promise nothing."""
    if name.startswith(RESERVED.encode()):
        return False
    exchange = _account_of(endpoint).exchanges.find(read_exchange(name))
    return exchange is None or exchange.durable


# ----------------------------------------------------------------------- names


def read_name(name: bytes) -> str:
    """The name of a queue as a client wrote it; `$queue/<name>`, the topic of the queue, is the same queue. Line ends are left
    out as RabbitMQ does, so that one name has one spelling."""
    text = _read_text(name)
    place = split_queue_topic(text.encode())
    if place is None:
        return text
    fault = find_spelling_fault(text.encode())
    if fault is None and place[1]:
        fault = "it has a routing key behind it; in the name itself / is written %2F"
    if fault is not None:
        raise Refused(Reason.NOT_AUTHORIZED, f"'{text}' is not the name of a queue: {fault}")
    return place[0]


def _read_text(name: bytes) -> str:
    try:
        return name.decode().replace("\r", "").replace("\n", "")
    except UnicodeDecodeError:
        shown = name.decode(errors="replace")
        raise Refused(Reason.PRECONDITION_FAILED, f"the name '{shown}' is not UTF-8") from None


def _check_named(name: bytes) -> None:
    """An empty name stands for the last one that the channel declared; here it is known that there is none."""
    if not read_name(name):
        raise Refused(Reason.NOT_FOUND, "no previously declared queue")


def read_exchange(name: bytes) -> str:
    text = _read_text(name)
    check_not_default(text)
    return text


def _queue_place(endpoint: AmqpEndpoint, name: str) -> str:
    return f"queue '{name}' in vhost '{endpoint.virtual_host}'"


def _account_of(endpoint: AmqpEndpoint) -> Account:
    account = endpoint.account
    assert account is not None
    return account


def _check_owner(endpoint: AmqpEndpoint, queue: Queue) -> None:
    if queue.owner is not None and queue.owner is not endpoint:
        raise _lock(_queue_place(endpoint, queue.name))


def _lock(place: str) -> Refused:
    text = (
        f"cannot obtain exclusive access to locked {place}. It could be originally declared on another connection or "
        "the exclusive property value does not match that of the original declaration."
    )
    return Refused(Reason.LOCKED, text)


def _count(queue: Queue) -> tuple[bytes, int, int]:
    catch_up(queue)
    is_letters = queue.name.startswith(DEAD_LETTER_PREFIX)  # they are called by their topic
    name = queue_prefix(queue.name) if is_letters else queue.name.encode()
    return name, int(queue.ready()), int(queue.consumer_count())
