"""File descriptors: connections are bounded below the limit, and it is told when none is left and when there is one again."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator

import pytest
from fake_transport import GateWorld

from millstream.broker.conditions import DESCRIPTORS_EXHAUSTED
from millstream.model.limits import Limits
from millstream.runtime.start_fault import StartFault
from millstream.runtime.transport.descriptors import NEEDED, RESERVED, Descriptors, check_limit


@pytest.fixture
def limit() -> Iterator[tuple[int, int]]:
    """Of this process, put back after the test."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield before
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def set_soft(limit: tuple[int, int], soft: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, limit[1]))


def lowest_free() -> int:
    descriptor = os.open("/", os.O_PATH)
    os.close(descriptor)
    return descriptor


def test_a_limit_below_the_connections_bounds_them_and_leaves_some_for_files(limit: tuple[int, int]) -> None:
    set_soft(limit, 1000)
    world = GateWorld(Limits(connections_max=100_000))
    descriptors = Descriptors(world.broker.health, world.gate)
    assert (world.gate.connections_max, world.gate.descriptors) == (1000 - RESERVED, 1000)
    set_soft(limit, 200)  # from outside, while it runs
    descriptors.on_tick()
    assert world.gate.connections_max == 100


def test_a_limit_above_the_connections_changes_nothing(limit: tuple[int, int]) -> None:
    set_soft(limit, 1000)
    world = GateWorld(Limits(connections_max=500))
    Descriptors(world.broker.health, world.gate)
    assert (world.gate.connections_max, world.gate.descriptors) == (500, 0)


def test_no_descriptor_left_is_told_until_there_is_one_again(limit: tuple[int, int]) -> None:
    world = GateWorld(Limits(connections_max=1))
    descriptors = Descriptors(world.broker.health, world.gate)
    set_soft(limit, lowest_free())
    descriptors.on_tick()
    active = world.broker.health.find(DESCRIPTORS_EXHAUSTED)
    assert active is not None
    assert "file descriptors of the process are in use" in active.cause
    set_soft(limit, limit[0])
    descriptors.on_tick()
    assert world.broker.health.find(DESCRIPTORS_EXHAUSTED) is None


def test_the_limit_is_raised_as_far_as_this_user_may(limit: tuple[int, int]) -> None:
    set_soft(limit, 300)
    check_limit()
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 300


def test_a_limit_that_is_too_low_to_start_with(
    limit: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (NEEDED - 1, NEEDED - 1))
    with pytest.raises(StartFault, match="too low") as caught:
        check_limit()
    assert caught.value.hint.startswith("ulimit -n")
    assert caught.value.is_setting
