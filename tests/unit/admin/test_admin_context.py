"""An answer waits until what it says is safe."""

from __future__ import annotations

import asyncio

import pytest
from control_world import ControlWorld

from millstream.model.errors import Unavailable


async def test_a_change_is_answered_when_the_log_has_it_and_not_before() -> None:
    world = ControlWorld()
    world.store.hold()
    asked = asyncio.create_task(world.ask("queue.create", name="q"))
    await asyncio.sleep(0)
    world.context.on_durable()
    await asyncio.sleep(0)
    assert not asked.done()
    world.store.release()
    world.context.on_durable()
    assert (await asked)["created"]


async def test_who_waits_for_less_is_answered_first() -> None:
    world = ControlWorld()
    world.store.hold()
    first = asyncio.create_task(world.ask("queue.create", name="a"))
    await asyncio.sleep(0)
    reached = int(world.store.position())
    second = asyncio.create_task(world.ask("queue.create", name="b"))
    await asyncio.sleep(0)
    world.store.advance(reached)
    world.context.on_durable()
    assert (await first)["created"]
    assert not second.done()
    world.store.release()
    world.context.on_durable()
    assert (await second)["created"]


async def test_a_log_that_cannot_go_on_ends_the_wait() -> None:
    world = ControlWorld()
    world.store.hold()
    asked = asyncio.create_task(world.ask("queue.create", name="q"))
    await asyncio.sleep(0)
    world.store.is_broken = True
    world.context.on_durable()
    with pytest.raises(Unavailable, match="may or may not be kept"):
        await asked


async def test_a_log_that_is_behind_but_moves_on_does_not_end_the_wait() -> None:
    world = ControlWorld()
    world.store.hold()
    asked = asyncio.create_task(world.ask("queue.create", name="q"))
    await asyncio.sleep(0)
    world.store.is_broken = True
    world.store.release()
    world.context.on_durable()
    assert (await asked)["created"]


async def test_who_gave_up_waiting_is_forgotten() -> None:
    world = ControlWorld()
    world.store.hold()
    asked = asyncio.create_task(world.ask("queue.create", name="q"))
    await asyncio.sleep(0)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    world.store.release()
    world.context.on_durable()


@pytest.mark.parametrize(
    ("operation", "fields"),
    [
        ("queue.create", {"name": "new"}),
        ("queue.update", {"name": "a", "definition": {"backoff_ms": 7}}),
        ("queue.delete", {"name": "a"}),
        ("queue.purge", {"name": "a"}),
        ("queue.bind", {"name": "a", "filter": "new"}),
        ("queue.unbind", {"name": "a", "filter": "old"}),
        ("queue.seek", {"name": "s", "group": "g", "to": "last"}),
        ("queue.remove_group", {"name": "s", "group": "g", "force": True}),
        ("queue.publish", {"name": "a", "messages": [{"payload": "x"}]}),
        ("queue.settle", {"offsets": [0]}),
        ("queue.move", {"source": "a", "target": "b"}),
    ],
)
async def test_nothing_is_said_of_a_change_before_it_is_safe(
    operation: str, fields: dict[str, object]
) -> None:
    world = ControlWorld()
    await world.fill("a", 3, bindings=["old"])
    await world.fill("b", 0)
    await world.fill("s", 3, kind="stream")
    await world.ask("queue.take", name="s", group="g")
    world.store.hold()
    asked = asyncio.create_task(world.ask(operation, **fields))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not asked.done()
    assert world.conversation.told == []
    world.store.release()
    world.context.on_durable()
    await asked
