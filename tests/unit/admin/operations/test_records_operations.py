"""Looking at records and moving them, on a broker in memory."""

from __future__ import annotations

import pytest
from control_world import ControlWorld, ListenedTo, Shelf
from fakes import make_message

from millstream.admin.operations.records import SLICE, decode_block, make_moved
from millstream.model.errors import Unavailable
from millstream.model.message import Message
from millstream.model.outcome import Outcome
from millstream.protocols.amqp091.from_message import read_native
from millstream.protocols.amqp091.mapping import PropertyCache
from millstream.protocols.amqp091.mapping import make_message as make_amqp_message
from millstream.protocols.amqp091.wire.properties import BasicProperties, encode_properties
from millstream.protocols.mqtt.mapping import encode_block
from millstream.protocols.mqtt.wire.properties import Properties
from millstream.queues.publish_options import read_user_properties
from millstream.runtime.control.server import ControlRefusal
from millstream.storage.records.queue_records import RECORD_APPENDED, RECORDS_SETTLED


def texts(first: int, end: int) -> list[str]:
    return [str(number) for number in range(first, end)]


# ------------------------------------------------------------------------ peek


async def test_looking_hands_nothing_out() -> None:
    world = ControlWorld()
    await world.fill("q", 3)
    assert await world.payloads("q") == ["0", "1", "2"]
    assert await world.payloads("q") == ["0", "1", "2"]
    shown = await world.ask("queue.show", name="q")
    assert (shown["handed_out"], shown["groups"]) == (0, 0)


async def test_a_long_queue_is_seen_page_by_page_from_any_offset() -> None:
    world = ControlWorld()
    await world.fill("q", 2500)
    assert await world.payloads("q") == texts(0, 2500)
    page = await world.ask("queue.peek", name="q", offset=2490, count=4)
    assert [record["offset"] for record in page["records"]] == [2490, 2491, 2492, 2493]
    assert (page["more"], page["next_offset"]) == (True, 2494)
    end = await world.ask("queue.peek", name="q", offset=9999)
    assert (end["records"], end["more"]) == ([], False)


async def test_what_all_groups_settled_is_not_shown_and_what_is_handed_out_is_marked() -> None:
    world = ControlWorld()
    await world.fill("q", 5)
    taken = await world.ask("queue.take", name="q", group="g", count=3)
    assert [record["offset"] for record in taken["records"]] == [0, 1, 2]
    await world.ask("queue.settle", offsets=[1])
    records = (await world.ask("queue.peek", name="q"))["records"]
    assert [(record["offset"], record["handed_out"]) for record in records] == [
        (0, True),
        (2, True),
        (3, False),
        (4, False),
    ]


async def test_a_record_that_is_not_safe_yet_is_not_shown() -> None:
    world = ControlWorld()
    await world.fill("q", 2)
    world.store.hold()
    world.publish(b"$queue/q", b"unsafe")
    assert await world.payloads("q") == ["0", "1"]
    world.store.release()
    world.broker.on_durable()
    assert await world.payloads("q") == ["0", "1", "unsafe"]


async def test_records_in_segments_are_seen_with_those_in_memory() -> None:
    shelf = Shelf()
    world = ControlWorld(source=shelf)
    await world.fill("q", 1000)
    put_on_shelf(world, shelf, 700, gaps=range(100, 200))
    assert await world.payloads("q") == texts(0, 100) + texts(200, 1000)
    page = await world.ask("queue.peek", name="q", offset=150, count=2)
    assert [record["offset"] for record in page["records"]] == [200, 201]


def put_on_shelf(world: ControlWorld, shelf: Shelf, end: int, gaps: range = range(0)) -> None:
    """As a checkpoint does: whole blocks of records leave memory."""
    queue = world.queue("q")
    for offset in range(end):
        if offset not in gaps:
            shelf.records[offset] = queue.find_record(offset)
    # positions in the store: one for the queue itself, then one for each record
    queue.forget_folded(world.store.position() - queue.next + end)
    assert 0 < queue.memtable.first <= end


