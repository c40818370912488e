"""Direct reply-to: answers to a request go straight to the channel that asked, without a queue.

A client consumes from `amq.rabbitmq.reply-to` and publishes requests with that reply-to. The broker makes it an address of
this channel; who publishes to that address through the default exchange reaches it, as long as it is there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from millstream.protocols.amqp091.wire.properties import decode_properties, encode_properties

if TYPE_CHECKING:
    from millstream.protocols.amqp091.channel import Channel

REPLY_TO: Final = b"amq.rabbitmq.reply-to"
ADDRESS_PREFIX: Final = REPLY_TO + b"."


@final
class ReplyAddresses:
    """Of all channels of a broker, by account and token. Tokens cannot be guessed."""

    def __init__(self) -> None:
        self._channels: dict[tuple[str, bytes], Channel] = {}

    def add(self, account: str, token: bytes, channel: Channel) -> None:
        self._channels[(account, token)] = channel

    def remove(self, account: str, token: bytes) -> None:
        self._channels.pop((account, token), None)

    def find(self, account: str, routing_key: bytes) -> Channel | None:
        return self._channels.get((account, routing_key[len(ADDRESS_PREFIX) :]))


def with_reply_address(properties: bytes, token: bytes) -> bytes:
    """The properties with the address of the channel in place of the pseudo-queue."""
    decoded = decode_properties(properties)
    if decoded.reply_to != REPLY_TO:
        return properties
    address = ADDRESS_PREFIX + token
    # in place, so that headers keep their types; only fields of text stand behind it
    short = bytes([len(REPLY_TO)]) + REPLY_TO
    at = properties.rfind(short)
    changed = properties[:at] + bytes([len(address)]) + address + properties[at + len(short) :]
    if decode_properties(changed).reply_to == address:
        return changed
    decoded.reply_to = address
    return encode_properties(decoded)
