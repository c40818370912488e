"""The methods of the classes exchange and queue: what is declared, bound and taken away."""

from __future__ import annotations

from typing import ClassVar, Final, final

from millstream.protocols.amqp091.wire.field_table import FieldTable
from millstream.protocols.amqp091.wire.method import (
    BIT,
    LONG,
    RESERVED_SHORT,
    SHORT_STRING,
    TABLE,
    Method,
)


@final
class ExchangeDeclare(Method):
    class_id: ClassVar[int] = 40
    method_id: ClassVar[int] = 10
    layout: ClassVar[tuple[int, ...]] = (
        RESERVED_SHORT,
        SHORT_STRING,
        SHORT_STRING,
        BIT,
        BIT,
        BIT,
        BIT,
        BIT,
        TABLE,
    )

    def __init__(
        self,
        exchange: bytes,
        type: bytes,
        passive: bool,
        durable: bool,
        auto_delete: bool,
        internal: bool,
        no_wait: bool,
        arguments: FieldTable,
    ) -> None:
        self.exchange = exchange
        self.type = type
        self.passive = passive
        self.durable = durable
        self.auto_delete = auto_delete
        self.internal = internal
        self.no_wait = no_wait
        self.arguments = arguments

    def fields(self) -> tuple[object, ...]:
        return (
            self.exchange,
            self.type,
            self.passive,
            self.durable,
            self.auto_delete,
            self.internal,
            self.no_wait,
            self.arguments,
        )


@final
class ExchangeDeclareOk(Method):
    class_id: ClassVar[int] = 40
    method_id: ClassVar[int] = 11


@final
class ExchangeDelete(Method):
    class_id: ClassVar[int] = 40
    method_id: ClassVar[int] = 20
    layout: ClassVar[tuple[int, ...]] = (RESERVED_SHORT, SHORT_STRING, BIT, BIT)

    def __init__(self, exchange: bytes, if_unused: bool, no_wait: bool) -> None:
        self.exchange = exchange
        self.if_unused = if_unused
        self.no_wait = no_wait

    def fields(self) -> tuple[object, ...]:
        return (self.exchange, self.if_unused, self.no_wait)


@final
class ExchangeDeleteOk(Method):
    class_id: ClassVar[int] = 40
    method_id: ClassVar[int] = 21


@final
class ExchangeBind(Method):
    """RabbitMQ's extension: from one exchange to another."""

    class_id: ClassVar[int] = 40
    method_id: ClassVar[int] = 30
    layout: ClassVar[tuple[int, ...]] = (RESERVED_SHORT, SHORT_STRING, SHORT_STRING, SHORT_STRING, BIT, TABLE)

    def __init__(
        self, destination: bytes, source: bytes, routing_key: bytes, no_wait: bool, arguments: FieldTable
    ) -> None:
        self.destination = destination
        self.source = source
        self.routing_key = routing_key
        self.no_wait = no_wait
        self.arguments = arguments

    def fields(self) -> tuple[object, ...]:
        return (self.destination, self.source, self.routing_key, self.no_wait, self.arguments)


@final
class ExchangeBindOk(Method):
    class_id: ClassVar[int] = 40
    method_id: ClassVar[int] = 31


@final
class ExchangeUnbind(Method):
    class_id: ClassVar[int] = 40
    method_id: ClassVar[int] = 40
    layout: ClassVar[tuple[int, ...]] = (RESERVED_SHORT, SHORT_STRING, SHORT_STRING, SHORT_STRING, BIT, TABLE)

    def __init__(
        self, destination: bytes, source: bytes, routing_key: bytes, no_wait: bool, arguments: FieldTable
    ) -> None:
        self.destination = destination
        self.source = source
        self.routing_key = routing_key
        self.no_wait = no_wait
        self.arguments = arguments

    def fields(self) -> tuple[object, ...]:
        return (self.destination, self.source, self.routing_key, self.no_wait, self.arguments)


@final
class ExchangeUnbindOk(Method):
    class_id: ClassVar[int] = 40
    method_id: ClassVar[int] = 51


@final
class QueueDeclare(Method):
    class_id: ClassVar[int] = 50
    method_id: ClassVar[int] = 10
    layout: ClassVar[tuple[int, ...]] = (RESERVED_SHORT, SHORT_STRING, BIT, BIT, BIT, BIT, BIT, TABLE)

    def __init__(
        self,
        queue: bytes,
        passive: bool,
        durable: bool,
        exclusive: bool,
        auto_delete: bool,
        no_wait: bool,
        arguments: FieldTable,
    ) -> None:
        self.queue = queue
        self.passive = passive
        self.durable = durable
        self.exclusive = exclusive
        self.auto_delete = auto_delete
        self.no_wait = no_wait
        self.arguments = arguments

    def fields(self) -> tuple[object, ...]:
        return (
            self.queue,
            self.passive,
            self.durable,
            self.exclusive,
            self.auto_delete,
            self.no_wait,
            self.arguments,
        )


