"""`broker.status` over the control channel, and what the command makes of it."""

from __future__ import annotations

import asyncio

from control_world import ListenedTo
from fakes import World

from millstream.admin.context import AdminContext
from millstream.admin.operations.status import make_status_operations
from millstream.broker.conditions import STORAGE_FULL
from millstream.commands.status import status_lines


def ask(world: World) -> dict[str, object]:
    operation = make_status_operations(AdminContext(world.broker))["broker.status"]
    found = asyncio.run(_await(operation({}, ListenedTo())))
    assert isinstance(found, dict)
    return found


async def _await(answer: object) -> object:
    return await answer  # type: ignore[misc]


def test_a_broker_without_conditions_is_ok() -> None:
    found = ask(World())
    assert found["status"] == "ok"
    assert found["conditions"] == []
    assert status_lines(found)[0] == "status: ok"


def test_an_active_condition_is_shown_with_cause_advice_and_count() -> None:
    world = World()
    world.broker.health.begin(STORAGE_FULL, "No space left on device")
    world.broker.health.count(STORAGE_FULL, 12_345)
    found = ask(world)
    assert found["status"] == "degraded"
    text = "\n".join(status_lines(found))
    assert "degraded: storage_full since" in text
    assert "No space left on device" in text
    assert "make room" in text
    assert "12,345 publishes refused" in text
