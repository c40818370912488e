"""The ways to a queue through topics: publish into it, join a group of it, answer its deliveries.

$queue/<name>[/<routing key>]            publish; as a filter: consume, with a filter over routing keys behind it
$queue/<name>/…/$ack|$nack|$reject       settle a delivery, named by `message-id` and `group-id`
$queue/<name>/$commit                    a stream was read up to `offset`
$dlq/<name>                              the same for the dead letters of a queue
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from millstream.broker.consumers import Consumers
from millstream.broker.queue_consumer import SessionConsumer
from millstream.model.errors import Reason, Refused
from millstream.model.memory_budget import NEVER
from millstream.model.message import Message
from millstream.model.outcome import Outcome
from millstream.model.outlet import Target
from millstream.model.queue_topic import TOPIC_LENGTH_MAX, split_queue_topic
from millstream.model.topic import has_wildcard
from millstream.queues.catalog import Catalog
from millstream.queues.definition import DEAD_LETTER_PREFIX, WORK, Definition, check_name
from millstream.queues.group import Group
from millstream.queues.publish_options import read_number, read_user_properties
from millstream.queues.queue import Queue
from millstream.queues.retention import find_young
from millstream.routing.router import Route

if TYPE_CHECKING:
    from millstream.broker.session import Session

OUTCOMES: Final[dict[bytes, Outcome]] = {
    b"$ack": Outcome.ACCEPTED,
    b"$nack": Outcome.MODIFIED,
    b"$reject": Outcome.REJECTED,
}
COMMIT: Final = b"$commit"
GROUPS_FEW: Final = 16  # of a queue: those may always be made
GROUP_BYTES: Final[i64] = 2048
GROUPS_MAX: Final = 10_000  # of a queue: a work queue keeps what any of them has not settled


@final
class ConsumeRequest:
    """What a subscriber asked for: `start` is where a new group of a stream begins."""

    def __init__(
        self,
        group: str,
        guarantee: i64,
        identifier: i64,
        is_explicit: bool,
        is_asked: bool,
        start: bytes,
    ) -> None:
        self.group = group
        self.is_asked = is_asked  # settling in words was asked for, also of a stream
        self.guarantee: i64 = guarantee
        self.identifier: i64 = identifier
        self.is_explicit = is_explicit
        self.start = start


@final
class QueueAccess:
    """`auto_create` is the kind of queue that is made by the first use of its name; `off`: none is."""

    def __init__(self, catalog: Catalog, auto_create: str) -> None:
        self.catalog = catalog
        self._auto_create = auto_create

    def make_route(self, topic: bytes, generation: i64, user: str) -> Route:
        """Where a publish to a queue's topic goes; the caller keeps it while the generation stands. A queue that is made by it
        is that user's."""
        route = Route(topic, generation)
        place = split_queue_topic(topic)
        assert place is not None
        name, key = place
        last = key.rpartition(b"/")[2]
        if last in OUTCOMES or last == COMMIT:
            route.settles = True
            return route
        try:
            queue = self.find_or_create(name, user)
        except Refused as refused:
            route.refusal = refused.reason
            return route
        route.single = Target(queue, 2, True, (), b"")
        route.targets.append(route.single)
        route.is_stored = True
        return route

    def find_or_create(self, name: str, user: str) -> Queue:
        queue = self.catalog.find(name)
        if queue is not None:
            return queue
        check_name(name)
        if self._auto_create == "off":
            raise Refused(Reason.TOPIC_INVALID, f"there is no queue {name!r}, and queues.auto_create is off")
        kind = WORK if name.startswith(DEAD_LETTER_PREFIX) else self._auto_create
        return self.catalog.declare(name, Definition(kind), user)

    # --------------------------------------------------------------- consume

    def join(self, session: Session, name: bytes, filter: bytes, request: ConsumeRequest) -> SessionConsumer:
        """`name` as the client wrote it, `filter` without a share prefix."""
        place = split_queue_topic(filter)
        assert place is not None
        queue_name, pattern = place
        if has_wildcard(filter[: len(filter) - len(pattern)]):
            raise Refused(Reason.FILTER_INVALID, "the name of a queue cannot be a wildcard")
        queue = self.find_or_create(queue_name, session.principal.name)
        if queue.owner is not None:
            raise Refused(Reason.LOCKED, f"the queue {queue_name!r} belongs to one connection alone")
        start: i64 = -1
        if queue.is_stream and request.start and pattern_title(request.group, pattern) not in queue.groups:
            start = find_start(queue, request.start)
        check_group(queue, pattern_title(request.group, pattern))
        group = queue.get_group(request.group, b"" if pattern == b"#" else pattern)
        if start >= 0:
            group.seek(start)
        if session.consumers is None:
            session.consumers = Consumers(session.account.tasks)
        consumers = session.consumers.by_name
        before = consumers.pop(name, None)
        # having received it is enough for a reader of a stream, unless it says otherwise
        is_explicit = request.is_explicit and (request.is_asked or not queue.is_stream)
        consumer = SessionConsumer(session, group, request.guarantee, request.identifier, is_explicit, filter)
        consumers[name] = consumer
        group.join(consumer)
        if before is not None:
            self.part_with(before)
        return consumer

    def leave(self, session: Session, name: bytes) -> bool:
        consumers = session.consumers
        consumer = None if consumers is None else consumers.by_name.pop(name, None)
        if consumer is None:
            return False
        self.part_with(consumer)
        return True

    def part_with(self, consumer: SessionConsumer) -> None:
        consumer.group.leave(consumer)
        self.catalog.on_consumer_left(consumer.group.queue)

    # ---------------------------------------------------------------- settle

    def settle(self, topic: bytes, message: Message, client_id: str) -> Reason:
        """Answer a delivery in words. Only who was handed it may."""
        place = split_queue_topic(topic)
        assert place is not None
        queue = self.catalog.find(place[0])
        if queue is None:
            return Reason.NO_MATCHING_SUBSCRIBERS
        words = dict(read_user_properties(message.properties))
        verb = topic.rpartition(b"/")[2]
        if verb == COMMIT:
            return self._commit(queue, words, client_id)
        named, _, number = words.get(b"message-id", b"").rpartition(b":")
        offset = read_number(number) if named == queue.name.encode() else -1
        group = queue.groups.get(words.get(b"group-id", b"").decode(errors="replace"))
        if offset < 0 or group is None:
            return Reason.UNSPECIFIED
        pending = group.find_pending(offset)
        if pending is None or pending.consumer is None:
            return Reason.NO_MATCHING_SUBSCRIBERS  # settled before, or taken back
        if pending.consumer.name != client_id:
            return Reason.NOT_AUTHORIZED
        group.settle(pending, OUTCOMES[verb], words.get(b"reason", b"").decode(errors="replace")[:200])
        self.catalog.scheduler.write_settled()
        return Reason.SUCCESS

    def _commit(self, queue: Queue, words: dict[bytes, bytes], client_id: str) -> Reason:
        title = words.get(b"group-id", words.get(b"x-group-id", b"")).decode(errors="replace")
        group = queue.groups.get(title)
        offset = read_number(words.get(b"offset", words.get(b"x-offset", b"")))
        if offset < 0 and b"message-id" in words:
            offset = read_number(words[b"message-id"].rpartition(b":")[2])
        if group is None or offset < 0 or not queue.is_stream:
            return Reason.UNSPECIFIED
        if not has_member(group, client_id):
            return Reason.NOT_AUTHORIZED
        try:
            group.commit(offset)
        except Refused as refused:
            return refused.reason
        self.catalog.scheduler.write_settled()
        return Reason.SUCCESS


