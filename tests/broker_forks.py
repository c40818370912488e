"""Brokers that start quickly: forks of one process that has imported a broker and done nothing else.

Importing is most of a start, and the tests start some hundreds. From the fork on a broker is a process like any other,
with the arguments, environment and folder given. That `python -m millstream` starts one as well is the claim of the tests
of the command line and of the documentation.

This file is both ends: run as a program, it is the process that forks.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
ANSWER_TIMEOUT_S = 60.0
RUN_TIMEOUT_S = 60.0
POLL_S = 0.005


class ForkedProcess:
    """A broker; the part of `subprocess.Popen` that the tests use."""

    def __init__(self, forks: BrokerForks, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._forks = forks

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self._forks.ask(poll=self.pid)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("millstream", timeout or 0)
            time.sleep(POLL_S)  # the child of another process: there is no event to wait for
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:  # until it was asked for, nobody else gets this number
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class BrokerForks:
    """The near end. The process that forks starts with the first broker and ends with the tests."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._answers: Any = None
        self._numbers = itertools.count()
        self._one_at_a_time = threading.Lock()

    def start(self, arguments: list[str], log_file: Path) -> ForkedProcess:
        """`millstream ARGUMENTS` with the environment of the tests."""
        log_file.touch()  # whoever looks at once finds it
        return self._fork(arguments, Path.cwd(), dict(os.environ), log_file)

    def run(
        self, arguments: list[str], folder: Path, environment: dict[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """`millstream ARGUMENTS` in that folder, to its end."""
        with tempfile.TemporaryDirectory() as printed:
            out, errors = Path(printed, "out"), Path(printed, "errors")
            process = self._fork(arguments, folder, environment, out, errors)
            try:
                code = process.wait(RUN_TIMEOUT_S)
            finally:
                process.kill()  # if it still runs
            return subprocess.CompletedProcess(arguments, code, out.read_text(), errors.read_text())

    def _fork(
        self,
        arguments: list[str],
        folder: Path,
        environment: dict[str, str],
        log_file: Path,
        errors_file: Path | None = None,
    ) -> ForkedProcess:
        files = [str(file) for file in (log_file, errors_file) if file is not None]
        pid = self.ask(start=arguments, folder=str(folder), environment=environment, files=files)
        assert isinstance(pid, int)
        return ForkedProcess(self, pid)

    def ask(self, **question: object) -> int | None:
        with self._one_at_a_time:
            if self._socket is None:
                self._connect()
            assert self._socket is not None
            asked = next(self._numbers)
            self._socket.sendall(json.dumps({"number": asked, **question}).encode() + b"\n")
            answer: int | None
            while True:
                number, answer = json.loads(self._answers.readline())
                if number == asked:  # a test that ran out of time may have left the answer to its question
                    return answer

    def _connect(self) -> None:
        here, there = socket.socketpair()
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        with there:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(there.fileno())],
                pass_fds=[there.fileno()],
                env={**os.environ, "PYTHONPATH": path},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # what a broker prints goes to its log, as little at once as to any file
            )
        here.settimeout(ANSWER_TIMEOUT_S)
        self._socket, self._answers = here, here.makefile("rb")


def serve(connection: socket.socket) -> None:
    """The far end: fork and tell how the forks ended, until the tests are gone."""
    from crash.forked import run_child

    children: set[int] = set()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is meant for the tests, which end their brokers
    for line in connection.makefile("rb"):
        question = json.loads(line)
        if "start" in question:
            pid = os.fork()
            if pid == 0:
                signal.signal(signal.SIGINT, signal.default_int_handler)
                os.chdir(question["folder"])
                os.environ.clear()
                files = [Path(file) for file in question["files"]]
                run_child(files[0], question["start"], question["environment"], *files[1:])
            children.add(pid)
            answer: int | None = pid
        else:
            ended, status = os.waitpid(question["poll"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if ended else None
            children.discard(ended)
        connection.sendall(json.dumps([question["number"], answer]).encode() + b"\n")
    for pid in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
