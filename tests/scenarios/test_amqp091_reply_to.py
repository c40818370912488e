"""AMQP 0.9.1: answers come straight to the asker's channel, without a queue (direct reply-to)."""

from __future__ import annotations

from pika.spec import Basic, Queue
from raw_amqp import AmqpClients

pytest_plugins = ["amqp_broker"]

REPLY_TO = "amq.rabbitmq.reply-to"


def test_an_answer_comes_back_to_the_asker(clients: AmqpClients) -> None:
    asker, server = clients.channel(), clients.channel()
    requests = server.temporary()
    server.consume(requests, no_ack=True)
    asker.consume(REPLY_TO, "answers", no_ack=True)
    for number in range(3):
        asker.publish("", requests, b"ask", reply_to=REPLY_TO, correlation_id=f"c{number}")
        request = server.delivery()
        assert request.properties.reply_to.startswith(REPLY_TO + ".")
        server.publish(
            "",
            request.properties.reply_to,
            b"answer",
            correlation_id=request.properties.correlation_id,
        )
        answer = asker.delivery()
        assert (answer.body, answer.properties.correlation_id) == (b"answer", f"c{number}")
        assert answer.method.consumer_tag == "answers"
    server.expect_nothing()


def test_two_askers_get_their_own_answers(clients: AmqpClients) -> None:
    server = clients.channel()
    requests = server.temporary()
    server.consume(requests, no_ack=True)
    askers = [clients.channel() for _ in range(2)]
    for number, asker in enumerate(askers):
        asker.consume(REPLY_TO, no_ack=True)
        asker.publish("", requests, b"%d" % number, reply_to=REPLY_TO)
    for request in server.deliveries(2):
        server.publish("", request.properties.reply_to, b"for " + request.body)
    assert [asker.delivery().body for asker in askers] == [b"for 0", b"for 1"]


def test_an_answer_to_one_who_has_left_comes_back(clients: AmqpClients) -> None:
    asker, server = clients.channel(), clients.channel()
    requests = server.temporary()
    server.consume(requests, no_ack=True)
    asker.consume(REPLY_TO, no_ack=True)
    asker.publish("", requests, b"ask", reply_to=REPLY_TO)
    address = server.delivery().properties.reply_to
    asker.client.close()
    server.publish("", address, b"too late", mandatory=True)
    assert server.returned().method.reply_code == 312


def test_a_server_may_ask_whether_the_asker_is_there(clients: AmqpClients) -> None:
    asker, server = clients.channel(), clients.channel()
    requests = server.temporary()
    server.consume(requests, no_ack=True)
    asker.consume(REPLY_TO, no_ack=True)
    asker.publish("", requests, b"ask", reply_to=REPLY_TO)
    address = server.delivery().properties.reply_to
    assert server.call(Queue.Declare(queue=address, passive=True), Queue.DeclareOk).queue == address
    asker.client.close()
    server.send(Queue.Declare(queue=address, passive=True))
    server.expect_closed(404)


def test_answers_are_not_acknowledged(clients: AmqpClients) -> None:
    asker = clients.channel()
    asker.send(Basic.Consume(queue=REPLY_TO))
    asker.expect_closed(406, "reply consumer cannot acknowledge")


def test_one_consumer_of_answers_per_channel(clients: AmqpClients) -> None:
    asker = clients.channel()
    asker.consume(REPLY_TO, no_ack=True)
    asker.send(Basic.Consume(queue=REPLY_TO, consumer_tag="second", no_ack=True))
    asker.expect_closed(406, "reply consumer already set")


def test_asking_needs_a_consumer_of_answers_first(clients: AmqpClients) -> None:
    asker = clients.channel()
    asker.publish("amq.direct", "k", b"ask", reply_to=REPLY_TO)
    asker.expect_closed(406, "fast reply consumer does not exist")


def test_a_reply_consumer_may_leave_and_come_again(clients: AmqpClients) -> None:
    asker = clients.channel()
    asker.cancel(asker.consume(REPLY_TO, no_ack=True))
    asker.consume(REPLY_TO, no_ack=True)
