"""The methods of the classes basic, confirm and tx: messages in and out, and the answers to them.

`global` of basic.qos is a word of the language: it is called `is_global`.
"""

from __future__ import annotations

from typing import ClassVar, Final, final

from millstream.protocols.amqp091.wire.field_table import FieldTable
from millstream.protocols.amqp091.wire.method import (
    BIT,
    DELIVERY_TAG,
    LONG,
    RESERVED_SHORT,
    RESERVED_SHORT_STRING,
    ROUTING_KEY,
    SHORT,
    SHORT_STRING,
    TABLE,
    Method,
)


@final
class BasicQos(Method):
    class_id: ClassVar[int] = 60
    method_id: ClassVar[int] = 10
    layout: ClassVar[tuple[int, ...]] = (LONG, SHORT, BIT)

    def __init__(self, prefetch_size: int, prefetch_count: int, is_global: bool) -> None:
        self.prefetch_size = prefetch_size
        self.prefetch_count = prefetch_count
        self.is_global = is_global

    def fields(self) -> tuple[object, ...]:
        return (self.prefetch_size, self.prefetch_count, self.is_global)


@final
class BasicQosOk(Method):
    class_id: ClassVar[int] = 60
    method_id: ClassVar[int] = 11


@final
class BasicConsume(Method):
    class_id: ClassVar[int] = 60
    method_id: ClassVar[int] = 20
    layout: ClassVar[tuple[int, ...]] = (
        RESERVED_SHORT,
        SHORT_STRING,
        SHORT_STRING,
        BIT,
        BIT,
        BIT,
        BIT,
        TABLE,
    )

    def __init__(
        self,
        queue: bytes,
        consumer_tag: bytes,
        no_local: bool,
        no_ack: bool,
        exclusive: bool,
        no_wait: bool,
        arguments: FieldTable,
    ) -> None:
        self.queue = queue
        self.consumer_tag = consumer_tag
        self.no_local = no_local
        self.no_ack = no_ack
        self.exclusive = exclusive
        self.no_wait = no_wait
        self.arguments = arguments

    def fields(self) -> tuple[object, ...]:
        return (
            self.queue,
            self.consumer_tag,
            self.no_local,
            self.no_ack,
            self.exclusive,
            self.no_wait,
            self.arguments,
        )


@final
class BasicConsumeOk(Method):
    class_id: ClassVar[int] = 60
    method_id: ClassVar[int] = 21
    layout: ClassVar[tuple[int, ...]] = (SHORT_STRING,)

    def __init__(self, consumer_tag: bytes) -> None:
        self.consumer_tag = consumer_tag

    def fields(self) -> tuple[object, ...]:
        return (self.consumer_tag,)


@final
class BasicCancel(Method):
    """Also sent by the server, to a client that said it understands `consumer_cancel_notify`."""

    class_id: ClassVar[int] = 60
    method_id: ClassVar[int] = 30
    layout: ClassVar[tuple[int, ...]] = (SHORT_STRING, BIT)

    def __init__(self, consumer_tag: bytes, no_wait: bool) -> None:
        self.consumer_tag = consumer_tag
        self.no_wait = no_wait

    def fields(self) -> tuple[object, ...]:
        return (self.consumer_tag, self.no_wait)


@final
class BasicCancelOk(Method):
    class_id: ClassVar[int] = 60
    method_id: ClassVar[int] = 31
    layout: ClassVar[tuple[int, ...]] = (SHORT_STRING,)

    def __init__(self, consumer_tag: bytes) -> None:
        self.consumer_tag = consumer_tag

    def fields(self) -> tuple[object, ...]:
        return (self.consumer_tag,)


@final
class BasicPublish(Method):
    """Content follows."""

    class_id: ClassVar[int] = 60
    method_id: ClassVar[int] = 40
    layout: ClassVar[tuple[int, ...]] = (RESERVED_SHORT, SHORT_STRING, ROUTING_KEY, BIT, BIT)

    def __init__(self, exchange: bytes, routing_key: bytes, mandatory: bool, immediate: bool) -> None:
        self.exchange = exchange
        self.routing_key = routing_key
        self.mandatory = mandatory
        self.immediate = immediate

    def fields(self) -> tuple[object, ...]:
        return (self.exchange, self.routing_key, self.mandatory, self.immediate)


@final
class BasicReturn(Method):
    """Content follows."""

    class_id: ClassVar[int] = 60
    method_id: ClassVar[int] = 50
    layout: ClassVar[tuple[int, ...]] = (SHORT, SHORT_STRING, SHORT_STRING, ROUTING_KEY)

    def __init__(self, reply_code: int, reply_text: bytes, exchange: bytes, routing_key: bytes) -> None:
        self.reply_code = reply_code
        self.reply_text = reply_text
        self.exchange = exchange
        self.routing_key = routing_key

    def fields(self) -> tuple[object, ...]:
        return (self.reply_code, self.reply_text, self.exchange, self.routing_key)


@final
class BasicDeliver(Method):
    """Content follows."""

    class_id: ClassVar[int] = 60
    method_id: ClassVar[int] = 60
    layout: ClassVar[tuple[int, ...]] = (SHORT_STRING, DELIVERY_TAG, BIT, SHORT_STRING, ROUTING_KEY)

    def __init__(
        self, consumer_tag: bytes, delivery_tag: int, redelivered: bool, exchange: bytes, routing_key: bytes
    ) -> None:
        self.consumer_tag = consumer_tag
        self.delivery_tag = delivery_tag
        self.redelivered = redelivered
        self.exchange = exchange
        self.routing_key = routing_key

    def fields(self) -> tuple[object, ...]:
        return (self.consumer_tag, self.delivery_tag, self.redelivered, self.exchange, self.routing_key)


