"""Gives the connections of an AMQP listener their endpoints."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from millstream.protocols.amqp091.context import AmqpContext
from millstream.protocols.amqp091.endpoint import AmqpEndpoint
from millstream.protocols.endpoint import Endpoint, Link
from millstream.runtime.transport.gate import Reception


@final
class AmqpReception(Reception):
    def __init__(self, context: AmqpContext) -> None:
        self._context = context

    def make_endpoint(self, link: Link, now_ns: i64) -> Endpoint:
        return AmqpEndpoint(self._context, link, now_ns)