async def test_a_large_answer_is_cut_into_pages_by_its_size() -> None:
    world = ControlWorld()
    await world.ask("queue.create", name="q")
    for _ in range(12):
        world.publish(b"$queue/q", b"x" * 1024 * 1024)
    page = await world.ask("queue.peek", name="q", count=12)
    assert 0 < len(page["records"]) < 12
    assert page["more"]
    assert len(await world.payloads("q")) == 12


# ------------------------------------------------------------------------ move


async def test_everything_moves_in_order_and_progress_is_told() -> None:
    world = ControlWorld()
    await world.fill("a", 3 * SLICE + 7)
    await world.ask("queue.create", name="b")
    listener = ListenedTo()
    moved = await world.ask("queue.move", listener, source="a", target="b")
    assert moved == {"moved": 3 * SLICE + 7, "handed_out": 0, "source": "a", "target": "b"}
    assert await world.payloads("a") == []
    assert await world.payloads("b") == texts(0, 3 * SLICE + 7)
    told = [answer["progress"] for answer in listener.told]
    assert told[0] == {"done": SLICE, "total": 3 * SLICE + 7}
    assert told[-1] == {"done": 3 * SLICE + 7, "total": 3 * SLICE + 7}


async def test_so_many_move_as_were_asked_for_oldest_first() -> None:
    world = ControlWorld()
    await world.fill("a", 10)
    await world.ask("queue.create", name="b")
    assert (await world.ask("queue.move", source="a", target="b", count=4))["moved"] == 4
    assert await world.payloads("a") == texts(4, 10)
    assert await world.payloads("b") == texts(0, 4)


async def test_what_a_consumer_has_in_hand_stays_with_it() -> None:
    world = ControlWorld()
    await world.fill("a", 6)
    await world.ask("queue.create", name="b")
    await world.ask("queue.take", name="a", group="g", count=2)
    moved = await world.ask("queue.move", source="a", target="b")
    assert (moved["moved"], moved["handed_out"]) == (4, 2)
    assert await world.payloads("b") == ["2", "3", "4", "5"]
    await world.ask("queue.settle", offsets=[0, 1])
    assert (await world.ask("queue.show", name="a"))["records"] == 0


async def test_no_group_is_handed_what_was_moved_away() -> None:
    world = ControlWorld()
    await world.fill("a", 4)
    await world.ask("queue.create", name="b")
    for group in ("g", "h"):
        conversation = ListenedTo()
        await world.ask("queue.take", conversation, name="a", group=group, count=1)
        conversation.end()
    await world.ask("queue.move", source="a", target="b")
    for group in ("g", "h"):
        assert (await world.ask("queue.take", ListenedTo(), name="a", group=group, count=4))["records"] == []
    groups = (await world.ask("queue.groups", name="a"))["groups"]
    assert [group["lag"] for group in groups] == [0, 0]


async def test_records_in_segments_move_too() -> None:
    shelf = Shelf()
    world = ControlWorld(source=shelf)
    await world.fill("q", 1000)
    await world.ask("queue.create", name="b")
    put_on_shelf(world, shelf, 700, gaps=range(100, 200))
    assert (await world.ask("queue.move", source="q", target="b"))["moved"] == 900
    assert await world.payloads("b") == texts(0, 100) + texts(200, 1000)
    assert await world.payloads("q") == []


async def test_each_record_enters_the_new_queue_before_it_leaves_the_old_one() -> None:
    world = ControlWorld()
    await world.fill("a", 3)
    await world.ask("queue.create", name="b")
    await world.ask(
        "queue.take", name="a", group="g", count=1
    )  # so that what is moved is settled out of order
    world.store.kinds.clear()
    await world.ask("queue.move", source="a", target="b")
    assert world.store.kinds == [RECORD_APPENDED, RECORDS_SETTLED] * 2


