"""Messages that came in one read and differ in nothing but their payload: what takes them as one does most of the work
once for all of them."""

from __future__ import annotations

from typing import final

from librt.strings import read_i32_le
from mypy_extensions import i64

from millstream.model.message import Message


@final
class MessageBatch:
    """`message` says everything but the payloads (its own does not belong to it). They lie in `buffer`; `places` has the
    start and the end of each, 32 bits little-endian."""

    def __init__(self, message: Message, buffer: bytes, places: bytes, count: i64) -> None:
        self.message = message
        self.buffer = buffer
        self.places = places
        self.count: i64 = count

    def get_payload(self, index: i64) -> bytes:
        at: i64 = index << 3
        return self.buffer[i64(read_i32_le(self.places, at)) : i64(read_i32_le(self.places, at + 4))]
