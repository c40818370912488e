"""What happens when a queue is full: the new record is refused, or the oldest that no consumer has goes.

A dead letter is always taken: the queue it comes to makes room afterwards. So one that is full and has dead letters of
its own makes them one after the other, never within each other. Where only what waits counts, room is made when
consumers had what they can take; what is not safe yet cannot be handed out, and waits for nobody but the disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from millstream.model.errors import Reason
from millstream.model.message import Message
from millstream.queues.dead_letter import dead_letter_alone, dead_letter_refused
from millstream.queues.publish_options import read_publish_options

if TYPE_CHECKING:
    from millstream.queues.queue import Queue

SLICE: Final[i64] = 2048  # records that go before others have their turn
LETTERS_SLICE: Final[i64] = 256  # where each of them becomes a dead letter, which takes longer
GROUPS_PER_DROP: Final[i64] = 8  # so many groups let go of a record in the time that it takes itself
GROUPS_FEW: Final[i64] = 16  # with more of them room is made in slices, not before each message


def find_refusal(queue: Queue, message: Message) -> Reason:
    """SUCCESS, or why this message cannot be taken now."""
    definition = queue.definition
    size = queue.size_of(message)
    if queue.usage.is_full and not _is_known(queue, message):
        queue.catalog.quotas.has_bytes(queue.usage)
        queue.counters.refused += 1
        return Reason.QUOTA_EXCEEDED
    if definition.overflow in ("reject", "reject_dead_letter"):
        if has_room(queue, 1, size):
            return Reason.SUCCESS
        if definition.bounds_ready:  # what consumers can take does not wait
            queue.dispatch()
            if has_room(queue, 1, size):
                return Reason.SUCCESS
    elif not definition.bytes_max or definition.bounds_ready or size <= definition.bytes_max:
        return Reason.SUCCESS
    if _is_known(queue, message):
        return Reason.SUCCESS
    queue.counters.refused += 1
    if definition.overflow == "reject_dead_letter":
        dead_letter_refused(queue, message, "overflow")
    return Reason.QUOTA_EXCEEDED


def _is_known(queue: Queue, message: Message) -> bool:
    """Whether its producer has sent it before: it is here already."""
    options = read_publish_options(message.properties)
    return options is not None and options.producer != b"" and not queue.is_new(options)


def bound(queue: Queue, message: Message, is_dead_letter: bool) -> None:
    """Make room by policy: now, or when consumers had what they can take and dead letters are written."""
    definition = queue.definition
    if definition.overflow not in ("drop_head", "dead_letter"):
        return
    if is_dead_letter and (
        definition.overflow == "dead_letter" or definition.dead_letter_exchange is not None
    ):
        return  # a dead letter makes no other
    if queue.catalog.posting or definition.bounds_ready or len(queue.groups) > GROUPS_FEW:
        queue.is_to_bound = True
    else:
        make_room(queue, 1, queue.size_of(message))


def bound_again(queue: Queue) -> None:
    """Something came back, or the bound is another: where only what waits counts, that may be more now than there is room
    for."""
    definition = queue.definition
    if definition.bounds_ready and definition.overflow in ("drop_head", "dead_letter"):
        queue.is_to_bound = True
        queue.reschedule()


def has_room(queue: Queue, count: i64, size: i64) -> bool:
    """For so many more records of so many bytes."""
    definition = queue.definition
    if definition.length_max:
        length = queue.ready() if definition.bounds_ready else queue.depth()
        if length + count > max(0, definition.length_max):
            return False
    if not definition.bytes_max:
        return True
    bytes_max: i64 = max(0, definition.bytes_max)
    if queue.size.bytes + size <= bytes_max:
        return True
    return queue.bounds_bytes and _waiting_bytes(queue) + size <= bytes_max


def _waiting_bytes(queue: Queue) -> i64:
    """Of what the group that has most of it waiting has not handed out."""
    queue.let_go()
    kept: i64 = queue.size.bytes
    least: i64 = kept if queue.groups else 0
    for group in queue.groups.values():
        passed: i64 = group.pending_deliveries.bytes + group.settled_bytes.bytes
        if passed < least:
            least = passed
    return kept - least


def make_room(queue: Queue, count: i64, size: i64) -> None:
    while not has_room(queue, count, size) and drop_head(queue):
        pass


def bound_now(queue: Queue) -> None:
    """What it has too much goes; where that is very much, the rest of it in the next turns."""
    dropped: i64 = 0
    most: i64 = max(1, (LETTERS_SLICE if _dead_letters(queue) else SLICE) // cost_of_drop(queue))
    mark: i64 = queue.scheduler.letter_mark()
    while not has_room(queue, 0, 0):
        if dropped == most or queue.scheduler.is_costly(mark):
            queue.scheduler.left -= SLICE
            queue.is_to_bound = True
            queue.reschedule()
            return
        if not drop_head(queue):
            return
        dropped += 1


def is_awaited(queue: Queue) -> bool:
    """Whether something of it is not safe yet, and some consumer can take that as soon as it is."""
    if queue.visible == queue.next:
        return False
    for group in queue.groups.values():
        for consumer in group.consumers:
            if consumer.has_credit():
                return True
    return False


def drop_head(queue: Queue, dead_letters: bool = True) -> bool:
    """Make room by policy: the oldest record that no consumer has goes; False when there is none. Without `dead_letters` it
    never becomes a dead letter."""
    offset: i64 = _find_waiting(queue)
    if offset >= queue.next:
        return False
    if dead_letters and _dead_letters(queue):
        pending = None if queue.is_stream else queue.find_pending(None, offset)
        if pending is not None:
            dead_letter_alone(queue, "", pending, "overflow")
    else:
        queue.counters.dropped += 1
    if not queue.groups or queue.is_stream:
        queue.trim(offset + 1)
        return True
    for group in queue.groups.values():
        if not group.is_settled(offset):
            group.finish(offset, offset)
    queue.let_go()
    return True


def cost_of_drop(queue: Queue) -> i64:
    """Every group lets go of the record: in multiples of what it takes with a few of them."""
    return 1 + len(queue.groups) // GROUPS_PER_DROP


def _dead_letters(queue: Queue) -> bool:
    """Whether what has to go becomes a dead letter."""
    definition = queue.definition
    return definition.overflow == "dead_letter" or definition.dead_letter_exchange is not None


def empty_settled(queue: Queue, first: i64, last: i64) -> None:
    """Of a queue in memory: what all groups have settled, though not what is before it, goes at once."""
    if len(queue.groups) == 1:
        queue.size.empty(queue.memtable, first, last)
        return
    while first <= last:
        if queue.low.is_settled_by_all(queue.groups, first):
            queue.size.empty(queue.memtable, first, first)
            if queue.bounds_bytes:
                for group in queue.groups.values():
                    group.settled_bytes.forget(first)
        first += 1


def _find_waiting(queue: Queue) -> i64:
    """The oldest record that no consumer has. What was found to be taken is not looked at again, unless something of it came
    back; where nothing did, groups have handed out all below where they stand."""
    low: i64 = queue.low_mark()
    if queue.is_stream or not queue.groups:
        return low
    offset: i64 = max(low, queue.waits_from)
    if not queue.delayed:
        offset = max(offset, _find_handed_out(queue))
    while offset < queue.next:
        unsettled: i64 = _first_unsettled(queue, offset)
        if unsettled > offset:
            offset = unsettled
        elif _is_handed_out(queue, offset):
            offset += 1
        else:
            break
    queue.waits_from = offset
    return offset


def _find_handed_out(queue: Queue) -> i64:
    """Every group has handed out all below; 0 where something came back."""
    least: i64 = queue.next
    for group in queue.groups.values():
        if group.redeliveries.count():
            return 0
        if group.cursor < least:
            least = group.cursor
    return least


def _first_unsettled(queue: Queue, offset: i64) -> i64:
    """From `offset` on, the first that some group has not settled."""
    least: i64 = queue.next
    for group in queue.groups.values():
        first: i64 = offset if offset > group.committed else group.committed
        if group.settled.count:
            first = group.settled.next_missing(first)
        if first < least:
            least = first
    return least


def _is_handed_out(queue: Queue, offset: i64) -> bool:
    return any(int(offset) in group.pending for group in queue.groups.values())
