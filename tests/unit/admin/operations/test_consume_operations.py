"""A connection of the control channel as a consumer."""

from __future__ import annotations

import asyncio

import pytest
from control_world import ControlWorld, ListenedTo

from millstream.model.errors import Refused
from millstream.runtime.control.server import ControlRefusal


def offsets(answer: dict[str, list[dict[str, object]]]) -> list[object]:
    return [record["offset"] for record in answer["records"]]


async def test_so_many_records_are_handed_out_as_were_asked_for() -> None:
    world = ControlWorld()
    await world.fill("q", 10)
    assert offsets(await world.ask("queue.take", name="q", count=3)) == [0, 1, 2]
    assert (await world.ask("queue.show", name="q"))["handed_out"] == 3
    assert offsets(await world.ask("queue.take", name="q", count=1)) == [3]
    assert (await world.ask("queue.settle", offsets=[0, 1, 2, 3])) == {"settled": 4, "late": 0}
    assert (await world.ask("queue.show", name="q"))["records"] == 6


async def test_what_is_settled_never_comes_again_and_what_is_not_does() -> None:
    world = ControlWorld()
    await world.fill("q", 3)
    await world.ask("queue.take", name="q", count=3)
    await world.ask("queue.settle", offsets=[1])
    world.conversation.end()
    again = await world.ask("queue.take", ListenedTo(), name="q", count=3)
    assert offsets(again) == [0, 2]


async def test_taking_and_giving_back_is_no_attempt() -> None:
    world = ControlWorld()
    await world.fill("q", 2, max_deliveries=2)
    for _ in range(5):
        conversation = ListenedTo()
        taken = await world.ask("queue.take", conversation, name="q", count=1)
        assert [(record["offset"], record["attempts"]) for record in taken["records"]] == [(0, 1)]
        conversation.end()
    assert [row["name"] for row in (await world.ask("queue.list"))["queues"]] == ["q"]


async def test_a_rejected_record_becomes_a_dead_letter_and_a_failed_one_comes_again() -> None:
    world = ControlWorld()
    await world.fill("q", 2, backoff_ms=0)
    await world.ask("queue.take", name="q", count=2)
    await world.ask("queue.settle", offsets=[0], outcome="rejected")
    await world.ask("queue.settle", offsets=[1], outcome="modified")
    assert await world.payloads("$dlq/q") == ["0"]
    again = await world.ask("queue.take", name="q", count=2)
    assert [(record["offset"], record["attempts"]) for record in again["records"]] == [(1, 2)]


async def test_a_record_that_comes_later_is_waited_for() -> None:
    world = ControlWorld()
    await world.fill("q", 0)
    waiting = asyncio.create_task(world.ask("queue.take", name="q", count=5, wait_ms=60_000))
    await asyncio.sleep(0)
    world.publish(b"$queue/q", b"late")
    world.broker.work_off()
    assert [record["payload"] for record in (await waiting)["records"]] == ["late"]


async def test_between_two_requests_nothing_is_handed_out() -> None:
    world = ControlWorld()
    await world.fill("q", 1)
    await world.ask("queue.take", name="q", count=5)
    world.publish(b"$queue/q", b"late")
    world.broker.work_off()
    assert (await world.ask("queue.show", name="q"))["handed_out"] == 1


async def test_who_waits_is_told_when_the_queue_goes() -> None:
    world = ControlWorld()
    await world.fill("q", 0)
    waiting = asyncio.create_task(world.ask("queue.take", name="q", wait_ms=60_000))
    await asyncio.sleep(0)
    await world.ask("queue.delete", name="q")
    with pytest.raises(ControlRefusal, match="was deleted"):
        await waiting
    world.conversation.end()


async def test_an_answer_that_comes_too_late_does_not_count() -> None:
    world = ControlWorld()
    await world.fill("q", 1, visibility_ms=100)
    await world.ask("queue.take", name="q", count=1)
    world.broker.on_tick(world.broker.clock.now_ns + 1_000_000_000, 0)
    assert await world.ask("queue.settle", offsets=[0]) == {"settled": 0, "late": 1}
    assert (await world.ask("queue.show", name="q"))["records"] == 1


