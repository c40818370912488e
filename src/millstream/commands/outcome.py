"""How a command ends: stable exit codes, and one sentence with the next command to type."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    OK = 0
    FAILED = 1
    USAGE = 2  # wrong arguments or configuration; nothing was opened or changed
    NOT_CONNECTED = 3
    REFUSED = 4
    DEGRADED = 5  # `status`: the broker runs, and something is wrong


class CommandFailed(Exception):
    """Ends the command with a code and one sentence; `next_step` is a command to type."""

    def __init__(self, code: ExitCode, sentence: str, next_step: str | None = None) -> None:
        super().__init__(sentence)
        self.code = code
        self.sentence = sentence
        self.next_step = next_step
