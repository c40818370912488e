"""A repair that is killed goes on where it was, loses nothing that is good, and gives no offset again."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from data_directory import STREAM, WORK, DataDirectory, copy_directory, damage_entry, make_directory
from queue_world import QueueWorld
from stored_millstream import make_millstream, make_stream

from millstream.runtime.disk.data_folder import StorageFault, check_restored
from millstream.storage.offset_gaps import GAP
from millstream.storage.segments.inventory import LISTED, entry_key
from millstream.storage.table.checkpoint import GENERATION, IDENTITY, LAST_QUEUE, META
from simulation.disk import PowerCut
from simulation.failpoints import DeadlyFailpoints

PAGE = 4096
COUNT = 50
SESSIONS = [f"client-{number}" for number in range(1, 6)]
PLACES = (
    "repair.after_mark",
    "repair.after_logs",
    "repair.before_keep_table",
    "repair.before_rename_table",
    "repair.after_rename_table",
    "repair.after_entries",
    "repair.after_strangers",
    "repair.after_segments_aside",
    "repair.after_fold",
    "repair.before_adopt",
    "repair.after_adopt",
)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> DataDirectory:
    return make_directory(tmp_path_factory.mktemp("stopped") / "data")


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> DataDirectory:
    return make_directory(tmp_path_factory.mktemp("killed") / "data", is_clean=False)


@pytest.fixture
def made(stopped: DataDirectory, tmp_path: Path) -> DataDirectory:
    return copy_directory(stopped, tmp_path / "data")


@pytest.fixture(params=["stopped", "killed"])
def either(
    request: pytest.FixtureRequest, stopped: DataDirectory, killed: DataDirectory, tmp_path: Path
) -> DataDirectory:
    return copy_directory(stopped if request.param == "stopped" else killed, tmp_path / "data")


def check_whole(made: DataDirectory) -> None:
    assert made.damaged() == []
    check_restored(made.folder)
    for number in (STREAM, WORK):
        assert made.records(number) == {offset: b"%d of %d" % (offset, number) for offset in range(COUNT)}
    assert [session.key.client_id for session in made.read().state().sessions] == SESSIONS


def break_head(made: DataDirectory) -> None:
    """Of the two first pages the one that is not in force: the library must not be let at it, and every entry can be read."""
    path = made.folder / "state" / "data.mdb"
    data = bytearray(path.read_bytes())
    data[PAGE + 16] ^= 0xFF
    path.write_bytes(data)


# ------------------------------------------------------------------------------ killed


@pytest.mark.parametrize("place", PLACES)
def test_a_repair_of_the_table_that_is_killed_anywhere_is_finished_by_the_next_one(
    made: DataDirectory, place: str
) -> None:
    break_head(made)
    with pytest.raises(PowerCut):
        made.repair(DeadlyFailpoints(place))
    with pytest.raises(StorageFault, match=r"a repair of .* did not finish"):
        check_restored(made.folder)
    assert "repair.unfinished" in [found.file for found in made.damaged()]
    made.repair()
    check_whole(made)


def test_a_repair_that_is_killed_again_and_again_keeps_one_copy_of_the_old_table(made: DataDirectory) -> None:
    break_head(made)
    old = (made.folder / "state" / "data.mdb").read_bytes()
    for _ in range(3):
        with pytest.raises(PowerCut):
            made.repair(DeadlyFailpoints("repair.before_rename_table"))
    made.repair()
    (kept,) = (made.folder / "quarantine").rglob("data.mdb*")
    assert kept.read_bytes() == old
    check_whole(made)


def test_what_is_damaged_in_segments_beside_the_table_is_mended_in_the_same_run(made: DataDirectory) -> None:
    """Which segments there are is said by the table only."""
    index = made.segments(WORK)[1].with_suffix(".index")
    index.unlink()
    segment = made.segments(STREAM)[1]
    data = bytearray(segment.read_bytes())
    data[-1] ^= 1  # of its last record
    segment.write_bytes(data)
    break_head(made)
    done = made.repair()
    assert made.damaged() == []
    assert index.is_file()
    assert [line for line in done if line.startswith(str(segment.relative_to(made.folder)))] != []
    assert (len(made.records(STREAM)), len(made.records(WORK))) == (COUNT - 1, COUNT)


# ------------------------------------------------------------------------------ entries


@pytest.mark.parametrize("number", [STREAM, WORK])
@pytest.mark.parametrize("at", [0, 2, -1])
def test_a_good_segment_stays_where_its_name_in_the_table_is_damaged(
    made: DataDirectory, number: int, at: int
) -> None:
    damage_entry(made, entry_key(number, int(made.segments(number)[at].stem)))
    assert [(found.file, found.lost) for found in made.damaged()] == [("state", [])]
    made.repair()
    check_whole(made)


@pytest.mark.parametrize(
    "place",
    ["repair.after_entries", "repair.after_strangers", "repair.after_segments_aside", "repair.before_adopt"],
)
def test_it_stays_as_well_where_the_first_repair_was_killed(made: DataDirectory, place: str) -> None:
    damage_entry(made, entry_key(WORK, int(made.segments(WORK)[2].stem)))
    with pytest.raises(PowerCut):
        made.repair(DeadlyFailpoints(place))
    made.repair()
    check_whole(made)


def test_a_segment_that_is_not_whole_does_not_stay_because_its_name_is_damaged(made: DataDirectory) -> None:
    path = made.segments(WORK)[1]
    damage_entry(made, entry_key(WORK, int(path.stem)))
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    assert len(made.damaged()) == 2
    made.repair()
    assert made.damaged() == []
    assert list((made.folder / "quarantine").glob("queues-*.segment"))


@pytest.mark.parametrize("key", [IDENTITY, GENERATION, LISTED, LAST_QUEUE, META])
def test_nothing_is_lost_with_an_entry_that_other_files_stand_for(either: DataDirectory, key: bytes) -> None:
    damage_entry(either, key)
    assert [(found.file, found.lost) for found in either.damaged()] == [("state", [])]
    either.repair()
    check_whole(either)


# ------------------------------------------------------------------------------ offsets


def next_offsets(made: DataDirectory) -> list[int]:
    queues = made.read().queues.queues
    return [queues[number].next for number in (STREAM, WORK)]


def newest_log(made: DataDirectory) -> Path:
    return sorted((made.folder / "log").glob("*.log"))[-1]


def test_no_offset_is_given_again_after_a_repair_that_lost_the_end_of_the_log(either: DataDirectory) -> None:
    made = either
    newest_log(made).unlink()
    steps = made.repair()
    assert any("offsets later" in step for step in steps)
    assert made.damaged() == []
    assert all(found >= COUNT for found in next_offsets(made))
    made.start()
    first = next_offsets(made)[0]
    made.append(STREAM, 5)
    made.append(WORK, 5)
    made.fold()
    made.stop()
    assert made.damaged() == []  # what was skipped is no gap
    assert sorted(made.records(STREAM)) == [*range(40), *range(first, first + 5)]


def test_so_many_offsets_are_skipped_as_facts_can_be_missing(made: DataDirectory) -> None:
    """A clean stop has noted how many there were."""
    newest_log(made).unlink()
    made.repair()
    assert next_offsets(made) == [40 + 20, 40 + 20]


def test_what_is_skipped_is_no_message_of_any_queue(made: DataDirectory) -> None:
    newest_log(made).unlink()
    made.repair()
    made.start()
    made.append(STREAM, 5)
    made.append(WORK, 5)
    for _ in range(2):  # once in the log, once in segments
        world = QueueWorld()
        for queue in made.read().queues.queues.values():
            world.catalog.restore(queue)
        assert [(int(queue.depth()), int(queue.ready())) for queue in world.catalog.queues.values()] == [
            (45, 45),
            (45, 45),
        ]
        made.fold()


def test_a_gap_is_forgotten_when_its_queue_begins_behind_it(made: DataDirectory) -> None:
    newest_log(made).unlink()
    made.repair()
    made.start()
    made.append(STREAM, 5)
    made.append(WORK, 5)
    made.settle(WORK, 62)
    made.trim(STREAM, 62)
    made.fold()
    made.stop()
    assert made.open_table().items(GAP) == []
    assert sorted(made.records(STREAM))[-3:] == [62, 63, 64]


def test_an_older_table_gives_no_offset_again_either(tmp_path: Path) -> None:
    made = DataDirectory(tmp_path / "data")
    made.start()
    made.declare(WORK, "jobs", "work")
    made.append(WORK, 10)
    made.fold()
    made.stop()
    older = (made.folder / "state" / "data.mdb").read_bytes()
    made.start()
    made.append(WORK, 30)
    made.settle(WORK, 40)
    made.fold()
    made.stop()
    (made.folder / "state" / "data.mdb").write_bytes(older)
    made.repair()
    assert made.damaged() == []
    assert made.read().queues.queues[WORK].next >= 40


def test_nothing_is_skipped_where_no_fact_is_lost(either: DataDirectory) -> None:
    (either.folder / "manifest").unlink()
    either.repair()
    assert next_offsets(either) == [COUNT, COUNT]
    check_whole(either)


def test_a_repair_that_is_killed_after_it_folded_the_log_still_skips(made: DataDirectory) -> None:
    newest_log(made).unlink()
    with pytest.raises(PowerCut):
        made.repair(DeadlyFailpoints("repair.after_fold"))
    made.repair()
    assert all(found >= COUNT for found in next_offsets(made))


# ---------------------------------------------------------------- numbers of queues


async def number_of_new_queue(folder: Path) -> int:
    async with make_millstream(folder) as millstream:
        return int(make_stream(millstream, "new").number)


@pytest.mark.parametrize("is_there", [True, False])
async def test_no_number_of_a_queue_is_given_again_after_a_repair_without_the_table(
    made: DataDirectory, is_there: bool
) -> None:
    table = made.folder / "state" / "data.mdb"
    table.unlink()
    if is_there:
        table.touch()
    made.repair()
    assert made.damaged() == []
    assert await number_of_new_queue(made.folder) > WORK


async def test_the_number_of_a_folder_that_no_queue_has_is_not_given_to_another(made: DataDirectory) -> None:
    stray = made.folder / "queues" / "70" / "0.segment"
    stray.parent.mkdir()
    stray.write_bytes(b"of somebody else")
    assert await number_of_new_queue(made.folder) > 70
    assert stray.read_bytes() == b"of somebody else"


# ---------------------------------------------------------------- of another broker


def test_a_manifest_of_another_broker_costs_no_table_where_no_log_is_left(
    made: DataDirectory, tmp_path: Path
) -> None:
    other = make_directory(tmp_path / "other")
    (made.folder / "manifest").write_bytes((other.folder / "manifest").read_bytes())
    for path in (made.folder / "log").glob("*.log"):
        path.unlink()
    assert "manifest" in [found.file for found in made.damaged()]
    assert "state" not in [found.file for found in made.damaged()]
    made.repair()
    assert made.damaged() == []
    for number in (STREAM, WORK):
        assert sorted(made.records(number)) == list(range(40))
    assert [session.key.client_id for session in made.read().state().sessions] == SESSIONS
    assert all(found >= COUNT for found in next_offsets(made))  # as many may have been in the log


def test_a_table_of_another_broker_is_told_by_its_segments_where_no_log_is_left(
    made: DataDirectory, tmp_path: Path
) -> None:
    other = DataDirectory(tmp_path / "other")
    other.start()
    other.declare(STREAM, "others", "stream")
    other._next[STREAM] = 7  # with the same offsets they would be the same records
    other.append(STREAM, 7)
    other.fold()
    other.stop()
    (made.folder / "state" / "data.mdb").write_bytes((other.folder / "state" / "data.mdb").read_bytes())
    for path in (made.folder / "log").glob("*.log"):
        path.unlink()
    assert "state" in [found.file for found in made.damaged()]


@pytest.mark.parametrize("folder", ["data", "log"])
def test_a_directory_without_the_folder_of_its_log_is_repaired_whatever_it_is_called(
    either: DataDirectory, tmp_path: Path, folder: str
) -> None:
    made = copy_directory(either, tmp_path / "copy" / folder)
    shutil.rmtree(made.folder / "log")
    made.repair()
    assert made.damaged() == []
    assert made.records(STREAM) == {offset: b"%d of %d" % (offset, STREAM) for offset in range(40)}
    made.start()
    assert made.next_offset(STREAM) >= 50


def test_a_manifest_that_is_older_than_the_table_does_not_say_what_is_lost_of_the_log(tmp_path: Path) -> None:
    made = make_directory(tmp_path / "data")
    shutil.copytree(made.folder / "log", tmp_path / "log")
    shutil.copyfile(made.folder / "manifest", tmp_path / "manifest")
    made.start()
    made.append(STREAM, 5)
    made.fold()
    made.append(STREAM, 7)
    made.stop()
    shutil.rmtree(made.folder / "log")
    (tmp_path / "log").rename(made.folder / "log")
    shutil.copyfile(tmp_path / "manifest", made.folder / "manifest")
    made.repair()
    assert made.damaged() == []
    assert len(made.records(STREAM)) == 55
    made.start()
    assert made.next_offset(STREAM) >= 62
