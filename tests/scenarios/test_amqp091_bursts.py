"""AMQP 0.9.1: what is asked in the same write as many messages is answered as if they had come long before."""

from __future__ import annotations

from typing import Any

import pytest
from amqp_names import unique
from pika.spec import Basic, Queue
from raw_amqp import AmqpClients
from raw_amqp_channel import AmqpChannel

pytest_plugins = ["amqp_broker"]

BURST = 30
LIMIT = 10
KEPT = [b"%d" % number for number in range(BURST - LIMIT, BURST)]


@pytest.fixture
def silent(clients: AmqpClients) -> AmqpChannel:
    """Without confirms: its answers are those to its questions."""
    return clients.channel()


@pytest.fixture(params=[False, True], ids=["transient", "durable"])
def full(request: pytest.FixtureRequest, silent: AmqpChannel) -> str:
    """A queue that keeps so many."""
    return str(silent.declare(unique("full"), durable=request.param, arguments={"x-max-length": LIMIT}).queue)


def ask_after_burst(channel: AmqpChannel, queue: str, question: Any) -> None:
    client = channel.client
    pieces: list[bytes] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client, "send_bytes", pieces.append)
        for number in range(BURST):
            channel.publish("", queue, b"%d" % number, delivery_mode=2)
        channel.send(question)
    client.send_bytes(b"".join(pieces))


def test_a_count_is_never_above_the_limit(silent: AmqpChannel, full: str) -> None:
    ask_after_burst(silent, full, Queue.Declare(queue=full, passive=True))
    counted = silent.expect(Queue.DeclareOk).message_count
    assert counted <= LIMIT  # RabbitMQ may answer before it has counted all


def test_a_get_finds_what_the_limit_has_left(silent: AmqpChannel, full: str) -> None:
    ask_after_burst(silent, full, Basic.Get(queue=full, no_ack=True))
    found = silent.take(lambda item: not isinstance(item, Basic.Ack))
    assert found.body == KEPT[0]
    assert found.method.message_count == LIMIT - 1
    assert silent.drain(full) == KEPT[1:]


def test_a_consumer_gets_what_the_limit_has_left(silent: AmqpChannel, full: str) -> None:
    ask_after_burst(silent, full, Basic.Consume(queue=full, no_ack=True))
    silent.expect(Basic.ConsumeOk)
    assert silent.bodies(LIMIT) == KEPT


@pytest.mark.parametrize("question", [Queue.Purge, Queue.Delete])
def test_what_the_limit_has_taken_is_not_counted_again(silent: AmqpChannel, full: str, question: Any) -> None:
    ask_after_burst(silent, full, question(queue=full))
    answer = Queue.PurgeOk if question is Queue.Purge else Queue.DeleteOk
    assert silent.expect(answer).message_count == LIMIT


@pytest.mark.parametrize("question", [Queue.Purge, Queue.Delete, Basic.Cancel])
def test_a_consumer_has_what_came_before_the_question(silent: AmqpChannel, question: Any) -> None:
    queue = silent.temporary(arguments={"x-max-length": LIMIT})
    silent.consume(queue, "tag", no_ack=True)
    method = Basic.Cancel(consumer_tag="tag") if question is Basic.Cancel else question(queue=queue)
    ask_after_burst(silent, queue, method)
    assert silent.bodies(BURST) == [b"%d" % number for number in range(BURST)]


def test_a_consumer_without_credit_leaves_no_more_than_the_limit(silent: AmqpChannel) -> None:
    queue = silent.temporary(arguments={"x-max-length": LIMIT})
    silent.qos(1)
    silent.consume(queue)
    ask_after_burst(silent, queue, Queue.Purge(queue=queue))
    assert silent.expect(Queue.PurgeOk).message_count == LIMIT
    assert silent.delivery().body == b"0"
