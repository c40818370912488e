from __future__ import annotations

import json
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from millstream.commands.tree import app
from millstream.config.contents import read_users
from millstream.security.users import verify_password

MOSQUITTO_LINE = (
    "bob:$7$101$c2FsdHNhbHRzYWx0$"
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA==\n"
)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MILLSTREAM_CONFIG", raising=False)


def run(*arguments: str, password: str | None = None) -> Result:
    return CliRunner().invoke(app, ["user", *arguments], input=password)


def add(name: str, *arguments: str, password: str = "secret") -> Result:
    return run("add", name, "-f", "users.txt", "--password-stdin", *arguments, password=password)


def test_an_added_user_can_prove_the_password() -> None:
    assert add("alice", password="s€cret: x\n").exit_code == 0
    user = read_users(Path("users.txt")).find_user("alice")
    assert user is not None
    assert verify_password(user.password_hash, "s€cret: x".encode())
    assert not verify_password(user.password_hash, b"other")
    assert user.scram is not None


def test_the_file_is_private_and_nothing_is_left_beside_it() -> None:
    add("alice")
    assert stat.S_IMODE(Path("users.txt").stat().st_mode) == 0o600
    assert [path.name for path in Path().iterdir()] == ["users.txt"]


def test_a_file_shared_with_a_group_stays_so_but_others_are_shut_out() -> None:
    add("alice")
    Path("users.txt").chmod(0o644)
    add("bob")
    assert stat.S_IMODE(Path("users.txt").stat().st_mode) == 0o640


def test_a_link_keeps_pointing_at_the_file() -> None:
    Path("real.txt").touch(0o600)
    Path("users.txt").symlink_to("real.txt")
    add("alice")
    assert Path("users.txt").is_symlink()
    assert read_users(Path("real.txt")).names() == ["alice"]


def test_an_existing_user_is_replaced_only_on_request() -> None:
    add("alice", password="old")
    before = Path("users.txt").read_text()
    refused = add("alice", password="new")
    assert refused.exit_code == 1
    assert "--replace" in refused.stderr
    assert Path("users.txt").read_text() == before
    assert add("alice", "--replace", password="new").exit_code == 0
    user = read_users(Path("users.txt")).find_user("alice")
    assert user is not None
    assert verify_password(user.password_hash, b"new")


def test_a_user_belongs_to_an_account() -> None:
    add("sensor", "--account", "plant", "--no-scram")
    rows = json.loads(run("list", "-f", "users.txt", "-o", "json").stdout)
    assert rows == [{"name": "sensor", "account": "plant", "hash": "argon2id", "scram": False}]


@pytest.mark.parametrize("name", ["", "a:b", "anonymous", "#x", " x", "a\nb"])
def test_a_name_that_cannot_be_used_is_refused_and_nothing_is_written(name: str) -> None:
    assert add(name).exit_code == 2
    assert not Path("users.txt").exists()


def test_an_empty_password_is_refused() -> None:
    assert add("alice", password="\n").exit_code == 2
    assert not Path("users.txt").exists()


def test_without_a_terminal_the_password_must_be_piped_in_on_purpose() -> None:
    result = run("add", "alice", "-f", "users.txt", password="secret")
    assert result.exit_code == 2
    assert "--password-stdin" in result.stderr


def test_a_removed_user_is_gone_and_a_missing_one_is_told() -> None:
    add("alice")
    add("bob")
    assert run("remove", "alice", "-f", "users.txt").exit_code == 0
    assert read_users(Path("users.txt")).names() == ["bob"]
    missing = run("remove", "alice", "-f", "users.txt")
    assert missing.exit_code == 1
    assert "next: millstream user list" in missing.stderr


def test_no_password_and_no_hash_is_ever_shown() -> None:
    result = add("alice", password="CANARY")
    listed = run("list", "-f", "users.txt", "-o", "json")
    assert "CANARY" not in result.output + listed.output + Path("users.txt").read_text()
    assert "$argon2id$" not in listed.output


def test_the_file_can_be_named_by_the_configuration_before_it_exists() -> None:
    Path("a.yaml").write_text("auth:\n  password_file: users.txt\nmqtt:\n  host: 0.0.0.0\n")
    result = run("add", "alice", "--config", "a.yaml", "--password-stdin", password="x")
    assert result.exit_code == 0
    assert read_users(Path("users.txt")).names() == ["alice"]


def test_without_a_file_the_command_says_how_to_name_one() -> None:
    result = run("list")
    assert result.exit_code == 2
    assert "--password-file" in result.stderr
    assert run("list", "-f", "absent.txt").exit_code == 1


def test_a_file_of_mosquitto_is_imported_with_its_hashes() -> None:
    Path("passwd").write_text(MOSQUITTO_LINE)
    add("alice")
    assert run("import", "passwd", "-f", "users.txt", "--account", "plant").exit_code == 0
    rows = json.loads(run("list", "-f", "users.txt", "-o", "json").stdout)
    assert [(row["name"], row["account"], row["hash"]) for row in rows] == [
        ("alice", "default", "argon2id"),
        ("bob", "plant", "pbkdf2-sha512"),
    ]
    again = run("import", "passwd", "-f", "users.txt")
    assert again.exit_code == 1
    assert "bob" in again.stderr


def test_a_broken_file_is_left_as_it_is() -> None:
    Path("users.txt").write_text("broken\n")
    assert add("alice").exit_code == 2
    assert Path("users.txt").read_text() == "broken\n"


def test_users_added_at_the_same_time_are_all_kept() -> None:
    command = [
        sys.executable,
        "-m",
        "millstream",
        "user",
        "add",
        "-f",
        "users.txt",
        "--password-stdin",
        "--no-scram",
    ]
    names = ["a", "b", "c", "d"]
    processes = [subprocess.Popen([*command, name], stdin=subprocess.PIPE) for name in names]
    for process in processes:
        process.communicate(b"secret\n", timeout=60)
    assert sorted(read_users(Path("users.txt")).names()) == names
