"""Which message was received under a packet id: a digest, to tell it from another one that comes with the same id.

The facts of one publish stand together in the log, its id behind them. So the message is the one that stands last before
the id; a message that nothing was to keep left none, and the digest is that of another.
"""

from __future__ import annotations

import zlib
from typing import final

from millstream.model.message import Message
from millstream.storage.records import queue_records, session_records


def make_digest(topic: bytes, payload: bytes) -> int:
    """Never 0, which stands for unknown."""
    return zlib.crc32(payload, zlib.crc32(topic)) or 1


@final
class LastMessage:
    """The last one that a reader of the log has passed."""

    def __init__(self) -> None:
        self._kind = 0
        self._body = b""

    def note(self, kind: int, body: bytes) -> None:
        self._kind = kind
        self._body = body

    def digest(self) -> int:
        message = self._find()
        return 0 if message is None else make_digest(message.topic, message.payload)

    def _find(self) -> Message | None:
        try:
            if self._kind == session_records.MESSAGE:
                return session_records.decode_message(self._body, 0)
            if self._kind == queue_records.RECORD_APPENDED:
                return queue_records.decode_record_message(self._body, 0)
        except session_records.FactFault:
            return None
        return None
