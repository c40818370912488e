"""Freed memory goes back to the system after a flood, not during one, and not over and over."""

from __future__ import annotations

from millstream.runtime.memory.freed_memory import CALM_BYTES_PER_S, FreedMemory, Heap

SECOND_NS = 10**9
MIB = 1 << 20


class MemoryWorld(Heap):
    """A process whose allocator keeps `kept` bytes that nobody uses, and whose collector has not found `garbage` yet."""

    def __init__(self) -> None:
        self.now_ns = 10**12
        self.used = 70 * MIB
        self.garbage = 0
        self.kept = 0
        self.work = 0
        self.given_back = 0
        self.takes_ns = 1_000_000
        self.releasing = 0  # seconds for which what was removed is still being freed
        self.done: list[str] = []
        self.freed = FreedMemory(self, lambda: self.now_ns)
        self.pass_seconds(1)

    def resident_bytes(self) -> int:
        return self.used + self.garbage + self.kept

    def is_settled(self) -> bool:
        return self.releasing <= 0

    def collect(self) -> None:
        self.kept += self.garbage
        self.garbage = 0
        self.now_ns += self.takes_ns
        self.done.append("collect")

    def give_back(self) -> None:
        self.kept = 0
        self.given_back += 1
        self.now_ns += self.takes_ns
        self.done.append("give back")

    def pass_seconds(self, count: int, work_per_s: int = 0) -> None:
        for _ in range(count):
            self.now_ns += SECOND_NS
            self.work += work_per_s
            self.releasing -= 1
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


def test_what_takes_long_is_done_so_seldom_that_nobody_feels_it() -> None:
    world = MemoryWorld()
    world.takes_ns = 50_000_000
    began_ns = world.now_ns
    for _ in range(100):
        world.kept += 100 * MIB
        world.pass_seconds(9)
    spent_ns = world.given_back * 2 * world.takes_ns
    assert 100 * spent_ns < world.now_ns - began_ns


def test_what_took_long_once_is_done_again_within_a_minute() -> None:
    world = MemoryWorld()
    world.takes_ns = 57_000_000
    world.used = 400 * MIB
    world.pass_seconds(12)
    assert world.given_back == 1
    world.used, world.kept = 70 * MIB, 300 * MIB
    world.pass_seconds(60)
    assert world.kept == 0


def test_garbage_is_collected_before_and_in_a_turn_of_its_own() -> None:
    world = MemoryWorld()
    world.garbage = 300 * MIB
    while not world.done:
        world.pass_seconds(1)
    assert world.done == ["collect"]
    world.pass_seconds(1)
    assert world.done == ["collect", "give back"]
    assert world.resident_bytes() == 70 * MIB


def test_nothing_is_given_back_while_more_is_freed_with_every_turn() -> None:
    world = MemoryWorld()
    world.kept = 300 * MIB
    world.releasing = 20
    world.pass_seconds(19)
    assert world.done == []
    world.pass_seconds(8)
    assert world.done == ["collect", "give back"]


def test_freeing_without_an_end_does_not_keep_it_for_ever() -> None:
    world = MemoryWorld()
    world.kept = 300 * MIB
    world.releasing = 10_000
    world.pass_seconds(60)
    assert world.kept == 0


def test_memory_that_is_freed_after_many_looks_does_not_wait_for_the_next_turn() -> None:
    world = MemoryWorld()
    world.used = 500 * MIB
    world.pass_seconds(3000)
    world.done.clear()
    world.used, world.kept = 200 * MIB, 280 * MIB  # some of it went back by itself
    world.pass_seconds(10)
    assert world.kept == 0


def test_a_large_queue_that_is_removed_after_many_looks_does_not_wait_for_the_next_turn() -> None:
    world = MemoryWorld()
    world.used = 500 * MIB
    world.pass_seconds(3000)
    world.done.clear()
    world.used, world.kept = 70 * MIB, 430 * MIB
    world.releasing = 5
    world.pass_seconds(20)
    assert world.kept == 0
