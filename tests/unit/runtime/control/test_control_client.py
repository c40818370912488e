"""The caller's side of the control channel, against a peer that says what the test wants."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from millstream.runtime.control.client import (
    SOCKET_NAME,
    ControlClient,
    ControlEnd,
    ControlError,
    socket_address,
)


class Peer:
    """Accepts one connection, reads one line, answers with `lines`, hangs up."""

    def __init__(self, path: Path, lines: bytes) -> None:
        self.request = b""
        self._lines = lines
        self._listening = socket.socket(socket.AF_UNIX)
        with socket_address(path) as address:
            self._listening.bind(address)
        self._listening.listen()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        connection, _ = self._listening.accept()
        with connection, self._listening:
            self.request = connection.makefile("rb").readline()
            connection.sendall(self._lines)

    def join(self) -> None:
        self._thread.join()


@pytest.fixture
def answer(tmp_path: Path) -> Callable[..., tuple[Peer, ControlClient]]:
    def start(*lines: object) -> tuple[Peer, ControlClient]:
        data = b"".join(
            line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in lines
        )
        path = tmp_path / SOCKET_NAME
        peer = Peer(path, data)
        return peer, ControlClient(path)

    return start


def test_a_call_gives_the_result_and_tells_progress(
    answer: Callable[..., tuple[Peer, ControlClient]],
) -> None:
    peer, client = answer({"progress": {"done": 1}}, {"progress": {"done": 2}}, {"result": {"moved": 2}})
    told: list[dict[str, object]] = []
    with client:
        assert client.call("queue.move", {"source": "é"}, told.append) == {"moved": 2}
    assert told == [{"done": 1}, {"done": 2}]
    peer.join()
    assert json.loads(peer.request) == {"operation": "queue.move", "fields": {"source": "é"}}


def test_progress_that_nobody_asked_for_is_passed_over(
    answer: Callable[..., tuple[Peer, ControlClient]],
) -> None:
    _, client = answer({"progress": {"done": 1}}, {"result": 7})
    with client:
        assert client.call("x", {}) == 7


def test_a_refusal_carries_the_next_command(answer: Callable[..., tuple[Peer, ControlClient]]) -> None:
    _, client = answer({"error": "there is no queue 'x'", "hint": "millstream queue list"})
    with client, pytest.raises(ControlError) as refused:
        client.call("queue.show", {"name": "x"})
    assert refused.value.end is ControlEnd.REFUSED
    assert refused.value.text == "there is no queue 'x'"
    assert refused.value.hint == "millstream queue list"


@pytest.mark.parametrize("lines", [b"", b'{"progress":{}}\n', b'{"result": 1', b"[]\n", b"nonsense\n"])
def test_a_broker_that_goes_away_in_the_middle_is_told_apart(
    answer: Callable[..., tuple[Peer, ControlClient]], lines: bytes
) -> None:
    _, client = answer(lines)
    with client, pytest.raises(ControlError) as lost:
        client.call("x", {})
    assert lost.value.end is ControlEnd.LOST


@pytest.mark.parametrize("kind", ["absent", "stale", "file", "no folder"])
def test_where_no_broker_is_that_is_what_is_said(tmp_path: Path, kind: str) -> None:
    path = tmp_path / SOCKET_NAME
    if kind == "stale":
        left = socket.socket(socket.AF_UNIX)
        left.bind(str(path))
        left.close()
    elif kind == "file":
        path.write_text("")
    elif kind == "no folder":
        path = tmp_path.joinpath(*["a-folder-with-a-long-name"] * 8, SOCKET_NAME)
    with pytest.raises(ControlError, match="no broker answers at") as unreachable:
        ControlClient(path)
    assert unreachable.value.end is ControlEnd.UNREACHABLE


def test_a_broker_in_a_deep_folder_is_reached(tmp_path: Path) -> None:
    folder = tmp_path.joinpath(*["a-folder-with-a-long-name"] * 8)
    folder.mkdir(parents=True)
    Peer(folder / SOCKET_NAME, b'{"result":1}\n')
    with ControlClient(folder / SOCKET_NAME) as client:
        assert client.call("x", {}) == 1
