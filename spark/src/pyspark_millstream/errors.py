"""What a user of the connector can be told: one sentence, with the next thing to type.

Spark runs a Python source in processes of its own and brings an exception home as text: a traceback, and the
sentence at its end. A process of Spark's that raises one of these is about to end, so it is asked through PySpark's
own switch to send the sentence alone. In any other process nothing is touched.
"""

from __future__ import annotations

import os
from typing import Final

WORKER_MARK: Final = "SPARK_PYTHON_RUNTIME"  # set by Spark in the processes it starts for Python code
WORKER_NAMES: Final = frozenset({"PYTHON_WORKER"})
HIDE_SWITCH: Final = "SPARK_HIDE_TRACEBACK"
SHOW_SWITCH: Final = "MILLSTREAM_SPARK_TRACEBACK"  # for those who debug the connector


class MillstreamSparkError(Exception):
    """One clear sentence about what is wrong; `hint` says what to type or change, and may be empty."""

    def __init__(self, text: str, hint: str = "") -> None:
        self.text = text
        self.hint = hint
        super().__init__(text, hint)
        let_the_sentence_lead()

    def __str__(self) -> str:
        return f"{self.text}. {self.hint}" if self.hint else f"{self.text}."


class OptionError(MillstreamSparkError, ValueError):
    """An option is unknown, missing or wrong."""


class ReaderUnreachable(MillstreamSparkError):
    """Nothing answers at the address, or what answered went away, for longer than may be waited."""


class ReaderRefused(MillstreamSparkError):
    """The reader answered no. `status` is that of HTTP; `facts` are the numbers the answer carried."""

    def __init__(
        self, text: str, hint: str = "", status: int = 0, facts: dict[str, int] | None = None
    ) -> None:
        super().__init__(text, hint)
        self.status = status
        self.facts = facts or {}


class DataLost(MillstreamSparkError):
    """Records that should have been read are not there any more."""


class CheckpointError(MillstreamSparkError):
    """An offset that Spark kept is not one of ours."""


def let_the_sentence_lead() -> None:
    """From now on this process of Spark's tells errors without their traceback."""
    if os.environ.get(WORKER_MARK) in WORKER_NAMES and not os.environ.get(SHOW_SWITCH):
        os.environ[HIDE_SWITCH] = "1"
