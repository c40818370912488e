"""`storage verify` writes nothing, and goes on behind what it cannot judge."""

from __future__ import annotations

from pathlib import Path

import pytest
from data_directory import STREAM, WORK, DataDirectory, copy_directory, make_directory
from google_crc32c import value
from typer.testing import CliRunner

from millstream.commands.tree import app
from millstream.runtime.disk.data_folder import StorageFault
from millstream.runtime.disk.lmdb_table import salvage_entries
from millstream.storage.disk import DiskFault
from millstream.storage.manifest import TABLE_FILE
from millstream.storage.segments.format import HEADER_SIZE, VERSION


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> DataDirectory:
    return make_directory(tmp_path_factory.mktemp("made") / "data")


@pytest.fixture
def made(template: DataDirectory, tmp_path: Path) -> DataDirectory:
    return copy_directory(template, tmp_path / "data")


def run(command: str, made: DataDirectory) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["storage", command, "--set", f"data_dir={made.folder}"])
    return done.exit_code, done.stdout + done.stderr


@pytest.mark.parametrize("command", ["verify", "inspect"])
@pytest.mark.parametrize("content", [None, b""])
def test_a_directory_without_a_table_has_none_afterwards(
    tmp_path: Path, command: str, content: bytes | None
) -> None:
    (tmp_path / "data" / "log").mkdir(parents=True)
    made = DataDirectory(tmp_path / "data")
    if content is not None:
        (made.folder / "state").mkdir()
        (made.folder / "state" / "data.mdb").write_bytes(content)
    before = made.digest()
    assert run(command, made)[0] == 0
    assert made.digest() == before
    assert (made.folder / "state").exists() == (content is not None)


@pytest.mark.parametrize("command", ["verify", "inspect"])
def test_a_whole_directory_is_afterwards_what_it_was(made: DataDirectory, command: str) -> None:
    before = made.digest()
    assert run(command, made)[0] == 0
    assert made.digest() == before


def test_a_state_that_cannot_be_told_is_an_answer_and_no_fault_of_the_command(made: DataDirectory) -> None:
    (made.folder / TABLE_FILE).unlink()
    code, text = run("inspect", made)
    assert (code, "state/data.mdb is missing" in text, "storage verify" in text) == (1, True, True)


def test_a_table_that_nobody_can_look_at_is_not_missing(made: DataDirectory) -> None:
    """Else a repair would begin a new one in its place."""
    table = made.folder / TABLE_FILE
    table.unlink()
    table.symlink_to(table.name)
    for command in ("verify", "inspect"):
        code, text = run(command, made)
        assert (code, "symbolic links" in text) == (1, True)
    with pytest.raises(DiskFault, match="symbolic links"):
        made.repair()
    with pytest.raises(DiskFault, match="symbolic links"):
        salvage_entries(table.parent)
    assert table.is_symlink()


def test_a_segment_of_a_newer_release_is_named_beside_what_is_behind_it(made: DataDirectory) -> None:
    path = made.segments(STREAM)[1]
    data = path.read_bytes()
    head = data[:4] + (VERSION + 1).to_bytes(4, "little") + data[8:24]
    path.write_bytes(head + value(head).to_bytes(8, "little") + data[HEADER_SIZE:])
    missing = made.segments(WORK)[2]
    missing.unlink()
    code, text = run("verify", made)
    assert code == 1
    assert "newer release" in text
    found = {finding.file for finding in made.damaged()}
    assert found >= {str(path.relative_to(made.folder)), str(missing.relative_to(made.folder))}
    with pytest.raises(StorageFault, match="newer release"):
        made.repair()
    assert path.exists()


def test_facts_of_a_newer_release_are_named_by_all_and_left_alone(made: DataDirectory) -> None:
    made.start()
    made.tell((250, b"of another time"))
    made.stop()
    log = str(sorted(made.folder.glob("log/*.log"))[-1].relative_to(made.folder))
    text = "was written by a newer release: it holds facts of kind 250"
    before = made.digest()
    with pytest.raises(DiskFault, match=f"{log} {text}"):
        made.start()
    code, said = run("verify", made)
    assert (code, text in said, log in said) == (1, True, True), said
    code, said = run("inspect", made)
    assert (code, "It cannot be told" in said, "storage verify" in said) == (1, True, True), said
    with pytest.raises(StorageFault, match=f"{log} was written by a newer release"):
        made.repair()
    assert made.digest() == before


def make_unreadable(path: Path) -> None:
    """Whoever reads it gets EIO."""
    path.unlink()
    path.symlink_to("/proc/self/mem")


def test_a_segment_that_the_disk_does_not_give_is_named_beside_what_is_behind_it(made: DataDirectory) -> None:
    bad, missing = made.segments(STREAM)[1], made.segments(WORK)[2]
    make_unreadable(bad)
    missing.unlink()
    found = {finding.file: finding for finding in made.damaged()}
    assert sorted(found) == sorted(str(path.relative_to(made.folder)) for path in (bad, missing))
    (told,) = [finding for name, finding in found.items() if name.endswith(bad.name) and "/1/" in name]
    assert "Input/output error" in told.state
    assert "unless the disk gives them again" in told.lost[0]
    code, text = run("verify", made)
    assert code == 1
    assert missing.name in text


def test_a_repair_changes_nothing_while_the_disk_does_not_give_a_segment(made: DataDirectory) -> None:
    made.segments(WORK)[2].unlink()
    path = made.segments(STREAM)[1]
    data = path.read_bytes()
    make_unreadable(path)
    with pytest.raises(StorageFault, match="does not give"):
        made.repair()
    path.unlink()
    path.write_bytes(data)
    assert [found.file for found in made.damaged()] != ["repair.unfinished"]
    made.repair()
    assert sorted(made.records(STREAM)) == list(range(50))
