"""Exchanges and their bindings as the control channel lists, makes and removes them."""

from __future__ import annotations

import heapq
from itertools import islice
from typing import Final

from millstream.admin.context import AdminContext, read_flag, read_object, read_text, read_whole
from millstream.admin.name_walk import PAGE_MAX
from millstream.broker.exchange_access import ExchangeAccess
from millstream.protocols.amqp091.policies import Policies
from millstream.queues.queue import Queue
from millstream.routing.binding import Binding
from millstream.routing.exchange import Exchange
from millstream.runtime.control.server import ControlRefusal, Conversation, Fields, Operation

TARGETS: Final = ("queue", "exchange")
BINDINGS_PAGE_MAX: Final = 10_000
POSITION_MAX: Final = 1 << 53


class ExchangeOperations:
    def __init__(self, context: AdminContext) -> None:
        self._context = context

    # ------------------------------------------------------------------- look

    async def list_exchanges(self, fields: Fields, conversation: Conversation) -> object:
        """A page in order of names: those after `after`. The default exchange, which has no name, is not shown."""
        self._context.begin()
        after = read_text(fields, "after", "")
        limit = read_whole(fields, "limit", PAGE_MAX, 1, PAGE_MAX)
        known = {exchange.name: exchange for exchange in self._access(fields).all()}
        names = heapq.nsmallest(limit + 1, (name for name in known if name > after))
        return {
            "exchanges": [view_exchange(known[name]) for name in names[:limit]],
            "more": len(names) > limit,
        }

    async def show(self, fields: Fields, conversation: Conversation) -> object:
        """With its first bindings; `bindings` gives the others."""
        self._context.begin()
        exchange = self._get(fields)
        shown = [view_binding(binding) for binding in islice(exchange.bindings.values(), PAGE_MAX)]
        return {**view_exchange(exchange), "bound": shown}

    async def bindings(self, fields: Fields, conversation: Conversation) -> object:
        """A page of the bindings from an exchange, from the `start`-th on, in the order they were made."""
        self._context.begin()
        found = self._get(fields).bindings
        start = read_whole(fields, "start", 0, 0, POSITION_MAX)
        limit = read_whole(fields, "limit", BINDINGS_PAGE_MAX, 1, BINDINGS_PAGE_MAX)
        page = [view_binding(binding) for binding in islice(found.values(), start, start + limit)]
        return {"bindings": page, "more": start + len(page) < len(found)}

    # ----------------------------------------------------------------- change

    async def declare(self, fields: Fields, conversation: Conversation) -> object:
        context = self._context
        context.begin_change()
        access = self._access(fields)
        name = read_text(fields, "name")
        is_new = access.find(name) is None
        exchange = declare_exchange(access, context.policies, fields)
        await context.wait_durable()
        return {"created": is_new, **view_exchange(exchange)}

    async def delete(self, fields: Fields, conversation: Conversation) -> object:
        context = self._context
        context.begin_change()
        exchange = self._get(fields)
        count = len(exchange.bindings)
        self._access(fields).delete(exchange.name, read_flag(fields, "if_unused"))
        await context.wait_durable()
        return {"deleted": exchange.name, "bindings": count}

    async def bind(self, fields: Fields, conversation: Conversation) -> object:
        context = self._context
        context.begin_change()
        access = self._access(fields)
        before = access.binding_count()
        bind(access, self._find_queue(fields), fields)
        await context.wait_durable()
        return {"created": access.binding_count() > before, **view_binding_fields(fields)}

    async def unbind(self, fields: Fields, conversation: Conversation) -> object:
        context = self._context
        context.begin_change()
        access = self._access(fields)
        queue = self._find_queue(fields)
        source, target = read_text(fields, "source"), read_text(fields, "target")
        key, arguments = read_text(fields, "key", "").encode(), read_object(fields, "arguments")
        if queue is not None:
            was_bound = access.unbind_queue(queue, source, key, arguments)
        else:
            was_bound = access.unbind_exchange(target, source, key, arguments)
        if not was_bound:
            raise ControlRefusal(
                f"{target!r} is not bound to {source!r} like this", f"millstream exchange show '{source}'"
            )
        await context.wait_durable()
        return {"removed": True, **view_binding_fields(fields)}

    def _access(self, fields: Fields) -> ExchangeAccess:
        return self._context.get_account(fields).exchanges

    def _get(self, fields: Fields) -> Exchange:
        name = read_text(fields, "name")
        exchange = self._access(fields).find(name)
        if exchange is None:
            raise ControlRefusal(f"there is no exchange {name!r}", "millstream exchange list")
        return exchange

    def _find_queue(self, fields: Fields) -> Queue | None:
        """The target, unless it is an exchange."""
        return self._context.get_queue(fields, "target") if read_target_kind(fields) == "queue" else None


def make_exchange_operations(context: AdminContext) -> dict[str, Operation]:
    exchanges = ExchangeOperations(context)
    return {
        "exchange.list": exchanges.list_exchanges,
        "exchange.show": exchanges.show,
        "exchange.bindings": exchanges.bindings,
        "exchange.declare": exchanges.declare,
        "exchange.delete": exchanges.delete,
        "exchange.bind": exchanges.bind,
        "exchange.unbind": exchanges.unbind,
    }


def declare_exchange(access: ExchangeAccess, policies: Policies, fields: Fields) -> Exchange:
    exchange = access.declare(
        read_text(fields, "name"),
        read_text(fields, "type", "direct"),
        read_flag({"durable": True, **fields}, "durable"),
        read_flag(fields, "auto_delete"),
        read_flag(fields, "internal"),
        read_object(fields, "arguments"),
    )
    access.set_alternate(exchange, policies.find_alternate(exchange.name))
    return exchange


def bind(access: ExchangeAccess, queue: Queue | None, fields: Fields) -> None:
    """`queue` is the target, None when that is an exchange."""
    source, target = read_text(fields, "source"), read_text(fields, "target")
    key, arguments = read_text(fields, "key", "").encode(), read_object(fields, "arguments")
    if queue is not None:
        access.bind_queue(queue, source, key, arguments)
    else:
        access.bind_exchange(target, source, key, arguments)


def read_target_kind(fields: Fields) -> str:
    kind = read_text(fields, "target_kind", "queue")
    if kind not in TARGETS:
        raise ControlRefusal(f"a binding leads to a queue or an exchange, not to {kind!r}")
    return kind


def view_exchange(exchange: Exchange) -> dict[str, object]:
    return {
        "name": exchange.name,
        "type": exchange.kind,
        "durable": exchange.durable,
        "auto_delete": exchange.auto_delete,
        "internal": exchange.internal,
        "is_predeclared": exchange.is_predeclared(),
        "alternate": exchange.alternate,
        "bindings": len(exchange.bindings),
        "arguments": exchange.arguments,
    }


def view_binding(binding: Binding) -> dict[str, object]:
    return {
        "source": binding.source.name,
        "target": binding.target,
        "target_kind": "queue" if binding.exchange is None else "exchange",
        "key": binding.key.decode(errors="backslashreplace"),
        "durable": binding.is_durable,
        "arguments": binding.arguments,
        "owners": [owner.name for owner in binding.owners],
        "suspended": binding.is_suspended,
    }


def view_binding_fields(fields: Fields) -> dict[str, object]:
    return {
        name: fields.get(name, default)
        for name, default in (("source", ""), ("target", ""), ("target_kind", "queue"), ("key", ""))
    }
