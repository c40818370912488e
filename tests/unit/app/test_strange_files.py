"""Something else stands in the place of a file or a folder, or beside them: a start and every command say the same about it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from data_directory import STREAM, WORK, DataDirectory, copy_directory, make_directory
from typer.testing import CliRunner

from millstream.app.server import Millstream
from millstream.broker.conditions import STORAGE_DAMAGED
from millstream.commands.tree import app
from millstream.config.load import config_of
from millstream.runtime.disk.data_dir import user_name
from millstream.runtime.disk.data_folder import UNFINISHED_RESTORE
from millstream.runtime.start_fault import StartFault
from millstream.storage.log.files import file_name
from millstream.storage.marks.stop_mark import NAME as STOP_MARK
from millstream.storage.segments.format import index_name

OFF = {"enabled": False}
FOLDERS = ["log", "state", "queues", "quarantine"]
FILES = ["lock", "checkpoint.lock", "state/data.mdb", "state/lock.mdb"]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> DataDirectory:
    """The facts of its last file of the log are in no segment."""
    return make_directory(tmp_path_factory.mktemp("made") / "data")


@pytest.fixture
def made(template: DataDirectory, tmp_path: Path) -> DataDirectory:
    return copy_directory(template, tmp_path / "data")


def run(made: DataDirectory, *command: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, [*command, "--set", f"data_dir={made.folder}"])
    return done.exit_code, done.stdout + done.stderr


def start(made: DataDirectory) -> bool:
    """Whether the broker says that something it holds is damaged."""
    values = {"data_dir": str(made.folder), "mqtt": {"port": 0}, "websocket": OFF, "amqp": OFF}

    async def run_once() -> bool:
        async with Millstream(config_of(values)) as millstream:
            return millstream.health.find(STORAGE_DAMAGED) is not None

    return asyncio.run(run_once())


def move_away(path: Path, target: Path) -> None:
    if path.exists():
        path.rename(target)


def make_link_to_nothing(path: Path) -> None:
    path.symlink_to("/nowhere/at/all")


def make_link_to_itself(path: Path) -> None:
    path.symlink_to(path.name)


def make_endless_file(path: Path) -> None:
    path.symlink_to("/dev/zero")


CASES: list[tuple[str, Callable[[Path], None]]] = [
    *[(part, strange) for part in FOLDERS for strange in (Path.touch, make_link_to_nothing)],
    *[(part, strange) for part in FILES for strange in (Path.mkdir, os.mkfifo)],
    ("log", make_link_to_itself),
    ("state/data.mdb", make_endless_file),
    ("state/data.mdb", make_link_to_nothing),
]


@pytest.mark.parametrize(("part", "strange"), CASES)
def test_what_is_no_folder_or_no_file_is_named_by_all_and_left_alone(
    made: DataDirectory, tmp_path: Path, part: str, strange: Callable[[Path], None]
) -> None:
    move_away(made.folder / part, tmp_path / "before")
    strange(made.folder / part)
    with pytest.raises(StartFault, match=f"{made.folder / part} ") as refused:
        start(made)
    assert refused.value.hint == f"ls -ld {made.folder / part}"
    archive = str(tmp_path / "a.tar")
    for command in (["storage", "verify"], ["storage", "inspect"], ["storage", "repair", "-y"]):
        code, text = run(made, *command)
        assert (code, str(refused.value) in text) == (1, True), text
        assert f"next: {refused.value.hint}" in text
    code, text = run(made, "backup", archive)
    assert (code, f"No backup was made: {refused.value}." in text) == (1, True), text
    assert f"next: {refused.value.hint}" in text
    assert not (made.folder / "repair.unfinished").exists()


def test_a_restore_names_what_stands_in_the_place_of_the_lock(made: DataDirectory, tmp_path: Path) -> None:
    archive, target = str(tmp_path / "a.tar"), tmp_path / "target"
    assert run(made, "backup", archive)[0] == 0
    (target / "lock").mkdir(parents=True)
    done = CliRunner().invoke(app, ["restore", archive, "--to", str(target)])
    assert done.exit_code == 1
    assert f"Nothing was restored: {target / 'lock'} cannot be opened: Is a directory." in done.stderr
    assert f"next: ls -ld {target / 'lock'}" in done.stderr


@pytest.mark.parametrize("name", ["log/next.part", "manifest", "stopped"])
def test_a_folder_in_the_place_of_a_file_leads_to_a_command_that_shows_it(
    made: DataDirectory, name: str
) -> None:
    (made.folder / name).unlink(missing_ok=True)
    (made.folder / name).mkdir()
    with pytest.raises(StartFault, match=f"{name}: Is a directory") as refused:
        start(made)
    assert refused.value.hint == f"ls -ld {made.folder / name}"
    if not name.startswith("log"):
        code, text = run(made, "storage", "verify")
        assert (code, f"next: ls -ld {made.folder / name}" in text) == (1, True), text


@pytest.mark.parametrize(
    "name",
    [
        "log/abc.log",
        "log/.nfs000001.log",
        "log/1.log",
        "log/-00000000001.log",
        "log/99999999999999999999.log",
        "log/٣٣٣٣٣٣٣٣٣٣٣٣.log",
        f"queues/{STREAM}/99999999999999999999.segment",
        f"queues/{STREAM}/{'٣' * 20}.segment",
        f"queues/0{STREAM}/{'0' * 20}.segment",
        "queues/٣/x",
        "queues/99999999999999999999/x",
    ],
)
def test_a_file_with_a_name_that_no_broker_gives_is_left_alone(made: DataDirectory, name: str) -> None:
    path = made.folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"something")
    assert run(made, "storage", "verify")[0] == 0
    assert run(made, "storage", "inspect")[0] == 0
    start(made)
    assert path.read_bytes() == b"something"
    assert (len(made.records(STREAM)), len(made.records(WORK))) == (50, 50)
    made.start()
    made.declare(3, "new", "work")  # numbers go on as before
    made.stop()
    assert run(made, "storage", "verify")[0] == 0


@pytest.mark.parametrize("strange", [os.mkfifo, make_endless_file, Path.mkdir])
def test_a_repair_waits_for_nothing_that_stands_in_the_place_of_a_file_of_the_log(
    made: DataDirectory, strange: Callable[[Path], None]
) -> None:
    path = made.folder / file_name(2)
    path.unlink()
    strange(path)
    with pytest.raises(StartFault, match="is missing"):
        start(made)
    assert run(made, "storage", "verify")[0] == 1
    assert run(made, "storage", "repair", "-y")[0] == 0
    assert run(made, "storage", "verify")[0] == 0
    start(made)
    assert (len(made.records(STREAM)), len(made.records(WORK))) == (40, 40)


def test_a_folder_in_the_place_of_an_index_is_moved_away_and_the_index_made_again(
    made: DataDirectory,
) -> None:
    index = made.folder / index_name(STREAM, int(made.segments(STREAM)[1].stem))
    index.unlink()
    index.mkdir()
    assert run(made, "storage", "verify")[0] == 1
    assert run(made, "storage", "repair", "-y")[0] == 0
    assert index.is_file()
    assert run(made, "storage", "verify")[0] == 0
    assert len(made.records(STREAM)) == 50


@pytest.mark.parametrize("strange", [os.mkfifo, make_link_to_nothing, make_link_to_itself, Path.touch])
def test_a_repair_takes_no_segment_for_lost_where_the_folder_of_a_queue_cannot_be_looked_at(
    made: DataDirectory, tmp_path: Path, strange: Callable[[Path], None]
) -> None:
    folder = made.folder / "queues" / str(WORK)
    move_away(folder, tmp_path / "before")
    strange(folder)
    with pytest.raises(StartFault, match=f"queues/{WORK}: "):
        start(made)
    for command in ("verify", "repair"):
        code, text = run(made, "storage", command)
        assert (code, f"queues/{WORK}: " in text, "next: ls -ld" in text) == (1, True, True), text
    folder.unlink()
    (tmp_path / "before").rename(folder)
    assert run(made, "storage", "verify")[0] == 0


def test_what_a_restore_left_unfinished_is_never_called_good(made: DataDirectory) -> None:
    (made.folder / UNFINISHED_RESTORE).mkdir()
    with pytest.raises(StartFault, match="did not finish") as refused:
        start(made)
    for command in ("verify", "inspect", "repair"):
        code, text = run(made, "storage", command)
        assert (code, str(refused.value) in text, f"next: {refused.value.hint}" in text) == (1, True, True), (
            text
        )


def test_a_missing_mark_of_a_stop_is_named_by_all_and_calls_for_nothing(made: DataDirectory) -> None:
    start(made)
    (made.folder / STOP_MARK).unlink()
    code, text = run(made, "storage", "verify")
    assert (code, "delivered as redelivered" in text) == (0, True)
    assert not start(made)


@pytest.mark.parametrize(("part", "mode"), [(".", 0), ("state", 0o500), ("lock", 0o400), ("manifest", 0)])
def test_what_may_not_be_looked_at_is_named_with_the_command_that_permits_it(
    made: DataDirectory, part: str, mode: int
) -> None:
    start(made)
    denied = made.folder / part
    denied.chmod(mode)
    setting = ["--set", f"data_dir={made.folder}"]
    try:
        for command in ("verify", "repair"):
            called = [sys.executable, "-m", "crash.unprivileged", "storage", command, *setting]
            done = subprocess.run(called, capture_output=True, text=True, check=False)
            assert (done.returncode, "Permission denied" in done.stderr) == (1, True), done.stderr
            assert done.stderr.rstrip().endswith(f"next: sudo chown -R {user_name()} {denied}"), done.stderr
    finally:
        denied.chmod(0o700)
