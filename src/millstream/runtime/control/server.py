"""The control channel: a unix socket in the data directory through which commands reach a running broker.

Requests and answers are lines of JSON (see `runtime.control.client`). Whoever can open the socket is the operator: it has mode
0600, so that is the user the broker runs as.

Invariants
- One request at a time per connection; every line, the number of connections and every wait are bounded.
- The socket of a broker that lives is never taken from it; what a dead one left is replaced.
- A request that breaks costs its answer, never the broker.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final

import structlog

from millstream.model.errors import Refused, Unavailable
from millstream.runtime.control.client import SOCKET_NAME, socket_address
from millstream.storage.disk import DiskFault

CONNECTIONS_MAX: Final = 32
IDLE_S: Final = 300.0  # a connection without a request for so long is closed
SEND_S: Final = 60.0  # and one that does not take its answer
BACKLOG: Final = 16


class ControlFault(Exception):
    """The socket cannot be opened: why, and what would help."""

    def __init__(self, text: str, hint: str) -> None:
        super().__init__(text)
        self.hint = hint


class ControlRefusal(Exception):
    """One request is not granted: a clause, and a command to type."""

    def __init__(self, text: str, hint: str = "") -> None:
        super().__init__(text)
        self.text = text
        self.hint = hint


class Conversation:
    """What an operation may know of its connection: tell progress, and keep something until it ends."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self.held: dict[str, object] = {}
        self._at_end: list[Callable[[], None]] = []

    def at_end(self, call: Callable[[], None]) -> None:
        """Called once when the connection is over, however it ended."""
        self._at_end.append(call)

    async def tell(self, progress: Mapping[str, object]) -> None:
        """Raises ConnectionError when nobody listens any more: that ends the operation."""
        await self.send({"progress": progress})
        await asyncio.sleep(0)  # sending alone lets nobody else have a turn

    async def send(self, answer: Mapping[str, object]) -> None:
        self._writer.write(json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode() + b"\n")
        async with asyncio.timeout(SEND_S):
            await self._writer.drain()

    def end(self) -> None:
        for call in self._at_end:
            call()
        self._at_end.clear()


Fields = dict[str, object]
Operation = Callable[[Fields, Conversation], Awaitable[object]]


class ControlServer:
    def __init__(
        self, folder: Path, operations: Mapping[str, Operation], line_bytes_max: int, idle_s: float = IDLE_S
    ) -> None:
        self.path = folder / SOCKET_NAME
        self._operations = operations
        self._line_bytes_max = line_bytes_max
        self._idle_s = idle_s
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._identity = (0, 0)
        self._log = structlog.get_logger("millstream")

    async def start(self) -> None:
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            text = f"{self.path.parent} cannot be made: {error.strerror or error}"
            raise ControlFault(text, "millstream serve --set data_dir=OTHER") from None
        listening = open_socket(self.path)
        self._identity = _identity(self.path)
        self._server = await asyncio.start_unix_server(
            self._on_connection, sock=listening, limit=self._line_bytes_max
        )

    async def stop(self) -> None:
        """No new requests; operations that are under way end between two of their slices."""
        if self._server is None:
            return
        self._server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._server = None
        if _identity(self.path) == self._identity:  # another broker may stand there by now
            self.path.unlink(missing_ok=True)

    async def _on_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        conversation = Conversation(writer)
        try:
            if len(self._tasks) > CONNECTIONS_MAX:
                await conversation.send({"error": f"{CONNECTIONS_MAX} commands are being served", "hint": ""})
                return
            while await self._serve_one(reader, conversation):
                pass
        except (ConnectionError, TimeoutError):
            return  # nobody is there any more
        except asyncio.CancelledError:
            return  # the broker stops; nobody waits for this task
        finally:
            self._tasks.discard(task)
            conversation.end()
            writer.close()

    async def _serve_one(self, reader: asyncio.StreamReader, conversation: Conversation) -> bool:
        """Read a request and answer it; False when there will be no more."""
        try:
            async with asyncio.timeout(self._idle_s):
                line = await reader.readuntil(b"\n")
        except asyncio.IncompleteReadError:
            return False
        except asyncio.LimitOverrunError:
            text = f"a request must not be longer than {self._line_bytes_max} bytes"
            await conversation.send({"error": text, "hint": ""})
            return False
        await conversation.send(await self._answer(line, conversation))
        return True

    async def _answer(self, line: bytes, conversation: Conversation) -> dict[str, object]:
        try:
            operation, fields = self._parse(line)
            return {"result": await operation(fields, conversation)}
        except ControlRefusal as refusal:
            return {"error": refusal.text, "hint": refusal.hint}
        except (Refused, Unavailable) as refused:
            return {"error": refused.text, "hint": ""}
        except DiskFault as fault:
            return {"error": f"the disk fails: {fault.text}", "hint": ""}
        except ConnectionError:
            raise
        except Exception as error:
            log = self._log
            log.exception("control_failed")
            text = f"something went wrong inside the broker ({type(error).__name__}); its log has the details"
            return {"error": text, "hint": ""}

    def _parse(self, line: bytes) -> tuple[Operation, Fields]:
        try:
            request = json.loads(line)
        except (ValueError, RecursionError):
            raise ControlRefusal("a request must be one line of JSON") from None
        if not isinstance(request, dict) or not isinstance(request.get("fields", {}), dict):
            raise ControlRefusal('a request has the form {"operation": …, "fields": {…}}')
        name = request.get("operation")
        operation = self._operations.get(name) if isinstance(name, str) else None
        if operation is None:
            raise ControlRefusal(f"there is no operation {name!r}; there are {', '.join(self._operations)}")
        return operation, request.get("fields", {})


def open_socket(path: Path) -> socket.socket:
    """Bound and listening, mode 0600 from its first moment on."""
    _remove_stale(path)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    try:
        os.fchmod(listening.fileno(), 0o600)  # before it has a name: Linux gives the file this mode
        with socket_address(path) as address:
            listening.bind(address)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        text = f"{path} cannot be opened: {error.strerror or error}"
        raise ControlFault(text, "millstream serve --set data_dir=OTHER") from None
    return listening


def _remove_stale(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        text = f"{path} cannot be looked at: {error.strerror or error}"
        raise ControlFault(text, "millstream serve --set data_dir=OTHER") from None
    if not stat.S_ISSOCK(mode):
        raise ControlFault(f"{path} is in the way and is no socket", f"rm {path}")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as probe:
        probe.setblocking(False)
        try:
            with socket_address(path) as address:
                probe.connect(address)
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)  # its broker is dead
            return
        except FileNotFoundError:
            return
        except BlockingIOError:
            pass  # somebody listens, and is busy
        except OSError as error:
            text = f"{path} cannot be tried: {error.strerror or error}"
            raise ControlFault(text, "millstream serve --set data_dir=OTHER") from None
    raise ControlFault(f"another broker answers at {path}", "millstream serve --set data_dir=OTHER")


def _identity(path: Path) -> tuple[int, int]:
    try:
        status = path.lstat()
    except OSError:
        return (0, 0)
    return (status.st_dev, status.st_ino)
