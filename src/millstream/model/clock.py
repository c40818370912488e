"""The time of the current call, set by whoever drives the core. The core never asks a clock."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64


@final
class Clock:
    def __init__(self) -> None:
        self.now_ns: i64 = 0  # monotonic
        self.wall_s: i64 = 0  # only for token expiry and $SYS
        self.wall_offset_ns: i64 = 0  # deadline of this run's clock + it = wall time

    def wall_ns(self) -> i64:
        return self.now_ns + self.wall_offset_ns
