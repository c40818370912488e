"""The reader beside the broker: its socket, its process, and what happens when it dies.

The broker opens the socket and keeps it, so that the address is known at once and stays the same: clients that come while
a reader is started anew wait in the socket's own queue. The port of Flight is only held: its server takes no socket from
elsewhere, so who comes before it listens is refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import socket
import sys
import time
from typing import Final

import structlog

from millstream.broker.conditions import READER_DOWN
from millstream.broker.health import Health
from millstream.config.listeners import is_loopback
from millstream.config.schema import Config
from millstream.reader.settings import ReaderSettings
from millstream.runtime.transport.listeners import ListenFault, listen_fault

BACKLOG: Final = 256
PAUSE_S: Final = 0.1  # before the first new start; twice as long after each that did not last
PAUSE_S_MAX: Final = 10.0
LASTED_S: Final = 30.0
STEADY_S: Final = 2.0  # one that runs so long has read its settings and serves
STOP_S: Final = 5.0


class ReaderProcess:
    def __init__(self, config: Config, health: Health) -> None:
        self._config = config
        self._health = health
        self._socket: socket.socket | None = None
        self._flight: socket.socket | None = None  # holds the port, and does not listen
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None
        self._log = structlog.get_logger("millstream")

    def start(self) -> dict[str, tuple[str, int]]:
        """Open the sockets and give their addresses by name; the process comes up meanwhile."""
        if importlib.util.find_spec("pyarrow") is None:
            raise ListenFault(
                "needs pyarrow, which is not installed",
                "pip install 'millstream[reader]'",
                "reader.enabled",
                is_setting=True,
            )
        reader = self._config.reader
        self._socket = open_socket(reader.host, reader.port)
        addresses = {"reader": address_of(self._socket)}
        if reader.flight_port is not None:
            self._flight = hold_port(reader.host, reader.flight_port, "reader.flight_port")
            addresses["flight"] = address_of(self._flight)
        self._task = asyncio.get_running_loop().create_task(self._keep_running(self._socket))
        return addresses

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
        for held in (self._socket, self._flight):
            if held is not None:
                held.close()
        self._socket = self._flight = None

    async def _keep_running(self, listening: socket.socket) -> None:
        pause_s = PAUSE_S
        while True:
            began = time.monotonic()
            try:
                reason = f"it {describe_end(await self._run(listening))}"
            except OSError as error:
                reason = f"its process cannot be started: {error.strerror or error}"
            pause_s = PAUSE_S if time.monotonic() - began >= LASTED_S else pause_s
            self._log.error("reader_ended", reason=reason, again_in_s=pause_s)
            self._health.begin(READER_DOWN, reason)
            self._health.count(READER_DOWN, 1)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)

    async def _run(self, listening: socket.socket) -> int:
        process = self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "millstream.reader.run",
            str(os.getpid()),
            stdin=asyncio.subprocess.PIPE,
            pass_fds=(listening.fileno(),),
            # Where processors are shared by session, it takes nothing of the broker's share.
            start_new_session=True,
        )
        assert process.stdin is not None
        process.stdin.write(self._settings(listening.fileno()).encode())
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            await process.stdin.drain()
        waiting = asyncio.get_running_loop().create_task(process.wait())
        try:
            done, _ = await asyncio.wait((waiting,), timeout=STEADY_S)
            if not done:
                self._health.end(READER_DOWN)
            return await waiting
        finally:
            waiting.cancel()

    def _settings(self, descriptor: int) -> ReaderSettings:
        reader = self._config.reader
        flight_host, flight_port = ("", 0) if self._flight is None else address_of(self._flight)
        return ReaderSettings(
            descriptor=descriptor,
            data_dir=str(self._config.data_dir.absolute()),
            is_loopback=is_loopback(reader.host),
            connections_max=reader.connections_max,
            rows_max=reader.rows_max,
            stage_bytes_max=reader.stage_bytes_max,
            nice=reader.nice,
            cert_file=str(reader.tls.cert_file or ""),
            key_file=str(reader.tls.key_file or ""),
            flight_host=flight_host,
            flight_port=flight_port,
            log_level=self._config.log.level,
            log_format=self._config.log.format,
        )


def describe_end(code: int) -> str:
    return f"ended with exit code {code}" if code >= 0 else f"was ended by signal {-code}"


def address_of(held: socket.socket) -> tuple[str, int]:
    host, port = held.getsockname()[:2]
    return str(host), int(port)


def open_socket(host: str, port: int) -> socket.socket:
    """One that listens."""
    listening = hold_port(host, port, "reader.port")
    try:
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise _refuse(host, port, "reader.port", error) from None
    return listening


def hold_port(host: str, port: int, key: str) -> socket.socket:
    """Bound, and not listening. While it is so, the server of Flight can open its own socket on the same address: that one
    takes no socket from elsewhere."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        held = socket.socket(family, kind, protocol)
    except OSError as error:
        raise _refuse(host, port, key, error) from None
    try:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(address)
    except OSError as error:
        held.close()
        raise _refuse(host, port, key, error) from None
    return held


def _refuse(host: str, port: int, key: str, error: OSError) -> ListenFault:
    return listen_fault(host, port, error, "reader", key)
