"""AMQP 0.9.1: the x- arguments of queues do what they do in RabbitMQ."""

from __future__ import annotations

from typing import Any

import pytest
from amqp_names import unique
from pika.spec import Basic, Queue
from raw_amqp import AmqpClients
from raw_amqp_channel import AmqpChannel, ChannelClosed, wait_until

pytest_plugins = ["amqp_broker"]


def letters_of(channel: AmqpChannel, **arguments: Any) -> tuple[str, str]:
    """A queue with these arguments, and the queue its dead letters come to."""
    exchange = channel.exchange(unique("dlx"), "fanout")
    graveyard = channel.temporary()
    channel.bind(graveyard, exchange)
    wanted = {
        "x-dead-letter-exchange": exchange,
        **{name.replace("_", "-"): v for name, v in arguments.items()},
    }
    return str(channel.declare(unique(), arguments=wanted).queue), graveyard


# ---- time


def test_messages_expire_by_the_ttl_of_their_queue(channel: AmqpChannel) -> None:
    queue, graveyard = letters_of(channel, x_message_ttl=50)
    channel.consume(graveyard, no_ack=True)
    channel.publish_confirmed("", queue, b"old")
    letter = channel.delivery()
    assert letter.body == b"old"
    assert letter.headers["x-death"][0]["reason"] == "expired"
    assert channel.get(queue) is None


def test_a_ttl_of_zero_leaves_only_what_is_handed_out_at_once(channel: AmqpChannel) -> None:
    queue = channel.temporary(arguments={"x-message-ttl": 0})
    channel.publish_confirmed("", queue, b"nobody waits")
    assert channel.get(queue) is None
    channel.consume(queue, no_ack=True)
    channel.publish_confirmed("", queue, b"taken")
    assert channel.delivery().body == b"taken"


@pytest.mark.parametrize("durable", [False, True])
def test_an_expiration_of_zero_leaves_only_what_is_handed_out_at_once(
    channel: AmqpChannel, durable: bool
) -> None:
    queue = channel.declare(unique("moment"), durable=durable).queue
    channel.publish_confirmed("", queue, b"nobody waits", expiration="0")
    assert channel.get(queue) is None
    channel.consume(queue)
    channel.publish_confirmed("", queue, b"taken", expiration="0")
    taken = channel.delivery()
    assert taken.body == b"taken"
    channel.reject(taken.tag, requeue=True)
    channel.expect_nothing()


def test_a_message_expires_by_its_own_expiration(channel: AmqpChannel) -> None:
    queue, graveyard = letters_of(channel)
    channel.consume(graveyard, no_ack=True)
    channel.publish_confirmed("", queue, b"short", expiration="30")
    channel.publish_confirmed("", queue, b"long", expiration="600000")
    letter = channel.delivery()
    assert letter.body == b"short"
    assert letter.properties.expiration is None, "a dead letter does not expire again"
    assert letter.headers["x-death"][0]["original-expiration"] == "30"
    assert channel.drain(queue) == [b"long"]


def test_the_shorter_of_both_times_counts(channel: AmqpChannel) -> None:
    queue, graveyard = letters_of(channel, x_message_ttl=40)
    channel.consume(graveyard, no_ack=True)
    channel.publish_confirmed("", queue, b"x", expiration="600000")
    assert channel.delivery().body == b"x"


def test_a_delivered_message_does_not_expire(channel: AmqpChannel) -> None:
    queue, graveyard = letters_of(channel, x_message_ttl=100)
    channel.publish_confirmed("", queue, b"held")
    held = channel.get_one(queue)
    other, other_graveyard = letters_of(channel, x_message_ttl=200)
    channel.publish_confirmed("", other, b"clock")
    channel.consume(other_graveyard, no_ack=True)
    assert channel.delivery().body == b"clock"
    assert channel.counts(graveyard) == (0, 0)
    channel.ack(held.tag)


def test_an_unused_queue_expires(channel: AmqpChannel) -> None:
    queue = channel.declare(unique(), arguments={"x-expires": 100}).queue
    client = channel.client

    def is_gone() -> bool:
        # passive declares would keep it alive; a mandatory publish does not
        probe = client.channel()
        probe.confirm_select()
        probe.publish("", queue, b"", mandatory=True)
        probe.confirm()
        came_back = bool(probe.inbox)
        probe.close()
        return came_back

    wait_until(is_gone, f"{queue} stays")
    channel.send(Queue.Declare(queue=queue, passive=True))
    channel.expect_closed(404)


