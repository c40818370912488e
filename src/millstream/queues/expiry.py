"""Records that grow too old: by what their publisher said, or by the time to live of their queue.

They go from the front: a record behind one that stays waits for it. With a group the group comes by them; without one
the queue looks itself, and remembers until when its first record may stay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from millstream.queues.dead_letter import dead_letter, dead_letter_alone
from millstream.queues.pending import Pending

if TYPE_CHECKING:
    from millstream.queues.group import Group
    from millstream.queues.queue import Queue

MILLISECONDS: Final[i64] = 1_000_000
NEVER: Final[i64] = 1 << 62
SLICE: Final[i64] = 1024


def expires_wall_ns(queue: Queue, pending: Pending) -> i64:
    """When it is too old; NEVER if it never is."""
    end: i64 = NEVER
    if pending.message.expires_ns:
        end = pending.message.expires_ns + queue.clock.wall_offset_ns
    ttl_ms: i64 = queue.definition.message_ttl_ms
    if ttl_ms:
        by_queue: i64 = pending.time_wall_ns + (ttl_ms * MILLISECONDS if ttl_ms > 0 else 0)
        if by_queue < end:
            end = by_queue
    return end


def is_expired(queue: Queue, pending: Pending, is_first_offer: bool) -> bool:
    """What has no time at all is for those who are ready when it is offered for the first time."""
    end = expires_wall_ns(queue, pending)
    if end <= pending.time_wall_ns + 1:  # an expiration of 0 is a nanosecond: none at all would be no end
        return not is_first_offer
    return end <= queue.clock.wall_ns()


def keeps_expired(queue: Queue) -> bool:
    """Whether what is too old becomes a dead letter; else it is gone by policy."""
    definition = queue.definition
    if queue.is_stream:
        return False
    return definition.dead_letter_exchange is not None or definition.dead_letter not in ("", "off")


def expire(queue: Queue, group: Group, pending: Pending) -> None:
    queue.counters.expired += 1
    if keeps_expired(queue):
        dead_letter(queue, group, pending, "expired")
    else:
        group.finish(pending.offset, pending.offset)


def expire_unwanted(queue: Queue) -> None:
    """What has no time at all was offered, and stayed."""
    if queue.groups:
        for group in list(queue.groups.values()):
            group.expire_in_order()
    else:
        expire_head(queue)


def expire_head(queue: Queue) -> None:
    """Without a group nobody else comes by."""
    seen: i64 = 0
    now_ns: i64 = queue.clock.wall_ns()
    while not queue.groups and queue.first < queue.visible and seen < SLICE:
        if seen and queue.scheduler.left <= 0:
            return
        seen += 1
        if seen & 3 == 0:
            queue.scheduler.left -= 1  # four take as long as a delivery
        if queue.first == queue.head and queue.head_expires_wall_ns > now_ns:
            return
        offset: i64 = queue.first
        pending = queue.find_pending(None, offset)
        if pending is not None:
            queue.head = offset
            queue.head_expires_wall_ns = expires_wall_ns(queue, pending)
            if queue.head_expires_wall_ns > now_ns:
                return
            queue.counters.expired += 1
            if keeps_expired(queue):
                dead_letter_alone(queue, "", pending, "expired")
        queue.trim(offset + 1)