async def test_a_dead_letter_comes_back_as_it_was_published() -> None:
    world = ControlWorld()
    await world.ask("queue.create", name="orders")
    message = {"payload": "x", "key": "eu/1", "properties": [["trace", "7"], ["priority", "4"]]}
    await world.ask("queue.publish", name="orders", messages=[message])
    await world.ask("queue.take", name="orders", count=1)
    await world.ask("queue.settle", offsets=[0], outcome="rejected")
    dead = (await world.ask("queue.peek", name="$dlq/orders"))["records"][0]
    assert ["_dlq_reason", "rejected"] in dead["properties"]
    await world.ask("queue.move", source="$dlq/orders", target="orders")
    back = (await world.ask("queue.peek", name="orders"))["records"]
    assert [(record["topic"], record["payload"]) for record in back] == [("$queue/orders/eu/1", "x")]
    assert ["trace", "7"] in back[0]["properties"]
    assert not [name for name, _ in back[0]["properties"] if name.startswith("_dlq_")]


async def test_a_record_is_no_repeat_in_the_queue_it_is_moved_to() -> None:
    world = ControlWorld()
    for name in ("a", "b"):
        await world.ask("queue.create", name=name)
    repeated = {"payload": "x", "properties": [["producer-id", "p"], ["sequence", "5"]]}
    newer = {"payload": "y", "properties": [["producer-id", "p"], ["sequence", "9"]]}
    await world.ask("queue.publish", name="a", messages=[repeated])
    await world.ask("queue.publish", name="b", messages=[newer])
    assert (await world.ask("queue.move", source="a", target="b"))["moved"] == 1
    assert await world.payloads("b") == ["y", "x"]


def test_moving_leaves_every_other_property_alone() -> None:
    properties = Properties()
    properties.correlation_data = b"\x26\x00\x08delay-ms\x00\x015"
    properties.content_type = b"text/plain"
    properties.user_properties = [(b"delay-ms", b"5"), (b"a", b"b"), (b"_dlq_reason", b"r")]
    block = encode_block(properties)
    moved = make_moved(Message(b"plant/1", b"x", 1, False, block, 7, "c"), "b")
    assert (moved.topic, moved.payload, moved.expires_ns, moved.publisher) == (b"plant/1", b"x", 7, "c")
    assert read_user_properties(moved.properties) == [(b"a", b"b")]
    kept = decode_block(moved.properties)
    assert kept.correlation_data == properties.correlation_data
    assert kept.content_type == b"text/plain"


def publish_amqp(exchange: bytes, key: bytes, topic: bytes) -> Message:
    properties = BasicProperties()
    properties.headers = {b"number": 7, b"delay-ms": b"5"}
    properties.delivery_mode = 2
    raw = encode_properties(properties)
    return make_amqp_message(PropertyCache(), exchange, key, topic, raw, b"x", 1, 0, "amqp-1")


async def test_a_record_of_an_amqp_publisher_shows_what_it_said() -> None:
    world = ControlWorld()
    await world.ask("queue.create", name="q")
    world.broker.publish_internal(
        world.broker.get_account("default"), publish_amqp(b"", b"q", b"$queue/q"), None
    )
    record = (await world.ask("queue.peek", name="q"))["records"][0]
    assert (record["exchange"], record["routing_key"]) == ("", "q")
    assert record["amqp_properties"] == {"headers": {"number": 7, "delay-ms": "5"}, "delivery-mode": 2}
    assert record["properties"] == [["number", "7"], ["delay-ms", "5"]]


def test_a_moved_record_of_an_amqp_publisher_keeps_its_properties_byte_for_byte() -> None:
    source = publish_amqp(b"", b"a", b"$queue/a")
    native = read_native(make_moved(source, "b"))
    assert (native.exchange, native.routing_key) == (b"", b"b")
    assert native.properties == read_native(source).properties
    assert read_user_properties(make_moved(source, "b").properties) == [(b"number", b"7")]
    bound = read_native(make_moved(publish_amqp(b"orders", b"new", b"orders/new"), "b"))
    assert (bound.exchange, bound.routing_key) == (b"orders", b"new")


