from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from millstream.commands.tree import app

RULES = """\
rules:
  - allow: publish
    topics: ["plant/%u/#"]
  - allow: subscribe
    users: [alice]
    clients: ["desk-*"]
    topics: ["plant/#"]
  - deny: all
    topics: ["plant/+/secret"]
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MILLSTREAM_CONFIG", raising=False)
    Path("acl.yaml").write_text(RULES)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["acl", *arguments])


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (["alice", "publish", "plant/alice/t"], 0, "rules[0]"),
        (["alice", "publish", "plant/bob/t"], 4, "default is deny"),
        (["alice", "publish", "plant/alice/secret"], 4, "rules[2]"),
        (["alice", "--client", "desk-1", "subscribe", "plant/#"], 0, "rules[1]"),
        (["alice", "--client", "phone", "subscribe", "plant/#"], 4, "default is deny"),
        (["alice", "--client", "desk-1", "subscribe", "$share/g/plant/#"], 0, "rules[1]"),
        (["anonymous", "subscribe", "plant/#"], 4, "anonymous"),
        (["alice", "--client", "desk-1", "receive", "plant/x/secret"], 4, "rules[2]"),
    ],
)
def test_check_tells_which_rule_decides(arguments: list[str], code: int, word: str) -> None:
    result = run("check", *arguments, "-f", "acl.yaml")
    assert result.exit_code == code
    assert word in result.stdout


def test_check_answers_programs_too() -> None:
    answer = json.loads(
        run("check", "alice", "publish", "plant/alice/t", "-f", "acl.yaml", "-o", "json").stdout
    )
    assert answer["allowed"] is True
    assert (answer["client"], answer["account"]) == ("alice", "default")


def test_without_a_list_everything_is_allowed() -> None:
    result = run("check", "alice", "publish", "x")
    assert result.exit_code == 0
    assert "no access list" in result.stdout


@pytest.mark.parametrize(("action", "topic"), [("publish", "a/#"), ("subscribe", "a/#/b"), ("publish", "")])
def test_a_topic_that_cannot_be_used_is_wrong_usage(action: str, topic: str) -> None:
    assert run("check", "alice", action, topic, "-f", "acl.yaml").exit_code == 2


def test_the_configuration_names_the_list_and_the_account_of_the_user() -> None:
    Path("a.yaml").write_text(
        "auth:\n  acl_file: acl.yaml\n  anonymous_account: plant\naccounts:\n  plant:\n"
    )
    answer = json.loads(run("check", "anonymous", "publish", "x", "-c", "a.yaml", "-o", "json").stdout)
    assert answer["account"] == "plant"


def test_show_lists_the_rules_in_order() -> None:
    shown = json.loads(run("show", "-f", "acl.yaml", "-o", "json").stdout)
    assert shown["default"] == "deny"
    assert [(rule["effect"], rule["action"]) for rule in shown["rules"]] == [
        ("allow", "publish"),
        ("allow", "subscribe"),
        ("deny", "all"),
    ]
    assert shown["rules"][1]["clients"] == ["desk-*"]


def test_show_can_be_limited_to_a_user() -> None:
    shown = json.loads(run("show", "-f", "acl.yaml", "--user", "bob", "-o", "json").stdout)
    assert [rule["rule"] for rule in shown["rules"]] == ["rules[0]", "rules[2]"]
    assert "plant/%u/#" in run("show", "-f", "acl.yaml").stdout


def test_show_without_a_list_says_what_that_means() -> None:
    result = run("show")
    assert result.exit_code == 2
    assert "everyone may do everything" in result.stderr


def test_a_broken_list_is_told_with_file_and_line() -> None:
    Path("acl.yaml").write_text("rules:\n  - alow: all\n")
    result = run("check", "alice", "publish", "x", "-f", "acl.yaml")
    assert result.exit_code == 2
    assert "acl.yaml:2" in result.stderr


def test_the_rules_of_mosquitto_are_translated() -> None:
    Path("old.acl").write_text("user alice\ntopic write plant/#\npattern read devices/%c/#\n")
    translated = run("import", "old.acl")
    assert translated.exit_code == 0
    Path("new.yaml").write_text(translated.stdout)
    assert run("check", "alice", "publish", "plant/x", "-f", "new.yaml").exit_code == 0
    assert run("check", "bob", "publish", "plant/x", "-f", "new.yaml").exit_code == 4
    assert run("check", "bob", "--client", "c1", "subscribe", "devices/c1/#", "-f", "new.yaml").exit_code == 0


def test_what_is_not_a_list_of_mosquitto_is_refused() -> None:
    Path("old.acl").write_text("nonsense\n")
    result = run("import", "old.acl")
    assert result.exit_code == 1
    assert "line 1" in result.stderr
    assert run("import", "absent").exit_code == 1
