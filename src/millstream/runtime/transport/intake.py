"""Who is served when in a turn of the loop: small reads at once, large ones in slices, by turns.

A client that sends at full speed brings a read of hundreds of kilobytes in every turn, and twenty of them would keep a newcomer's
next step waiting behind all of it. So a large read is handed to its endpoint in pieces for as long as its share lasts; the rest
waits, and the connection is not read meanwhile. A piece is as large as the connection's own input has shown to take its share.

Invariants
- What a connection sent is handed on in the order it came, and none of it while the connection has to wait for something else.
- None gets a second share before every other that waits has had one; small reads go ahead of all of them.
- A turn takes at most READS_NS for large reads as they come and WAITING_NS for those that wait, and one share beyond each.
- While output waits to be written that the turn before had no time for, large reads wait too, for HELD_NS at most: others may
  keep the broker writing for as long as they like.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

if TYPE_CHECKING:
    from millstream.runtime.transport.link import TransportLink

SMALL_BYTES: Final[i64] = 4096  # a read up to this goes ahead of larger ones
LOOK_BYTES: Final[i64] = 8192  # of small reads; then it is looked how long the turn has taken
READS_NS: Final[i64] = 5_000_000
SMALL_READS_NS: Final[i64] = 20_000_000  # then small reads wait for the next turn too
WAITING_NS: Final[i64] = 6_000_000
SHARE_NS: Final[i64] = 2_000_000  # of one connection, before others have theirs
HELD_NS: Final[i64] = 100_000_000  # so long at most do large reads wait for output
PIECE_MIN: Final[i64] = 1024
PIECE_FIRST: Final[i64] = 16 * 1024
PIECE_MAX: Final[i64] = 256 * 1024
UNREAD_LOW: Final[i64] = (
    16 * 1024 * 1024
)  # of all: with more, who has been served is not read before others are
UNREAD_MAX: Final[i64] = (
    64 * 1024 * 1024
)  # of all, or an eighth of the memory: more is not kept, but handed on at once


@final
class Intake:
    def __init__(self, memory_limit: i64 = 0, read_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._read_ns = read_ns
        self._unread_max: i64 = max(UNREAD_MAX, memory_limit // 8)
        # in order; not dicts, which look over all that left before the first one
        self._small: OrderedDict[TransportLink, None] = OrderedDict()  # with a small read that waits
        self._large: OrderedDict[TransportLink, None] = OrderedDict()
        self._resting: OrderedDict[TransportLink, None] = (
            OrderedDict()
        )  # served; read when there is less to do
        self._looked_bytes: i64 = 0  # small reads since the last look at the time
        self._is_late = False  # small reads have taken their part of this turn
        self._is_spent = False  # large ones have
        self._is_output_behind = False  # the last turn could not write everything
        self._held_ns: i64 = 0  # since when large reads have waited because of that; 0: they do not
        self.unread: i64 = 0  # bytes that wait, of all connections
        self.waited: i64 = 0  # times that a read had to wait for its turn

    def read_ns(self) -> i64:
        return self._read_ns()

    def takes_at_once(self, size: i64, turn_ns: i64) -> bool:
        """Whether a read of a connection that has nothing waiting is handed on as it is. `turn_ns`: when the turn began."""
        if size > SMALL_BYTES:
            return False
        self._looked_bytes += size
        if self._looked_bytes >= LOOK_BYTES:
            self._looked_bytes = 0
            self._is_late = self._read_ns() - turn_ns >= SMALL_READS_NS
        return not self._is_late

    def begins_at_once(self, turn_ns: i64) -> bool:
        """Whether a large read gets its share now: nobody waits, and the turn is young. Or there is no room to keep it."""
        if self.unread >= self._unread_max:
            return True
        if self._large or self._is_spent or self._is_output_behind:
            return False
        self._is_spent = self._read_ns() - turn_ns >= READS_NS
        return not self._is_spent

    def ends_at_once(self, turn_ns: i64) -> bool:
        """Whether a lost connection is done with now. Very many may go at once, and each may leave a will to very many: then they
        take turns too."""
        if not self._is_spent:
            self._is_spent = self._read_ns() - turn_ns >= READS_NS
        return not self._is_spent

    def is_full(self) -> bool:
        return self.unread >= self._unread_max

    def wait(self, link: TransportLink, size: i64) -> None:
        """It has something that waits for its turn, and so much of it."""
        self.waited += 1
        if size <= SMALL_BYTES:
            self._small[link] = None
        else:
            self._large[link] = None

    def is_waited_for(self) -> bool:
        return len(self._small) > 0 or len(self._large) > 0

    def rest(self, link: TransportLink) -> bool:
        """It has been served. True: it is not to be read until it is told."""
        if self.unread < UNREAD_LOW or not self.is_waited_for():
            self._resting.pop(link, None)  # where it may stand since it was served before
            return False  # what others have sent waits for something else than turns
        self._resting[link] = None
        return True

    def forget(self, link: TransportLink) -> None:
        self._small.pop(link, None)
        self._large.pop(link, None)
        self._resting.pop(link, None)

    def work_off(self, is_output_behind: bool = False) -> bool:
        """At the end of a turn: everybody who waits gets a share, as far as the time goes. True while there is more."""
        self._is_output_behind = is_output_behind
        self._looked_bytes = 0
        self._is_late = False
        self._is_spent = False
        if self._small or self._large:
            began_ns: i64 = self._read_ns()
            self._serve(self._small, began_ns, SMALL_READS_NS)
            if self._has_to_wait(is_output_behind, began_ns):
                if self._held_ns == 0:
                    self._held_ns = began_ns
            else:
                self._held_ns = 0
                self._serve(self._large, self._read_ns(), WAITING_NS)
        while self._resting and (self.unread < UNREAD_LOW or not self.is_waited_for()):
            link, _ = self._resting.popitem(last=False)
            link.read_on()
        return self.is_waited_for()

    def _has_to_wait(self, is_output_behind: bool, now_ns: i64) -> bool:
        """Whether large reads do."""
        if not is_output_behind or not self._large or self.is_full():
            return False
        return self._held_ns == 0 or now_ns - self._held_ns < HELD_NS

    def _serve(self, links: OrderedDict[TransportLink, None], began_ns: i64, time_ns: i64) -> None:
        while links:
            link, _ = links.popitem(last=False)
            if link.serve(SHARE_NS):
                links[link] = None
            if self._read_ns() - began_ns >= time_ns:
                return


def next_piece(piece: i64, size: i64, took_ns: i64) -> i64:
    """How much of the same kind takes about a share. `piece` is what was thought so far, `size` how much there was of it.

    What is shorter than a piece (the end of a read) says as much less about the next one, unless it took a share by itself.
    """
    fitting: i64 = size * SHARE_NS // took_ns if took_ns > 0 else PIECE_MAX
    fitting = max(PIECE_MIN, min(min(PIECE_MAX, 4 * piece), fitting))
    if size < piece and took_ns < SHARE_NS:
        fitting = piece + (fitting - piece) * size // piece
    return fitting
