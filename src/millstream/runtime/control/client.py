"""The caller's side of the control channel: one request as a line of JSON, progress lines, one answer.

    {"operation": "queue.show", "fields": {"name": "orders"}}
    {"progress": {"done": 256, "total": 1000}}        any number of them
    {"result": {...}}   or   {"error": "one clause", "hint": "a command to type"}

It blocks: it is for commands, never for the loop of a broker.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Final

SOCKET_NAME: Final = "control.sock"
PATH_LENGTH_MAX: Final = 100  # a socket's address holds 107 bytes
ANSWER_TIMEOUT_S: Final = 120.0
ANSWER_BYTES_MAX: Final = 1 << 30

Progress = Callable[[dict[str, object]], None]


class ControlEnd(Enum):
    """How a call can fail."""

    UNREACHABLE = "no broker answers"
    LOST = "the broker went away in the middle"
    REFUSED = "the broker said no"


class ControlError(Exception):
    """`text` is a clause without a full stop; `hint` a command to type, or empty."""

    def __init__(self, end: ControlEnd, text: str, hint: str = "") -> None:
        super().__init__(text)
        self.end = end
        self.text = text
        self.hint = hint


@contextmanager
def socket_address(path: Path) -> Iterator[str]:
    """An address for the socket at `path`, short enough however deep its folder lies."""
    if len(os.fsencode(path)) <= PATH_LENGTH_MAX:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


class ControlClient:
    """One connection; `with ControlClient(path) as client: client.call("queue.list", {})`."""

    def __init__(self, path: Path, timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            with socket_address(path) as address:
                self._socket.connect(address)
        except PermissionError:
            self._socket.close()
            text = f"{path} is not yours to use; run this as the user the broker runs as"
            raise ControlError(ControlEnd.UNREACHABLE, text) from None
        except OSError:
            self._socket.close()
            raise ControlError(ControlEnd.UNREACHABLE, f"no broker answers at {path}") from None
        self._socket.settimeout(timeout_s)
        self._lines = self._socket.makefile("rb")

    def __enter__(self) -> ControlClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._lines.close()
        self._socket.close()

    def call(self, operation: str, fields: dict[str, object], on_progress: Progress | None = None) -> object:
        """What the broker answers; ControlError when it refuses or is gone."""
        request = json.dumps({"operation": operation, "fields": fields}, ensure_ascii=False)
        try:
            self._socket.sendall(request.encode("utf-8", "surrogateescape") + b"\n")
        except (BrokenPipeError, ConnectionResetError):
            pass  # it may have said why before it hung up
        except OSError as error:
            raise self._lost(error) from None
        while True:
            answer = self._read()
            progress = answer.get("progress")
            if isinstance(progress, dict):
                if on_progress is not None:
                    on_progress(progress)
                continue
            if "error" in answer:
                raise ControlError(ControlEnd.REFUSED, str(answer["error"]), str(answer.get("hint") or ""))
            return answer.get("result")

    def _read(self) -> dict[str, object]:
        try:
            line = self._lines.readline(ANSWER_BYTES_MAX)
        except OSError as error:
            raise self._lost(error) from None
        if not line.endswith(b"\n"):
            raise self._lost(None)
        try:
            answer = json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            text = f"what answers at {self._path} does not speak as a broker does"
            raise ControlError(ControlEnd.LOST, text)
        return answer

    def _lost(self, error: OSError | None) -> ControlError:
        why = "did not answer in time" if isinstance(error, TimeoutError) else "closed the connection"
        return ControlError(
            ControlEnd.LOST, f"the broker at {self._path} {why}; it may or may not have done it"
        )
