"""Segments through crashes, cuts and flips: nothing that was made safe is lost, nothing is ever made up."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from segment_records import make_body, offset_of, read_all

from millstream.runtime.disk.failpoints import NoFailpoints
from millstream.storage.disk import DiskFault
from millstream.storage.segments.format import HEADER_SIZE
from millstream.storage.segments.reader import SegmentReader
from millstream.storage.segments.writer import SegmentWriter
from simulation.disk import Mood, PowerCut, SimulatedDisk

QUEUES = (1, 2, 70_000)
SEGMENT_SIZE = 3000
FLIPS = 1500
GROUP = 6  # records that are made safe together: a block, where they are compressed
KINDS = ("plain", "packed", "mixed")


def new_writer(
    disk: SimulatedDisk, kind: str, chance: random.Random, size: int = SEGMENT_SIZE
) -> SegmentWriter:
    """Mixed: compressing was switched on and off."""
    is_packed = chance.random() < 0.5 if kind == "mixed" else kind == "packed"
    return SegmentWriter(disk, NoFailpoints(), size, is_packed)


class World:
    """A log that remembers all since its last commit, queues that are told it, and a disk that fails."""

    def __init__(self, seed: int, knows_commit: bool, kind: str) -> None:
        self.kind = kind
        self.chance = random.Random(seed)
        self.disk = SimulatedDisk(self.chance)
        self.knows_commit = knows_commit
        self.next = dict.fromkeys(QUEUES, 0)
        self.low = dict.fromkeys(QUEUES, 0)
        self.log: list[tuple[int, bytes]] = []  # not committed
        self.kept: dict[int, list[bytes]] = {queue: [] for queue in QUEUES}  # committed
        self.committed: dict[int, int] = {}
        self.settled: dict[bytes, None] = {}  # before they got to a segment for good

    def live(self) -> None:
        chance = self.chance
        ending = chance.choice(("quiet", "kill", "power", "power", "sync"))
        if ending in ("kill", "power"):
            self.disk.cut_power_at = self.disk.steps + chance.randrange(1, 150)
        try:
            self._work(ending)
        except PowerCut:
            self.disk = self.disk.kill() if ending == "kill" else self.disk.crash()
        except DiskFault:
            # The process ends, the machine goes on: without a commit to compare with nobody could tell.
            self.disk = self.disk.kill() if self.knows_commit else self.disk.crash()
            for content in self.disk._names.values():
                # What a failed sync dropped is in the cache only, and does not come back over later writes.
                content.changes = [change for change in content.changes if not change.is_lost]
        else:
            self.disk = self.disk.crash() if chance.random() < 0.5 else self.disk.kill()
        self.check()

    def _work(self, ending: str) -> None:
        chance = self.chance
        writer = new_writer(self.disk, self.kind, self.chance)
        if self.knows_commit:
            writer.resume(dict(self.committed))
        if self.knows_commit:
            for _, body in self.log:
                if chance.random() < 0.1:
                    self.settled[body] = None
        self._tell_again(writer)
        for _ in range(chance.randrange(1, 6)):
            for _ in range(chance.randrange(40)):
                queue = chance.choice(QUEUES)
                self.next[queue] += 1 if chance.random() < 0.9 else chance.randrange(1, 100)
                body = make_body(queue, self.next[queue], chance.choice((0, 30, 100, 700)))
                self.log.append((queue, body))
                writer.append(queue, body)
            if ending == "sync" and chance.random() < 0.3:
                self.disk.fail_next("sync")
            if chance.random() < 0.8:
                writer.finish()
                if chance.random() < 0.8:
                    self._commit()
                    if chance.random() < 0.5:
                        self._drop(writer)
        assert not writer.damage

    def _tell_again(self, writer: SegmentWriter) -> None:
        for queue, body in self.log:
            if body in self.settled:
                writer.open(queue)
            else:
                writer.append(queue, body)

    def _commit(self) -> None:
        for queue, body in self.log:
            if body not in self.settled:
                self.kept[queue].append(body)
        self.log.clear()
        self.committed = {queue: offset + 1 for queue, offset in self.next.items()}

    def _drop(self, writer: SegmentWriter) -> None:
        queue = self.chance.choice(QUEUES)
        low = self.chance.randrange(self.low[queue], self.committed[queue] + 1)
        self.low[queue] = low
        self.kept[queue] = [body for body in self.kept[queue] if offset_of(body) >= low]
        writer.drop_below(queue, low)

    def check(self) -> None:
        for queue in QUEUES:
            end = self.committed.get(queue, 0)
            bodies, damage = read_all(self.disk, queue, self.low[queue], end)
            assert bodies == self.kept[queue]
            assert [found.sentence() for found in damage] == []
        self.disk.cut_power_at = 0

    def end(self) -> None:
        """Everything is told once more, to the end."""
        writer = new_writer(self.disk, self.kind, self.chance)
        if self.knows_commit:
            writer.resume(dict(self.committed))
        self._tell_again(writer)
        writer.finish()
        self._commit()
        self.disk = self.disk.crash()
        self.check()


@pytest.mark.parametrize("knows_commit", [True, False])
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=80, deadline=None)
@given(seed=st.integers(0, 1 << 32), lives=st.integers(1, 6))
def test_what_a_commit_covers_survives_every_crash_and_the_rest_can_be_told_again(
    kind: str, knows_commit: bool, seed: int, lives: int
) -> None:
    world = World(seed, knows_commit, kind)
    for _ in range(lives):
        world.live()
    world.end()


class Filled:
    """Two segments and the beginning of a third, finished; small enough to be flipped everywhere."""

    def __init__(self, kind: str) -> None:
        disk = SimulatedDisk(1)
        writer = new_writer(disk, kind, random.Random(1))
        self.bodies = [make_body(5, offset, offset % 11 * 20) for offset in range(0, 120, 2)]
        for at, body in enumerate(self.bodies):
            writer.append(5, body)
            if at % GROUP == GROUP - 1:
                writer.finish()
        self.disk = disk.crash(Mood.EVERYTHING)
        self.names = self.disk.names("queues/5")
        self.good = {name: self.disk.content(name) for name in self.names}


def place_of(body: bytes, good: dict[str, bytes]) -> tuple[str, int, int]:
    for name, data in good.items():
        at = data.find(body)
        if at >= 0:
            return name, at - 8, at + len(body)
    raise AssertionError("a body that was never written")


def test_a_flipped_bit_takes_at_most_its_record_and_is_named() -> None:
    filled = Filled("plain")
    disk = filled.disk
    assert len(filled.names) >= 6
    chance = random.Random(7)
    places = {body: place_of(body, filled.good) for body in filled.bodies}
    for _ in range(FLIPS):
        name = chance.choice(filled.names)
        at = chance.randrange(len(filled.good[name]))
        disk.flip_bit(name, at, chance.randrange(8))
        bodies, damage = read_all(disk, 5)
        assert bodies == [body for body in filled.bodies if body in set(bodies)]  # in order, and none is new
        lost = [places[body] for body in filled.bodies if body not in set(bodies)]
        if name.endswith(".index"):
            assert not lost
        else:
            assert damage
            assert all(found.name == name and found.start <= at < found.end for found in damage)
            for place in lost:
                assert place[0] == name
                assert any(found.start <= place[1] and place[2] <= found.end for found in damage)
        disk.replace(name, filled.good[name])


def test_a_flipped_bit_takes_at_most_its_block_and_is_named() -> None:
    filled = Filled("packed")
    disk = filled.disk
    assert len(filled.names) >= 6
    chance = random.Random(7)
    for _ in range(FLIPS):
        name = chance.choice(filled.names)
        at = chance.randrange(len(filled.good[name]))
        disk.flip_bit(name, at, chance.randrange(8))
        bodies, damage = read_all(disk, 5)
        assert bodies == [body for body in filled.bodies if body in set(bodies)]  # in order, and none is new
        lost = [number for number, body in enumerate(filled.bodies) if body not in set(bodies)]
        assert len({number // GROUP for number in lost}) <= 1
        if name.endswith(".index"):
            assert not lost
        else:
            assert damage
            assert all(found.name == name and found.start <= at < found.end for found in damage)
            assert bool(lost) == (at >= HEADER_SIZE)
        disk.replace(name, filled.good[name])


@pytest.mark.parametrize("kind", KINDS)
def test_a_writer_goes_on_behind_any_flipped_bit_and_loses_no_other_record(kind: str) -> None:
    filled = Filled("plain" if kind == "plain" else "packed")
    disk = filled.disk
    chance = random.Random(8)
    more = [make_body(5, offset) for offset in range(120, 130)]
    for _ in range(300):
        name = chance.choice(filled.names)
        at = chance.randrange(len(filled.good[name]))
        disk.flip_bit(name, at, chance.randrange(8))
        before, _ = read_all(disk, 5)
        writer = new_writer(disk, kind, chance)
        for body in more:
            writer.append(5, body)
        writer.finish()
        bodies, _ = read_all(disk, 5)
        assert bodies == before + more
        for other in disk.names("queues/5"):
            if other in filled.good:
                disk.replace(other, filled.good[other])
            else:
                disk.remove(other)


@pytest.mark.parametrize("is_packed", [False, True])
def test_a_cut_at_any_byte_behind_the_last_finish_costs_only_what_was_not_finished(is_packed: bool) -> None:
    safe = [make_body(9, offset, 50) for offset in range(10)]
    unsafe = [make_body(9, offset, 90) for offset in range(10, 16)]
    disk = SimulatedDisk(0)
    write(disk, safe, is_packed)
    finished = {name: disk.content(name) for name in disk.names("queues/9")}
    write(disk, unsafe, is_packed)
    segment = next(name for name in finished if name.endswith(".segment"))
    whole = disk.content(segment)
    for cut in range(len(finished[segment]), len(whole)):
        for name, data in finished.items():
            disk.replace(name, data)
        disk.replace(segment, whole[:cut])
        bodies, damage = read_all(disk, 9)
        assert bodies[:10] == safe
        assert bodies == (safe + unsafe)[: len(bodies)]
        assert not damage
        write(disk, unsafe, is_packed)
        assert read_all(disk, 9) == (safe + unsafe, [])


def write(disk: SimulatedDisk, bodies: list[bytes], is_packed: bool) -> None:
    writer = SegmentWriter(disk, NoFailpoints(), 1 << 20, is_packed)
    for body in bodies:
        writer.append(9, body)
    writer.finish()


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_a_reader_that_stays_open_sees_what_is_added_and_never_what_is_wrong(kind: str, seed: int) -> None:
    chance = random.Random(seed)
    disk = SimulatedDisk(chance)
    writer = new_writer(disk, kind, chance)
    reader = SegmentReader(disk)
    kept: list[bytes] = []
    offset = low = 0
    for _ in range(30):
        for _ in range(chance.randrange(30)):
            offset += chance.randrange(1, 4)
            kept.append(make_body(3, offset, chance.randrange(200)))
            writer.append(3, kept[-1])
        writer.finish()
        if chance.random() < 0.3:
            low = chance.randrange(low, offset + 2)
            kept = [body for body in kept if offset_of(body) >= low]
            writer.drop_below(3, low)
        if chance.random() < 0.3:
            writer = new_writer(disk, kind, chance)
        first = chance.randrange(low, offset + 2)
        wanted = [body for body in kept if offset_of(body) >= first]
        assert read_all(disk, 3, first, offset + 1, reader) == (wanted, [])
        assert reader.find_time(3, 1000 + first) == (offset_of(wanted[0]) if wanted else -1)
        assert reader.last_offset(3) == (offset_of(kept[-1]) if kept else reader.last_offset(3))
    reader.close()
