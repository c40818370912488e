"""What happened on a connection, for the endpoint to act on. Past facts, plain and small."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64, mypyc_attr

from millstream.protocols.amqp091.wire.field_table import FieldTable
from millstream.protocols.amqp091.wire.methods import Method


@mypyc_attr(acyclic=True)
class Event:
    pass


@final
class StartOkReceived(Event):
    """The client chose how to authenticate. Nothing is read until `secure`, `accept` or `refuse`."""

    def __init__(
        self, mechanism: bytes, response: bytes, client_properties: FieldTable, locale: bytes
    ) -> None:
        self.mechanism = mechanism
        self.response = response
        self.client_properties = client_properties
        self.locale = locale


@final
class SecureOkReceived(Event):
    """The answer to a challenge. Nothing is read until `secure`, `accept` or `refuse`."""

    def __init__(self, response: bytes) -> None:
        self.response = response


@final
class OpenReceived(Event):
    """The client named its virtual host. Nothing is read until `open_ok` or `refuse`."""

    def __init__(self, virtual_host: bytes) -> None:
        self.virtual_host = virtual_host


@final
class ChannelOpened(Event):
    def __init__(self, channel: int) -> None:
        self.channel = channel


@final
class ChannelClosed(Event):
    """Nothing more comes from this channel; `Connection.end_channel` sends what is due to its end.

    One for every ChannelOpened, also when the whole connection ends. `code` is 0 unless the peer broke a rule.
    """

    def __init__(self, channel: int, code: int = 0, text: str = "") -> None:
        self.channel = channel
        self.code = code
        self.text = text


@final
@mypyc_attr(acyclic=True)
class PublishReceived(Event):
    """One message, whole. `properties` are raw and well-formed."""

    def __init__(
        self,
        channel: i64,
        exchange: bytes,
        routing_key: bytes,
        mandatory: bool,
        immediate: bool,
        properties: bytes,
        body: bytes,
    ) -> None:
        self.channel: i64 = channel
        self.exchange = exchange
        self.routing_key = routing_key
        self.mandatory = mandatory
        self.immediate = immediate
        self.properties = properties
        self.body = body


@final
@mypyc_attr(acyclic=True)
class AckReceived(Event):
    """basic.ack: too frequent for a method object of its own."""

    def __init__(self, channel: i64, delivery_tag: i64, multiple: bool) -> None:
        self.channel: i64 = channel
        self.delivery_tag: i64 = delivery_tag
        self.multiple = multiple


@final
class MethodReceived(Event):
    """Any other method a client may send on an open channel, or on channel 0 of an open connection."""

    def __init__(self, channel: int, method: Method) -> None:
        self.channel = channel
        self.method = method


@final
class Closed(Event):
    """The machine is done: `code` is a reply code, `text` says it in words."""

    def __init__(self, code: int, text: str) -> None:
        self.code = code
        self.text = text
