"""The ways to a queue through topics: publish into it, join a group, answer in words."""

from __future__ import annotations

from typing import Any

import pytest
from fakes import FakeLine, HeldStore, make_message
from queue_world import QueueBroker

from millstream.broker.queue_access import find_start
from millstream.model.delivery import SENT
from millstream.model.errors import Reason, Refused
from millstream.model.limits import Limits
from millstream.model.message import NANOSECONDS, Message
from millstream.queues.publish_options import encode_user_property, read_user_properties
from millstream.security.acl import Authorizer, parse_acl


@pytest.fixture
def world() -> QueueBroker:
    return QueueBroker()


def words_of(line: FakeLine, at: int = -1) -> dict[str, str]:
    pairs = read_user_properties(line.deliveries[at].message.properties)
    return {name.decode(): value.decode() for name, value in pairs}


# ------------------------------------------------------------------- publish


def test_the_first_publish_makes_the_queue(world: QueueBroker) -> None:
    assert world.put(b"a", b"b") == [Reason.SUCCESS] * 2
    assert (world.queue().definition.kind, world.queue().depth()) == ("work", 2)


@pytest.mark.parametrize("kind", ["work", "stream", "ephemeral"])
def test_the_kind_that_is_made_is_configured(kind: str) -> None:
    world = QueueBroker(Limits(queue_auto_create=kind))
    world.put(b"a")
    world.put(b"a", topic=b"$dlq/other")
    assert world.queue().definition.kind == kind
    assert world.queue("$dlq/other").definition.kind == "work"


def test_with_auto_create_off_an_unknown_queue_is_refused() -> None:
    world = QueueBroker(Limits(queue_auto_create="off"))
    assert world.put(b"a") == [Reason.TOPIC_INVALID]
    session, _ = world.connect("c")
    with pytest.raises(Refused, match="auto_create is off"):
        world.consume(session)
    world.declare()
    assert world.put(b"a") == [Reason.SUCCESS]


@pytest.mark.parametrize("topic", [b"$queue/", b"$queue//a", b"$queue/$x", b"$dlq/", b"$queue/" + b"n" * 256])
def test_a_name_that_cannot_be_is_refused(world: QueueBroker, topic: bytes) -> None:
    assert world.put(b"a", topic=topic) == [Reason.TOPIC_INVALID]
    assert world.account.queues.catalog.queues == {}


def test_a_queue_that_belongs_to_one_connection_is_consumed_by_no_other(world: QueueBroker) -> None:
    world.declare(kind="ephemeral").owner = object()
    session, _ = world.connect("c")
    with pytest.raises(Refused, match="alone") as caught:
        world.consume(session)
    assert caught.value.reason is Reason.LOCKED
    assert world.put(b"a") == [Reason.SUCCESS]


def test_a_full_queue_refuses_the_publish(world: QueueBroker) -> None:
    world.declare(length_max=1)
    assert world.put(b"a", b"b") == [Reason.SUCCESS, Reason.QUOTA_EXCEEDED]
    assert world.queue().counters.refused == 1


def test_a_queue_bound_to_a_filter_takes_part_in_the_confirm() -> None:
    store = HeldStore()
    world = QueueBroker(store=store)
    world.declare(bindings=["plant/#"])
    session, line = world.connect("c")
    world.consume(session)
    store.hold()
    position = int(store.position())
    assert world.put(b"hot", topic=b"plant/1") == [Reason.SUCCESS]
    assert store.position() > position
    assert line.sent == []
    store.release()
    world.broker.on_durable()
    assert line.payloads() == [b"hot"]
    assert words_of(line)["x-source-topic"] == "plant/1"
    assert line.deliveries[0].message.topic == b"$queue/q/plant/1"


def test_one_full_queue_refuses_for_all(world: QueueBroker) -> None:
    world.declare("full", bindings=["a"], length_max=1)
    world.declare("free", bindings=["a"])
    session, line = world.connect("c")
    world.subscribe(session, b"a", 0)
    assert world.put(b"1", b"2", topic=b"a") == [Reason.SUCCESS, Reason.QUOTA_EXCEEDED]
    assert (world.queue("free").depth(), len(line.plain)) == (1, 1)


def test_ordinary_subscribers_and_queues_get_the_same(world: QueueBroker) -> None:
    world.declare("one", bindings=["a/#"])
    world.declare("two", bindings=["a/b"])
    session, line = world.connect("c")
    world.subscribe(session, b"a/+", 1)
    world.put(b"x", topic=b"a/b")
    assert (world.queue("one").depth(), world.queue("two").depth(), line.payloads()) == (1, 1, [b"x"])


