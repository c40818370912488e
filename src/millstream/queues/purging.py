"""Emptying a queue: every record that no consumer has at this moment goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

if TYPE_CHECKING:
    from millstream.queues.queue import Queue


def purge(queue: Queue) -> i64:
    """How many went."""
    count = queue.depth()
    if queue.is_stream or not queue.groups:
        queue.trim(queue.next)
    else:
        for group in queue.groups.values():
            group.purge()
        queue.agenda.write_settled()
        queue.let_go()
    return count - queue.depth()
