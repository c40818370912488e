"""Bytes of publishes and methods, several in one read, and a disk that can be full: for tests of whole endpoints."""

from __future__ import annotations

from amqp091_world import AmqpPeer, AmqpWorld
from fakes import HeldStore
from librt.strings import BytesWriter

from millstream.model.errors import Reason
from millstream.protocols.amqp091.wire.codes import BASIC, BODY, HEADER
from millstream.protocols.amqp091.wire.field_table import FieldTable
from millstream.protocols.amqp091.wire.frames import write_frame, write_method
from millstream.protocols.amqp091.wire.methods import (
    BasicConsume,
    BasicPublish,
    Method,
    QueueDeclare,
    QueueDeclareOk,
)
from millstream.protocols.amqp091.wire.properties import BasicProperties, encode_properties


class FullableStore(HeldStore):
    """`is_full`: nothing can be written. `is_behind`: more waits to be written than may."""

    is_full = False
    is_behind = False

    def refusal(self) -> Reason:
        return Reason.UNAVAILABLE if self.is_full or self.is_behind else Reason.SUCCESS

    def is_stuck(self) -> bool:
        return self.is_full


def frames_of(*methods: Method, channel: int = 1) -> bytes:
    writer = BytesWriter()
    for method in methods:
        write_method(writer, channel, method)
    return writer.getvalue()


def publish(
    key: bytes,
    body: bytes = b"x",
    exchange: bytes = b"",
    properties: BasicProperties | None = None,
    channel: int = 1,
    mandatory: bool = False,
) -> bytes:
    writer = BytesWriter()
    write_method(writer, channel, BasicPublish(exchange, key, mandatory, False))
    raw = encode_properties(properties or BasicProperties())
    head = BASIC.to_bytes(2, "big") + b"\x00\x00" + len(body).to_bytes(8, "big")
    write_frame(writer, HEADER, channel, head + raw)
    if body:
        write_frame(writer, BODY, channel, body)
    return writer.getvalue()


def queue(
    name: bytes = b"q",
    *,
    durable: bool = True,
    exclusive: bool = False,
    auto_delete: bool = False,
    arguments: FieldTable | None = None,
) -> QueueDeclare:
    return QueueDeclare(name, False, durable, exclusive, auto_delete, False, arguments or {})


def consume(
    name: bytes = b"q", tag: bytes = b"t", *, no_ack: bool = False, arguments: FieldTable | None = None
) -> BasicConsume:
    return BasicConsume(name, tag, False, no_ack, False, False, arguments or {})


def ready(world: AmqpWorld, name: str = "q") -> int:
    found = world.account.queues.catalog.find(name)
    assert found is not None
    return int(found.ready())


def client_with(world: AmqpWorld, *declared: Method) -> AmqpPeer:
    """On channel 1, with what it declares first."""
    peer = world.client()
    peer.open_channel()
    for method in declared:
        answers = peer.say(method, 1)
        assert isinstance(answers[0], QueueDeclareOk) or not isinstance(method, QueueDeclare)
    return peer