def test_nothing_published_to_a_queue_is_retained(world: QueueBroker) -> None:
    world.publish(b"$queue/q", b"x", retain=True)
    world.publish(b"$dlq/q", b"x", retain=True)
    assert world.account.retained.match(b"$queue/#", 0) == []
    assert world.account.retained.match(b"$dlq/#", 0) == []


# ------------------------------------------------------------------- consume


def test_a_delivery_says_where_it_stands(world: QueueBroker) -> None:
    session, line = world.connect("c")
    world.consume(session, b"$queue/q/orders/#")
    world.put(b"x", topic=b"$queue/q/invoices")
    world.put(b"y", topic=b"$queue/q/orders/eu")
    assert line.payloads() == [b"y"]
    assert words_of(line) == {
        "message-id": "q:1",
        "group-id": "g@orders/#",
        "queue": "q",
        "offset": "1",
    }
    assert line.deliveries[0].message.topic == b"$queue/q/orders/eu"


def test_everything_behind_the_name_is_no_filter(world: QueueBroker) -> None:
    session, line = world.connect("c")
    world.consume(session, b"$queue/q/#")
    world.put(b"x", b"y")
    world.put(b"z", topic=b"$queue/q/a")
    assert list(world.queue().groups) == ["g"]
    assert line.payloads() == [b"x", b"y", b"z"]


def test_dead_letters_are_a_queue_of_their_own(world: QueueBroker) -> None:
    session, line = world.connect("c")
    world.consume(session)
    world.put(b"bad")
    assert world.say("c", "$reject", message_id="q:0", group_id="g", reason="rotten") is Reason.SUCCESS
    world.consume(session, b"$dlq/q")
    words = words_of(line)
    assert (words["message-id"], words["queue"], words["_dlq_reason"]) == ("$dlq/q:0", "$dlq/q", "rotten")
    assert line.deliveries[-1].message.topic.startswith(b"$dlq/q/")
    assert world.say("c", "$ack", b"$dlq/q", message_id="$dlq/q:0", group_id="g") is Reason.SUCCESS
    assert world.queue("$dlq/q").depth() == 0


def test_a_wildcard_is_no_name(world: QueueBroker) -> None:
    session, _ = world.connect("c")
    for filter in (b"$queue/+", b"$queue/#", b"$queue/+/a"):
        with pytest.raises(Refused):
            world.consume(session, filter)


def test_an_offline_session_keeps_its_place_and_others_get_its_share(world: QueueBroker) -> None:
    away, line = world.connect("away")
    world.consume(away)
    world.put(b"1")
    other, other_line = world.connect("other")
    world.consume(other)
    assert line.payloads() == [b"1"]
    world.drop(away)
    assert other_line.payloads() == [b"1"]
    assert words_of(other_line)["delivery-count"] == "2"
    assert len(world.queue().groups["g"].consumers) == 2


def test_a_session_that_ends_leaves_its_groups(world: QueueBroker) -> None:
    session, _ = world.connect("c", expiry_s=0)
    world.consume(session)
    world.drop(session)
    assert world.queue().groups["g"].consumers == []


def test_the_window_of_the_connection_is_credit(world: QueueBroker) -> None:
    session, line = world.connect("c", window=2)
    world.consume(session)
    world.put(b"1", b"2", b"3")
    assert line.payloads() == [b"1", b"2"]
    session.on_settled(line.ids()[0], SENT)
    world.loop()
    assert line.payloads() == [b"1", b"2", b"3"]


def test_prefetch_is_credit_and_may_change(world: QueueBroker) -> None:
    world.declare(prefetch=1)
    session, line = world.connect("c")
    world.consume(session)
    world.put(b"1", b"2", b"3")
    assert line.payloads() == [b"1"]
    world.declare(prefetch=2)
    world.move(1)
    world.loop()
    assert line.payloads() == [b"1", b"2"]


def test_a_blocked_line_gets_nothing_until_it_has_caught_up(world: QueueBroker) -> None:
    session, line = world.connect("c")
    world.consume(session)
    line.is_blocked = True
    world.put(b"1")
    assert line.sent == []
    line.is_blocked = False
    session.on_caught_up()
    assert line.payloads() == [b"1"]


def test_a_receiver_that_cannot_take_it_makes_it_a_dead_letter(world: QueueBroker) -> None:
    session, line = world.connect("c")
    line.refuse_over = 10
    world.consume(session)
    world.put(b"x" * 100, b"small")
    assert line.payloads() == [b"small"]
    assert world.queue("$dlq/q").depth() == 1


def test_who_loses_the_right_loses_what_it_holds() -> None:
    authorizer = Authorizer(None)
    world = QueueBroker(authorizer=authorizer)
    session, line = world.connect("c")
    world.consume(session)
    world.put(b"1")
    authorizer.replace(parse_acl({"rules": [{"allow": "publish", "topics": ["#"]}]}))
    world.account.on_rights_changed()
    world.put(b"2")
    assert line.payloads() == [b"1"]
    assert not world.queue().groups["g"].pending


