"""Operations on queues as the control channel offers them, on a broker in memory."""

from __future__ import annotations

import base64

import pytest
from control_world import ControlWorld

from millstream.model.errors import Refused, Unavailable
from millstream.runtime.control.server import ControlRefusal


async def test_a_queue_is_made_once_and_found_again() -> None:
    world = ControlWorld()
    made = await world.ask("queue.create", name="orders", definition={"max_deliveries": 3})
    again = await world.ask("queue.create", name="orders", definition={"max_deliveries": 3})
    assert (made["created"], again["created"]) == (True, False)
    shown = await world.ask("queue.show", name="orders")
    assert shown["kind"] == "work"
    assert shown["definition"]["max_deliveries"] == 3
    assert shown["dead_letters"] == "$dlq/orders"


async def test_making_a_queue_never_changes_one_that_is_there() -> None:
    world = ControlWorld()
    await world.ask("queue.create", name="orders", definition={"max_deliveries": 3})
    with pytest.raises(ControlRefusal, match="with other settings"):
        await world.ask("queue.create", name="orders", definition={"max_deliveries": 4})
    assert (await world.ask("queue.show", name="orders"))["definition"]["max_deliveries"] == 3


@pytest.mark.parametrize("name", ["", "$secret", "a\nb", "x" * 256])
async def test_a_name_that_no_queue_can_have_is_refused(name: str) -> None:
    with pytest.raises(Refused):
        await ControlWorld().ask("queue.create", name=name)


async def test_an_update_changes_what_it_names_and_nothing_else() -> None:
    world = ControlWorld()
    await world.ask("queue.create", name="q", definition={"max_deliveries": 3, "bindings": ["a/#"]})
    updated = await world.ask("queue.update", name="q", definition={"backoff_ms": 7})
    assert updated["definition"]["backoff_ms"] == 7
    assert updated["definition"]["max_deliveries"] == 3
    assert updated["definition"]["bindings"] == ["a/#"]
    with pytest.raises(Refused, match="cannot become"):
        await world.ask("queue.update", name="q", definition={"kind": "stream"})
    with pytest.raises(Refused, match="no setting"):
        await world.ask("queue.update", name="q", definition={"colour": "red"})


async def test_queues_of_another_account_are_not_seen() -> None:
    world = ControlWorld(accounts=("factory",))
    await world.ask("queue.create", name="q", account="factory")
    assert (await world.ask("queue.list"))["queues"] == []
    assert [row["name"] for row in (await world.ask("queue.list", account="factory"))["queues"]] == ["q"]
    with pytest.raises(ControlRefusal, match="no queue 'q'"):
        await world.ask("queue.show", name="q")
    with pytest.raises(ControlRefusal, match="no account 'nobody'; there are default, factory"):
        await world.ask("queue.list", account="nobody")


async def test_a_long_list_comes_in_pages() -> None:
    world = ControlWorld()
    names = [f"q{number:02d}" for number in range(25)]
    for name in reversed(names):
        await world.ask("queue.create", name=name)
    found: list[str] = []
    after = ""
    more = True
    while more:
        page = await world.ask("queue.list", after=after, limit=10)
        assert len(page["queues"]) <= 10
        found += [row["name"] for row in page["queues"]]
        after = found[-1]
        more = page["more"]
    assert found == names


async def test_published_messages_are_answered_by_their_offsets() -> None:
    world = ControlWorld()
    await world.ask("queue.create", name="q")
    binary = base64.b64encode(b"\xff\x00").decode()
    messages = [
        {"payload": "é", "key": "eu/1", "properties": [["a", "b"]], "content_type": "text/plain"},
        {"payload_base64": binary},
    ]
    assert await world.ask("queue.publish", name="q", messages=messages) == {"offsets": [0, 1]}
    records = (await world.ask("queue.peek", name="q"))["records"]
    assert records[0]["payload"] == "é"
    assert records[0]["topic"] == "$queue/q/eu/1"
    assert records[0]["key"] == "eu/1"
    assert records[0]["properties"] == [["a", "b"]]
    assert records[0]["content_type"] == "text/plain"
    assert records[1]["payload"] is None
    assert records[1]["payload_base64"] == binary


async def test_a_repeat_of_a_producer_gets_no_offset() -> None:
    world = ControlWorld()
    await world.ask("queue.create", name="q")
    message = {"payload": "x", "properties": [["producer-id", "p"], ["sequence", "1"]]}
    answer = await world.ask("queue.publish", name="q", messages=[message, message])
    assert answer == {"offsets": [0, None]}


@pytest.mark.parametrize(
    "message",
    [
        {"payload_base64": "not base64!"},
        {"payload": 7},
        {"payload": "x" * (1024 * 1024 + 1)},
        {"payload": "", "key": "a/#"},
        {"payload": "", "key": "a/$ack"},
        {"payload": "", "properties": [["a"]]},
        {"payload": "", "properties": [["a", "b"]] * 257},
        {"payload": "", "properties": [["a", "x" * 65_536]]},
        {"payload": "", "content_type": "\x00"},
        {"payload": "", "expiry_s": -1},
        7,
    ],
)
async def test_what_is_no_message_is_refused_before_anything_is_stored(message: object) -> None:
    world = ControlWorld()
    await world.ask("queue.create", name="q")
    with pytest.raises(ControlRefusal):
        await world.ask("queue.publish", name="q", messages=[{"payload": "good"}, message])
    assert (await world.ask("queue.show", name="q"))["records"] == 0