def pattern_title(group: str, pattern: bytes) -> str:
    return f"{group}@{pattern.decode()}" if pattern and pattern != b"#" else group


def check_group(queue: Queue, title: str) -> None:
    """Whether there is one, or may be one more."""
    if title in queue.groups:
        return
    if len(title.encode()) > TOPIC_LENGTH_MAX:  # consumers are told it in a user property
        raise Refused(Reason.FILTER_INVALID, f"a group and its filter have at most {TOPIC_LENGTH_MAX} bytes")
    if len(queue.groups) >= GROUPS_MAX:
        text = f"the queue {queue.name!r} has {GROUPS_MAX} groups, as many as it may"
        raise Refused(Reason.QUOTA_EXCEEDED, text)
    if len(queue.groups) >= GROUPS_FEW:
        what = f"{len(queue.groups)} groups of the queue {queue.name!r}"
        queue.catalog.quotas.check_memory(what, GROUP_BYTES, NEVER)


def has_member(group: Group, client_id: str) -> bool:
    return any(consumer.name == client_id for consumer in group.consumers)


def find_start(queue: Queue, start: bytes) -> i64:
    """first | last | next | <offset> | offset=<n> | timestamp=<unix seconds or milliseconds>"""
    if start == b"first":
        return queue.first
    if start == b"next":
        return queue.next
    if start == b"last":
        return queue.gaps.last_below(queue.next) if queue.next > queue.first else queue.next
    if start.startswith(b"timestamp="):
        moment = read_number(start[10:])
        if moment >= 0:
            if moment < 100_000_000_000:  # seconds until the year 5138
                moment *= 1000
            return find_young(queue, moment * 1_000_000)
    number = read_number(start[7:] if start.startswith(b"offset=") else start)
    if number < 0:
        raise Refused(Reason.FILTER_INVALID, f"no place in a stream: {start.decode(errors='replace')!r}")
    if number < queue.first:
        return queue.first
    return number if number < queue.next else queue.next
