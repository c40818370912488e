"""The way of a record to the dead letters, counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from millstream.model.message import Message
from millstream.queues.pending import Pending

if TYPE_CHECKING:
    from millstream.queues.group import Group
    from millstream.queues.queue import Queue


DELIVERIES_PER_LETTER: Final[i64] = 8  # that take as long as one dead letter


def dead_letter(queue: Queue, group: Group, pending: Pending, reason: str) -> None:
    """The dead letter is in the log before the settlement of its source: in one batch or an earlier one."""
    if not queue.is_stream:
        dead_letter_alone(queue, group.title(), pending, reason)
    group.settle_dead_lettered(pending)


def dead_letter_alone(queue: Queue, group: str, pending: Pending, reason: str) -> None:
    """One that no group has to settle."""
    queue.catalog.begin_letters()
    _publish_dead_letter(queue, group, pending, reason)


def dead_letter_refused(queue: Queue, message: Message, reason: str) -> None:
    """One that the queue does not take at all: of many queues each may do so because of the same message."""
    if not queue.catalog.takes_refused:
        queue.counters.dropped += 1
        return
    pending = Pending(queue.nobody(), queue.next, message, queue.clock.wall_ns(), 0)
    _publish_dead_letter(queue, "", pending, reason)


def _publish_dead_letter(queue: Queue, group: str, pending: Pending, reason: str) -> None:
    queue.scheduler.left -= DELIVERIES_PER_LETTER
    if queue.catalog.dead_letter(queue, group, pending, reason):
        queue.counters.dead_lettered += 1
    else:
        queue.counters.dropped += 1