def test_a_queue_with_a_consumer_does_not_expire(channel: AmqpChannel) -> None:
    used = channel.declare(unique(), arguments={"x-expires": 100}).queue
    unused = channel.declare(unique(), arguments={"x-expires": 300}).queue
    tag = channel.consume(used)

    def is_gone() -> bool:
        channel.publish("", unused, b"", mandatory=True)
        channel.confirm()
        return bool(channel.inbox)

    wait_until(is_gone, f"{unused} stays")
    channel.inbox.clear()
    assert channel.counts(used) == (0, 1)
    channel.cancel(tag)


# ---- size


def test_the_oldest_goes_when_a_queue_is_full(channel: AmqpChannel) -> None:
    queue = channel.temporary(arguments={"x-max-length": 3})
    for number in range(5):
        channel.publish_confirmed("", queue, b"%d" % number)
    assert channel.drain(queue) == [b"2", b"3", b"4"]


def test_the_oldest_goes_when_a_queue_holds_too_many_bytes(channel: AmqpChannel) -> None:
    queue = channel.temporary(arguments={"x-max-length-bytes": 25})
    for number in range(4):
        channel.publish_confirmed("", queue, b"%d" % number * 10)
    assert channel.drain(queue) == [b"2" * 10, b"3" * 10]


def test_the_oldest_becomes_a_dead_letter(channel: AmqpChannel) -> None:
    queue, graveyard = letters_of(channel, x_max_length=1)
    channel.publish_confirmed("", queue, b"first")
    channel.publish_confirmed("", queue, b"second")
    channel.consume(graveyard, no_ack=True)
    letter = channel.delivery()
    assert letter.body == b"first"
    assert letter.headers["x-death"][0]["reason"] == "maxlen"


def test_a_full_queue_may_refuse_instead(channel: AmqpChannel) -> None:
    queue = channel.temporary(arguments={"x-max-length": 2, "x-overflow": "reject-publish"})
    refused = 0
    for number in range(5):
        channel.publish("", queue, b"%d" % number)
        refused += isinstance(channel.confirm(), Basic.Nack)
    assert refused == 3
    assert channel.drain(queue) == [b"0", b"1"]
    channel.publish_confirmed("", queue, b"room again")


