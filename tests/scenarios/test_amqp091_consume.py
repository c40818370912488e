"""AMQP 0.9.1: deliveries, prefetch, what settling them does, and how consumers begin and end."""

from __future__ import annotations

import pytest
from amqp_names import unique
from pika.spec import Basic, Channel
from raw_amqp import CAPABILITIES, AmqpClients
from raw_amqp_channel import AmqpChannel, wait_until

pytest_plugins = ["amqp_broker"]


def fill(channel: AmqpChannel, queue: str, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        channel.publish_confirmed("", queue, b"%d" % number)


def numbers(*values: int) -> list[bytes]:
    return [b"%d" % value for value in values]


# ---- get


def test_get_tells_what_is_left(channel: AmqpChannel) -> None:
    queue = channel.temporary()
    assert channel.get(queue) is None
    fill(channel, queue, 3)
    found = channel.get_one(queue)
    assert found.method.message_count == 2
    assert (found.method.exchange, found.method.routing_key) == ("", queue)
    assert found.method.redelivered is False
    assert channel.get_one(queue).tag == found.tag + 1
    assert channel.counts(queue) == (1, 0)


def test_get_without_acknowledgement_takes_for_good(clients: AmqpClients, channel: AmqpChannel) -> None:
    queue = channel.declare(unique()).queue
    fill(channel, queue, 2)
    first = channel.get_one(queue, no_ack=True)
    assert (first.body, first.method.message_count) == (b"0", 1)
    channel.client.close()
    other = clients.channel()
    assert other.get_one(queue).body == b"1"
    assert other.get(queue) is None


# ---- settling


def test_unsettled_messages_return_when_the_connection_is_cut(
    clients: AmqpClients, channel: AmqpChannel
) -> None:
    queue = channel.declare(unique()).queue
    fill(channel, queue, 4)
    worker = clients.channel()
    worker.consume(queue)
    deliveries = worker.deliveries(4)
    worker.ack(deliveries[1].tag)
    worker.sync()
    worker.client.cut()
    channel.wait_ready(queue, 3)
    channel.consume(queue)
    again = channel.deliveries(3)
    assert [(one.body, one.method.redelivered) for one in again] == [
        (b"0", True),
        (b"2", True),
        (b"3", True),
    ]


def test_unsettled_messages_return_when_the_channel_is_closed(channel: AmqpChannel) -> None:
    queue = channel.temporary()
    fill(channel, queue, 2)
    worker = channel.client.channel()
    worker.consume(queue)
    worker.deliveries(2)
    worker.close()
    channel.wait_ready(queue, 2)
    assert [channel.get_one(queue).body for _ in range(2)] == numbers(0, 1)


def test_an_acknowledgement_of_many_settles_all_up_to_its_tag(channel: AmqpChannel) -> None:
    queue = channel.temporary()
    fill(channel, queue, 5)
    worker = channel.client.channel()
    worker.consume(queue)
    tags = [one.tag for one in worker.deliveries(5)]
    worker.ack(tags[2], multiple=True)
    worker.close()
    channel.wait_ready(queue, 2)
    assert [channel.get_one(queue).body for _ in range(2)] == numbers(3, 4)


def test_an_acknowledgement_of_tag_zero_settles_all(channel: AmqpChannel) -> None:
    queue = channel.temporary()
    fill(channel, queue, 3)
    worker = channel.client.channel()
    worker.consume(queue)
    worker.deliveries(3)
    worker.ack(0, multiple=True)
    worker.sync()
    worker.close()
    assert channel.counts(queue) == (0, 0)


@pytest.mark.parametrize("tag", [7, 99])
def test_settling_an_unknown_delivery_is_a_channel_error(clients: AmqpClients, tag: int) -> None:
    channel = clients.channel()
    channel.ack(tag)
    channel.expect_closed(406, f"unknown delivery tag {tag}")


def test_settling_twice_is_a_channel_error(channel: AmqpChannel) -> None:
    queue = channel.temporary()
    fill(channel, queue, 1)
    tag = channel.get_one(queue).tag
    channel.ack(tag)
    channel.ack(tag)
    channel.expect_closed(406, f"unknown delivery tag {tag}")


def test_a_rejected_message_is_gone(channel: AmqpChannel) -> None:
    queue = channel.temporary()
    fill(channel, queue, 2)
    channel.reject(channel.get_one(queue).tag, requeue=False)
    assert channel.get_one(queue).body == b"1"
    assert channel.get(queue) is None


@pytest.mark.parametrize("way", ["reject", "nack"])
def test_a_requeued_message_goes_back_to_its_place(channel: AmqpChannel, way: str) -> None:
    queue = channel.temporary()
    fill(channel, queue, 3)
    first = channel.get_one(queue)
    if way == "reject":
        channel.reject(first.tag, requeue=True)
    else:
        channel.nack(first.tag)
    again = [channel.get_one(queue) for _ in range(3)]
    assert [one.body for one in again] == numbers(0, 1, 2)
    assert [one.method.redelivered for one in again] == [True, False, False]


def test_many_requeued_messages_keep_their_order(channel: AmqpChannel) -> None:
    queue = channel.temporary()
    fill(channel, queue, 6)
    tags = [channel.get_one(queue).tag for _ in range(4)]
    channel.nack(tags[2], multiple=True)
    assert [channel.get_one(queue).body for _ in range(3)] == numbers(0, 1, 2)
    channel.nack(0, multiple=True)
    channel.sync()
    assert [channel.get_one(queue).body for _ in range(6)] == numbers(0, 1, 2, 3, 4, 5)


def test_recover_redelivers_what_is_not_settled(channel: AmqpChannel) -> None:
    queue = channel.temporary()
    fill(channel, queue, 3)
    channel.consume(queue)
    first = channel.deliveries(3)
    channel.ack(first[0].tag)
    channel.call(Basic.Recover(requeue=True), Basic.RecoverOk)
    again = channel.deliveries(2)
    assert [one.body for one in again] == numbers(1, 2)
    assert all(one.method.redelivered for one in again)
    assert again[0].tag > first[-1].tag


def test_recover_without_requeue_is_not_implemented(clients: AmqpClients) -> None:
    channel = clients.channel()
    channel.send(Basic.Recover(requeue=False))
    channel.client.expect_closed(540)


# ---- prefetch


def test_prefetch_holds_back_what_is_not_settled(channel: AmqpChannel) -> None:
    queue = channel.temporary()
    fill(channel, queue, 10)
    channel.qos(3)
    channel.consume(queue)
    first = channel.deliveries(3)
    channel.expect_nothing()
    channel.ack(first[1].tag)
    assert channel.delivery().body == b"3"
    channel.expect_nothing()
    channel.ack(first[2].tag, multiple=True)
    assert channel.bodies(2) == numbers(4, 5)
    channel.expect_nothing()


def test_prefetch_counts_for_each_consumer(channel: AmqpChannel) -> None:
    queue = channel.temporary()
    fill(channel, queue, 10)
    channel.qos(2)
    channel.consume(queue, "one")
    channel.qos(3)
    channel.consume(queue, "two")
    found = channel.deliveries(5)
    channel.expect_nothing()
    tags = [one.method.consumer_tag for one in found]
    assert (tags.count("one"), tags.count("two")) == (2, 3)


def test_a_prefetch_of_the_channel_is_shared_by_its_consumers(channel: AmqpChannel) -> None:
    queue = channel.temporary()
    fill(channel, queue, 10)
    channel.qos(4, is_channel_wide=True)
    channel.consume(queue, "one")
    channel.consume(queue, "two")
    found = channel.deliveries(4)
    channel.expect_nothing()
    channel.ack(found[-1].tag, multiple=True)
    channel.deliveries(4)
    channel.expect_nothing()


def test_both_prefetches_may_be_set(channel: AmqpChannel) -> None:
    queue = channel.temporary()
    fill(channel, queue, 10)
    channel.qos(2)
    channel.qos(3, is_channel_wide=True)
    channel.consume(queue, "one")
    channel.deliveries(2)
    channel.expect_nothing()
    channel.consume(queue, "two")
    assert channel.delivery().method.consumer_tag == "two"
    channel.expect_nothing()


def test_prefetch_does_not_hold_back_a_consumer_without_acknowledgements(channel: AmqpChannel) -> None:
    queue = channel.temporary()
    fill(channel, queue, 20)
    channel.qos(2)
    channel.consume(queue, no_ack=True)
    assert channel.bodies(20) == numbers(*range(20))


def test_get_is_not_held_back_by_prefetch(channel: AmqpChannel) -> None:
    queue = channel.temporary()
    fill(channel, queue, 5)
    channel.qos(1)
    for number in range(5):
        assert channel.get_one(queue).body == b"%d" % number


def test_what_get_took_does_not_count_for_a_prefetch(channel: AmqpChannel) -> None:
    queue = channel.temporary()
    fill(channel, queue, 5)
    channel.qos(1, is_channel_wide=True)
    channel.consume(queue)
    first = channel.delivery()
    got = channel.get_one(queue)
    assert (first.body, got.body) == (b"0", b"1")
    channel.ack(first.tag)
    second = channel.delivery()
    assert second.body == b"2"
    channel.ack(got.tag)
    channel.expect_nothing()


def test_a_full_channel_holds_back_consumers_without_acknowledgements_too(channel: AmqpChannel) -> None:
    settled, unsettled = channel.temporary(), channel.temporary()
    channel.qos(1, is_channel_wide=True)
    channel.consume(settled)
    fill(channel, settled, 1)
    held = channel.delivery()
    channel.consume(unsettled, no_ack=True)
    fill(channel, unsettled, 3, first=7)
    channel.expect_nothing()
    channel.ack(held.tag)
    assert channel.bodies(3) == numbers(7, 8, 9)


def test_queues_take_turns_at_the_prefetch_of_a_channel(channel: AmqpChannel) -> None:
    queues = [channel.temporary() for _ in range(3)]
    for queue in queues:
        fill(channel, queue, 6)
    channel.qos(1, is_channel_wide=True)
    for queue in queues:
        channel.consume(queue)
    for _ in range(9):
        channel.ack(channel.delivery().tag)
    assert all(channel.counts(queue)[0] < 6 for queue in queues)


def test_a_prefetch_size_is_not_implemented(clients: AmqpClients) -> None:
    channel = clients.channel()
    channel.send(Basic.Qos(prefetch_size=1, prefetch_count=1))
    channel.client.expect_closed(540)


def test_work_is_shared_by_turns(clients: AmqpClients, channel: AmqpChannel) -> None:
    queue = channel.declare(unique()).queue
    workers = [clients.channel() for _ in range(3)]
    for worker in workers:
        worker.qos(10)
        worker.consume(queue)
    fill(channel, queue, 9)
    got = [worker.bodies(3) for worker in workers]
    assert sorted(body for bodies in got for body in bodies) == sorted(numbers(*range(9)))


# ---- consumers


def test_a_consumer_is_named_by_the_broker_when_it_has_no_name(channel: AmqpChannel) -> None:
    queue = channel.temporary()
    tag = channel.consume(queue)
    assert tag.startswith("amq.ctag-")
    assert channel.consume(queue) != tag
    fill(channel, queue, 1)
    delivery = channel.delivery()
    assert delivery.method.consumer_tag.startswith("amq.ctag-")


def test_a_consumer_name_can_be_used_once_on_a_channel(clients: AmqpClients) -> None:
    channel = clients.channel()
    queue = channel.temporary()
    channel.consume(queue, "same")
    channel.send(Basic.Consume(queue=queue, consumer_tag="same"))
    channel.client.expect_closed(530)


def test_an_exclusive_consumer_lets_nobody_beside_it(channel: AmqpChannel) -> None:
    queue = channel.temporary()
    tag = channel.consume(queue, exclusive=True)
    second = channel.client.channel()
    second.send(Basic.Consume(queue=queue))
    second.expect_closed(403, "in exclusive use")
    channel.cancel(tag)
    channel.consume(queue)
    third = channel.client.channel()
    third.send(Basic.Consume(queue=queue, exclusive=True))
    third.expect_closed(403, "in exclusive use")


def test_a_cancelled_consumer_gets_nothing_more_and_keeps_what_it_has(channel: AmqpChannel) -> None:
    queue = channel.temporary()
    fill(channel, queue, 3)
    channel.qos(1)
    tag = channel.consume(queue)
    held = channel.delivery()
    channel.cancel(tag)
    assert channel.counts(queue) == (2, 0)
    channel.ack(held.tag)
    channel.expect_nothing()
    assert channel.counts(queue) == (2, 0)


def test_cancelling_an_unknown_consumer_is_no_error(channel: AmqpChannel) -> None:
    channel.cancel("nobody")


def test_a_consumer_is_told_when_its_queue_is_deleted(clients: AmqpClients, channel: AmqpChannel) -> None:
    queue = channel.declare(unique()).queue
    worker = clients.channel()
    worker.consume(queue, "mine")
    channel.delete(queue)
    assert worker.expect(Basic.Cancel).consumer_tag == "mine"
    worker.expect_nothing()


def test_who_deletes_its_own_queue_is_answered_before_it_is_told(channel: AmqpChannel) -> None:
    queue = channel.declare(unique()).queue
    channel.consume(queue)
    channel.delete(queue)
    assert channel.inbox == [], "the cancel comes behind the answer"
    channel.expect(Basic.Cancel)


def test_a_consumer_that_cannot_be_told_is_not(clients: AmqpClients, channel: AmqpChannel) -> None:
    queue = channel.declare(unique()).queue
    worker = clients.channel(capabilities={**CAPABILITIES, "consumer_cancel_notify": False})
    watcher = clients.channel()
    worker.consume(queue)
    watcher.consume(queue)
    channel.delete(queue)
    watcher.expect(Basic.Cancel)
    worker.expect_nothing()


def test_a_consumer_of_higher_priority_comes_first(channel: AmqpChannel) -> None:
    queue = channel.temporary()
    channel.qos(2)
    channel.consume(queue, "low", arguments={"x-priority": -1})
    channel.consume(queue, "normal")
    channel.consume(queue, "high", arguments={"x-priority": 10})
    fill(channel, queue, 6)
    assert [one.method.consumer_tag for one in channel.deliveries(6)] == ["high"] * 2 + ["normal"] * 2 + [
        "low"
    ] * 2


def test_one_consumer_is_active_and_the_next_takes_over(clients: AmqpClients, channel: AmqpChannel) -> None:
    queue = channel.declare(unique(), arguments={"x-single-active-consumer": True}).queue
    first, second = clients.channel(), clients.channel()
    first.consume(queue)
    second.consume(queue)
    fill(channel, queue, 3)
    deliveries = first.deliveries(3)
    second.expect_nothing()
    first.ack(deliveries[0].tag)
    first.sync()
    first.client.cut()
    assert second.bodies(2) == numbers(1, 2)
    fill(channel, queue, 1, first=3)
    assert second.delivery().body == b"3"


def test_a_consumer_sees_messages_as_they_come(clients: AmqpClients, channel: AmqpChannel) -> None:
    queue = channel.declare(unique()).queue
    worker = clients.channel()
    worker.consume(queue)
    for number in range(5):
        channel.publish("", queue, b"%d" % number)
        delivery = worker.delivery()
        assert delivery.body == b"%d" % number
        worker.ack(delivery.tag)
    worker.sync()
    wait_until(lambda: channel.counts(queue) == (0, 1), "acknowledged messages stay")


def test_channel_flow_is_answered(clients: AmqpClients) -> None:
    channel = clients.channel()
    assert channel.call(Channel.Flow(active=True), Channel.FlowOk).active is True
