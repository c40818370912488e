"""A file of the log is entered into a register before it is used; where that fails, no crash may miss a file or call one damaged."""

from __future__ import annotations

import pytest
from log_content import make_batch, read_bodies

from millstream.storage.disk import DiskFault
from millstream.storage.log.files import FOLDER, LogFiles, LogRegister, file_name
from millstream.storage.log.inventory import read_log
from millstream.storage.manifest import Manifest
from simulation.disk import Mood, PowerCut, SimulatedDisk
from simulation.failpoints import DeadlyFailpoints

FILE_SIZE = 1024


class FailingRegister(LogRegister):
    """Refuses as long as it is told to, without saying whether the file is entered: nobody can know."""

    def __init__(self) -> None:
        self.is_failing = False
        self.entered: list[tuple[int, int]] = []  # number, size

    def begin_log(self, number: int, salt: int, size: int, ended: int, last: int) -> None:
        self.entered.append((number, size))
        if self.is_failing:
            raise DiskFault(".: Too many open files")


class Bench:
    """The first file holds a fact and has room for more; the second is made, and could not be entered for certain."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk(1)
        self.disk.make_folder(FOLDER)
        self.register = FailingRegister()
        self.files = LogFiles(self.disk, DeadlyFailpoints(), FILE_SIZE, 1, 0, salt=7, register=self.register)
        self.files.write(make_batch(1, b"a"))
        self.register.is_failing = True
        self.files.prepare()
        with pytest.raises(DiskFault):
            self.files.end_file()
        self.register.is_failing = False


@pytest.mark.parametrize("mood", list(Mood))
@pytest.mark.parametrize("size", [1, 5000])
def test_a_file_that_may_be_entered_is_there_after_every_power_cut(mood: Mood, size: int) -> None:
    """Also while a larger one takes its place."""
    for step in range(1, 30):
        bench = Bench()
        bench.disk.cut_power_at = bench.disk.steps + step
        try:
            bench.files.write(make_batch(2, b"x" * size))
        except PowerCut:
            disk = bench.disk.crash(mood)
            found = {name: len(disk.content(name)) for name in disk.names(FOLDER)}
            assert all(found.get(file_name(number), 0) >= room for number, room in bench.register.entered)
            continue
        bench.disk.cut_power_at = 0
        assert read_bodies(bench.disk) == [b"a", b"x" * size]
        return
    pytest.fail("it never came to its end")


@pytest.mark.parametrize("mood", list(Mood))
def test_nothing_is_written_to_a_file_that_another_follows_so_that_no_torn_end_of_it_is_called_damage(
    mood: Mood,
) -> None:
    for step in range(1, 30):
        bench = Bench()
        bench.disk.cut_power_at = bench.disk.steps + step
        try:
            bench.files.write(make_batch(2, b"b" * 200))
        except PowerCut:
            for at in range(8):
                bench.disk.chance.seed(at)
                content = read_log(bench.disk.crash(mood), 0, 0, Manifest("ab" * 16))
                assert [found.damage for found in content.files if found.damage] == []
            continue
        return
    pytest.fail("it never came to its end")


def test_a_file_that_could_not_be_entered_needs_no_room_again() -> None:
    bench = Bench()
    bench.disk.fill(0)
    bench.files.write(make_batch(2, b"b"))
    assert bench.register.entered[1:] == [(2, FILE_SIZE), (2, FILE_SIZE)]
    assert read_bodies(bench.disk) == [b"a", b"b"]


def test_the_file_made_ready_while_one_waits_to_be_entered_is_not_taken_for_a_later_one() -> None:
    bench = Bench()
    bench.files.prepare()
    bench.files.end_file()
    bench.files.write(make_batch(2, b"b"))
    bench.files.end_file()
    bench.files.write(make_batch(3, b"c"))
    assert bench.files.sealed == [(1, 1), (2, 2)]
    assert read_bodies(bench.disk) == [b"a", b"b", b"c"]


def test_closing_leaves_it_as_it_is() -> None:
    bench = Bench()
    bench.files.close()
    assert bench.disk.names(FOLDER) == [file_name(1), file_name(2)]
    assert bench.files.last_in_file() == 1
