"""Backups and restores on real directories: what is refused, what is left behind when one fails, who waits for whom."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import threading
import time
from pathlib import Path

import pytest
from librt.strings import BytesWriter
from typer.testing import CliRunner, Result

from millstream.commands.tree import app
from millstream.maintenance.backup import make_backup, restore_backup
from millstream.maintenance.pin import STAGING, pin_files
from millstream.runtime.disk.checkpoint_lock import hold_checkpoints
from millstream.runtime.disk.data_folder import UNFINISHED_RESTORE, StorageFault, check_restored, lock
from millstream.runtime.disk.failpoints import NoFailpoints
from millstream.runtime.disk.files import RealDisk
from millstream.storage.log.files import FOLDER, LogFiles, file_name
from millstream.storage.log.format import append_record
from millstream.storage.log.write_ahead_log import Batch
from millstream.storage.records import session_records

SESSIONS = 5


def ignore(step: str, done: int, total: int) -> None:
    pass


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """Some sessions in a log that no checkpoint has folded yet."""
    folder = tmp_path / "data"
    folder.mkdir()
    disk = RealDisk(folder)
    disk.make_folder(FOLDER)
    writer = BytesWriter()
    for number in range(1, SESSIONS + 1):
        fact = session_records.SessionFact(number, "default", f"client-{number}", "", 3600, 0)
        append_record(writer, session_records.SESSION_SAVED, session_records.encode_session(fact))
    files = LogFiles(disk, NoFailpoints(), 65_536, 1, 0)
    files.write(Batch(1, SESSIONS, writer.getvalue()))
    files.close()
    return folder


@pytest.fixture
def archive(data_dir: Path, tmp_path: Path) -> Path:
    make_backup(data_dir, tmp_path / "backup.tar", ignore)
    return tmp_path / "backup.tar"


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_backup_is_private_and_leaves_nothing_beside_it(data_dir: Path, tmp_path: Path) -> None:
    make_backup(data_dir, tmp_path / "backup.tar", ignore)
    assert names_in(tmp_path) == ["backup.tar", "data"]
    assert (tmp_path / "backup.tar").stat().st_mode & 0o777 == 0o600
    assert not (data_dir / STAGING).exists()


def test_a_restore_tells_what_it_brought_back(archive: Path, tmp_path: Path) -> None:
    restored = restore_backup(archive, tmp_path / "new", ignore)
    assert restored.counts["sessions"] == SESSIONS
    assert restored.manifest.last_sequence == SESSIONS
    assert restored.damage == []
    assert (tmp_path / "new" / file_name(1)).exists()
    assert not (tmp_path / "new" / UNFINISHED_RESTORE).exists()


def test_a_restore_into_an_empty_directory_is_fine(archive: Path, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    assert restore_backup(archive, tmp_path / "new", ignore).counts["sessions"] == SESSIONS


def test_a_directory_that_is_not_empty_is_left_alone(archive: Path, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "precious").write_text("mine")
    with pytest.raises(StorageFault, match="not empty"):
        restore_backup(archive, tmp_path / "new", ignore)
    assert names_in(tmp_path / "new") == ["precious"]


def test_a_directory_in_use_is_refused(archive: Path, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    descriptor = lock(tmp_path / "new")
    with pytest.raises(StorageFault, match="in use"):
        restore_backup(archive, tmp_path / "new", ignore)
    os.close(descriptor)


def test_a_link_or_a_file_is_no_place_to_restore_to(archive: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "file").touch()
    for name in ("link", "file"):
        with pytest.raises(StorageFault, match="no directory"):
            restore_backup(archive, tmp_path / name, ignore)
    assert names_in(tmp_path / "elsewhere") == []


def test_a_damaged_backup_leaves_no_directory(archive: Path, tmp_path: Path) -> None:
    data = bytearray(archive.read_bytes())
    data[data.index(b"client-3")] ^= 1
    archive.write_bytes(data)
    with pytest.raises(StorageFault, match="trusted"):
        restore_backup(archive, tmp_path / "new", ignore)
    assert not (tmp_path / "new").exists()
    (tmp_path / "new").mkdir()
    with pytest.raises(StorageFault, match="trusted"):
        restore_backup(archive, tmp_path / "new", ignore)
    assert names_in(tmp_path / "new") == []


def test_no_broker_starts_where_a_restore_was_killed_and_another_restore_clears_it(
    archive: Path, tmp_path: Path
) -> None:
    left = tmp_path / "new" / UNFINISHED_RESTORE
    left.mkdir(parents=True)
    (left / "half").touch()
    with pytest.raises(StorageFault, match="did not finish"):
        check_restored(tmp_path / "new")
    restore_backup(archive, tmp_path / "new", ignore)
    check_restored(tmp_path / "new")


def test_no_broker_starts_where_a_restore_failed_when_part_of_it_was_in_place(
    archive: Path, tmp_path: Path
) -> None:
    target = tmp_path / "new"
    target.mkdir()

    def put_something_in_the_way(step: str, done: int, total: int) -> None:
        (target / "state" / "x").mkdir(parents=True, exist_ok=True)

    with pytest.raises(StorageFault):
        restore_backup(archive, target, put_something_in_the_way)
    assert (target / "log").is_dir()
    with pytest.raises(StorageFault, match="did not finish"):
        check_restored(target)


def test_a_backup_waits_for_a_checkpoint_to_end(data_dir: Path, tmp_path: Path) -> None:
    order: list[str] = []

    def back_up() -> None:
        make_backup(data_dir, tmp_path / "backup.tar", ignore)
        order.append("backup")

    thread = threading.Thread(target=back_up)
    with hold_checkpoints(data_dir):
        thread.start()
        deadline = time.monotonic() + 10
        while not (data_dir / STAGING).exists():
            assert time.monotonic() < deadline
        order.append("checkpoint")
    thread.join()
    assert order == ["checkpoint", "backup"]


def test_a_checkpoint_waits_for_a_backup_to_have_its_files(data_dir: Path) -> None:
    module = "millstream.runtime.processes.checkpoint_process"
    command = [sys.executable, "-m", module, str(data_dir), "67108864", str(os.getpid())]
    with hold_checkpoints(data_dir):
        process = subprocess.Popen(command, stdin=subprocess.PIPE)
        assert process.stdin is not None
        process.stdin.write(b"1 0\n")
        process.stdin.close()
        deadline = time.monotonic() + 30
        while not is_waiting(process.pid):
            assert process.poll() is None
            assert time.monotonic() < deadline
        assert (data_dir / file_name(1)).exists()
    assert process.wait(30) == 0
    assert not (data_dir / file_name(1)).exists()


def is_waiting(process: int) -> bool:
    """Whether a process waits for a lock of a file, as the kernel sees it."""
    locks = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    return any("->" in line and f" {process} " in line for line in locks)


def test_what_was_pinned_survives_its_removal(data_dir: Path) -> None:
    content = (data_dir / file_name(1)).read_bytes()
    with pin_files(data_dir) as (folder, plan):
        (data_dir / file_name(1)).unlink()
        assert [file.name for file in plan.files] == [file_name(1)]
        assert (folder / file_name(1)).read_bytes() == content


def test_a_second_backup_at_the_same_time_is_refused(data_dir: Path, tmp_path: Path) -> None:
    with pin_files(data_dir), pytest.raises(StorageFault, match="another backup"):
        make_backup(data_dir, tmp_path / "backup.tar", ignore)
    make_backup(data_dir, tmp_path / "backup.tar", ignore)


def test_a_backup_that_fails_keeps_the_one_before(archive: Path, data_dir: Path, tmp_path: Path) -> None:
    before = archive.read_bytes()
    (data_dir / "state").mkdir(exist_ok=True)
    (data_dir / "state" / "data.mdb").write_bytes(b"\xff" * 16_384)
    with pytest.raises(StorageFault):
        make_backup(data_dir, archive, ignore)
    assert archive.read_bytes() == before
    assert names_in(tmp_path) == ["backup.tar", "data"]


# ----------------------------------------------------------------- commands


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def test_a_file_that_is_there_is_replaced_only_on_request(data_dir: Path, tmp_path: Path) -> None:
    target = tmp_path / "backup.tgz"
    target.write_bytes(b"precious")
    refused = run("backup", str(target), "--set", f"data_dir={data_dir}")
    assert refused.exit_code == 2
    assert "--force" in refused.stderr
    assert target.read_bytes() == b"precious"
    done = run("backup", str(target), "--set", f"data_dir={data_dir}", "--force", "-o", "json")
    assert done.exit_code == 0
    assert '"last_sequence": 5' in done.stdout
    with tarfile.open(target, "r:gz") as archive:
        assert file_name(1) in archive.getnames()


def test_the_name_says_what_kind_of_file_it_is(data_dir: Path, tmp_path: Path) -> None:
    refused = run("backup", str(tmp_path / "backup.zip"), "--set", f"data_dir={data_dir}")
    assert refused.exit_code == 2
    assert ".tar" in refused.stderr


def test_there_must_be_something_to_back_up(tmp_path: Path) -> None:
    refused = run("backup", str(tmp_path / "backup.tar"), "--set", f"data_dir={tmp_path / 'nothing'}")
    assert refused.exit_code == 2
    assert "holds no data" in refused.stderr


def test_what_is_no_backup_is_refused_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "other.tar").write_bytes(b"something else")
    for name in ("other.tar", "missing.tar"):
        refused = run("restore", str(tmp_path / name), "--to", str(tmp_path / "new"))
        assert refused.exit_code == 1
        assert refused.stderr.startswith("error: Nothing was restored")
        assert "Traceback" not in refused.stderr
        assert not (tmp_path / "new").exists()


def test_damage_in_the_data_is_told_and_taken_along(data_dir: Path, tmp_path: Path) -> None:
    files = LogFiles(RealDisk(data_dir), NoFailpoints(), 65_536, 2, 0)
    writer = BytesWriter()
    append_record(writer, session_records.SESSION_REMOVED, session_records.encode_number(1))
    files.write(Batch(SESSIONS + 1, 1, writer.getvalue()))
    files.close()
    path = data_dir / file_name(1)
    data = bytearray(path.read_bytes())
    data[data.index(b"client-3")] ^= 1
    path.write_bytes(data)
    made = run("backup", str(tmp_path / "backup.tar"), "--set", f"data_dir={data_dir}")
    assert made.exit_code == 1
    assert "damaged" in made.stdout
    assert "millstream storage verify" in made.stderr
    restored = run("restore", str(tmp_path / "backup.tar"), "--to", str(tmp_path / "new"))
    assert restored.exit_code == 1
    assert "millstream storage repair" in restored.stderr
    assert (tmp_path / "new" / "quarantine").is_dir()
