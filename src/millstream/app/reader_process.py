"""The reader beside the broker: its socket, its process, and what happens when it dies.

The broker opens the socket and keeps it, so that the address is known at once and stays the same: clients that come while
a reader is started anew wait in the socket's own queue.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import socket
import sys
import time
from typing import Final

import structlog

from millstream.config.listeners import is_loopback
from millstream.config.schema import Config
from millstream.reader.settings import ReaderSettings
from millstream.runtime.listeners import ListenFault

BACKLOG: Final = 256
PAUSE_S: Final = 0.1  # before the first new start; twice as long after each that did not last
PAUSE_S_MAX: Final = 10.0
LASTED_S: Final = 30.0
STOP_S: Final = 5.0


class ReaderProcess:
    def __init__(self, config: Config) -> None:
        self._config = config
        self._socket: socket.socket | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None
        self._log = structlog.get_logger("millstream")

    def start(self) -> tuple[str, int]:
        """Open the socket and give its address; the process comes up meanwhile."""
        if importlib.util.find_spec("pyarrow") is None:
            raise ListenFault("reader.enabled needs pyarrow", "pip install 'millstream[reader]'")
        self._socket = open_socket(self._config.reader.host, self._config.reader.port)
        host, port = self._socket.getsockname()[:2]
        self._task = asyncio.get_running_loop().create_task(self._keep_running(self._socket))
        return str(host), int(port)

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None
        process = self._process
        if process is not None and process.returncode is None:
            if process.stdin is not None:
                process.stdin.close()  # which it takes as the end
            try:
                await asyncio.wait_for(process.wait(), STOP_S)
            except TimeoutError:
                process.kill()
                await process.wait()
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    async def _keep_running(self, listening: socket.socket) -> None:
        pause_s = PAUSE_S
        while True:
            began = time.monotonic()
            try:
                reason = f"it ended with {await self._run(listening)}"
            except OSError as error:
                reason = error.strerror or str(error)
            pause_s = PAUSE_S if time.monotonic() - began >= LASTED_S else pause_s
            self._log.error("reader_ended", reason=reason, again_in_s=pause_s)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)

    async def _run(self, listening: socket.socket) -> int:
        process = self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "millstream.reader.run",
            stdin=asyncio.subprocess.PIPE,
            pass_fds=(listening.fileno(),),
        )
        assert process.stdin is not None
        process.stdin.write(self._settings(listening.fileno()).encode())
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            await process.stdin.drain()
        return await process.wait()

    def _settings(self, descriptor: int) -> ReaderSettings:
        reader = self._config.reader
        return ReaderSettings(
            descriptor=descriptor,
            data_dir=str(self._config.data_dir.absolute()),
            is_loopback=is_loopback(reader.host),
            connections_max=reader.connections_max,
            rows_max=reader.rows_max,
            stage_bytes_max=reader.stage_bytes_max,
            cert_file=str(reader.tls.cert_file or ""),
            key_file=str(reader.tls.key_file or ""),
            log_level=self._config.log.level,
            log_format=self._config.log.format,
        )


def open_socket(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
    except OSError as error:
        raise _refuse(host, port, error) from None
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise _refuse(host, port, error) from None
    return listening


def _refuse(host: str, port: int, error: OSError) -> ListenFault:
    return ListenFault(
        f"reader: cannot listen on {host} port {port}: {error.strerror or error}",
        "millstream serve --set reader.port=0",
    )
