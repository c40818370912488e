"""Queues as the control channel lists, makes, changes and removes them."""

from __future__ import annotations

import asyncio
import base64
import binascii
from typing import Final

from millstream.admin.context import (
    AdminContext,
    read_flag,
    read_list,
    read_object,
    read_text,
    read_whole,
    to_utf8,
)
from millstream.admin.name_walk import page_of
from millstream.broker.account import Account
from millstream.broker.queue_access import find_start
from millstream.broker.queue_consumer import SessionConsumer
from millstream.broker.tasks import Task
from millstream.model.errors import Reason
from millstream.model.message import NANOSECONDS, Message
from millstream.model.queue_topic import queue_topic
from millstream.model.topic import find_topic_fault, find_utf8_fault
from millstream.protocols.mqtt.mapping import encode_block
from millstream.protocols.mqtt.wire.properties import Properties
from millstream.queues.definition import (
    BINDINGS_MAX,
    check_binding,
    check_name,
    dead_letter_name,
    make_definition,
)
from millstream.queues.group import Group
from millstream.queues.purge import Purge
from millstream.queues.queue import Queue
from millstream.runtime.control.server import ControlRefusal, Conversation, Fields
from millstream.runtime.loop.durable_wait import NO_STORAGE
from millstream.security.quotas import ANYBODY

CONSUMERS_SHOWN: Final = 100
NAMED_MAX: Final = 5  # consumers in a sentence
PUBLISH_MAX: Final = 256  # messages in one request
STRING_MAX: Final = 65_535
EXPIRY_MAX: Final = 0xFFFF_FFFF
REFUSALS: Final = {
    Reason.QUOTA_EXCEEDED: "it holds as much as it may",
    Reason.UNAVAILABLE: NO_STORAGE,
}


class Purging(Task):
    """Carried out to its end, whatever becomes of the operator who asked for it."""

    def __init__(self, purge: Purge) -> None:
        self._purge = purge
        self.done = asyncio.Event()

    def run(self, steps: int) -> int:
        left = int(self._purge.run(steps))
        if left <= 0:
            return steps - left
        self.done.set()
        return steps - left

    def on_task_failed(self, error: Exception) -> None:
        self.done.set()
        raise error


