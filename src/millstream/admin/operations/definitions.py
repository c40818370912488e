"""Definitions in RabbitMQ's form through the control channel: queues as it would write them, and parts of its export taken in.

The commands cut a file into parts and put the answers together; here each part is checked as if a client had declared it.
"""

from __future__ import annotations

from typing import Final

from millstream.admin.context import AdminContext, read_flag, read_list, read_object, read_text
from millstream.admin.name_walk import page_of
from millstream.admin.operations.exchanges import bind, declare_exchange
from millstream.broker.account import Account
from millstream.model.errors import Reason, Refused
from millstream.model.routing_key import key_of_topic
from millstream.protocols.amqp091.policies import APPLIED, Policies, is_of_amqp
from millstream.protocols.amqp091.queue_arguments import (
    OVERFLOWS,
    check_arguments,
    check_equivalent,
    check_flag,
    check_properties,
    make_definition,
)
from millstream.protocols.amqp091.wire.field_table import FieldTable
from millstream.queues.definition import DEAD_LETTER_PREFIX, STREAM, WORK, Definition
from millstream.queues.queue import Queue
from millstream.routing.header_match import encode_text
from millstream.runtime.control.server import ControlRefusal, Conversation, Fields, Operation

ITEMS_MAX: Final = 1000  # of one request
KINDS: Final = ("exchange", "queue", "binding")
# fields of a queue that say nothing about how it behaves or whose it is elsewhere, or are told apart from the arguments
_APART: Final = ("bindings", "arguments", "bounds_ready", "prefetch", "owner")


class DefinitionOperations:
    def __init__(self, context: AdminContext) -> None:
        self._context = context

    async def accounts(self, fields: Fields, conversation: Conversation) -> object:
        return {"accounts": list(self._context.broker.accounts)}

    async def queues(self, fields: Fields, conversation: Conversation) -> object:
        """A page of durable queues in order of names. Dead-letter queues of our own are left out: they make themselves."""
        self._context.begin()
        queues = self._context.get_account(fields).queues.catalog.queues
        names, is_more = await page_of(queues, fields, conversation, ("definitions", id(queues)))
        self._context.begin()
        shown = [
            view_queue(queues[name])
            for name in names
            if name in queues and queues[name].is_durable and not name.startswith(DEAD_LETTER_PREFIX)
        ]
        return {"queues": shown, "more": is_more, "last": names[-1] if names else ""}

    async def take(self, fields: Fields, conversation: Conversation) -> object:
        """Items of one kind for one account. One that is refused does not keep the others out."""
        context = self._context
        context.begin_change()
        account = context.get_account(fields)
        kind = read_text(fields, "kind")
        if kind not in KINDS:
            raise ControlRefusal(f"definitions are of one of {', '.join(KINDS)}, not {kind!r}")
        created, unchanged = 0, 0
        refused: list[dict[str, object]] = []
        for at, item in enumerate(read_list(fields, "items", ITEMS_MAX)):
            try:
                if not isinstance(item, dict):
                    raise ControlRefusal("it is not an object")
                is_new = take_item(account, context.policies, kind, item)
            except (Refused, ControlRefusal) as refusal:
                refused.append({"at": at, "reason": refusal.text})
                continue
            created += is_new
            unchanged += not is_new
        await context.wait_durable()
        return {"created": created, "unchanged": unchanged, "refused": refused}


def make_definition_operations(context: AdminContext) -> dict[str, Operation]:
    definitions = DefinitionOperations(context)
    return {
        "definitions.accounts": definitions.accounts,
        "definitions.queues": definitions.queues,
        "definitions.take": definitions.take,
    }


# ---------------------------------------------------------------------- import


def take_item(account: Account, policies: Policies, kind: str, item: Fields) -> bool:
    """Whether it was not there before. Refused: it is there as something else, or cannot be."""
    access = account.exchanges
    if kind != "binding" and not read_flag({"durable": True, **item}, "durable"):
        raise ControlRefusal("only what is durable is taken over; this would go with the next restart")
    if kind == "exchange":
        is_new = access.find(read_text(item, "name")) is None
        declare_exchange(access, policies, item)
        return is_new
    if kind == "queue":
        return take_queue(account, policies, item)
    target = read_text(item, "destination")
    to_exchange = read_text(item, "destination_type", "queue") == "exchange"
    queue = None if to_exchange else account.queues.catalog.find(target)
    if queue is None and not to_exchange:
        raise Refused(Reason.NOT_FOUND, f"no queue '{target}' in vhost '/'")
    before = access.binding_count()
    bind(access, queue, {**item, "target": target, "key": item.get("routing_key", "")})
    return access.binding_count() > before


