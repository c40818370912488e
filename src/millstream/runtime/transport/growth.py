"""How much a connection has brought lately: while memory is short, or the log is behind, only who brings much has to wait."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

LIGHT_NS: Final[i64] = 100_000_000
LIGHT_BYTES: Final[i64] = 64 * 1024  # who brings no more in that time is never held
SENT_BYTES: Final[i64] = 4096  # who sends no more in a second has many receivers rather than much to say
HELD_BYTES: Final[i64] = 64 * 1024  # of an unfinished packet or transaction: more of it makes a publisher
SLOWED_NS: Final[i64] = 100_000_000  # between two reads
READ: Final[i64] = 0
SLOWED: Final[i64] = 1
STOPPED: Final[i64] = 2
BYTE_NS: Final[i64] = 1_000_000_000 // SENT_BYTES


@final
class Growth:
    def __init__(self) -> None:
        self._since_ns: i64 = 0
        self._bytes: i64 = 0
        self._sent: i64 = 0  # less what was allowed since
        self._sent_ns: i64 = 0

    def is_heavy(self, grown: i64, now_ns: i64) -> bool:
        if now_ns - self._since_ns >= LIGHT_NS:
            self._since_ns = now_ns
            self._bytes = 0
        self._bytes += grown
        return self._bytes > LIGHT_BYTES

    def judge(self, grown: i64, sent: i64, held: i64, now_ns: i64) -> i64:
        """While memory is short: what follows for a connection that has sent so much, which takes so much with all its copies,
        and has sent so much that is not whole. Who only takes, or brings little, goes on. Whose few bytes have many
        receivers is slowed: those that do not take them are bounded themselves."""
        is_small = self._note_sent(sent, now_ns)
        if held > HELD_BYTES:
            return STOPPED
        if grown == 0 or not self.is_heavy(grown, now_ns):
            return READ
        return SLOWED if is_small else STOPPED

    def _note_sent(self, size: i64, now_ns: i64) -> bool:
        """Whether that, and what it sent shortly before, is little."""
        self._sent = max(0, self._sent - (now_ns - self._sent_ns) // BYTE_NS) + size
        self._sent_ns = now_ns
        return self._sent <= SENT_BYTES

    def forget(self) -> None:
        self._since_ns = 0
        self._sent = 0