@final
class QueueDeclareOk(Method):
    class_id: ClassVar[int] = 50
    method_id: ClassVar[int] = 11
    layout: ClassVar[tuple[int, ...]] = (SHORT_STRING, LONG, LONG)

    def __init__(self, queue: bytes, message_count: int, consumer_count: int) -> None:
        self.queue = queue
        self.message_count = message_count
        self.consumer_count = consumer_count

    def fields(self) -> tuple[object, ...]:
        return (self.queue, self.message_count, self.consumer_count)


@final
class QueueBind(Method):
    class_id: ClassVar[int] = 50
    method_id: ClassVar[int] = 20
    layout: ClassVar[tuple[int, ...]] = (RESERVED_SHORT, SHORT_STRING, SHORT_STRING, SHORT_STRING, BIT, TABLE)

    def __init__(
        self, queue: bytes, exchange: bytes, routing_key: bytes, no_wait: bool, arguments: FieldTable
    ) -> None:
        self.queue = queue
        self.exchange = exchange
        self.routing_key = routing_key
        self.no_wait = no_wait
        self.arguments = arguments

    def fields(self) -> tuple[object, ...]:
        return (self.queue, self.exchange, self.routing_key, self.no_wait, self.arguments)


@final
class QueueBindOk(Method):
    class_id: ClassVar[int] = 50
    method_id: ClassVar[int] = 21


@final
class QueuePurge(Method):
    class_id: ClassVar[int] = 50
    method_id: ClassVar[int] = 30
    layout: ClassVar[tuple[int, ...]] = (RESERVED_SHORT, SHORT_STRING, BIT)

    def __init__(self, queue: bytes, no_wait: bool) -> None:
        self.queue = queue
        self.no_wait = no_wait

    def fields(self) -> tuple[object, ...]:
        return (self.queue, self.no_wait)


@final
class QueuePurgeOk(Method):
    class_id: ClassVar[int] = 50
    method_id: ClassVar[int] = 31
    layout: ClassVar[tuple[int, ...]] = (LONG,)

    def __init__(self, message_count: int) -> None:
        self.message_count = message_count

    def fields(self) -> tuple[object, ...]:
        return (self.message_count,)


@final
class QueueDelete(Method):
    class_id: ClassVar[int] = 50
    method_id: ClassVar[int] = 40
    layout: ClassVar[tuple[int, ...]] = (RESERVED_SHORT, SHORT_STRING, BIT, BIT, BIT)

    def __init__(self, queue: bytes, if_unused: bool, if_empty: bool, no_wait: bool) -> None:
        self.queue = queue
        self.if_unused = if_unused
        self.if_empty = if_empty
        self.no_wait = no_wait

    def fields(self) -> tuple[object, ...]:
        return (self.queue, self.if_unused, self.if_empty, self.no_wait)


@final
class QueueDeleteOk(Method):
    class_id: ClassVar[int] = 50
    method_id: ClassVar[int] = 41
    layout: ClassVar[tuple[int, ...]] = (LONG,)

    def __init__(self, message_count: int) -> None:
        self.message_count = message_count

    def fields(self) -> tuple[object, ...]:
        return (self.message_count,)


@final
class QueueUnbind(Method):
    class_id: ClassVar[int] = 50
    method_id: ClassVar[int] = 50
    layout: ClassVar[tuple[int, ...]] = (RESERVED_SHORT, SHORT_STRING, SHORT_STRING, SHORT_STRING, TABLE)

    def __init__(self, queue: bytes, exchange: bytes, routing_key: bytes, arguments: FieldTable) -> None:
        self.queue = queue
        self.exchange = exchange
        self.routing_key = routing_key
        self.arguments = arguments

    def fields(self) -> tuple[object, ...]:
        return (self.queue, self.exchange, self.routing_key, self.arguments)


@final
class QueueUnbindOk(Method):
    class_id: ClassVar[int] = 50
    method_id: ClassVar[int] = 51


QUEUE_METHODS: Final[tuple[type[Method], ...]] = (
    ExchangeDeclare,
    ExchangeDeclareOk,
    ExchangeDelete,
    ExchangeDeleteOk,
    ExchangeBind,
    ExchangeBindOk,
    ExchangeUnbind,
    ExchangeUnbindOk,
    QueueDeclare,
    QueueDeclareOk,
    QueueBind,
    QueueBindOk,
    QueuePurge,
    QueuePurgeOk,
    QueueDelete,
    QueueDeleteOk,
    QueueUnbind,
    QueueUnbindOk,
)
