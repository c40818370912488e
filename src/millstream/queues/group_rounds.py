"""Rounds over the groups of a queue: each has its turn to hand out, however many there are and whatever each has to do.

Invariants
- A round that the end of a turn cuts short goes on behind the group that was last, so that no group waits for ever.
- What came while a round was cut short is offered in another one: the first groups have not seen it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

if TYPE_CHECKING:
    from millstream.queues.queue import Queue

IDLE_SHIFT: Final[i64] = (
    5  # so many groups with nothing to do are looked at in the time of a delivery, as a power of two
)


@final
class GroupRounds:
    def __init__(self) -> None:
        self._at: i64 = 0  # the group whose turn it is; 0: a round begins
        self._visible: i64 = 0  # what all groups of this round were offered
        self._is_wanted = False  # another round: a group has more to do

    def dispatch(self, queue: Queue) -> bool:
        """False when there was no time for all of them: the queue is awake, and goes on."""
        groups = list(queue.groups.values())
        count: i64 = len(groups)
        if count <= 1:
            if count:
                groups[0].dispatch()
            return True
        if self._at == 0 or self._at >= count:
            self._at = 0
            self._visible = queue.visible
        scheduler = queue.scheduler
        at: i64 = self._at
        scheduler.left -= (count - at) >> IDLE_SHIFT
        while at < count:
            groups[at].dispatch()
            at += 1
            if not self._is_wanted:
                self._is_wanted = scheduler.is_awake(queue)
            if scheduler.left <= 0 and at < count:
                self._at = at
                queue.reschedule()
                return False
        self._at = 0
        if self._is_wanted or self._visible != queue.visible:
            self._is_wanted = False
            queue.reschedule()
        return True