class QueueOperations:
    def __init__(self, context: AdminContext) -> None:
        self._context = context

    # ------------------------------------------------------------------- look

    async def list_queues(self, fields: Fields, conversation: Conversation) -> object:
        """A page in order of names: those after `after`."""
        self._context.begin()
        queues = self._context.get_account(fields).queues.catalog.queues
        names, is_more = await page_of(queues, fields, conversation, ("queues", id(queues)))
        self._context.begin()
        return {"queues": [summary(queues[name]) for name in names if name in queues], "more": is_more}

    async def show(self, fields: Fields, conversation: Conversation) -> object:
        self._context.begin()
        return details(self._context.get_queue(fields))

    async def groups(self, fields: Fields, conversation: Conversation) -> object:
        self._context.begin()
        queue = self._context.get_queue(fields)
        groups = queue.groups
        titles, is_more = await page_of(groups, fields, conversation, ("groups", queue.name, id(groups)))
        self._context.begin()
        return {"groups": [view_group(groups[title]) for title in titles if title in groups], "more": is_more}

    # ----------------------------------------------------------------- change

    async def create(self, fields: Fields, conversation: Conversation) -> object:
        context = self._context
        context.begin_change()
        catalog = context.get_account(fields).queues.catalog
        name = read_text(fields, "name")
        check_name(name)
        definition = make_definition(read_object(fields, "definition"))
        before = catalog.find(name)
        if before is not None:
            definition.owner = before.definition.owner  # it is not asked for here
        if before is not None and before.definition.to_fields() != definition.to_fields():
            raise ControlRefusal(
                f"there is a queue {name!r} already, with other settings", f"millstream queue show '{name}'"
            )
        queue = catalog.declare(name, definition)
        await context.wait_durable()
        return {"created": before is None, **details(queue)}

    async def update(self, fields: Fields, conversation: Conversation) -> object:
        """Change the settings that are named and leave the others."""
        context = self._context
        context.begin_change()
        queue = context.get_queue(fields)
        definition = make_definition({**queue.definition.to_fields(), **read_object(fields, "definition")})
        queue.catalog.declare(queue.name, definition)
        await context.wait_durable()
        return details(queue)

    async def delete(self, fields: Fields, conversation: Conversation) -> object:
        context = self._context
        context.begin_change()
        queue = context.get_queue(fields)
        records = int(queue.depth())
        queue.catalog.delete(queue)
        await context.wait_durable()
        return {"deleted": queue.name, "records": records}

    async def purge(self, fields: Fields, conversation: Conversation) -> object:
        context = self._context
        context.begin_change()
        queue = context.get_queue(fields)
        purge = Purge(queue)
        purging = Purging(purge)
        context.broker.tasks.start(purging)
        await purging.done.wait()
        await context.wait_durable()
        return {"purged": int(purge.count), "name": queue.name}

    async def bind(self, fields: Fields, conversation: Conversation) -> object:
        context = self._context
        context.begin_change()
        queue = context.get_queue(fields)
        filter = read_text(fields, "filter")
        check_binding(filter)
        bindings = queue.definition.bindings
        if filter not in bindings and len(bindings) >= BINDINGS_MAX:
            raise ControlRefusal(f"{queue.name!r} has {BINDINGS_MAX} bindings, as many as it may")
        queue.catalog.bind(queue, filter)
        await context.wait_durable()
        return {"name": queue.name, "bindings": list(queue.definition.bindings)}

    async def unbind(self, fields: Fields, conversation: Conversation) -> object:
        context = self._context
        context.begin_change()
        queue = context.get_queue(fields)
        filter = read_text(fields, "filter")
        if not queue.catalog.unbind(queue, filter):
            raise ControlRefusal(
                f"{queue.name!r} is not bound to {filter!r}", f"millstream queue show '{queue.name}'"
            )
        await context.wait_durable()
        return {"name": queue.name, "bindings": list(queue.definition.bindings)}

    async def seek(self, fields: Fields, conversation: Conversation) -> object:
        """Let a group of a stream stand elsewhere."""
        context = self._context
        context.begin_change()
        queue = context.get_queue(fields)
        if not queue.is_stream:
            raise ControlRefusal(
                f"{queue.name!r} is a {queue.definition.kind} queue: what was settled is gone; only groups of streams "
                "can be moved",
                "millstream queue list",
            )
        group = _get_group(queue, fields)
        group.seek(find_start(queue, read_text(fields, "to").encode()))
        await context.wait_durable()
        return view_group(group)

    async def remove_group(self, fields: Fields, conversation: Conversation) -> object:
        """With `force` the subscriptions of its consumers end too, or they would bring it back at the next start."""
        context = self._context
        context.begin_change()
        queue = context.get_queue(fields)
        group = _get_group(queue, fields)
        title, lag, consumers = group.title(), int(group.lag()), list(group.consumers)
        if consumers and not read_flag(fields, "force"):
            names = ", ".join(consumer.name for consumer in consumers[:NAMED_MAX])
            more = f" and {len(consumers) - NAMED_MAX} more" if len(consumers) > NAMED_MAX else ""
            raise ControlRefusal(
                f"the group {title!r} of {queue.name!r} has consumers: {names}{more}",
                f"millstream queue remove-group '{queue.name}' '{title}' --force",
            )
        for consumer in consumers:
            if isinstance(consumer, SessionConsumer):
                self._end_subscription(consumer)
        queue.catalog.remove_group(queue, group)
        await context.wait_durable()
        return {"name": queue.name, "removed": title, "lag": lag, "consumers": len(consumers)}

    def _end_subscription(self, consumer: SessionConsumer) -> None:
        session = consumer.session
        consumers = {} if session.consumers is None else session.consumers.by_name
        for name in [name for name, other in consumers.items() if other is consumer]:
            self._context.broker.unsubscribe(session, name)

    # ---------------------------------------------------------------- publish

    async def publish(self, fields: Fields, conversation: Conversation) -> object:
        """One or more messages, each answered by its offset; None: the queue had it from its producer before."""
        context = self._context
        context.begin_change()
        queue = context.get_queue(fields)
        account = context.get_account(fields)
        messages = [
            self._make_message(account, queue, part) for part in read_list(fields, "messages", PUBLISH_MAX)
        ]
        offsets: list[int | None] = []
        for message in messages:
            before = int(queue.next)
            reason = context.broker.publish_internal(account, message, None)
            if reason is not Reason.SUCCESS:
                await context.wait_durable()
                why = REFUSALS.get(reason, reason.name.lower().replace("_", " "))
                taken = f"; {len(offsets)} messages before it were taken" if offsets else ""
                raise ControlRefusal(
                    f"{queue.name!r} refuses the message: {why}{taken}",
                    f"millstream queue show '{queue.name}'",
                )
            offsets.append(before if queue.next > before else None)
        await context.wait_durable()
        return {"offsets": offsets}

    def _make_message(self, account: Account, queue: Queue, part: object) -> Message:
        if not isinstance(part, dict):
            raise ControlRefusal("a message must be an object")
        limits = self._context.broker.limits
        payload = _read_payload(part)
        if len(payload) > limits.message_size_max:
            raise ControlRefusal(f"a payload must not have more than {limits.message_size_max} bytes")
        topic = queue_topic(queue.name, read_text(part, "key", "").encode())
        fault = find_topic_fault(topic, limits.topic_length_max, limits.topic_levels_max)
        if fault is None and account.find_route(topic, ANYBODY).settles:
            fault = "it is the word for an answer to a delivery"
        if fault is not None:
            raise ControlRefusal(f"the routing key cannot be used: {fault}")
        properties = _read_properties(part, limits.user_properties_max)
        expiry_s = read_whole(part, "expiry_s", 0, 0, EXPIRY_MAX)
        expires_ns = int(self._context.broker.clock.now_ns) + expiry_s * NANOSECONDS if expiry_s else 0
        return Message(topic, payload, 1, False, encode_block(properties), expires_ns, "")


