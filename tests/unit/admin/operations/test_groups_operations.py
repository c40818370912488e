"""A group is removed by the control channel: not under the feet of its consumers, and without a record that is needed."""

from __future__ import annotations

import asyncio

import pytest
from control_world import ControlWorld, ListenedTo

from millstream.runtime.control.server import ControlRefusal
from millstream.storage.records import queue_records


async def titles(world: ControlWorld, name: str) -> list[str]:
    return [row["group"] for row in (await world.ask("queue.groups", name=name))["groups"]]


async def read(world: ControlWorld, name: str, group: str, count: int) -> list[str]:
    """A consumer that comes, settles what it is given, and goes."""
    conversation = ListenedTo()
    taken = await world.ask("queue.take", conversation, name=name, group=group, count=count)
    await world.ask("queue.settle", conversation, offsets=[record["offset"] for record in taken["records"]])
    conversation.end()
    return [record["payload"] for record in taken["records"]]


async def test_a_removed_group_begins_anew_when_it_is_joined_again() -> None:
    world = ControlWorld()
    await world.fill("s", 3, kind="stream")
    await read(world, "s", "g", 2)
    answer = await world.ask("queue.remove_group", name="s", group="g")
    assert answer == {"name": "s", "removed": "g", "lag": 1, "consumers": 0}
    assert await titles(world, "s") == []
    assert world.store.kinds[-1] == queue_records.GROUP_REMOVED
    assert await read(world, "s", "g", 3) == ["0", "1", "2"]


async def test_what_the_last_group_has_not_settled_stays_in_a_work_queue() -> None:
    world = ControlWorld()
    await world.fill("q", 5)
    await read(world, "q", "g", 2)
    await world.ask("queue.remove_group", name="q", group="g")
    assert await world.payloads("q") == ["2", "3", "4"]
    assert await read(world, "q", "other", 5) == ["2", "3", "4"]


async def test_records_that_only_the_removed_group_needed_go() -> None:
    world = ControlWorld()
    await world.fill("q", 4)
    await read(world, "q", "slow", 1)
    assert await read(world, "q", "quick", 2) == ["1", "2"]
    assert (await world.ask("queue.show", name="q"))["records"] == 3
    await world.ask("queue.remove_group", name="q", group="slow")
    shown = await world.ask("queue.show", name="q")
    assert (shown["records"], shown["groups"]) == (1, 1)
    assert shown["first_offset"] == 3
    assert await world.payloads("q") == ["3"]


async def test_a_group_with_consumers_stays_unless_it_is_forced() -> None:
    world = ControlWorld()
    await world.fill("q", 3)
    await world.ask("queue.take", name="q", group="g", count=2)
    with pytest.raises(ControlRefusal, match="has consumers: command-1") as refusal:
        await world.ask("queue.remove_group", name="q", group="g")
    assert refusal.value.hint == "millstream queue remove-group 'q' 'g' --force"
    assert await titles(world, "q") == ["g"]
    answer = await world.ask("queue.remove_group", name="q", group="g", force=True)
    assert answer["consumers"] == 1
    assert await titles(world, "q") == []
    assert (await world.ask("queue.show", name="q"))["handed_out"] == 0
    assert await world.ask("queue.settle", offsets=[0, 1]) == {"settled": 0, "late": 2}
    assert await read(world, "q", "h", 3) == ["0", "1", "2"]


async def test_who_waits_for_records_in_it_is_told() -> None:
    world = ControlWorld()
    await world.fill("q", 0)
    waiting = asyncio.create_task(world.ask("queue.take", ListenedTo(), name="q", group="g", wait_ms=30_000))
    await asyncio.sleep(0)
    await world.ask("queue.remove_group", name="q", group="g", force=True)
    with pytest.raises(ControlRefusal, match="the group 'g' was removed"):
        await waiting


async def test_an_ephemeral_queue_goes_with_its_last_consumer() -> None:
    world = ControlWorld()
    await world.fill("e", 1, kind="ephemeral")
    await world.ask("queue.take", name="e", group="g")
    await world.ask("queue.remove_group", name="e", group="g", force=True)
    assert (await world.ask("queue.list"))["queues"] == []


async def test_only_a_group_that_is_there_can_be_removed() -> None:
    world = ControlWorld()
    await world.fill("q", 1)
    with pytest.raises(ControlRefusal, match="has no group 'g'"):
        await world.ask("queue.remove_group", name="q", group="g")
    with pytest.raises(ControlRefusal, match="there is no queue 'p'"):
        await world.ask("queue.remove_group", name="p", group="g")
    await world.ask("queue.take", name="q", group="g")
    with pytest.raises(ControlRefusal, match="force must be true or false"):
        await world.ask("queue.remove_group", name="q", group="g", force="yes")
