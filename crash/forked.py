"""A broker that starts quickly: a fork of this process, which has imported everything already.

From the fork on it is a process like any other: it reads its arguments, opens its files and sockets, and can be killed.
"""

from __future__ import annotations

import gc
import os
import random
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Final, NoReturn

import millstream.app.server
import millstream.commands.reload
import millstream.commands.tree  # noqa: F401 -- this one and those above: so that a fork need not
from crash.broker import Broker, Process
from millstream.cli import main

DESCRIPTORS_MAX: Final = 4096
POLL_S: Final = 0.005


class ForkedProcess:
    """A child of ours; the part of `subprocess.Popen` that the harness uses."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None

    def poll(self) -> int | None:
        if self._code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("fork", timeout or 0)
            time.sleep(POLL_S)  # another process: there is no event to wait for
        return code

    def kill(self) -> None:
        self._send(signal.SIGKILL)

    def terminate(self) -> None:
        self._send(signal.SIGTERM)

    def _send(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


class ForkedBroker(Broker):
    def launch(self, arguments: list[str], environment: dict[str, str]) -> Process:
        assert self._module == "millstream", "only the broker itself has been imported"
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            run_child(self.log_file, arguments, environment)
        return ForkedProcess(pid)


def run_child(
    log_file: Path, arguments: list[str], environment: dict[str, str], errors_file: Path | None = None
) -> NoReturn:
    """What it prints goes to the log; what it prints as an error too, unless there is a file for that."""
    code = 1
    try:
        os.closerange(3, DESCRIPTORS_MAX)  # the sockets of the clients are not its own
        nothing = os.open(os.devnull, os.O_RDONLY)
        log = os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        errors = (
            log if errors_file is None else os.open(errors_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        )
        for source, target in ((nothing, 0), (log, 1), (errors, 2)):
            os.dup2(source, target)
        os.closerange(3, DESCRIPTORS_MAX)
        os.environ.update(environment)
        gc.freeze()  # what the parent left here is not looked through again
        random.seed()
        sys.argv = ["millstream", *arguments]
        main()
        code = 0
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else int(ending.code is not None)
    except BaseException:  # noqa: BLE001 -- nothing of the child may run on in the harness
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
