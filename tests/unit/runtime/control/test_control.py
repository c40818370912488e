"""The control channel without a broker: lines in, lines out, and who may have the socket."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from millstream.model.errors import Reason, Refused, Unavailable
from millstream.runtime.control import server as control_server
from millstream.runtime.control.client import SOCKET_NAME, socket_address
from millstream.runtime.control.server import (
    ControlFault,
    ControlRefusal,
    ControlServer,
    Conversation,
    Fields,
    open_socket,
)
from millstream.storage.disk import DiskFault

LINE_MAX = 4096


async def echo(fields: Fields, conversation: Conversation) -> object:
    return fields


async def count(fields: Fields, conversation: Conversation) -> object:
    for number in range(3):
        await conversation.tell({"done": number})
    return {"counted": 3}


async def fail(fields: Fields, conversation: Conversation) -> object:
    faults: dict[object, Exception] = {
        "refusal": ControlRefusal("no", "millstream queue list"),
        "refused": Refused(Reason.TOPIC_INVALID, "never"),
        "unavailable": Unavailable("later"),
        "disk": DiskFault("bad sector"),
    }
    raise faults.get(fields.get("how"), ZeroDivisionError("the wheel came off"))


OPERATIONS: dict[str, control_server.Operation] = {"echo": echo, "count": count, "fail": fail}


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ControlServer]:
    server = ControlServer(tmp_path / "data", OPERATIONS, LINE_MAX)
    await server.start()
    yield server
    await server.stop()


class Caller:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, path: Path) -> Caller:
        return cls(*await asyncio.open_unix_connection(str(path)))

    def send(self, line: bytes) -> None:
        self._writer.write(line)

    async def read(self) -> dict[str, object] | None:
        """The next line; None: the other end closed."""
        line = await self._reader.readline()
        return json.loads(line) if line else None

    async def ask(self, operation: str, **fields: object) -> dict[str, object] | None:
        self.send(json.dumps({"operation": operation, "fields": fields}).encode() + b"\n")
        return await self.read()

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


async def test_only_the_user_the_broker_runs_as_can_open_the_socket(server: ControlServer) -> None:
    assert stat.S_IMODE(server.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(server.path.parent.stat().st_mode) == 0o700


async def test_a_socket_is_never_open_to_others_not_even_while_it_is_made(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with open_socket(tmp_path / SOCKET_NAME):
            assert stat.S_IMODE((tmp_path / SOCKET_NAME).stat().st_mode) == 0o600
    finally:
        os.umask(before)


async def test_requests_of_one_connection_are_answered_in_their_order(server: ControlServer) -> None:
    caller = await Caller.connect(server.path)
    caller.send(b'{"operation":"count"}\n{"operation":"echo","fields":{"a":[1,"\xc3\xa9"]}}\n')
    assert [await caller.read() for _ in range(5)] == [
        {"progress": {"done": 0}},
        {"progress": {"done": 1}},
        {"progress": {"done": 2}},
        {"result": {"counted": 3}},
        {"result": {"a": [1, "é"]}},
    ]


@pytest.mark.parametrize(
    ("how", "answer"),
    [
        ("refusal", {"error": "no", "hint": "millstream queue list"}),
        ("refused", {"error": "never", "hint": ""}),
        ("unavailable", {"error": "later", "hint": ""}),
        ("disk", {"error": "the disk fails: bad sector", "hint": ""}),
    ],
)
async def test_a_refusal_is_told_and_the_connection_lives(
    server: ControlServer, how: str, answer: dict[str, object]
) -> None:
    caller = await Caller.connect(server.path)
    assert await caller.ask("fail", how=how) == answer
    assert await caller.ask("echo") == {"result": {}}


async def test_an_operation_that_breaks_costs_its_answer_only(server: ControlServer) -> None:
    caller = await Caller.connect(server.path)
    answer = await caller.ask("fail")
    assert answer is not None
    assert "ZeroDivisionError" in str(answer["error"])
    assert await caller.ask("echo") == {"result": {}}


@pytest.mark.parametrize(
    "line",
    [
        b"nonsense\n",
        b"[]\n",
        b'{"operation":7}\n',
        b'{"operation":"echo","fields":[]}\n',
        b"[" * 4000 + b"\n",
    ],
)
async def test_what_is_no_request_is_refused_in_words(server: ControlServer, line: bytes) -> None:
    caller = await Caller.connect(server.path)
    caller.send(line)
    answer = await caller.read()
    assert answer is not None
    assert answer["error"]
    assert await caller.ask("echo") == {"result": {}}


async def test_an_unknown_operation_is_answered_with_those_there_are(server: ControlServer) -> None:
    caller = await Caller.connect(server.path)
    answer = await caller.ask("eco")
    assert answer is not None
    assert answer["error"] == "there is no operation 'eco'; there are echo, count, fail"


async def test_a_line_that_is_too_long_ends_the_connection(server: ControlServer) -> None:
    caller = await Caller.connect(server.path)
    caller.send(b'"' + b"x" * 3 * LINE_MAX + b'"\n')
    answer = await caller.read()
    assert answer is not None
    assert "longer than 4096 bytes" in str(answer["error"])
    assert await caller.read() is None


async def test_there_is_an_end_to_the_number_of_connections(server: ControlServer) -> None:
    callers = [await Caller.connect(server.path) for _ in range(control_server.CONNECTIONS_MAX)]
    for caller in callers:
        assert await caller.ask("echo") == {"result": {}}
    one_more = await Caller.connect(server.path)
    answer = await one_more.read()
    assert answer is not None
    assert "commands are being served" in str(answer["error"])
    assert await one_more.read() is None
    assert await callers[0].ask("echo") == {"result": {}}


async def test_a_connection_that_asks_for_nothing_is_closed(tmp_path: Path) -> None:
    server = ControlServer(tmp_path, OPERATIONS, LINE_MAX, idle_s=0.01)
    await server.start()
    caller = await Caller.connect(server.path)
    assert await caller.read() is None
    await server.stop()


async def test_what_a_connection_holds_is_let_go_when_it_ends(tmp_path: Path) -> None:
    let_go = asyncio.Event()

    async def hold(fields: Fields, conversation: Conversation) -> object:
        conversation.at_end(let_go.set)
        return None

    server = ControlServer(tmp_path, {"hold": hold}, LINE_MAX)
    await server.start()
    caller = await Caller.connect(server.path)
    assert await caller.ask("hold") == {"result": None}
    assert not let_go.is_set()
    await caller.close()
    await let_go.wait()
    await server.stop()


async def test_an_operation_ends_when_nobody_listens_to_its_progress_any_more(tmp_path: Path) -> None:
    ended = asyncio.Event()

    async def go_on(fields: Fields, conversation: Conversation) -> object:
        try:
            while True:
                await conversation.tell({"done": 1})
        finally:
            ended.set()

    server = ControlServer(tmp_path, {"go_on": go_on}, LINE_MAX)
    await server.start()
    caller = await Caller.connect(server.path)
    assert await caller.ask("go_on") == {"progress": {"done": 1}}
    await caller.close()
    await ended.wait()
    await server.stop()


async def test_stopping_ends_what_is_under_way_and_removes_the_socket(tmp_path: Path) -> None:
    started = asyncio.Event()
    ended: list[str] = []

    async def wait(fields: Fields, conversation: Conversation) -> object:
        started.set()
        try:
            return await asyncio.Event().wait()
        finally:
            ended.append("operation")

    server = ControlServer(tmp_path, {"wait": wait}, LINE_MAX)
    await server.start()
    caller = await Caller.connect(server.path)
    caller.send(b'{"operation":"wait"}\n')
    await started.wait()
    await server.stop()
    assert ended == ["operation"]
    assert await caller.read() is None
    assert not server.path.exists()


async def test_the_socket_that_a_dead_broker_left_is_replaced(tmp_path: Path) -> None:
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(tmp_path / SOCKET_NAME))
    left.close()
    server = ControlServer(tmp_path, OPERATIONS, LINE_MAX)
    await server.start()
    assert await (await Caller.connect(server.path)).ask("echo") == {"result": {}}
    await server.stop()


async def test_the_socket_of_a_living_broker_is_not_taken(server: ControlServer) -> None:
    other = ControlServer(server.path.parent, OPERATIONS, LINE_MAX)
    with pytest.raises(ControlFault, match="another broker answers"):
        await other.start()
    await other.stop()
    assert await (await Caller.connect(server.path)).ask("echo") == {"result": {}}


async def test_a_file_that_is_no_socket_is_not_removed(tmp_path: Path) -> None:
    (tmp_path / SOCKET_NAME).write_text("precious")
    with pytest.raises(ControlFault, match="in the way") as fault:
        await ControlServer(tmp_path, OPERATIONS, LINE_MAX).start()
    assert fault.value.hint.startswith("rm ")
    assert (tmp_path / SOCKET_NAME).read_text() == "precious"


async def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ControlFault, match="cannot be made"):
        await ControlServer(tmp_path / "file" / "data", OPERATIONS, LINE_MAX).start()


async def test_a_broker_that_stops_leaves_the_socket_of_its_successor(tmp_path: Path) -> None:
    first = ControlServer(tmp_path, OPERATIONS, LINE_MAX)
    await first.start()
    first.path.unlink()
    second = ControlServer(tmp_path, OPERATIONS, LINE_MAX)
    await second.start()
    await first.stop()
    assert await (await Caller.connect(second.path)).ask("echo") == {"result": {}}
    await second.stop()


async def test_a_deep_folder_is_no_obstacle(tmp_path: Path) -> None:
    folder = tmp_path.joinpath(*["a-folder-with-a-long-name"] * 8)
    server = ControlServer(folder, OPERATIONS, LINE_MAX)
    await server.start()
    assert stat.S_IMODE(server.path.stat().st_mode) == 0o600
    with socket_address(server.path) as address:
        caller = await Caller.connect(Path(address))
    assert await caller.ask("echo", deep=True) == {"result": {"deep": True}}
    with pytest.raises(ControlFault, match="another broker answers"):
        await ControlServer(folder, OPERATIONS, LINE_MAX).start()
    await server.stop()
    assert not server.path.exists()
