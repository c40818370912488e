"""Names no other AMQP test uses, and which broker is asked: ours, or the one of `AMQP_URL`."""

from __future__ import annotations

import itertools
import os

import pytest

URL = os.environ.get("AMQP_URL", "")
IS_OURS = not URL
OURS_ONLY = pytest.mark.skipif(not IS_OURS, reason="needs a broker with settings of its own")

_numbers = itertools.count(1)


def unique(name: str = "q") -> str:
    """A name no other test uses, for queues and exchanges on a broker that is shared."""
    return f"{name}-{os.getpid()}-{next(_numbers)}"
