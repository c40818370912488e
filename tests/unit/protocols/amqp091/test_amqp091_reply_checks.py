"""Answers by direct reply-to: what they say is refused and changed as in any other publish."""

from __future__ import annotations

import pytest
from amqp091_traffic import client_with, consume, publish
from amqp091_world import AmqpPeer, AmqpWorld

from millstream.model.reserved_words import STORED_WORDS
from millstream.protocols.amqp091.wire.codes import HEADER, PRECONDITION_FAILED
from millstream.protocols.amqp091.wire.field_table import FieldTable
from millstream.protocols.amqp091.wire.methods import BasicDeliver, ChannelClose, TxCommit, TxSelect
from millstream.protocols.amqp091.wire.properties import BasicProperties, decode_properties

BOTH_MODES = pytest.mark.parametrize("is_transaction", [False, True])


class Request:
    """Somebody who asks, and somebody who was given the address."""

    def __init__(self, is_transaction: bool) -> None:
        world = AmqpWorld()
        self.asker, self.server = client_with(world), client_with(world)
        self.asker.say(consume(b"amq.rabbitmq.reply-to", no_ack=True), 1)
        self.address = b"amq.rabbitmq.reply-to." + self.asker.endpoint.channels[1].reply_token
        self.is_transaction = is_transaction
        if is_transaction:
            self.server.say(TxSelect(), 1)

    def answer(self, properties: BasicProperties) -> list[object]:
        """What the server is told about it."""
        self.server.take()
        self.server.receive(publish(self.address, b"answer", b"", properties))
        told: list[object] = list(self.server.take())
        if self.is_transaction and not told:
            told += [each for each in self.server.say(TxCommit(), 1) if isinstance(each, ChannelClose)]
        return told


def last_properties(peer: AmqpPeer) -> BasicProperties:
    data = peer.link.data
    found, at = b"", 0
    while at < len(data):
        size = int.from_bytes(data[at + 3 : at + 7], "big")
        if data[at] == HEADER:
            found = data[at + 7 + 12 : at + 7 + size]
        at += 8 + size
    return decode_properties(found)


@BOTH_MODES
def test_an_answer_says_nothing_that_only_the_broker_may_say(is_transaction: bool) -> None:
    request = Request(is_transaction)
    headers: FieldTable = {b"x-trace": b"mine", **dict.fromkeys((*STORED_WORDS, b"_dlq_reason"), b"forged")}
    assert request.answer(BasicProperties(headers=headers, correlation_id=b"1")) == []
    assert [type(method) for method in request.asker.take()] == [BasicDeliver]
    found = last_properties(request.asker)
    assert (found.headers, found.correlation_id) == ({b"x-trace": b"mine"}, b"1")


@BOTH_MODES
def test_an_answer_does_not_tell_of_blind_copies(is_transaction: bool) -> None:
    request = Request(is_transaction)
    assert request.answer(BasicProperties(headers={b"BCC": [b"secret"], b"CC": [b"open"]})) == []
    assert last_properties(request.asker).headers == {b"CC": [b"open"]}


@BOTH_MODES
@pytest.mark.parametrize(
    "properties",
    [
        BasicProperties(user_id=b"somebody"),
        BasicProperties(delivery_mode=7),
        BasicProperties(expiration=b"soon"),
        BasicProperties(headers={b"CC": b"no list"}),
        BasicProperties(reply_to=b"amq.rabbitmq.reply-to"),  # it does not consume from there
    ],
    ids=["user_id", "delivery_mode", "expiration", "CC", "reply_to"],
)
def test_an_answer_is_refused_for_what_any_publish_is_refused_for(
    is_transaction: bool, properties: BasicProperties
) -> None:
    request = Request(is_transaction)
    (closed,) = request.answer(properties)
    assert isinstance(closed, ChannelClose)
    assert closed.reply_code == PRECONDITION_FAILED
    assert request.asker.take() == []


@BOTH_MODES
def test_an_answer_may_name_its_own_user_and_an_address_to_answer_to(is_transaction: bool) -> None:
    request = Request(is_transaction)
    request.server.say(consume(b"amq.rabbitmq.reply-to", b"r", no_ack=True), 1)
    asked = BasicProperties(user_id=request.server.endpoint.user_name, reply_to=b"amq.rabbitmq.reply-to")
    assert request.answer(asked) == []
    token = request.server.endpoint.channels[1].reply_token
    assert last_properties(request.asker).reply_to == b"amq.rabbitmq.reply-to." + token