def test_a_full_queue_refuses_for_itself_alone(channel: AmqpChannel) -> None:
    exchange = channel.exchange(unique("x"), "fanout")
    full = channel.temporary(arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    other = channel.temporary()
    for queue in (full, other):
        channel.bind(queue, exchange)
    channel.publish_confirmed(exchange, "", b"0")
    channel.publish(exchange, "", b"1", mandatory=True)
    assert isinstance(channel.confirm(), Basic.Nack)
    assert channel.drain(other) == [b"0", b"1"]
    assert channel.drain(full) == [b"0"]


def test_what_a_full_queue_refuses_may_become_a_dead_letter(channel: AmqpChannel) -> None:
    queue, graveyard = letters_of(channel, x_max_length=1, x_overflow="reject-publish-dlx")
    channel.publish_confirmed("", queue, b"kept")
    channel.publish("", queue, b"too much")
    assert isinstance(channel.confirm(), Basic.Nack)
    channel.consume(graveyard, no_ack=True)
    letter = channel.delivery()
    assert letter.body == b"too much"
    assert letter.headers["x-death"][0]["reason"] == "maxlen"


def test_unsettled_messages_do_not_count_for_the_length(channel: AmqpChannel) -> None:
    queue = channel.temporary(arguments={"x-max-length": 2})
    for number in range(2):
        channel.publish_confirmed("", queue, b"%d" % number)
    held = channel.get_one(queue)
    channel.publish_confirmed("", queue, b"2")
    assert channel.counts(queue) == (2, 0)
    channel.ack(held.tag)
    assert channel.drain(queue) == [b"1", b"2"]


# ---- dead letters


@pytest.mark.parametrize("has_letters", [False, True])
def test_what_comes_back_to_a_full_queue_makes_the_oldest_go(channel: AmqpChannel, has_letters: bool) -> None:
    graveyard = channel.temporary()
    letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": graveyard} if has_letters else {}
    queue = channel.temporary(arguments={"x-max-length": 2, **letters})
    for number in range(2):
        channel.publish_confirmed("", queue, b"%d" % number)
    tags = [channel.get_one(queue).tag for _ in range(2)]
    for number in range(2, 4):
        channel.publish_confirmed("", queue, b"%d" % number)
    channel.nack(tags[1], multiple=True)
    channel.wait_ready(queue, 2)
    assert channel.drain(queue) == [b"2", b"3"]
    if has_letters:
        channel.wait_ready(graveyard, 2)
        assert channel.drain(graveyard) == [b"0", b"1"]


def test_a_rejected_message_becomes_a_dead_letter_with_its_history(channel: AmqpChannel) -> None:
    queue, graveyard = letters_of(channel)
    channel.bind(queue, "amq.direct", key := unique("key"))
    channel.publish_confirmed("amq.direct", key, b"no", headers={"mine": 1}, message_id="m")
    channel.reject(channel.get_one(queue).tag, requeue=False)
    channel.consume(graveyard, no_ack=True)
    letter = channel.delivery()
    assert (letter.body, letter.properties.message_id, letter.headers["mine"]) == (b"no", "m", 1)
    assert letter.method.routing_key == key
    (death,) = letter.headers["x-death"]
    assert death["queue"] == queue
    assert death["reason"] == "rejected"
    assert death["exchange"] == "amq.direct"
    assert death["routing-keys"] == [key]
    assert death["count"] == 1
    assert death["time"].year >= 2023
    assert letter.headers["x-first-death-queue"] == queue
    assert letter.headers["x-first-death-reason"] == "rejected"
    assert letter.headers["x-first-death-exchange"] == "amq.direct"


@pytest.mark.parametrize("new_key", [None, "other"])
def test_a_dead_letter_keeps_the_keys_of_its_copies_unless_it_gets_another(
    channel: AmqpChannel, new_key: str | None
) -> None:
    exchange = channel.exchange(unique("x"), "direct")
    copies = channel.temporary()
    for key in ("copy", "blind", "other"):
        channel.bind(copies, exchange, key)
    arguments = {"x-dead-letter-exchange": exchange}
    queue = channel.temporary(
        arguments=arguments | ({"x-dead-letter-routing-key": new_key} if new_key else {})
    )
    channel.publish_confirmed("", queue, b"x", headers={"CC": ["copy", "nobody"], "BCC": ["blind"]})
    channel.reject(channel.get_one(queue).tag, requeue=False)
    channel.consume(copies, no_ack=True)
    letter = channel.delivery()
    assert letter.method.routing_key == (new_key or queue)
    assert letter.headers["x-death"][0]["routing-keys"] == [queue, "copy", "nobody"]
    assert ("CC" in letter.headers) == (new_key is None)
    assert channel.counts(copies) == (0, 1)


@pytest.mark.parametrize("is_multiple", [False, True])
def test_nack_without_requeue_makes_dead_letters(channel: AmqpChannel, is_multiple: bool) -> None:
    queue, graveyard = letters_of(channel)
    for number in range(2):
        channel.publish_confirmed("", queue, b"%d" % number)
    tags = [channel.get_one(queue).tag for _ in range(2)]
    for tag in tags[1:] if is_multiple else tags:
        channel.nack(tag, multiple=is_multiple, requeue=False)
    channel.wait_ready(graveyard, 2)
    assert channel.drain(graveyard) == [b"0", b"1"]


def test_a_dead_letter_may_get_another_key(channel: AmqpChannel) -> None:
    target = channel.temporary()
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": target}
    queue = channel.temporary(arguments=arguments)
    channel.publish_confirmed("", queue, b"x")
    channel.reject(channel.get_one(queue).tag, requeue=False)
    channel.consume(target, no_ack=True)
    letter = channel.delivery()
    assert (letter.method.exchange, letter.method.routing_key) == ("", target)


def test_deaths_of_several_queues_stand_newest_first_and_are_counted(channel: AmqpChannel) -> None:
    """The way of a retry: work, wait in a queue with a time, work again."""
    work, wait = unique("work"), unique("wait")
    channel.declare(work, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": wait})
    channel.declare(
        wait,
        arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": work, "x-message-ttl": 20},
    )
    channel.publish_confirmed("", work, b"try")
    channel.consume(work)
    for attempt in range(3):
        delivery = channel.delivery()
        deaths = delivery.headers.get("x-death", [])
        assert [(one["queue"], one["reason"], one["count"]) for one in deaths] == (
            [(wait, "expired", attempt), (work, "rejected", attempt)] if attempt else []
        )
        channel.reject(delivery.tag, requeue=False)


def test_a_letter_that_only_expires_in_a_ring_is_dropped(channel: AmqpChannel) -> None:
    queue = unique("ring")
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue, "x-message-ttl": 20}
    channel.declare(queue, arguments=arguments)
    channel.publish_confirmed("", queue, b"x")
    channel.wait_ready(queue, 0)
    channel.sync()
    assert channel.get(queue) is None


def test_a_missing_dead_letter_exchange_drops_the_letter(channel: AmqpChannel) -> None:
    queue = channel.temporary(arguments={"x-dead-letter-exchange": unique("missing")})
    channel.publish_confirmed("", queue, b"x")
    channel.reject(channel.get_one(queue).tag, requeue=False)
    channel.sync()
    assert channel.counts(queue) == (0, 0)


# ---- priorities


def test_messages_of_higher_priority_come_first(channel: AmqpChannel) -> None:
    queue = channel.temporary(arguments={"x-max-priority": 5})
    for number, priority in enumerate([1, 5, 0, None, 3, 5, 9]):
        options = {} if priority is None else {"priority": priority}
        channel.publish_confirmed("", queue, b"%d" % number, **options)
    assert channel.drain(queue) == [b"1", b"5", b"6", b"4", b"0", b"2", b"3"]


def test_without_the_argument_priorities_mean_nothing(channel: AmqpChannel) -> None:
    queue = channel.temporary()
    for number, priority in enumerate([1, 9, 0]):
        channel.publish_confirmed("", queue, b"%d" % number, priority=priority)
    found = [channel.get_one(queue) for _ in range(3)]
    assert [one.body for one in found] == [b"0", b"1", b"2"]
    assert [one.properties.priority for one in found] == [1, 9, 0]


# ---- quorum queues


def test_a_quorum_queue_counts_deliveries_and_stops_at_the_limit(channel: AmqpChannel) -> None:
    exchange = channel.exchange(unique("dlx"), "fanout")
    graveyard = channel.temporary()
    channel.bind(graveyard, exchange)
    arguments = {"x-queue-type": "quorum", "x-delivery-limit": 2, "x-dead-letter-exchange": exchange}
    queue = channel.declare(unique(), durable=True, arguments=arguments).queue
    channel.publish_confirmed("", queue, b"poison")
    channel.consume(queue)
    for attempt in range(3):
        delivery = channel.delivery()
        assert delivery.headers.get("x-delivery-count", 0) == attempt
        assert delivery.method.redelivered is (attempt > 0)
        channel.nack(delivery.tag)
    channel.consume(graveyard, no_ack=True)
    letter = channel.delivery()
    assert letter.body == b"poison"
    assert letter.headers["x-death"][0]["reason"] == "delivery_limit"


def test_a_quorum_queue_serves_consumers_like_any_other(clients: AmqpClients, channel: AmqpChannel) -> None:
    queue = channel.declare(unique(), durable=True, arguments={"x-queue-type": "quorum"}).queue
    for number in range(5):
        channel.publish_confirmed("", queue, b"%d" % number, delivery_mode=2)
    worker = clients.channel()
    worker.qos(2)
    worker.consume(queue)
    first = worker.deliveries(2)
    worker.ack(first[0].tag)
    assert worker.delivery().body == b"2"
    worker.client.cut()
    channel.wait_ready(queue, 4)
    second = clients.channel()
    second.consume(queue)
    assert sorted(second.bodies(4)) == [b"1", b"2", b"3", b"4"]


def test_a_deleted_queue_makes_no_dead_letters(channel: AmqpChannel) -> None:
    queue, graveyard = letters_of(channel)
    channel.publish_confirmed("", queue, b"x")
    channel.delete(queue)
    channel.sync()
    assert channel.counts(graveyard) == (0, 0)
    with pytest.raises(ChannelClosed, match="404"):
        channel.counts(queue)


def test_a_queue_of_length_zero_brings_only_what_somebody_waits_for(channel: AmqpChannel) -> None:
    queue = channel.temporary(arguments={"x-max-length": 0})
    channel.publish_confirmed("", queue, b"nobody waits")
    assert channel.get(queue) is None
