"""Freed memory goes back to the system after a flood, not during one, and not over and over."""

from __future__ import annotations

from millstream.runtime.freed_memory import CALM_BYTES_PER_S, LONG_NS, FreedMemory

SECOND_NS = 10**9
MIB = 1 << 20


class MemoryWorld:
    """A process whose allocator keeps `kept` bytes that nobody uses."""

    def __init__(self) -> None:
        self.now_ns = 10**12
        self.used = 70 * MIB
        self.kept = 0
        self.work = 0
        self.given_back = 0
        self.takes_ns = 1_000_000
        self.freed = FreedMemory(self.give_back, lambda: self.used + self.kept, lambda: self.now_ns)
        self.pass_seconds(1)

    def give_back(self) -> None:
        self.kept = 0
        self.given_back += 1
        self.now_ns += self.takes_ns

    def pass_seconds(self, count: int, work_per_s: int = 0) -> None:
        for _ in range(count):
            self.now_ns += SECOND_NS
            self.work += work_per_s
            self.freed.on_tick(self.now_ns, self.work)


def test_what_a_flood_left_is_given_back_when_it_is_calm() -> None:
    world = MemoryWorld()
    world.kept = 500 * MIB
    world.pass_seconds(4, CALM_BYTES_PER_S)
    assert world.given_back == 0
    world.pass_seconds(10)
    assert world.given_back == 1
    world.pass_seconds(600)
    assert world.given_back == 1


def test_during_a_flood_the_allocator_keeps_what_it_needs_again() -> None:
    world = MemoryWorld()
    world.kept = 500 * MIB
    world.pass_seconds(30, CALM_BYTES_PER_S)
    assert world.given_back == 0


def test_a_flood_without_an_end_does_not_keep_it_for_ever() -> None:
    world = MemoryWorld()
    world.kept = 500 * MIB
    world.pass_seconds(60, CALM_BYTES_PER_S)
    assert world.given_back == 1


def test_a_little_more_than_before_is_left_alone() -> None:
    world = MemoryWorld()
    world.kept = 20 * MIB
    world.pass_seconds(100)
    assert world.given_back == 0


def test_memory_that_is_in_use_is_asked_for_more_and_more_seldom() -> None:
    world = MemoryWorld()
    world.used = 2000 * MIB
    world.pass_seconds(3600)
    assert 5 <= world.given_back <= 12


def test_what_is_freed_later_is_given_back_too() -> None:
    world = MemoryWorld()
    world.used = 500 * MIB
    world.pass_seconds(12)
    world.used, world.kept = 80 * MIB, 420 * MIB
    world.pass_seconds(45)
    assert world.kept == 0


def test_another_flood_does_not_wait_for_the_first_ones_turn() -> None:
    world = MemoryWorld()
    world.used = 500 * MIB
    world.pass_seconds(300)
    world.kept = 500 * MIB
    world.pass_seconds(10)
    assert world.kept == 0


def test_giving_back_that_takes_long_is_seldom_done() -> None:
    world = MemoryWorld()
    world.takes_ns = LONG_NS
    for _ in range(100):
        world.kept += 100 * MIB
        world.pass_seconds(9)
    assert world.given_back == 2
