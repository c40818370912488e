"""A will: the message a session leaves behind when its connection ends badly."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from millstream.model.message import Message


@final
class Will:
    """`lifetime_s` is the message expiry; it starts to run when the will is sent, 0 means never."""

    def __init__(self, message: Message, delay_s: i64, lifetime_s: i64) -> None:
        self.message = message
        self.delay_s: i64 = delay_s
        self.lifetime_s: i64 = lifetime_s
        self.due_ns: i64 = 0  # 0: its owner is connected
