"""A campaign of kills in a process of its own, which starts brokers by forking: a start takes a fraction of the time.

That process has no threads and none of the tests' leftovers, so a fork of it is as good as a new process.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import TypeVar

Outcome = TypeVar("Outcome")

END_TIMEOUT_S = 10.0


def run_apart(campaign: Callable[..., Outcome], *arguments: object) -> Outcome:
    """What `campaign` gives; both it and the outcome go from one process to the other."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_send_outcome, args=(there, campaign, arguments))
    process.start()
    there.close()
    try:
        outcome: Outcome = here.recv()
        process.join(END_TIMEOUT_S)
        return outcome
    except EOFError:
        raise AssertionError("the campaign ended without a result; its words are above") from None
    finally:
        here.close()
        _end(process)


def _send_outcome(there: Connection, campaign: Callable[..., object], arguments: tuple[object, ...]) -> None:
    there.send(campaign(*arguments))


def _end(process: BaseProcess) -> None:
    if process.is_alive() and process.pid is not None:
        os.kill(process.pid, signal.SIGINT)  # it ends its broker first
        process.join(END_TIMEOUT_S)
        process.kill()
    process.join()
