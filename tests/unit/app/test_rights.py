"""Users and rules from their files: what changes takes effect, what is broken changes nothing."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from fakes import FakeLine, World

from millstream.app.rights import Rights, find_scram_key
from millstream.broker.line import Ending
from millstream.config.load import config_of
from millstream.security.principal import Principal
from millstream.security.scram_record import derive_scram_record
from millstream.security.users import User, UserTable, format_users

HASH = "$6$tJNV6IhJOugpPj3s$SvLwKOTmYBm8bK+DlnOJLaIsVjox7w1HPjkFwiKsgtsNFkeaRDE912XRZhpwBTOkUSbqJ0rAUEGI+3+EHgXi0Q=="
SCRAM = derive_scram_record("pencil", b"salt" * 4, 4096)
ALLOW = "rules:\n  - allow: all\n    topics: ['#']\n"
DENY = "rules:\n  - allow: all\n    topics: ['#']\n  - deny: all\n    topics: ['secret']\n"
ALICE = Principal("alice", "default", "user")


class Files:
    def __init__(self, folder: Path) -> None:
        self.users = folder / "users.txt"
        self.rules = folder / "acl.yaml"
        self.users.touch(0o600)
        self.write_users("alice", "bob")
        self.rules.write_text(ALLOW)
        values = {
            "data_dir": str(folder / "data"),
            "auth": {"password_file": str(self.users), "acl_file": str(self.rules)},
        }
        self.rights = Rights(config_of(values))
        self.world = World(authorizer=self.rights.authorizer)

    def write_users(self, *names: str) -> None:
        self.users.write_text(format_users(UserTable({name: User(name, HASH) for name in names})))

    def refresh(self) -> None:
        self.rights.refresh(self.world.broker)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def test_a_user_who_is_taken_from_the_file_is_disconnected_and_nobody_else(files: Files) -> None:
    _, alice = files.world.connect("a", user="alice")
    _, bob = files.world.connect("b", user="bob")
    files.refresh()
    assert alice.endings == []
    files.write_users("bob")
    files.refresh()
    assert alice.endings == [Ending.NOT_AUTHORIZED]
    assert bob.endings == []
    assert files.rights.authenticator.users.find_user("alice") is None


def test_a_user_file_that_cannot_be_read_changes_nothing(files: Files) -> None:
    _, alice = files.world.connect("a", user="alice")
    files.users.write_text("alice:plain text\n")
    files.refresh()
    assert alice.endings == []
    assert files.rights.authenticator.users.find_user("bob") is not None
    files.users.unlink()
    files.refresh()
    assert files.rights.authenticator.users.find_user("bob") is not None
    files.write_users("bob")
    files.refresh()
    assert alice.endings == [Ending.NOT_AUTHORIZED]


def test_a_file_that_cannot_be_used_is_a_condition_until_it_can(files: Files) -> None:
    health = files.world.broker.health
    files.users.write_text("alice:plain text\n")
    files.rules.write_text("rules: nonsense\n")
    files.refresh()
    stale = {active.condition.name: active.cause for active in health.active()}
    assert set(stale) == {"users_stale", "rules_stale"}
    assert str(files.users) in stale["users_stale"]
    assert str(files.rules) in stale["rules_stale"]
    files.write_users("bob")
    files.rules.write_text(ALLOW)
    files.refresh()
    assert health.active() == []


def deliveries(files: Files, line: FakeLine, topic: bytes) -> int:
    before = len(line.sent)
    files.world.publish(topic)
    return len(line.sent) - before


def test_new_rules_reach_sessions_that_are_connected(files: Files) -> None:
    session, line = files.world.connect("a", user="alice")
    files.world.subscribe(session, b"#")
    assert deliveries(files, line, b"secret") == 1
    files.rules.write_text(DENY)
    files.refresh()
    assert not files.rights.authorizer.can_publish(ALICE, "a", b"secret")
    assert deliveries(files, line, b"secret") == 0
    assert deliveries(files, line, b"open") == 1
    files.rules.write_text(ALLOW)
    files.refresh()
    assert deliveries(files, line, b"secret") == 1


def test_rules_that_cannot_be_read_change_nothing_and_a_file_that_is_gone_opens_nothing(files: Files) -> None:
    files.rules.write_text(DENY)
    files.refresh()
    files.rules.write_text("rules:\n  - allow: everything\n")
    files.refresh()
    assert not files.rights.authorizer.can_publish(ALICE, "a", b"secret")
    assert files.rights.authorizer.can_publish(ALICE, "a", b"open")
    files.rules.unlink()
    files.refresh()
    assert not files.rights.authorizer.can_publish(ALICE, "a", b"secret")


def test_without_files_loopback_is_open_and_refreshing_is_harmless(tmp_path: Path) -> None:
    rights = Rights(config_of({"data_dir": str(tmp_path / "data")}))
    world = World(authorizer=rights.authorizer)
    _, line = world.connect("a")
    rights.refresh(world.broker)
    assert line.endings == []
    assert rights.authorizer.can_publish(ALICE, "a", b"anything")
    assert not (tmp_path / "data").exists()


def test_the_key_for_the_salts_of_unknown_users_outlives_a_restart(tmp_path: Path) -> None:
    users = UserTable({"alice": User("alice", HASH, "default", SCRAM)})
    key = find_scram_key(tmp_path / "data", users)
    assert len(key) == 32
    assert find_scram_key(tmp_path / "data", users) == key
    mode = stat.S_IMODE((tmp_path / "data" / "scram.key").stat().st_mode)
    assert mode == 0o600
    (tmp_path / "data" / "scram.key").write_bytes(b"short")
    assert len(find_scram_key(tmp_path / "data", users)) == 32
