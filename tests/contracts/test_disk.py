"""The disk: one battery for real files and for their simulated twin, then what only the twin can show."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from millstream.runtime.disk.files import RealDisk
from millstream.storage.disk import Disk, DiskFault
from simulation.disk import SECTOR, Mood, PowerCut, SimulatedDisk

FOLDER = "log"


def make_simulated(_: Path) -> Disk:
    return SimulatedDisk(1)


DISKS: dict[str, Callable[[Path], Disk]] = {"real": RealDisk, "simulated": make_simulated}


@pytest.fixture(params=sorted(DISKS))
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    made = DISKS[str(request.param)](tmp_path)
    made.make_folder(FOLDER)
    return made


def write(disk: Disk, name: str, data: bytes) -> None:
    file = disk.create(name, 0)
    file.write_at(0, data)
    file.sync()
    file.close()


def read(disk: Disk, name: str) -> bytes:
    file = disk.open(name)
    data = file.read_at(0, file.size())
    file.close()
    return data


# ------------------------------------------------------------------ the battery


def test_a_new_file_is_zeros_of_its_size(disk: Disk) -> None:
    file = disk.create("log/a", 5000)
    assert file.size() == 5000
    assert file.read_at(0, 9999) == bytes(5000)
    file.close()


def test_what_is_written_is_read_at_once_and_by_who_opens_it_later(disk: Disk) -> None:
    file = disk.create("log/a", 100)
    file.write_at(10, b"hello")
    assert file.read_at(8, 9) == b"\0\0hello\0\0"
    file.close()
    assert read(disk, "log/a")[10:15] == b"hello"


def test_writing_behind_the_end_makes_the_file_longer_with_zeros_between(disk: Disk) -> None:
    file = disk.create("log/a", 0)
    file.write_at(3, b"x")
    assert file.size() == 4
    assert file.read_at(0, 4) == b"\0\0\0x"
    file.close()


def test_reading_stops_at_the_end(disk: Disk) -> None:
    write(disk, "log/a", b"12345")
    file = disk.open("log/a")
    assert file.read_at(3, 100) == b"45"
    assert file.read_at(5, 100) == b""
    assert file.read_at(700, 1) == b""
    file.close()


def test_a_file_is_made_shorter_and_longer(disk: Disk) -> None:
    write(disk, "log/a", b"12345")
    file = disk.open("log/a")
    file.truncate(2)
    file.truncate(4)
    assert file.read_at(0, 9) == b"12\0\0"
    file.sync()
    file.close()


def test_a_file_that_exists_is_not_created_again(disk: Disk) -> None:
    write(disk, "log/a", b"kept")
    with pytest.raises(DiskFault) as caught:
        disk.create("log/a", 10)
    assert not caught.value.is_full
    assert read(disk, "log/a") == b"kept"


@pytest.mark.parametrize("name", ["log/missing", "nowhere/missing"])
def test_a_file_that_is_not_there_is_a_fault_with_its_name(disk: Disk, name: str) -> None:
    with pytest.raises(DiskFault, match=name) as caught:
        disk.open(name)
    assert caught.value.is_missing


def test_a_file_needs_its_folder(disk: Disk) -> None:
    with pytest.raises(DiskFault):
        disk.create("nowhere/a", 1)
    with pytest.raises(DiskFault):
        disk.sync_folder("nowhere")


def test_names_are_sorted_and_of_one_folder(disk: Disk) -> None:
    disk.make_folder("other")
    disk.make_folder("log/inner")
    for name in ("log/c", "log/a", "other/b", "log/inner/d"):
        write(disk, name, b"")
    assert disk.names("log") == ["log/a", "log/c"]
    assert disk.names("log/inner") == ["log/inner/d"]
    assert disk.names("nowhere") == []


def test_a_folder_may_be_made_twice(disk: Disk) -> None:
    write(disk, "log/a", b"kept")
    disk.make_folder(FOLDER)
    assert read(disk, "log/a") == b"kept"


def test_a_rename_replaces(disk: Disk) -> None:
    write(disk, "log/old", b"new content")
    write(disk, "log/new", b"old content")
    disk.rename("log/old", "log/new")
    disk.sync_folder(FOLDER)
    assert disk.names(FOLDER) == ["log/new"]
    assert read(disk, "log/new") == b"new content"
    with pytest.raises(DiskFault):
        disk.rename("log/old", "log/new")


def test_removing_twice_is_no_fault(disk: Disk) -> None:
    write(disk, "log/a", b"x")
    disk.remove("log/a")
    disk.remove("log/a")
    assert disk.names(FOLDER) == []


def test_an_open_file_outlives_its_name(disk: Disk) -> None:
    write(disk, "log/a", b"x")
    file = disk.open("log/a")
    disk.remove("log/a")
    file.write_at(1, b"y")
    assert file.read_at(0, 9) == b"xy"
    file.close()
    write(disk, "log/a", b"another")
    assert read(disk, "log/a") == b"another"


# ----------------------------------------------------------- the simulated twin


@pytest.fixture
def twin() -> SimulatedDisk:
    disk = SimulatedDisk(5)
    disk.make_folder(FOLDER)
    return disk


def synced(disk: SimulatedDisk, name: str, data: bytes) -> None:
    write(disk, name, data)
    disk.sync_folder(FOLDER)


@pytest.mark.parametrize("mood", list(Mood))
def test_what_was_synced_survives_every_crash(twin: SimulatedDisk, mood: Mood) -> None:
    synced(twin, "log/a", b"safe" * 1000)
    assert read(twin.crash(mood), "log/a") == b"safe" * 1000


def test_an_unsynced_write_may_survive_or_not_in_sectors(twin: SimulatedDisk) -> None:
    synced(twin, "log/a", b"o" * SECTOR * 4)
    file = twin.open("log/a")
    file.write_at(SECTOR // 2, b"n" * SECTOR * 3)
    seen = set()
    for _ in range(200):
        found = read(twin.crash(Mood.SOME), "log/a")
        sectors = [found[at : at + SECTOR] for at in range(0, len(found), SECTOR)]
        half = SECTOR // 2
        old, new = b"o" * SECTOR, b"n" * SECTOR
        wanted = [(old, b"o" * half + b"n" * half), (old, new), (old, new), (old, b"n" * half + b"o" * half)]
        assert all(sector in pair for sector, pair in zip(sectors, wanted, strict=True))
        seen.add(tuple(sector != old for sector in sectors))
    assert len(seen) == 16


def test_a_name_that_was_not_synced_may_be_missing(twin: SimulatedDisk) -> None:
    write(twin, "log/a", b"synced content")
    found = [twin.crash(Mood.SOME).names(FOLDER) for _ in range(50)]
    assert [] in found
    assert ["log/a"] in found
    assert twin.crash(Mood.NOTHING).names(FOLDER) == []
    twin.sync_folder(FOLDER)
    assert twin.crash(Mood.NOTHING).names(FOLDER) == ["log/a"]


def test_a_removed_name_may_come_back_until_its_folder_is_synced(twin: SimulatedDisk) -> None:
    synced(twin, "log/a", b"x")
    twin.remove("log/a")
    assert twin.crash(Mood.NOTHING).names(FOLDER) == ["log/a"]
    twin.sync_folder(FOLDER)
    assert twin.crash(Mood.NOTHING).names(FOLDER) == []


def test_a_rename_happens_as_a_whole_or_not(twin: SimulatedDisk) -> None:
    synced(twin, "log/old", b"x")
    twin.rename("log/old", "log/new")
    found = {tuple(twin.crash(Mood.SOME).names(FOLDER)) for _ in range(50)}
    assert found == {("log/old",), ("log/new",)}


def test_a_killed_process_loses_nothing_of_the_cache(twin: SimulatedDisk) -> None:
    file = twin.create("log/a", 0)
    file.write_at(0, b"cached")
    assert read(twin.kill(), "log/a") == b"cached"
    assert twin.kill().crash(Mood.NOTHING).names(FOLDER) == []


def test_a_full_disk_says_so_and_takes_it_later(twin: SimulatedDisk) -> None:
    twin.fill(1000)
    with pytest.raises(DiskFault) as caught:
        twin.create("log/a", 1001)
    assert caught.value.is_full
    assert twin.names(FOLDER) == []
    file = twin.create("log/a", 1000)
    file.write_at(0, b"reserved room is not asked for again" * 20)
    with pytest.raises(DiskFault):
        file.write_at(1000, b"x")
    twin.fill(None)
    file.write_at(1000, b"x")


def test_what_a_failed_sync_lost_is_not_saved_by_the_next_one(twin: SimulatedDisk) -> None:
    synced(twin, "log/a", b"o" * SECTOR)
    file = twin.open("log/a")
    file.write_at(0, b"n" * SECTOR)
    twin.fail_next("sync")
    with pytest.raises(DiskFault) as caught:
        file.sync()
    assert caught.value.is_sync
    assert not caught.value.is_full
    file.sync()
    assert read(twin, "log/a") == b"n" * SECTOR
    assert read(twin.crash(Mood.NOTHING), "log/a") == b"o" * SECTOR


@pytest.mark.parametrize(
    "operation", ["create", "open", "write", "read", "sync", "rename", "remove", "sync_folder"]
)
def test_any_operation_can_fail_once(twin: SimulatedDisk, operation: str) -> None:
    synced(twin, "log/a", b"x")
    file = twin.open("log/a")
    calls: dict[str, Callable[[], object]] = {
        "create": lambda: twin.create("log/b", 1),
        "open": lambda: twin.open("log/a"),
        "write": lambda: file.write_at(0, b"y"),
        "read": lambda: file.read_at(0, 1),
        "sync": file.sync,
        "rename": lambda: twin.rename("log/a", "log/c"),
        "remove": lambda: twin.remove("log/a"),
        "sync_folder": lambda: twin.sync_folder(FOLDER),
    }
    twin.fail_next(operation)
    with pytest.raises(DiskFault):
        calls[operation]()
    calls[operation]()


def test_the_power_is_cut_in_the_middle_of_an_operation(twin: SimulatedDisk) -> None:
    file = twin.create("log/a", 0)
    twin.cut_power_at = twin.steps + 1
    with pytest.raises(PowerCut):
        file.write_at(0, b"12345678")
    assert b"12345678".startswith(twin.content("log/a"))


def test_bits_and_ends_can_be_damaged(twin: SimulatedDisk) -> None:
    synced(twin, "log/a", b"\0\0\0\0")
    twin.flip_bit("log/a", 2, 3)
    twin.cut("log/a", 3)
    assert read(twin.crash(Mood.NOTHING), "log/a") == b"\0\0\x08"


def test_one_seed_gives_one_world() -> None:
    found = []
    for _ in range(2):
        disk = SimulatedDisk(99)
        disk.make_folder(FOLDER)
        file = disk.create("log/a", SECTOR * 64)
        file.write_at(0, b"n" * SECTOR * 64)
        found.append([disk.crash(Mood.SOME).names(FOLDER) for _ in range(9)])
        disk.sync_folder(FOLDER)
        found[-1] += [[read(disk.crash(Mood.SOME), "log/a").hex()] for _ in range(9)]
    assert found[0] == found[1]