def take_queue(account: Account, policies: Policies, item: Fields) -> bool:
    name = read_text(item, "name")
    place = f"queue '{name}' in vhost '/'"
    auto_delete = read_flag(item, "auto_delete")
    arguments = to_table(read_object(item, "arguments"))
    check_arguments(arguments, place)
    check_properties(arguments, True, False, auto_delete, place)
    catalog = account.queues.catalog
    queue = catalog.find(name)
    if queue is None:
        definition = make_definition(arguments, True, False, auto_delete)
        policies.shape(name, definition)
        catalog.declare(name, definition)
        return True
    check_flag("durable", True, queue.is_durable, place)
    check_flag("auto_delete", auto_delete, queue.definition.auto_delete, place)
    check_equivalent(queue.definition, arguments, place)
    return False


def to_table(arguments: dict[str, object]) -> FieldTable:
    """As a client would have sent it."""
    table: FieldTable = {}
    for name, value in arguments.items():
        table[name.encode()] = encode_text(value)
    return table


# ---------------------------------------------------------------------- export


def view_queue(queue: Queue) -> dict[str, object]:
    """`keys`: binding keys of amq.topic that say the same as its filters; `lost`: what this form cannot say."""
    definition = queue.definition
    arguments = {name: value for name, value in definition.arguments.items() if name != APPLIED}
    if not is_of_amqp(queue):
        arguments = {**arguments_of(definition), **arguments}
    # what a policy says beside the arguments is written with the policies
    lost = [] if APPLIED in definition.arguments else find_lost(definition, arguments)
    keys = []
    for filter in definition.bindings:
        if "*" in filter:
            lost.append(f"the binding to {filter}")
        else:
            keys.append(key_of_topic(filter.encode()).decode().replace("+", "*"))
    return {
        "name": queue.name,
        "auto_delete": definition.auto_delete,
        "arguments": arguments,
        "keys": keys,
        "lost": lost,
    }


def find_lost(definition: Definition, arguments: dict[str, object]) -> list[str]:
    """Settings that a queue declared with these arguments would not have."""
    made = make_definition(to_table(arguments), True, False, definition.auto_delete).to_fields()
    return [
        f"{name}={value or 'its own'}"  # the empty dead_letter is a queue of its own
        for name, value in definition.to_fields().items()
        if name not in _APART and made[name] != value
    ]


def arguments_of(definition: Definition) -> dict[str, object]:
    """The nearest that RabbitMQ has for a queue that no AMQP client declared."""
    arguments: dict[str, object] = {}
    for name, value in (
        ("x-message-ttl", definition.message_ttl_ms),
        ("x-expires", definition.expires_ms),
        ("x-max-length", definition.length_max),
        ("x-max-length-bytes", definition.bytes_max),
        ("x-max-priority", definition.priority_max),
    ):
        if value and definition.kind == WORK:
            arguments[name] = max(0, value)  # below 0 is the tightest there is
    if definition.kind == STREAM:
        arguments["x-queue-type"] = STREAM
        if definition.retention_bytes:
            arguments["x-max-length-bytes"] = definition.retention_bytes
        if definition.retention_age_s:
            arguments["x-max-age"] = f"{definition.retention_age_s}s"
        return arguments
    for word, overflow in OVERFLOWS.items():
        if overflow == definition.overflow and word != "drop-head":
            arguments["x-overflow"] = word
    if definition.single_active:
        arguments["x-single-active-consumer"] = True
    if definition.dead_letter_exchange is not None:
        arguments["x-dead-letter-exchange"] = definition.dead_letter_exchange
        if definition.dead_letter_key is not None:
            arguments["x-dead-letter-routing-key"] = definition.dead_letter_key
    return arguments