def test_nothing_comes_back_after_an_unsubscribe(world: QueueBroker) -> None:
    session, line = world.connect("c")
    other, _ = world.connect("other")
    world.consume(session)
    world.put(b"1")
    assert world.broker.unsubscribe(session, b"$queue/q")
    world.consume(other)
    assert world.say("other", "$ack", message_id="q:0", group_id="g") is Reason.SUCCESS
    world.drop(session)
    _, line = world.connect("c")
    assert line.sent == []


def test_consuming_again_replaces_the_consumer(world: QueueBroker) -> None:
    session, line = world.connect("c")
    world.consume(session)
    world.put(b"1")
    world.consume(session)
    assert len(world.queue().groups["g"].consumers) == 1
    assert line.payloads() == [b"1", b"1"]
    world.consume(session, group="h")
    assert world.queue().groups["g"].consumers == []


def test_an_ephemeral_queue_survives_a_change_of_group_and_goes_with_the_last(world: QueueBroker) -> None:
    world.declare(kind="ephemeral")
    session, _ = world.connect("c")
    world.consume(session)
    world.consume(session, group="h")
    assert world.account.queues.catalog.find("q") is not None
    world.broker.unsubscribe(session, b"$queue/q")
    assert world.account.queues.catalog.find("q") is None


def test_at_most_once_settles_by_handing_out(world: QueueBroker) -> None:
    session, line = world.connect("c")
    world.consume(session, guarantee=0)
    world.put(b"1", b"2")
    assert [payload for payload, _, _ in line.plain] == [b"1", b"2"]
    assert world.queue().depth() == 0


# -------------------------------------------------------------------- settle


@pytest.mark.parametrize(("verb", "depth"), [("$ack", 0), ("$nack", 1), ("$reject", 0)])
def test_words_settle(world: QueueBroker, verb: str, depth: int) -> None:
    session, line = world.connect("c")
    world.consume(session)
    world.put(b"1")
    assert world.say("c", verb, message_id="q:0", group_id="g") is Reason.SUCCESS
    assert world.queue().depth() == depth
    world.move(1)
    assert len(line.sent) == 2 - (depth == 0)


def test_having_received_is_not_enough_for_one_that_settles_in_words(world: QueueBroker) -> None:
    session, line = world.connect("c")
    world.consume(session)
    world.put(b"1")
    session.on_settled(line.ids()[0], SENT)
    assert world.queue().depth() == 1


def test_having_received_is_enough_for_one_that_does_not(world: QueueBroker) -> None:
    session, line = world.connect("c")
    world.consume(session, is_explicit=False)
    world.put(b"1")
    session.on_settled(line.ids()[0], SENT)
    assert world.queue().depth() == 0


def test_only_who_was_handed_it_may_settle(world: QueueBroker) -> None:
    session, _ = world.connect("c")
    world.consume(session)
    world.put(b"1")
    for verb in ("$ack", "$nack", "$reject"):
        assert world.say("thief", verb, message_id="q:0", group_id="g") is Reason.NOT_AUTHORIZED
    assert world.queue().depth() == 1


def test_to_settle_twice_says_that_nothing_is_there(world: QueueBroker) -> None:
    session, _ = world.connect("c")
    world.consume(session)
    world.put(b"1")
    world.say("c", "$ack", message_id="q:0", group_id="g")
    assert world.say("c", "$ack", message_id="q:0", group_id="g") is Reason.NO_MATCHING_SUBSCRIBERS
    assert (
        world.say("c", "$ack", b"$queue/x", message_id="x:0", group_id="g") is Reason.NO_MATCHING_SUBSCRIBERS
    )


@pytest.mark.parametrize(
    "words",
    [
        {},
        {"message_id": "q:0"},
        {"group_id": "g"},
        {"message_id": "q:0", "group_id": "h"},
        {"message_id": "q:", "group_id": "g"},
        {"message_id": "q:-1", "group_id": "g"},
        {"message_id": "q:zero", "group_id": "g"},
        {"message_id": "q:" + "9" * 30, "group_id": "g"},
        {"message_id": "other:0", "group_id": "g"},
        {"message_id": "0", "group_id": "g"},
    ],
)
def test_words_that_make_no_sense_settle_nothing(world: QueueBroker, words: dict[str, Any]) -> None:
    session, _ = world.connect("c")
    world.consume(session)
    world.put(b"1")
    assert world.say("c", "$ack", **words) is Reason.UNSPECIFIED
    assert world.queue().depth() == 1