def _get_group(queue: Queue, fields: Fields) -> Group:
    title = read_text(fields, "group")
    group = queue.groups.get(title)
    if group is None:
        raise ControlRefusal(
            f"{queue.name!r} has no group {title!r}", f"millstream queue groups '{queue.name}'"
        )
    return group


def _read_payload(part: Fields) -> bytes:
    if "payload_base64" not in part:
        return read_text(part, "payload", "").encode()
    try:
        return base64.b64decode(read_text(part, "payload_base64"), validate=True)
    except (binascii.Error, ValueError):
        raise ControlRefusal("payload_base64 is not base64") from None


def _read_properties(part: Fields, count_max: int) -> Properties:
    properties = Properties()
    if "content_type" in part:
        properties.content_type = _read_string(part["content_type"])
    pairs = read_list(part, "properties", count_max) if "properties" in part else []
    for pair in pairs:
        if not isinstance(pair, list) or len(pair) != 2:
            raise ControlRefusal("a property must be a pair of texts")
        properties.user_properties.append((_read_string(pair[0]), _read_string(pair[1])))
    return properties


def _read_string(value: object) -> bytes:
    text = to_utf8(value) if isinstance(value, str) else None
    if text is None or len(text) > STRING_MAX or find_utf8_fault(text) is not None:
        raise ControlRefusal(f"a property must be a text of at most {STRING_MAX} bytes, not {value!r:.100}")
    return text


# ----------------------------------------------------------------------- views


def summary(queue: Queue) -> dict[str, object]:
    groups = queue.groups.values()
    return {
        "name": queue.name,
        "kind": queue.definition.kind,
        "records": int(queue.depth()),
        "bytes": int(queue.size.bytes),
        "handed_out": sum(len(group.pending) for group in groups),
        "groups": len(queue.groups),
        "consumers": sum(len(group.consumers) for group in groups),
    }


def details(queue: Queue) -> dict[str, object]:
    counters = queue.counters
    return {
        **summary(queue),
        "account": queue.catalog.account,
        "first_offset": int(queue.low_mark()),
        "next_offset": int(queue.next),
        "ready": int(queue.ready()),
        "dead_letters": _dead_letters(queue),
        "definition": queue.definition.to_fields(),
        "since_start": {
            "appended": int(counters.appended),
            "refused": int(counters.refused),
            "repeated": int(counters.repeated),
            "expired": int(counters.expired),
            "dropped": int(counters.dropped),
            "dead_lettered": int(counters.dead_lettered),
            "timed_out": int(counters.timed_out),
        },
    }


def _dead_letters(queue: Queue) -> str | None:
    """Where they go, in words."""
    exchange = queue.definition.dead_letter_exchange
    if exchange is not None:
        return f"exchange {exchange!r}"
    return dead_letter_name(queue.name, queue.definition) or None


def view_group(group: Group) -> dict[str, object]:
    return {
        "group": group.title(),
        "filter": group.filter.decode() or None,
        "committed": int(group.committed),
        "lag": int(group.lag()),
        "handed_out": len(group.pending),
        "consumers": [consumer.name for consumer in group.consumers[:CONSUMERS_SHOWN]],
    }