async def test_one_connection_cannot_settle_what_another_took() -> None:
    world = ControlWorld()
    await world.fill("q", 2)
    other = ListenedTo()
    await world.ask("queue.take", name="q", count=1)
    await world.ask("queue.take", other, name="q", count=1)
    assert await world.ask("queue.settle", other, offsets=[0]) == {"settled": 0, "late": 1}
    with pytest.raises(ControlRefusal, match="taken nothing"):
        await world.ask("queue.settle", ListenedTo(), offsets=[0])


async def test_the_only_group_is_the_one_that_is_meant() -> None:
    world = ControlWorld()
    await world.fill("q", 2)
    first = await world.ask("queue.take", ListenedTo(), name="q", group="workers")
    assert first["group"] == "workers"
    assert (await world.ask("queue.take", ListenedTo(), name="q"))["group"] == "workers"
    await world.ask("queue.take", ListenedTo(), name="q", group="others")
    with pytest.raises(ControlRefusal, match="has the groups workers, others; name one with --group"):
        await world.ask("queue.take", ListenedTo(), name="q")


async def test_a_filter_hands_out_what_it_matches() -> None:
    world = ControlWorld()
    await world.ask("queue.create", name="q")
    messages = [{"payload": key, "key": key} for key in ("eu/1", "us/1", "eu/2")]
    await world.ask("queue.publish", name="q", messages=messages)
    taken = await world.ask("queue.take", name="q", group="g", filter="eu/#", count=10)
    assert [record["key"] for record in taken["records"]] == ["eu/1", "eu/2"]
    with pytest.raises(ControlRefusal, match="the filter cannot be used"):
        await world.ask("queue.take", ListenedTo(), name="q", filter="a/#/b")


@pytest.mark.parametrize(("start", "first"), [("", 0), ("first", 0), ("last", 9), ("5", 5)])
async def test_a_new_group_of_a_stream_begins_where_it_is_told(start: str, first: int) -> None:
    world = ControlWorld()
    await world.fill("s", 10, kind="stream")
    conversation = ListenedTo()
    taken = await world.ask("queue.take", conversation, name="s", group="g", **{"from": start})
    assert offsets(taken) == [first]
    await world.ask("queue.settle", conversation, offsets=[first])
    conversation.end()
    later = await world.ask("queue.take", ListenedTo(), name="s", group="g", wait_ms=0, **{"from": "first"})
    assert offsets(later) == ([first + 1] if first < 9 else [])


async def test_a_place_that_is_none_leaves_no_group_behind() -> None:
    world = ControlWorld()
    await world.fill("s", 1, kind="stream")
    with pytest.raises(Refused, match="no place in a stream"):
        await world.ask("queue.take", name="s", group="g", **{"from": "yesterday"})
    assert (await world.ask("queue.groups", name="s"))["groups"] == []


async def test_an_ephemeral_queue_goes_with_its_last_consumer() -> None:
    world = ControlWorld()
    await world.fill("e", 1, kind="ephemeral")
    assert offsets(await world.ask("queue.take", name="e")) == [0]
    world.conversation.end()
    assert (await world.ask("queue.list"))["queues"] == []


@pytest.mark.parametrize(
    "fields",
    [
        {"count": 0},
        {"count": 101},
        {"count": True},
        {"wait_ms": -1},
        {"group": "a@b"},
        {"group": "x" * 257},
        {"group": 7},
        {"group": "\ud800"},
    ],
)
async def test_what_is_out_of_bounds_is_refused(fields: dict[str, object]) -> None:
    world = ControlWorld()
    await world.fill("q", 1)
    with pytest.raises(ControlRefusal):
        await world.ask("queue.take", name="q", **fields)


async def test_a_connection_reads_one_queue() -> None:
    world = ControlWorld()
    await world.fill("q", 1)
    await world.fill("r", 1)
    await world.ask("queue.take", name="q")
    with pytest.raises(ControlRefusal, match="consumes from 'q'"):
        await world.ask("queue.take", name="r")
