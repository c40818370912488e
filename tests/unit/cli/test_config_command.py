from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from millstream.commands.tree import app
from millstream.config.keys import ANY_NAME, all_keys
from millstream.config.reference import configuration_page, json_schema_text, starting_file


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MILLSTREAM_CONFIG", raising=False)


def run(*arguments: str, **variables: str) -> Result:
    return CliRunner().invoke(app, ["config", *arguments], env=variables)


def test_check_lists_what_would_be_opened() -> None:
    result = run("check", "--set", "mqtt.port=7", "-o", "json")
    assert result.exit_code == 0
    listeners = json.loads(result.stdout)["listeners"]
    opened = [(entry["listener"], entry["port"]) for entry in listeners]
    assert opened == [("mqtt", 7), ("websocket", 8083), ("amqp", 5672)]


def test_check_in_words() -> None:
    result = run("check")
    assert result.exit_code == 0
    assert "no fault found" in result.stdout
    assert "1883" in result.stdout


def test_check_takes_the_file_from_the_variable() -> None:
    Path("a.yaml").write_text("mqtt:\n  prot: 1\n")
    result = run("check", MILLSTREAM_CONFIG="a.yaml")
    assert result.exit_code == 2
    assert "a.yaml:2" in result.stderr


def test_show_tells_every_key_its_value_and_where_it_was_set() -> None:
    Path("a.yaml").write_text("mqtt:\n  port: 5\n")
    result = run(
        "show", "-c", "a.yaml", "--set", "log.level=debug", "-o", "json", MILLSTREAM_BROKER__MAX_QOS="1"
    )
    rows = {row["key"]: (row["value"], row["origin"]) for row in json.loads(result.stdout)}
    assert rows["mqtt.port"] == (5, "a.yaml:2")
    assert rows["log.level"] == ("debug", "--set log.level=debug")
    assert rows["broker.max_qos"] == (1, "variable MILLSTREAM_BROKER__MAX_QOS")
    assert rows["mqtt.host"] == ("127.0.0.1", "default")
    assert set(rows) == {key.name for key in all_keys() if ANY_NAME not in key.path}


def test_show_can_leave_the_defaults_out() -> None:
    result = run("show", "--changed", "--set", "mqtt.port=5", "-o", "json")
    assert [row["key"] for row in json.loads(result.stdout)] == ["mqtt.port"]


def test_schema_prints_both_forms() -> None:
    assert run("schema").stdout == json_schema_text()
    assert run("schema", "--format", "markdown").stdout == configuration_page()


def test_schema_writes_both_files() -> None:
    assert run("schema", "--write", ".").exit_code == 0
    assert Path("config.schema.json").read_text() == json_schema_text()
    assert Path("configuration.md").read_text() == configuration_page()
    assert run("schema", "--write", "absent").exit_code == 2


def test_init_prints_a_file_that_passes_the_check() -> None:
    result = run("init")
    assert result.stdout == starting_file()
    Path("a.yaml").write_text(result.stdout)
    assert run("check", "-c", "a.yaml").exit_code == 0


def test_init_never_overwrites_a_file() -> None:
    assert run("init", "--file", "a.yaml").exit_code == 0
    Path("a.yaml").write_text("mine")
    assert run("init", "--file", "a.yaml").exit_code == 1
    assert Path("a.yaml").read_text() == "mine"


def test_diff_tells_what_changes_and_what_needs_a_restart() -> None:
    Path("old.yaml").write_text("mqtt:\n  port: 1\n")
    Path("new.yaml").write_text("mqtt:\n  port: 2\nlog:\n  level: debug\n")
    rows = json.loads(run("diff", "old.yaml", "new.yaml", "-o", "json").stdout)
    assert rows == [
        {"key": "mqtt.port", "old": 1, "new": 2, "needs_restart": True},
        {"key": "log.level", "old": "info", "new": "debug", "needs_restart": False},
    ]
    assert "mean the same" in run("diff", "old.yaml", "old.yaml").stdout
