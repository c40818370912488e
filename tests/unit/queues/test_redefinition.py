"""A queue that is given another definition while it holds records: what it may no longer hold goes at once."""

from __future__ import annotations

from typing import Any

import pytest
from queue_world import QueueWorld

from millstream.model.message import NANOSECONDS
from millstream.queues.limits import LETTERS_SLICE, SLICE

KINDS = ("work", "ephemeral")


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def world() -> QueueWorld:
    return QueueWorld()


def test_a_shorter_queue_lets_the_oldest_go_without_waiting_for_a_publish(
    world: QueueWorld, kind: str
) -> None:
    fields: dict[str, Any] = {"kind": kind, "bounds_ready": True, "overflow": "drop_head"}
    queue = world.declare(**fields)
    target = world.declare("dlx", kind=kind)
    world.fill(queue, 5)
    world.declare(**fields, length_max=2, dead_letter_exchange="dlx")
    world.loop()
    assert [payload for payload, _ in world.letters(queue.name)] == [b"3", b"4"]
    assert [payload for payload, _ in world.letters(target.name)] == [b"0", b"1", b"2"]


def test_a_queue_that_refuses_when_it_is_full_keeps_what_it_has(world: QueueWorld, kind: str) -> None:
    fields: dict[str, Any] = {"kind": kind, "bounds_ready": True}
    queue = world.declare(**fields)
    world.fill(queue, 5)
    world.declare(**fields, length_max=2, overflow="reject")
    world.loop()
    assert queue.ready() == 5


@pytest.mark.parametrize("exchange", [None, "dlx"])
def test_very_much_goes_in_slices_so_that_others_have_their_turn(
    world: QueueWorld, kind: str, exchange: str | None
) -> None:
    fields: dict[str, Any] = {
        "kind": kind,
        "bounds_ready": True,
        "overflow": "drop_head",
        "dead_letter_exchange": exchange,
    }
    queue = world.declare(**fields)
    most = int(SLICE if exchange is None else LETTERS_SLICE)
    count = 2 * most + 10
    world.fill(queue, count)
    world.declare(**fields, length_max=3)
    left = []
    for _ in range(4):
        world.scheduler.work_off()
        left.append(int(queue.ready()))
    assert left == [count - most, count - 2 * most, 3, 3]
    assert not world.scheduler.is_awake(queue)


def test_a_queue_that_gets_an_end_has_all_of_its_time_from_then_on(world: QueueWorld, kind: str) -> None:
    world.declare(kind=kind)
    world.clock.now_ns += 3600 * NANOSECONDS
    world.declare(kind=kind, expires_ms=10_000)
    world.clock.now_ns += 9 * NANOSECONDS
    world.catalog.on_tick(world.clock.now_ns)
    assert world.catalog.find("q") is not None
    world.clock.now_ns += NANOSECONDS
    world.catalog.on_tick(world.clock.now_ns)
    assert world.catalog.find("q") is None
