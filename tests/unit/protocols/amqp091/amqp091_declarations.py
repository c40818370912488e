"""Declarations in short, for tests: what is made, and what is refused and why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from amqp091_world import AmqpWorld

from millstream.model.errors import Reason, Refused
from millstream.protocols.amqp091 import declaring
from millstream.protocols.amqp091.endpoint import AmqpEndpoint
from millstream.protocols.amqp091.wire.field_table import FieldTable
from millstream.protocols.amqp091.wire.methods import ExchangeDeclare, QueueBind, QueueDeclare
from millstream.queues.queue import Queue


def declare(
    endpoint: AmqpEndpoint,
    name: bytes = b"q",
    *,
    passive: bool = False,
    durable: bool = True,
    exclusive: bool = False,
    auto_delete: bool = False,
    arguments: FieldTable | None = None,
) -> tuple[bytes, int, int]:
    method = QueueDeclare(name, passive, durable, exclusive, auto_delete, False, arguments or {})
    return declaring.declare_queue(endpoint, method)


def declare_exchange(
    endpoint: AmqpEndpoint,
    name: bytes = b"x",
    kind: bytes = b"direct",
    *,
    passive: bool = False,
    durable: bool = True,
    arguments: FieldTable | None = None,
) -> None:
    method = ExchangeDeclare(name, kind, passive, durable, False, False, False, arguments or {})
    declaring.declare_exchange(endpoint, method)


def bind(endpoint: AmqpEndpoint, queue: bytes, exchange: bytes, key: bytes = b"k") -> None:
    declaring.bind_queue(endpoint, QueueBind(queue, exchange, key, False, {}))


def refusal(action: Callable[..., object], *arguments: Any, **options: Any) -> tuple[Reason, str]:
    with pytest.raises(Refused) as caught:
        action(*arguments, **options)
    return caught.value.reason, caught.value.text


def find(world: AmqpWorld, name: str = "q") -> Queue:
    queue = world.account.queues.catalog.find(name)
    assert queue is not None
    return queue
