"""What was handed out in any life, and whether a start knows of each record that it may come again.

Deliveries are no facts. A clean stop makes facts of those that are open; after a crash a start must be in doubt about all of
them. After a clean stop it must not be in doubt about anything it was sure of before.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from millstream.storage.records import queue_records
from millstream.storage.records.stored_queue import StoredQueue
from millstream.storage.store import StoredState
from simulation.queue_workload import QueueModel
from simulation.workload import Fact

SEEN = 40  # a consumer gets one of the newest


class Deliveries:
    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._handed: dict[tuple[int, int, int], int] = {}  # queue, group, offset: position of the record
        self._unsure: dict[int, int] | None = None  # what a clean stop was in doubt about; None: it was none
        self._stopped: dict[int, int] | None = None  # the one before the start that is looked at

    def on_told(self, fact: Fact) -> None:
        """A group that is moved, or is made anew, begins anew."""
        if fact.kind == "queue" and fact.number in (queue_records.GROUP_SAVED, queue_records.GROUP_REMOVED):
            place = queue_records.decode_pair(fact.body)
            self._handed = {key: value for key, value in self._handed.items() if key[:2] != place}

    def hand_out(self, told: Sequence[tuple[Fact, int]], model: QueueModel, durable: int) -> None:
        """One of the newest records that are safe, to one of the groups, safe or not."""
        fact, position = self._chance.choice(told[-SEEN:])
        if fact.kind != "queue" or fact.number != queue_records.RECORD_APPENDED or position > durable:
            return
        number, offset = queue_records.record_place(fact.body)
        queue = model.queues.get(number)
        if queue is not None and queue.groups:
            group = self._chance.choice(sorted(queue.groups))
            if offset in queue.groups[group]:
                self._handed[(number, group, offset)] = position

    def end(self, model: QueueModel) -> list[Fact]:
        """The facts of a clean stop: what is open came back."""
        facts: list[Fact] = []
        for number, group, offset in self._handed:
            queue = model.queues.get(number)
            if queue is not None and group in queue.groups and offset in queue.groups[group]:
                body = queue_records.encode_returned(number, group, offset, 1, 0)
                facts.append(Fact("queue", number=queue_records.RECORD_RETURNED, body=body))
        return facts

    def on_stopped(self, maybe_delivered_below: dict[int, int]) -> None:
        self._unsure = dict(maybe_delivered_below)

    def on_start(self) -> None:
        """Whatever comes of it: the mark of the stop before does not count a second time."""
        self._stopped, self._unsure = self._unsure, None

    def find_fault(self, state: StoredState, last_sequence: int, is_damaged: bool) -> str:
        """What a start should know and does not; nothing is good."""
        self._handed = {key: value for key, value in self._handed.items() if value <= last_sequence}
        queues = {queue.number: queue for queue in state.queues}
        for number, group, offset in self._handed:
            queue = queues.get(number)
            if (
                queue is not None
                and offset >= queue.maybe_delivered_below
                and is_silent(queue, group, offset)
            ):
                return f"unmarked: the record {offset} of queue {number} was with group {group} before"
        if self._stopped is None or is_damaged:
            return ""
        for number, queue in queues.items():
            known = self._stopped.get(number, 0)
            wanted = known if known > queue.low_mark() else 0
            if queue.maybe_delivered_below != wanted:
                return f"in doubt up to {queue.maybe_delivered_below} of queue {number} after a clean stop, not {wanted}"
        return ""


def is_silent(queue: StoredQueue, number: int, offset: int) -> bool:
    """Whether the record would be handed to the group as if for the first time."""
    if offset < queue.low_mark():
        return False
    group = queue.groups.get(number)
    if group is None:
        return True  # the group was forgotten, and is made again by its consumers
    is_open = offset >= group.committed and not group.settled.contains(offset)
    return is_open and offset not in group.returned
