"""The damage driver knows which file holds what, and so what a repair must not take along."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest
from data_directory import STREAM, WORK, DataDirectory, make_directory

from crash.damage_oracle import Holdings
from crash.damage_world import Content, Key
from crash.table_layout import TableLayout
from millstream.storage.manifest import TABLE_FILE
from millstream.storage.table.checkpoint import META

NAMES = {STREAM: "history", WORK: "jobs"}
SESSIONS = 5


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> DataDirectory:
    return make_directory(tmp_path_factory.mktemp("made") / "data")


@pytest.fixture(scope="module")
def baseline(made: DataDirectory) -> Content:
    found: Content = {("session", f"client-{number}"): b"" for number in range(1, SESSIONS + 1)}
    for number, name in NAMES.items():
        found["queue", name] = b""
        for offset, payload in made.records(number).items():
            found["record", name, str(offset)] = payload
    return found


def find_taken(made: DataDirectory, baseline: Content, *harmed: str) -> list[Key]:
    spared = Holdings(made.folder, baseline).find_spared(list(harmed))
    return [key for key in baseline if key not in spared]


def test_marks_the_manifest_and_indexes_hold_nothing(made: DataDirectory, baseline: Content) -> None:
    index = made.segments(WORK)[1].with_suffix(".index").relative_to(made.folder)
    assert find_taken(made, baseline, "manifest", "stopped", "doubted", "lock", str(index)) == []


@pytest.mark.parametrize("number", [STREAM, WORK])
def test_a_segment_holds_its_own_records_alone(made: DataDirectory, baseline: Content, number: int) -> None:
    path, behind = made.segments(number)[1:3]
    taken = find_taken(made, baseline, str(path.relative_to(made.folder)))
    expected = range(int(path.stem), int(behind.stem))
    assert taken == [("record", NAMES[number], str(offset)) for offset in expected]


def test_a_file_of_the_log_holds_what_was_not_folded(made: DataDirectory, baseline: Content) -> None:
    (path,) = sorted((made.folder / "log").glob("*.log"))
    taken = find_taken(made, baseline, str(path.relative_to(made.folder)))
    assert taken == [("record", name, str(offset)) for name in NAMES.values() for offset in range(40, 50)]


def test_a_table_that_is_gone_takes_everything_along_that_was_folded(
    made: DataDirectory, baseline: Content
) -> None:
    assert find_taken(made, baseline, TABLE_FILE) == list(baseline)


def harm_entry(made: DataDirectory, folder: Path, key: bytes) -> Path:
    shutil.copytree(made.folder, folder)
    path = folder / TABLE_FILE
    data = bytearray(path.read_bytes())
    data[TableLayout(bytes(data)).needs[key][-1][0]] ^= 1
    path.write_bytes(data)
    return folder


@pytest.mark.parametrize("number", [2, 5])
def test_an_entry_of_the_table_holds_what_it_says_alone(
    made: DataDirectory, baseline: Content, tmp_path: Path, number: int
) -> None:
    folder = harm_entry(made, tmp_path / "copy", b"s" + struct.pack(">Q", number))
    spared = Holdings(made.folder, baseline).find_spared([TABLE_FILE], folder)
    assert [key for key in baseline if key not in spared] == [("session", f"client-{number}")]


def test_the_records_of_a_queue_go_with_its_entry_and_no_others(
    made: DataDirectory, baseline: Content, tmp_path: Path
) -> None:
    folder = harm_entry(made, tmp_path / "copy", b"q" + struct.pack(">Q", WORK))
    spared = Holdings(made.folder, baseline).find_spared([TABLE_FILE], folder)
    assert [key for key in baseline if key not in spared] == [key for key in baseline if "jobs" in key]


def test_a_table_of_another_directory_is_asked_for_nothing(
    made: DataDirectory, baseline: Content, tmp_path: Path
) -> None:
    other = make_directory(tmp_path / "other")
    layout = TableLayout((made.folder / TABLE_FILE).read_bytes())
    assert layout.find_readable((other.folder / TABLE_FILE).read_bytes())  # although it looks alike
    assert Holdings(made.folder, baseline).find_spared([TABLE_FILE], other.folder) == []


def test_nothing_goes_with_an_entry_that_other_files_stand_for(
    made: DataDirectory, baseline: Content, tmp_path: Path
) -> None:
    folder = harm_entry(made, tmp_path / "copy", META)
    assert Holdings(made.folder, baseline).find_spared([TABLE_FILE], folder) == list(baseline)


def test_a_whole_segment_that_is_neither_there_nor_in_quarantine_is_destroyed(
    made: DataDirectory, baseline: Content, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(made.folder, copy)
    holdings = Holdings(made.folder, baseline)
    assert holdings.find_destroyed([], copy) == []
    name = str(made.segments(WORK)[1].relative_to(made.folder))
    (copy / "quarantine").mkdir()
    (copy / name).rename(copy / "quarantine" / name.replace("/", "-"))
    assert holdings.find_destroyed([], copy) == []
    shutil.rmtree(copy / "quarantine")
    assert holdings.find_destroyed([], copy) == [name]
    assert holdings.find_destroyed([name], copy) == []