def test_the_answer_in_words_is_a_fact_before_it_is_confirmed() -> None:
    store = HeldStore()
    world = QueueBroker(store=store)
    session, _ = world.connect("c")
    world.consume(session)
    world.put(b"1")
    position = int(store.position())
    properties = encode_user_property(b"message-id", b"q:0") + encode_user_property(b"group-id", b"g")
    message = Message(b"$queue/q/$ack", b"", 1, False, properties, 0, "c")
    world.account.queues.settle(message.topic, message, "c")
    assert store.position() == position + 1


# -------------------------------------------------------------------- streams


def test_a_stream_is_committed_in_words(world: QueueBroker) -> None:
    world.declare(kind="stream")
    session, line = world.connect("c")
    world.consume(session, is_asked=True)
    world.put(b"1", b"2", b"3")
    session.on_settled(line.ids()[0], SENT)
    assert world.queue().groups["g"].committed == 0
    assert world.say("c", "$commit", group_id="g", offset="1") is Reason.SUCCESS
    assert world.queue().groups["g"].committed == 2
    assert world.say("c", "$commit", group_id="g", message_id="q:2") is Reason.SUCCESS
    assert world.queue().groups["g"].committed == 3
    assert words_of(line)["x-stream-offset"] == "2"


def test_a_reader_of_a_stream_commits_by_having_received(world: QueueBroker) -> None:
    world.declare(kind="stream")
    session, line = world.connect("c")
    world.consume(session)
    world.put(b"1", b"2")
    session.on_settled(line.ids()[0], SENT)
    assert world.queue().groups["g"].committed == 1


def test_a_commit_is_for_members_and_streams_and_within_bounds(world: QueueBroker) -> None:
    world.declare("s", kind="stream")
    session, _ = world.connect("c")
    world.consume(session, b"$queue/s")
    world.consume(session, b"$queue/q")
    world.put(b"1", topic=b"$queue/s")
    world.put(b"1")
    assert world.say("thief", "$commit", b"$queue/s", group_id="g", offset="0") is Reason.NOT_AUTHORIZED
    assert world.say("c", "$commit", b"$queue/s", group_id="g", offset="1") is Reason.TOPIC_INVALID
    assert world.say("c", "$commit", b"$queue/s", group_id="g") is Reason.UNSPECIFIED
    assert world.say("c", "$commit", b"$queue/s", group_id="h", offset="0") is Reason.UNSPECIFIED
    assert world.say("c", "$commit", b"$queue/q", group_id="g", offset="0") is Reason.UNSPECIFIED
    assert world.queue().depth() == 1


@pytest.mark.parametrize(
    ("start", "offset"),
    [
        (b"first", 2),
        (b"last", 9),
        (b"next", 10),
        (b"0", 2),
        (b"5", 5),
        (b"offset=7", 7),
        (b"99", 10),
        (b"timestamp=0", 2),
        (b"timestamp=1006", 6),
        (b"timestamp=1009", 9),
        (b"timestamp=99999999", 10),
    ],
)
def test_where_a_new_group_of_a_stream_begins(world: QueueBroker, start: bytes, offset: int) -> None:
    queue = world.declare(kind="stream")
    for number in range(10):
        queue.append(make_message(b"$queue/q", b"%d" % number))
        world.move(1)
    queue.trim(2)
    assert find_start(queue, start) == offset
    session, line = world.connect("c")
    world.consume(session, start=start)
    assert line.payloads() == [b"%d" % number for number in range(offset, 10)]


def test_milliseconds_are_understood_too(world: QueueBroker) -> None:
    queue = world.declare(kind="stream")
    world.broker.clock.wall_offset_ns = 1_700_000_000 * NANOSECONDS
    for _ in range(3):
        queue.append(make_message(b"$queue/q"))
        world.broker.clock.now_ns += NANOSECONDS
    assert find_start(queue, b"timestamp=1700001001000") == 1
    assert find_start(queue, b"timestamp=1700001001") == 1


def test_last_of_an_empty_stream_is_its_end(world: QueueBroker) -> None:
    assert find_start(world.declare(kind="stream"), b"last") == 0


def test_a_known_group_goes_on_where_it_stood(world: QueueBroker) -> None:
    world.declare(kind="stream")
    world.put(b"0", b"1", b"2")
    session, line = world.connect("c")
    world.consume(session, start=b"1")
    world.broker.unsubscribe(session, b"$queue/q")
    world.consume(session, start=b"first")
    assert line.payloads() == [b"1", b"2", b"1", b"2"]


@pytest.mark.parametrize("start", [b"yesterday", b"offset=", b"timestamp=", b"timestamp=noon", b"-1"])
def test_no_place_in_a_stream_makes_no_group(world: QueueBroker, start: bytes) -> None:
    world.declare(kind="stream")
    session, _ = world.connect("c")
    with pytest.raises(Refused, match="no place in a stream"):
        world.consume(session, start=start)
    assert world.queue().groups == {}
