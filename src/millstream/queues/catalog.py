"""The queues of one account by name: declared, changed, bound to filters, found, removed."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from millstream.model.errors import Reason, Refused
from millstream.queues.dead_letter import make_dead_letter
from millstream.queues.definition import (
    BINDINGS_MAX,
    WORK,
    Definition,
    check_binding,
    check_name,
    dead_letter_name,
    decode_definition,
)
from millstream.queues.exchange_port import ExchangePort
from millstream.queues.expiry import MILLISECONDS
from millstream.queues.group import Group
from millstream.queues.limits import bound_again
from millstream.queues.memtable import Memtable
from millstream.queues.pending import Pending
from millstream.queues.queue import Queue
from millstream.queues.restore import restore_queue
from millstream.queues.retention import retain
from millstream.queues.scheduler import Scheduler
from millstream.queues.x_death import make_letter
from millstream.routing.router import Router
from millstream.routing.subscription import Subscription
from millstream.security.quota import QUEUES
from millstream.security.quotas import ANYBODY, Quotas
from millstream.storage.records import queue_records
from millstream.storage.records.stored_queue import StoredQueue

POSTING_MAX: Final[i64] = 16  # queues that refuse a letter and make another of it, in a row
LETTERS_MAX: Final[i64] = (
    500  # that are made because of one message, each of which may be refused by many queues
)
TICK_MAX: Final[i64] = 4096  # queues a tick looks at; where there are more each gets its turn later
RELEASE_MAX: Final[i64] = 20_000  # messages of removed queues that are let go in one tick
RETENTION_NS: Final[i64] = 1_000_000_000  # between two looks at what streams may let go


@final
class Catalog:
    def __init__(self, account: str, router: Router, scheduler: Scheduler, quotas: Quotas) -> None:
        self.account = account
        self.quotas = quotas
        self.scheduler = scheduler
        self.queues: dict[str, Queue] = {}
        self.exchanges: ExchangePort | None = None  # known when both are made
        self.posting: i64 = 0  # dead letters on their way to an exchange, one because of the other
        self._letters_left: i64 = LETTERS_MAX  # that may still be made because of one message
        self.takes_refused = True  # what a queue refuses becomes a dead letter where it says so
        self.letters: i64 = 0  # so many were made so far
        self._router = router
        self._retained_ns: i64 = 0
        self._to_look: list[Queue] = []  # those of this round of ticks
        self._looked: i64 = 0  # so many of them
        self._released: list[Memtable] = []  # of removed queues, to be let go
        self._retains = False  # in this round

    def find(self, name: str) -> Queue | None:
        return self.queues.get(name)

    def get(self, name: str) -> Queue:
        queue = self.queues.get(name)
        if queue is None:
            raise Refused(
                Reason.TOPIC_INVALID, f"there is no queue {name!r}; `millstream queue list` shows them"
            )
        return queue

    def declare(self, name: str, definition: Definition, user: str = ANYBODY, must_be: bool = False) -> Queue:
        """Make it for that user, or give it this definition. The kind of a queue never changes, nor whose it is. One that
        `must_be` is made whatever quota is reached."""
        if definition.dead_letter == name:
            raise Refused(Reason.TOPIC_INVALID, f"{name!r} cannot be its own dead-letter queue")
        queue = self.queues.get(name)
        if queue is None:
            check_name(name)
            usage = self.quotas.of(user)
            if not must_be:
                self._check_left(name)
                self.quotas.admit(QUEUES, usage)
            elif self.exchanges is not None and self.exchanges.is_leaving(name):
                self.exchanges.finish_leaving(name)
            definition.user = user
            queue = Queue(self, self.scheduler.take_number(), name, definition, self.scheduler, usage)
            self.queues[name] = queue
            usage.add(QUEUES, 1)
            self._bind([], definition.bindings, queue)
            self._router.forget_all()  # a topic may have had no queue before
        else:
            if queue.definition.kind != definition.kind:
                text = (
                    f"{name!r} is a {queue.definition.kind} queue and cannot become a {definition.kind} queue"
                )
                raise Refused(Reason.IN_USE, text)
            if queue.definition.to_fields() == definition.to_fields():
                return queue
            definition.user = queue.definition.user
            self._bind(queue.definition.bindings, definition.bindings, queue)
            queue.redefine(definition)
            queue.touch()  # an end it has now is as far away as it says
            bound_again(queue)
        self._save(queue)
        return queue

    def _check_left(self, name: str) -> None:
        if self.exchanges is not None and self.exchanges.is_leaving(name):
            text = f"{name!r} was just deleted, and its bindings are still being removed; try again"
            raise Refused(Reason.UNAVAILABLE, text)

    def bind(self, queue: Queue, filter: str) -> None:
        if filter not in queue.definition.bindings:
            check_binding(filter)
            if len(queue.definition.bindings) >= BINDINGS_MAX:
                raise Refused(Reason.QUOTA_EXCEEDED, f"a queue has at most {BINDINGS_MAX} bindings")
            queue.definition.bindings.append(filter)
            self._bind([], [filter], queue)
            self._save(queue)

    def unbind(self, queue: Queue, filter: str) -> bool:
        if filter not in queue.definition.bindings:
            return False
        queue.definition.bindings.remove(filter)
        self._bind([filter], [], queue)
        self._save(queue)
        return True

    def delete(self, queue: Queue) -> None:
        """With every record and group in it."""
        self.scheduler.write_settled()
        self._bind(queue.definition.bindings, [], queue)
        queue.close()
        del self.queues[queue.name]
        queue.usage.add(QUEUES, -1)
        self._router.forget_all()
        queue.note(queue_records.QUEUE_REMOVED, queue_records.encode_number(int(queue.number)))
        if self.exchanges is not None:
            self.exchanges.on_queue_removed(queue)
        for group in list(queue.groups.values()):
            group.close()
        queue.groups.clear()
        if not queue.is_durable:
            self._released.append(queue.memtable)

    def is_releasing(self) -> bool:
        return len(self._released) > 0

    def _release(self) -> None:
        """What removed queues had in memory goes so much at a time, and does not wait for the garbage collector."""
        left: i64 = RELEASE_MAX
        while self._released and left > 0:
            memtable = self._released[-1]
            end: i64 = memtable.first + left
            if end >= memtable.end:
                end = memtable.end
                self._released.pop()
            left -= end - memtable.first + 1
            memtable.forget_below(end)

    def remove_group(self, queue: Queue, group: Group) -> None:
        """With what it has settled; its consumers get nothing any more. Records that no other group needs go with it,
        but not with the last one."""
        self.scheduler.write_settled()
        if queue.is_removed:
            return
        group.close()
        queue.remove_group(group)
        queue.let_go()
        self.on_consumer_left(queue)

    def on_consumer_left(self, queue: Queue) -> None:
        if queue.definition.auto_delete and not queue.is_removed and queue.consumer_count() == 0:
            self.delete(queue)

    def begin_letters(self) -> None:
        """Of one message: it was published, or dies by itself and not because a queue refuses a letter."""
        if self.posting == 0:
            self._letters_left = LETTERS_MAX

    def take_refused(self, takes_refused: bool) -> None:
        """Not while a transaction, whose publisher is told what was refused, has taken all the time there is for dead letters."""
        self.takes_refused = takes_refused

    def dead_letter(self, queue: Queue, group: str, pending: Pending, reason: str) -> bool:
        """Put it to the dead letters; False when this queue has none, or nobody took it."""
        self.letters += 1
        definition = queue.definition
        if definition.dead_letter_exchange is not None:
            return self._post(queue, pending, reason, definition.dead_letter_exchange)
        name = dead_letter_name(queue.name, definition)
        if not name:
            return False
        target = self.queues.get(name)
        if target is None:
            # a dead letter must find its place whatever there is
            target = self.declare(name, Definition(WORK), definition.user, True)
        letter = make_dead_letter(queue.name, group, pending, reason, self.scheduler.clock.wall_ns())
        target.append(letter, True)
        return True

    def _post(self, queue: Queue, pending: Pending, reason: str, exchange: str) -> bool:
        if self.exchanges is None or self.posting >= POSTING_MAX or self._letters_left <= 0:
            return False
        self._letters_left -= 1
        clock = self.scheduler.clock
        key, letter = make_letter(
            queue.name,
            pending,
            reason,
            exchange,
            queue.definition.dead_letter_key,
            clock.wall_ns(),
            clock.wall_offset_ns,
        )
        self.posting += 1
        try:
            definition = queue.definition
            return self.exchanges.post(exchange, key, letter, definition.owner_of_letters(), definition.user)
        finally:
            self.posting -= 1

    def forget_folded(self, sequence: i64) -> None:
        for queue in self.queues.values():
            queue.forget_folded(sequence)

    def on_tick(self, now_ns: i64) -> None:
        """All of them, or so many in turn: very many idle queues must not cost the others their time."""
        if self._released:
            self._release()
        self._router.old.free_some(RELEASE_MAX)
        if self._looked >= len(self._to_look):
            self._looked = 0
            self._to_look = list(self.queues.values())
            self._retains = now_ns - self._retained_ns >= RETENTION_NS
            if self._retains:
                self._retained_ns = now_ns
        queues = self._to_look
        end: i64 = self._looked + TICK_MAX
        if end > len(queues):
            end = len(queues)
        scheduler = self.scheduler
        first: i64 = self._looked
        while self._looked < end and (scheduler.left > 0 or self._looked == first):
            queue = queues[self._looked]
            self._looked += 1
            if not queue.is_removed:
                self._look(queue, now_ns)
        if self._looked >= len(queues):
            self._to_look = []
            self._looked = 0

    def _look(self, queue: Queue, now_ns: i64) -> None:
        if self._retains and queue.is_stream:
            retain(queue)
        if queue.groups or queue.has_expiry:
            queue.on_tick(now_ns)
        if queue.definition.expires_ms:
            self._expire(queue, now_ns)

    def _expire(self, queue: Queue, now_ns: i64) -> None:
        """A queue that nobody has used for as long as it says goes."""
        if queue.consumer_count():
            queue.touch()
        elif now_ns - queue.used_ns >= queue.definition.expires_ms * MILLISECONDS and not queue.is_removed:
            self.delete(queue)

    def halt(self) -> None:
        """The broker stops: nothing is handed out any more, so that what comes back from one consumer does not wander
        through all the others that are to go."""
        for queue in self.queues.values():
            for group in queue.groups.values():
                group.halt()

    def take_back_all(self) -> None:
        """What is still with consumers becomes a fact: a clean stop leaves no delivery open."""
        for queue in list(self.queues.values()):  # a dead letter may make another
            for group in list(queue.groups.values()):
                group.take_back(None)

    def restore(self, stored: StoredQueue) -> None:
        """Take over what the store kept of a queue; records wait in its tail and in segments."""
        definition = decode_definition(stored.definition)
        usage = self.quotas.of(definition.user)
        usage.add(QUEUES, 1)
        queue = Queue(self, stored.number, stored.name, definition, self.scheduler, usage)
        self.scheduler.note_number(stored.number)
        restore_queue(queue, stored)
        self.queues[stored.name] = queue
        self._bind([], definition.bindings, queue)

    def _save(self, queue: Queue) -> None:
        body = queue_records.encode_queue(
            int(queue.number), self.account, queue.name, queue.definition.encode()
        )
        queue.note(queue_records.QUEUE_SAVED, body)

    def _bind(self, old: list[str], new: list[str], queue: Queue) -> None:
        for filter in old:
            if filter not in new:
                self._router.unsubscribe(filter.encode(), b"", queue)
        for filter in new:
            if filter not in old:
                self._router.subscribe(Subscription(queue, filter.encode(), b"", 2, False, True, 0))