async def test_a_queue_that_is_full_says_so_and_keeps_what_it_took() -> None:
    world = ControlWorld()
    await world.ask("queue.create", name="q", definition={"length_max": 2})
    with pytest.raises(ControlRefusal, match="holds as much as it may; 2 messages before it were taken"):
        await world.ask("queue.publish", name="q", messages=[{"payload": "x"}] * 3)
    assert (await world.ask("queue.show", name="q"))["records"] == 2


async def test_a_message_to_no_queue_makes_none() -> None:
    world = ControlWorld()
    with pytest.raises(ControlRefusal, match="there is no queue 'ordres'") as refusal:
        await world.ask("queue.publish", name="ordres", messages=[{"payload": "x"}])
    assert refusal.value.hint == "millstream queue list"
    assert (await world.ask("queue.list"))["queues"] == []


async def test_a_purged_queue_is_empty_and_goes_on() -> None:
    world = ControlWorld()
    await world.fill("q", 300)
    assert await world.ask("queue.purge", name="q") == {"purged": 300, "name": "q"}
    assert (await world.ask("queue.peek", name="q"))["records"] == []
    await world.ask("queue.publish", name="q", messages=[{"payload": "new"}])
    assert [record["offset"] for record in (await world.ask("queue.peek", name="q"))["records"]] == [300]


async def test_a_purge_spares_what_a_consumer_has_in_hand() -> None:
    world = ControlWorld()
    await world.fill("q", 5)
    await world.ask("queue.take", name="q", count=2)
    assert (await world.ask("queue.purge", name="q"))["purged"] == 3
    assert await world.payloads("q") == ["0", "1"]
    assert await world.ask("queue.settle", offsets=[0, 1]) == {"settled": 2, "late": 0}


async def test_a_deleted_queue_is_gone_with_what_it_held() -> None:
    world = ControlWorld()
    await world.fill("q", 3)
    assert await world.ask("queue.delete", name="q") == {"deleted": "q", "records": 3}
    with pytest.raises(ControlRefusal, match="there is no queue"):
        await world.ask("queue.delete", name="q")


async def test_a_bound_queue_takes_what_is_published_there_until_it_is_unbound() -> None:
    world = ControlWorld()
    await world.ask("queue.create", name="q")
    assert (await world.ask("queue.bind", name="q", filter="plant/#"))["bindings"] == ["plant/#"]
    world.publish(b"plant/1", b"taken")
    assert (await world.ask("queue.unbind", name="q", filter="plant/#"))["bindings"] == []
    world.publish(b"plant/2", b"not taken")
    assert [record["topic"] for record in (await world.ask("queue.peek", name="q"))["records"]] == ["plant/1"]
    with pytest.raises(ControlRefusal, match="is not bound to"):
        await world.ask("queue.unbind", name="q", filter="plant/#")
    with pytest.raises(Refused, match="cannot be bound"):
        await world.ask("queue.bind", name="q", filter="a/#/b")


async def test_the_number_of_bindings_has_an_end() -> None:
    world = ControlWorld()
    await world.ask("queue.create", name="q", definition={"bindings": [f"a/{n}" for n in range(1000)]})
    await world.ask("queue.bind", name="q", filter="a/7")
    with pytest.raises(ControlRefusal, match="as many as it may"):
        await world.ask("queue.bind", name="q", filter="one/more")


@pytest.mark.parametrize(
    ("to", "committed"), [("first", 0), ("last", 9), ("next", 10), ("4", 4), ("offset=5", 5), ("99", 10)]
)
async def test_a_group_of_a_stream_goes_where_it_is_told(to: str, committed: int) -> None:
    world = ControlWorld()
    await world.fill("s", 10, kind="stream")
    await world.ask("queue.take", name="s", group="g", count=1)
    group = await world.ask("queue.seek", name="s", group="g", to=to)
    assert group["committed"] == committed
    assert group["lag"] == 10 - committed
    assert (await world.ask("queue.groups", name="s"))["groups"][0]["committed"] == committed


async def test_only_a_group_of_a_stream_can_be_moved_and_only_to_a_place() -> None:
    world = ControlWorld()
    await world.fill("w", 1)
    await world.fill("s", 1, kind="stream")
    await world.ask("queue.take", name="s", group="g", count=1)
    with pytest.raises(ControlRefusal, match="is a work queue"):
        await world.ask("queue.seek", name="w", group="g", to="first")
    with pytest.raises(ControlRefusal, match="has no group 'h'"):
        await world.ask("queue.seek", name="s", group="h", to="first")
    with pytest.raises(Refused, match="no place in a stream"):
        await world.ask("queue.seek", name="s", group="g", to="yesterday")


async def test_nothing_is_changed_while_the_disk_takes_nothing() -> None:
    world = ControlWorld()
    await world.fill("q", 1)
    world.store.is_broken = True
    for operation, fields in (
        ("queue.create", {"name": "r"}),
        ("queue.update", {"name": "q", "definition": {}}),
        ("queue.delete", {"name": "q"}),
        ("queue.purge", {"name": "q"}),
        ("queue.bind", {"name": "q", "filter": "a"}),
        ("queue.remove_group", {"name": "q", "group": "g"}),
        ("queue.publish", {"name": "q", "messages": [{"payload": "x"}]}),
        ("queue.move", {"source": "q", "target": "q"}),
    ):
        with pytest.raises(Unavailable):
            await world.ask(operation, **fields)
    assert [row["records"] for row in (await world.ask("queue.list"))["queues"]] == [1]