@final
class BasicGet(Method):
    class_id: ClassVar[int] = 60
    method_id: ClassVar[int] = 70
    layout: ClassVar[tuple[int, ...]] = (RESERVED_SHORT, SHORT_STRING, BIT)

    def __init__(self, queue: bytes, no_ack: bool) -> None:
        self.queue = queue
        self.no_ack = no_ack

    def fields(self) -> tuple[object, ...]:
        return (self.queue, self.no_ack)


@final
class BasicGetOk(Method):
    """Content follows."""

    class_id: ClassVar[int] = 60
    method_id: ClassVar[int] = 71
    layout: ClassVar[tuple[int, ...]] = (DELIVERY_TAG, BIT, SHORT_STRING, ROUTING_KEY, LONG)

    def __init__(
        self, delivery_tag: int, redelivered: bool, exchange: bytes, routing_key: bytes, message_count: int
    ) -> None:
        self.delivery_tag = delivery_tag
        self.redelivered = redelivered
        self.exchange = exchange
        self.routing_key = routing_key
        self.message_count = message_count

    def fields(self) -> tuple[object, ...]:
        return (self.delivery_tag, self.redelivered, self.exchange, self.routing_key, self.message_count)


@final
class BasicGetEmpty(Method):
    class_id: ClassVar[int] = 60
    method_id: ClassVar[int] = 72
    layout: ClassVar[tuple[int, ...]] = (RESERVED_SHORT_STRING,)


@final
class BasicAck(Method):
    class_id: ClassVar[int] = 60
    method_id: ClassVar[int] = 80
    layout: ClassVar[tuple[int, ...]] = (DELIVERY_TAG, BIT)

    def __init__(self, delivery_tag: int, multiple: bool) -> None:
        self.delivery_tag = delivery_tag
        self.multiple = multiple

    def fields(self) -> tuple[object, ...]:
        return (self.delivery_tag, self.multiple)


@final
class BasicReject(Method):
    class_id: ClassVar[int] = 60
    method_id: ClassVar[int] = 90
    layout: ClassVar[tuple[int, ...]] = (DELIVERY_TAG, BIT)

    def __init__(self, delivery_tag: int, requeue: bool) -> None:
        self.delivery_tag = delivery_tag
        self.requeue = requeue

    def fields(self) -> tuple[object, ...]:
        return (self.delivery_tag, self.requeue)


@final
class BasicRecoverAsync(Method):
    """Deprecated; has no answer."""

    class_id: ClassVar[int] = 60
    method_id: ClassVar[int] = 100
    layout: ClassVar[tuple[int, ...]] = (BIT,)

    def __init__(self, requeue: bool) -> None:
        self.requeue = requeue

    def fields(self) -> tuple[object, ...]:
        return (self.requeue,)


@final
class BasicRecover(Method):
    class_id: ClassVar[int] = 60
    method_id: ClassVar[int] = 110
    layout: ClassVar[tuple[int, ...]] = (BIT,)

    def __init__(self, requeue: bool) -> None:
        self.requeue = requeue

    def fields(self) -> tuple[object, ...]:
        return (self.requeue,)


@final
class BasicRecoverOk(Method):
    class_id: ClassVar[int] = 60
    method_id: ClassVar[int] = 111


@final
class BasicNack(Method):
    """RabbitMQ's extension; the server sends it to publishers as well."""

    class_id: ClassVar[int] = 60
    method_id: ClassVar[int] = 120
    layout: ClassVar[tuple[int, ...]] = (DELIVERY_TAG, BIT, BIT)

    def __init__(self, delivery_tag: int, multiple: bool, requeue: bool) -> None:
        self.delivery_tag = delivery_tag
        self.multiple = multiple
        self.requeue = requeue

    def fields(self) -> tuple[object, ...]:
        return (self.delivery_tag, self.multiple, self.requeue)


@final
class ConfirmSelect(Method):
    class_id: ClassVar[int] = 85
    method_id: ClassVar[int] = 10
    layout: ClassVar[tuple[int, ...]] = (BIT,)

    def __init__(self, no_wait: bool) -> None:
        self.no_wait = no_wait

    def fields(self) -> tuple[object, ...]:
        return (self.no_wait,)


@final
class ConfirmSelectOk(Method):
    class_id: ClassVar[int] = 85
    method_id: ClassVar[int] = 11


@final
class TxSelect(Method):
    class_id: ClassVar[int] = 90
    method_id: ClassVar[int] = 10


@final
class TxSelectOk(Method):
    class_id: ClassVar[int] = 90
    method_id: ClassVar[int] = 11


@final
class TxCommit(Method):
    class_id: ClassVar[int] = 90
    method_id: ClassVar[int] = 20


@final
class TxCommitOk(Method):
    class_id: ClassVar[int] = 90
    method_id: ClassVar[int] = 21


@final
class TxRollback(Method):
    class_id: ClassVar[int] = 90
    method_id: ClassVar[int] = 30


@final
class TxRollbackOk(Method):
    class_id: ClassVar[int] = 90
    method_id: ClassVar[int] = 31


BASIC_METHODS: Final[tuple[type[Method], ...]] = (
    BasicQos,
    BasicQosOk,
    BasicConsume,
    BasicConsumeOk,
    BasicCancel,
    BasicCancelOk,
    BasicPublish,
    BasicReturn,
    BasicDeliver,
    BasicGet,
    BasicGetOk,
    BasicGetEmpty,
    BasicAck,
    BasicReject,
    BasicRecoverAsync,
    BasicRecover,
    BasicRecoverOk,
    BasicNack,
    ConfirmSelect,
    ConfirmSelectOk,
    TxSelect,
    TxSelectOk,
    TxCommit,
    TxCommitOk,
    TxRollback,
    TxRollbackOk,
)
