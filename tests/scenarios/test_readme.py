"""README and docs tell the truth: what they name exists, and what they say to type works.

Every `sh` block of a page runs in order, as a reader would type it, in an empty folder, with the well-known ports
replaced by free ones. A block that ends in a command which keeps running (`serve`, a `sub` without an end) stays in the
background like a terminal of its own. A `text` block after a publish is what the running `sub` must show.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import typer.main
import yaml

import millstream
from millstream.client.mqtt_client import MqttClient, MqttClientError
from millstream.commands.tree import app
from millstream.config.faults import ConfigFault
from millstream.config.keys import ANY_NAME, all_keys, section_of
from millstream.config.load import load
from millstream.protocols.mqtt.wire.reason_codes import NOT_AUTHORIZED
from millstream.security.acl import AclFault, parse_acl
from millstream.security.users import User, UserTable, format_users, hash_password

if TYPE_CHECKING:
    from conftest import StartBroker

ROOT = Path(__file__).resolve().parents[2]
SOURCE = str(Path(millstream.__file__).resolve().parents[1])  # of the build under test
RUNNABLE = (
    "README.md",
    "docs/getting-started.md",
    "docs/security.md",
    "docs/operations.md",
    "docs/queues.md",
)
MIGRATION = "docs/migrate-from-mosquitto.md"
PAGES = (*RUNNABLE, MIGRATION, "ARCHITECTURE.md")
WELL_KNOWN_PORTS = ("1883", "8883", "8083", "8084", "5672", "5671")
TIMEOUT_S = 60.0
PUBLISHES_MAX = 20  # a `sub` says nothing when it is ready: publishing is repeated until it shows the message

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
SPAN = re.compile(r"`([^`\n]+)`")
SECTIONS = {key.path[0] for key in all_keys() if len(key.path) > 1}
KEYS = {".".join(key.path) for key in all_keys()}
KEYS_ANYWHERE = {".".join("<name>" if part == ANY_NAME else part for part in key.path) for key in all_keys()}


@dataclass(frozen=True)
class Block:
    kind: str
    text: str

    @property
    def last_line(self) -> str:
        return self.text.strip().replace("\\\n", " ").splitlines()[-1]

    @property
    def keeps_running(self) -> bool:
        line = self.last_line
        if "millstream serve" in line or line == "./dev run":
            return True
        return "millstream sub" in line and "--count" not in line and "--timeout" not in line

    @property
    def is_broker(self) -> bool:
        return self.keeps_running and "millstream sub" not in self.last_line


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks_of(page: str) -> list[Block]:
    return [Block(match[1], match[2]) for match in FENCE.finditer(text_of(page))]


def prose_of(page: str) -> str:
    return FENCE.sub("", text_of(page))


def commands_of(page: str) -> Iterator[list[str]]:
    """The arguments of every `millstream …` on a page, in blocks and in the text."""
    texts = [block.text for block in blocks_of(page) if block.kind == "sh"]
    texts += [span for span in SPAN.findall(prose_of(page)) if span.startswith("millstream ")]
    for text in texts:
        for line in text.replace("\\\n", " ").splitlines():
            found = re.search(r"(?:^|\| )(?:\w+=\S* )*millstream ([a-z-].*)", line)
            if found:
                words = re.split(r" (?:\||>|\|\|) ", found[1])[0]
                yield re.findall(r"'[^']*'|\S+", words)


# ------------------------------------------------------------------ what is named exists


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page: str) -> None:
    targets = [target for target in LINK.findall(text_of(page)) if "://" not in target]
    missing = [target for target in targets if not ((ROOT / page).parent / target).exists()]
    assert not missing


@pytest.mark.parametrize("page", PAGES)
def test_every_command_and_flag_exists(page: str) -> None:
    for words in commands_of(page):
        command: Any = typer.main.get_command(app)
        rest = list(words)
        while hasattr(command, "commands") and rest and not rest[0].startswith("-"):
            assert rest[0] in command.commands, f"{page}: millstream {' '.join(words)}"
            command = command.commands[rest.pop(0)]
        known = {
            name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)
        }
        flags = {word.partition("=")[0] for word in rest if re.match(r"--?[a-z]", word)}
        assert flags <= known, f"{page}: millstream {' '.join(words)}"


@pytest.mark.parametrize("page", PAGES)
def test_every_configuration_key_exists(page: str) -> None:
    settings = re.findall(r"--set ([\w.]+)=", text_of(page))
    spans = [span.partition(":")[0] for span in SPAN.findall(prose_of(page))]
    named = [
        span
        for span in spans
        if re.fullmatch(r"[a-z_]+(\.[a-z0-9_<>]+)+", span) and span.split(".")[0] in SECTIONS
    ]
    unknown = [
        name for name in named if name not in KEYS_ANYWHERE and section_of(tuple(name.split("."))) is None
    ]
    assert not unknown
    assert set(settings) <= KEYS
    variables = re.findall(r"MILLSTREAM_[A-Z_]+(?==)", text_of(page))
    assert set(variables) <= {key.variable for key in all_keys()} | {"MILLSTREAM_PASSWORD"}


@pytest.mark.parametrize("page", PAGES)
def test_every_dev_command_exists(page: str) -> None:
    known = set(re.findall(r"^command_(\w+)\(\)", text_of("dev"), re.MULTILINE))
    assert set(re.findall(r"\./dev (\w+)", text_of(page))) <= known


@pytest.mark.parametrize("page", PAGES)
def test_every_file_of_the_source_that_is_named_exists(page: str) -> None:
    named = [
        span.partition(":")[0]
        for span in SPAN.findall(prose_of(page))
        if re.match(
            r"(src|tests|examples|runtime|broker|protocols|routing|model|security|storage|app)/[\w/]+\.py",
            span,
        )
    ]
    missing = [
        name for name in named if not any((base / name).exists() for base in (ROOT, ROOT / "src/millstream"))
    ]
    assert not missing


def test_the_architecture_names_only_functions_that_exist() -> None:
    source = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    named = {
        (*found[1].split("."),)
        for span in SPAN.findall(text_of("ARCHITECTURE.md"))
        if (found := re.fullmatch(r"([A-Za-z_]+(?:\.[a-z_]+)?)\(\)", span))
    }
    missing = [
        ".".join(names)
        for names in named
        if not re.search(rf"def {names[-1]}\(", source)
        or (len(names) == 2 and names[0][0].isupper() and f"class {names[0]}" not in source)
    ]
    assert named
    assert not missing


def test_every_event_and_topic_of_the_operations_page_exists(tmp_path: Path) -> None:
    source = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    page = prose_of("docs/operations.md")
    events = page.partition("| event |")[2].partition("\n\n")[0]
    names = [
        name for row in events.splitlines() for name in SPAN.findall(row.split("|")[1] if "|" in row else "")
    ]
    assert len(names) > 10
    assert [name for name in names if f'"{name}"' not in source] == []


def test_the_readme_says_how_to_run_the_tests() -> None:
    assert "Run the tests: `./dev test`" in text_of("README.md").splitlines()


def test_the_sample_files_are_sound() -> None:
    try:
        loaded = load(ROOT / "examples" / "millstream.yaml")
        parse_acl(yaml.safe_load((ROOT / "examples" / "acl.yaml").read_text(encoding="utf-8")))
    except (ConfigFault, AclFault) as fault:
        pytest.fail(str(fault))
    assert loaded.config.auth.acl_file == ROOT / "examples" / "acl.yaml"


# --------------------------------------------------------------- what is to be typed works


class Terminals:
    """The terminals of one reader of one page: a folder, a broker, a subscriber, and free ports."""

    def __init__(self, folder: Path, home: Path) -> None:
        self.folder = folder
        self.ports = dict(zip(WELL_KNOWN_PORTS, free_ports(len(WELL_KNOWN_PORTS)), strict=True))
        self._home = home
        self._ready_file = home / "ready.json"
        self._running: list[subprocess.Popen[bytes]] = []
        self._subscriber_output = home / "sub.txt"
        self._output = ""
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("MILLSTREAM_")},
            "PYTHONPATH": SOURCE,
            "PATH": f"{home}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONUNBUFFERED": "1",
        }
        command = home / "millstream"
        command.write_text(self._command_text())
        command.chmod(command.stat().st_mode | stat.S_IXUSR)

    def _command_text(self) -> str:
        """`millstream` as it is, but on our ports where the page relies on a default."""
        mqtt, mqtts, ws, wss, amqp, amqps = (self.ports[port] for port in WELL_KNOWN_PORTS)
        ports = f"--set mqtt.port={mqtt} --set mqtt.tls.port={mqtts} --set websocket.port={ws} --set websocket.tls.port={wss}"
        ports += f" --set amqp.port={amqp} --set amqp.tls.port={amqps}"
        python = f'exec "{sys.executable}" -m millstream'
        return (
            "#!/bin/bash\n"
            'case "$1" in\n'
            f'serve) {python} "$@" {ports} --ready-file "{self._ready_file}" ;;\n'
            f'pub|sub|bench) [[ " $* " == *" --url "* ]] || set -- "$@" --url mqtt://127.0.0.1:{mqtt}; {python} "$@" ;;\n'
            f'*) {python} "$@" ;;\n'
            "esac\n"
        )

    def type(self, block: Block) -> None:
        text = re.sub(r"^millstream\(\).*\n", "", block.text, flags=re.MULTILINE).replace(
            "./dev run", "millstream serve"
        )
        for port in WELL_KNOWN_PORTS:
            text = re.sub(rf"\b{port}\b", str(self.ports[port]), text)
        text = text.replace("/etc/mosquitto/", f"{self._home}/mosquitto/")
        if block.is_broker:
            self.end()
            self._ready_file.unlink(missing_ok=True)
            self._start(text, self._home / "serve.txt")
            self._wait_ready()
        elif block.keeps_running:
            self._start(text, self._subscriber_output)
        else:
            done = subprocess.run(
                ["bash", "-e", "-o", "pipefail", "-c", text],
                cwd=self.folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
                check=False,
            )
            self._output = done.stdout
            assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"

    def type_until_shown(self, block: Block, expected: str) -> None:
        for _ in range(PUBLISHES_MAX):
            self.type(block)
            if expected in self._output:  # what the block itself prints
                return
            if expected in self._subscriber_output.read_text(encoding="utf-8"):
                return
        pytest.fail(f"the subscriber never showed {expected!r}")

    def _start(self, text: str, output: Path) -> None:
        with output.open("wb") as target:
            self._running.append(
                subprocess.Popen(
                    ["bash", "-e", "-c", text],
                    cwd=self.folder,
                    env=self._environment,
                    stdin=subprocess.DEVNULL,
                    stdout=target,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )

    def _wait_ready(self) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not self._ready_file.exists():
            if self._running[-1].poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"the broker did not start\n{(self._home / 'serve.txt').read_text()}")
            time.sleep(0.01)  # another process: there is no event to wait for

    def end(self) -> None:
        while self._running:
            process = self._running.pop()
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
            process.wait(TIMEOUT_S)


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return ports


@pytest.fixture
def terminals(tmp_path: Path) -> Iterator[Terminals]:
    (tmp_path / "folder").mkdir()
    (tmp_path / "home" / "mosquitto").mkdir(parents=True)
    terminals = Terminals(tmp_path / "folder", tmp_path / "home")
    yield terminals
    terminals.end()


def type_page(page: str, terminals: Terminals) -> int:
    """Type every `sh` block of a page; gives how many there were."""
    blocks = blocks_of(page)
    typed = 0
    for index, block in enumerate(blocks):
        if block.kind != "sh":
            continue
        typed += 1
        following = blocks[index + 1] if index + 1 < len(blocks) else Block("", "")
        if following.kind == "text" and not block.keeps_running:
            terminals.type_until_shown(block, following.text)
        else:
            terminals.type(block)
    return typed


@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", RUNNABLE)
def test_what_a_page_says_to_type_works(page: str, terminals: Terminals) -> None:
    if "mosquitto_sub" in text_of(page) and shutil.which("mosquitto_sub") is None:
        pytest.skip("mosquitto_sub is not installed")
    if "openssl" in text_of(page) and shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    assert type_page(page, terminals) >= 2


@pytest.mark.timeout(300)
def test_what_the_mosquitto_page_says_to_type_works(terminals: Terminals, tmp_path: Path) -> None:
    tool = shutil.which("mosquitto_passwd")
    if tool is None:
        pytest.skip("mosquitto_passwd is not installed")
    theirs = tmp_path / "home" / "mosquitto"
    subprocess.run([tool, "-c", "-b", str(theirs / "passwd"), "alice", "wonder land"], check=True)
    (theirs / "acl").write_text(
        "topic read news/#\nuser alice\ntopic readwrite plant/#\npattern write home/%u/#\n"
    )
    assert type_page(MIGRATION, terminals) == 3
    terminals.type(
        Block("sh", "millstream serve --set auth.password_file=users.txt --set auth.acl_file=acl.yaml\n")
    )
    publish = (
        "MILLSTREAM_PASSWORD='wonder land' millstream pub plant/hall1/temperature 21.5 --qos 1 --user alice\n"
    )
    terminals.type(Block("sh", publish))


def test_the_program_of_the_readme_runs(tmp_path: Path) -> None:
    program = next(block.text for block in blocks_of("README.md") if block.kind == "python")
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": SOURCE},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "b'plant/hall1/temperature' b'21.5'\n"


async def test_changed_rules_and_users_reach_live_connections(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    users, rules = tmp_path / "users.txt", tmp_path / "acl.yaml"
    users.write_text(
        format_users(UserTable({}).with_user(User("alice", hash_password("wonderland"), "default", None)))
    )
    users.chmod(0o600)
    rules.write_text("rules:\n- {allow: all, topics: ['plant/#']}\n")
    broker = start_broker(f"auth.password_file={users}", f"auth.acl_file={rules}")
    client = await MqttClient.connect("127.0.0.1", broker.mqtt_port, username="alice", password=b"wonderland")
    assert await client.publish("plant/a", b"before", qos=1) < NOT_AUTHORIZED

    replacement = tmp_path / "next.yaml"
    replacement.write_text(
        "rules:\n- {deny: publish, topics: ['plant/a']}\n- {allow: all, topics: ['plant/#']}\n"
    )
    replacement.replace(rules)
    async with asyncio.timeout(TIMEOUT_S):
        while await client.publish("plant/a", b"later", qos=1) != NOT_AUTHORIZED:  # noqa: ASYNC110
            await asyncio.sleep(0.05)  # the broker looks at its files in its own time

    users.write_text("")
    with pytest.raises(MqttClientError) as ended:
        await asyncio.wait_for(wait_end(client), TIMEOUT_S)
    assert ended.value.reason == NOT_AUTHORIZED


async def wait_end(client: MqttClient) -> None:
    async for message in client.messages():
        pytest.fail(f"nothing was subscribed to, yet {message.topic!r} came")
