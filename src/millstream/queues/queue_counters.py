"""What happened to the records of a queue since the start."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64


@final
class QueueCounters:
    def __init__(self) -> None:
        self.appended: i64 = 0
        self.refused: i64 = 0
        self.repeated: i64 = 0  # dropped: the producer had sent it before
        self.expired: i64 = 0
        self.dropped: i64 = 0  # by the overflow policy, or rejected without a dead-letter queue
        self.dead_lettered: i64 = 0
        self.timed_out: i64 = 0  # not settled within the visibility time
