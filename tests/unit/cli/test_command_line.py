"""The command line as a process sees it: exit codes, help, errors of one sentence."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from millstream.commands.outcome import CommandFailed, ExitCode
from millstream.commands.serve import address_lines, write_ready_file
from millstream.commands.tree import app
from millstream.version import VERSION

COMMANDS = [
    ["serve"],
    ["status"],
    ["pub"],
    ["sub"],
    ["bench"],
    ["completion"],
    ["config", "check"],
    ["config", "show"],
    ["config", "schema"],
    ["config", "init"],
    ["config", "diff"],
    ["user", "add"],
    ["user", "remove"],
    ["user", "list"],
    ["user", "import"],
    ["acl", "check"],
    ["acl", "show"],
    ["acl", "import"],
    ["queue", "list"],
    ["queue", "show"],
    ["queue", "create"],
    ["queue", "update"],
    ["queue", "delete"],
    ["queue", "purge"],
    ["queue", "peek"],
    ["queue", "move"],
    ["queue", "publish"],
    ["queue", "consume"],
    ["queue", "groups"],
    ["queue", "seek"],
    ["queue", "remove-group"],
    ["queue", "bind"],
    ["queue", "unbind"],
    ["exchange", "list"],
    ["exchange", "show"],
    ["exchange", "declare"],
    ["exchange", "delete"],
    ["exchange", "bind"],
    ["exchange", "unbind"],
    ["definitions", "export"],
    ["definitions", "import"],
]


def millstream(
    *arguments: str, cwd: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MILLSTREAM_")}
    return subprocess.run(
        [sys.executable, "-m", "millstream", *arguments],
        cwd=cwd,
        env={**clean, **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_explains_itself_with_examples(command: list[str]) -> None:
    result = CliRunner().invoke(app, [*command, "--help"])
    assert result.exit_code == 0
    assert "Examples:" in result.stdout
    assert f"millstream {' '.join(command)}" in result.stdout


def test_help_works_whatever_the_configuration_says(tmp_path: Path) -> None:
    result = millstream("--help", cwd=tmp_path, MILLSTREAM_NONSENSE="1", MILLSTREAM_CONFIG="absent.yaml")
    assert (result.returncode, result.stderr) == (0, "")
    assert "Exit codes:" in result.stdout


def test_the_version_names_the_build() -> None:
    result = millstream("--version")
    assert result.returncode == 0
    assert result.stdout.startswith(f"millstream {VERSION} (")


def test_the_version_loads_no_library() -> None:
    code = (
        "import sys; sys.argv = ['millstream', '--version']; from millstream.cli import main; main(); "
        "print([name for name in ('typer', 'rich', 'pydantic', 'asyncio', 'yaml') if name in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert result.stdout.splitlines()[-1] == "[]"


def test_the_help_loads_no_heavy_library() -> None:
    code = (
        "import sys; sys.argv = ['millstream', '--help']; from millstream.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print([name for name in ('rich', 'pydantic', 'yaml', 'argon2', 'structlog') if name in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert result.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["serve", "--nonsense"], ["pub"], ["config", "nonsense"]]
)
def test_wrong_usage_ends_with_code_2(arguments: list[str]) -> None:
    result = millstream(*arguments)
    assert result.returncode == 2
    assert "Traceback" not in result.stderr


def test_a_broken_configuration_ends_with_code_2_and_the_next_command(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("mqtt:\n  prot: 1\n")
    result = millstream("config", "check", "-c", "a.yaml", cwd=tmp_path)
    assert result.returncode == 2
    assert result.stderr == (
        "error: a.yaml:2: mqtt.prot is not a known key (value: 1); did you mean mqtt.port?\n"
        "next: millstream config check --config a.yaml\n"
    )


def test_an_error_of_ours_is_one_sentence_and_a_traceback_only_on_request(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def break_down(*_arguments: object, **_options: object) -> None:
        raise RuntimeError("the wheel came off")

    monkeypatch.setattr("millstream.commands.configuration.load_settings", break_down)
    plain = CliRunner().invoke(app, ["config", "check"])
    assert plain.exit_code == 1
    assert "the wheel came off" in plain.stderr
    assert "next: millstream --debug" in plain.stderr
    assert isinstance(plain.exception, SystemExit)
    debugged = CliRunner().invoke(app, ["--debug", "config", "check"])
    assert isinstance(debugged.exception, RuntimeError)


def test_the_exit_codes_are_what_the_help_says() -> None:
    assert [code.value for code in ExitCode] == [0, 1, 2, 3, 4, 5]
    assert CommandFailed(ExitCode.REFUSED, "no").code == 4


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_is_printed_for_each_shell(shell: str) -> None:
    result = CliRunner().invoke(app, ["completion", shell])
    assert result.exit_code == 0
    assert "_MILLSTREAM_COMPLETE" in result.stdout


def test_the_shell_is_told_which_commands_there_are() -> None:
    result = millstream(_MILLSTREAM_COMPLETE="complete_bash", COMP_WORDS="millstream con", COMP_CWORD="1")
    assert "config" in result.stdout


def test_the_bash_script_is_sound(tmp_path: Path) -> None:
    script = tmp_path / "completion.sh"
    script.write_text(CliRunner().invoke(app, ["completion", "bash"]).stdout)
    assert subprocess.run(["bash", "-n", str(script)], check=False).returncode == 0


def test_addresses_are_printed_as_urls() -> None:
    addresses = {"mqtt": ("127.0.0.1", 1883), "mqtt_tls": ("::1", 8883), "websocket_tls": ("127.0.0.1", 8084)}
    assert address_lines(addresses, "/mqtt") == [
        "mqtt mqtt://127.0.0.1:1883",
        "mqtt_tls mqtts://[::1]:8883",
        "websocket_tls wss://127.0.0.1:8084/mqtt",
    ]
    readers = {"reader": ("127.0.0.1", 8090), "flight": ("127.0.0.1", 8815)}
    assert address_lines(readers, "") == ["reader http://127.0.0.1:8090", "flight grpc+tcp://127.0.0.1:8815"]
    secured = address_lines(readers, "", has_reader_tls=True)
    assert secured == ["reader https://127.0.0.1:8090", "flight grpc+tls://127.0.0.1:8815"]


def test_the_ready_file_is_whole_when_it_is_there(tmp_path: Path) -> None:
    write_ready_file(tmp_path / "ready.json", {"mqtt": ("127.0.0.1", 1)})
    ready = json.loads((tmp_path / "ready.json").read_text())
    assert ready == {"pid": os.getpid(), "listeners": {"mqtt": {"host": "127.0.0.1", "port": 1}}}
    assert list(tmp_path.iterdir()) == [tmp_path / "ready.json"]


def test_a_ready_file_in_no_directory_is_refused_before_anything_is_opened() -> None:
    result = CliRunner().invoke(app, ["serve", "--ready-file", "/nonexistent/ready.json"])
    assert result.exit_code == 2
    assert "there is no directory /nonexistent" in result.stderr