async def test_a_full_target_ends_the_move_and_nothing_is_lost() -> None:
    world = ControlWorld()
    await world.fill("a", 10)
    await world.ask("queue.create", name="b", definition={"length_max": 4})
    with pytest.raises(ControlRefusal, match="takes no more; 4 records were moved"):
        await world.ask("queue.move", source="a", target="b")
    assert await world.payloads("b") == texts(0, 4)
    assert await world.payloads("a") == texts(4, 10)


async def test_what_comes_during_a_move_is_not_chased() -> None:
    """Or two queues that feed each other would keep a move busy for ever."""
    world = ControlWorld()
    await world.fill("a", SLICE + 1)
    await world.ask("queue.create", name="b")

    class Publisher(ListenedTo):
        async def send(self, answer: object) -> None:
            world.publish(b"$queue/a", b"late")

    assert (await world.ask("queue.move", Publisher(), source="a", target="b"))["moved"] == SLICE + 1
    assert set(await world.payloads("a")) == {"late"}


async def test_a_target_that_is_deleted_meanwhile_ends_the_move() -> None:
    world = ControlWorld()
    await world.fill("a", 2 * SLICE)
    await world.ask("queue.create", name="b")

    class Remover(ListenedTo):
        async def send(self, answer: object) -> None:
            await world.ask("queue.delete", name="b")

    with pytest.raises(ControlRefusal, match="was deleted"):
        await world.ask("queue.move", Remover(), source="a", target="b")
    assert await world.payloads("a") == texts(SLICE, 2 * SLICE)


async def test_a_move_that_would_lose_something_is_refused() -> None:
    world = ControlWorld()
    await world.fill("a", 1)
    await world.fill("s", 1, kind="stream")
    await world.fill("e", 0, kind="ephemeral")
    with pytest.raises(ControlRefusal, match="into itself"):
        await world.ask("queue.move", source="a", target="a")
    with pytest.raises(ControlRefusal, match="is a stream"):
        await world.ask("queue.move", source="s", target="a")
    with pytest.raises(ControlRefusal, match="would not survive"):
        await world.ask("queue.move", source="a", target="e")
    with pytest.raises(ControlRefusal, match="no queue 'nowhere'"):
        await world.ask("queue.move", source="a", target="nowhere")


async def test_a_disk_that_fails_stops_a_move_between_two_slices() -> None:
    world = ControlWorld()
    await world.fill("a", 2 * SLICE)
    await world.ask("queue.create", name="b")

    class Breaker(ListenedTo):
        async def send(self, answer: object) -> None:
            world.store.is_broken = True

    with pytest.raises(Unavailable):
        await world.ask("queue.move", Breaker(), source="a", target="b")
    world.store.is_broken = False
    assert await world.payloads("b") == texts(0, SLICE)
    assert await world.payloads("a") == texts(SLICE, 2 * SLICE)


async def test_a_group_that_waits_to_try_again_does_not_get_what_was_moved() -> None:
    world = ControlWorld()
    await world.fill("a", 2)
    await world.ask("queue.create", name="b")
    await world.ask("queue.take", name="a", group="g", count=1)
    group = world.queue("a").groups["g"]
    group.settle(group.find_pending(0), Outcome.MODIFIED, "")
    assert (await world.ask("queue.move", source="a", target="b"))["moved"] == 2
    assert (await world.ask("queue.take", name="a", group="g", count=2))["records"] == []


async def test_a_moved_message_keeps_its_topic_when_that_is_an_ordinary_one() -> None:
    world = ControlWorld()
    await world.fill("a", 0, bindings=["plant/#"])
    await world.ask("queue.create", name="b")
    world.publish(b"plant/1", b"x")
    world.queue("a").append(make_message(b"$queue/a/key", b"y"))
    await world.ask("queue.move", source="a", target="b")
    records = (await world.ask("queue.peek", name="b"))["records"]
    assert [(record["topic"], record["key"]) for record in records] == [
        ("plant/1", "plant/1"),
        ("$queue/b/key", "key"),
    ]
