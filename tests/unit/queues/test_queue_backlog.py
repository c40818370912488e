"""Who waits for a queue that grows, and who does not."""

from __future__ import annotations

import pytest
from fakes import FakeLine, ManualWakeup
from queue_world import AutoConsumer, FakeConsumer, QueueWorld, purge

from millstream.broker.pressure import Pressure
from millstream.model.limits import Limits
from millstream.model.outcome import Outcome
from millstream.queues.catalog import Catalog
from millstream.queues.queue import Queue
from millstream.queues.scheduler import Scheduler

MOST = 100
PART = MOST // 5
GRACE_MS = 100
LIMITS = Limits(queue_backlog_max=MOST, queue_backlog_bytes_max=100 * 1024)


class OwnConsumer(FakeConsumer):
    """Settles what it gets over the connection that publishes."""

    def __init__(self, credit: int, owner: object) -> None:
        super().__init__("own", credit)
        self.owner = owner

    def belongs_to(self, source: object) -> bool:
        return source is self.owner


class PressedWorld(QueueWorld):
    """With publishers that can be made to wait."""

    def _start(self) -> None:
        super()._start()
        self.wakeup = ManualWakeup()
        self.pressure = Pressure(GRACE_MS)
        self.scheduler = Scheduler(self.store, self.segments, self.clock, self.wakeup, self.pressure, LIMITS)
        self.catalog = Catalog("default", self.router, self.scheduler, self.catalog.quotas)
        self.line = FakeLine()

    def press(self, queue: Queue, count: int, size: int = 1, source: object | None = None) -> bool:
        """One read of a publisher; whether it must wait."""
        line = self.line if not isinstance(source, FakeLine) else source
        self.pressure.begin(source or line)
        for _ in range(count):
            self.publish(queue, bytes(size))
        return self.pressure.end(line)

    def add(self, queue: Queue, consumer: FakeConsumer) -> None:
        queue.get_group("g", b"").join(consumer)
        self.loop()

    def drain(self, queue: Queue, consumer: AutoConsumer, count: int) -> None:
        consumer.room += count
        queue.reschedule()
        self.loop()

    def tick(self, milliseconds: float) -> None:
        self.move(milliseconds)
        self.pressure.on_tick(self.clock.now_ns)


def make_queue(kind: str = "work") -> tuple[PressedWorld, Queue, AutoConsumer]:
    world = PressedWorld()
    queue = world.declare(kind=kind)
    consumer = AutoConsumer()
    world.add(queue, consumer)
    return world, queue, consumer


def test_publishers_wait_when_a_queue_grows_although_its_consumer_is_served() -> None:
    for kind in ("work", "ephemeral"):
        world, queue, consumer = make_queue(kind)
        assert not world.press(queue, MOST - 1)
        assert world.press(queue, 1)
        world.drain(queue, consumer, PART)
        assert world.line.resumed == 0
        world.drain(queue, consumer, 1)
        assert world.line.resumed == 1


def test_publishers_wait_for_large_messages_by_their_bytes() -> None:
    world, queue, consumer = make_queue()
    assert not world.press(queue, 9, 10 * 1024)
    assert world.press(queue, 2, 10 * 1024)
    world.drain(queue, consumer, 11)
    assert world.line.resumed == 1


def test_a_consumer_that_keeps_up_makes_nobody_wait() -> None:
    world, queue, consumer = make_queue()
    for _ in range(50):
        assert not world.press(queue, MOST // 2)
        world.drain(queue, consumer, MOST // 2)


def test_publishers_wait_in_time_behind_a_consumer_that_has_kept_up() -> None:
    """However much has gone through one by one before: what is planned then need not move with every message."""
    for before in (0, 1, MOST // 2, MOST - 1, MOST, 3 * MOST + 7):
        world, queue, consumer = make_queue()
        for _ in range(before):
            assert not world.press(queue, 1)
            world.drain(queue, consumer, 1)
        assert not world.press(queue, MOST - 1), before
        assert world.press(queue, 1), before


def test_publishers_wait_in_time_by_bytes_behind_a_consumer_that_has_kept_up() -> None:
    for before in (0, 1, 5, 12, 40):
        world, queue, consumer = make_queue()
        for _ in range(before):
            assert not world.press(queue, 1, 10 * 1024)
            world.drain(queue, consumer, 1)
        assert not world.press(queue, 9, 10 * 1024), before
        assert world.press(queue, 2, 10 * 1024), before


@pytest.mark.parametrize("is_settled_first", [True, False])
def test_what_was_settled_leaves_no_room_for_more_that_waits(is_settled_first: bool) -> None:
    world = PressedWorld()
    queue = world.declare()
    consumer = FakeConsumer("c", MOST)
    world.add(queue, consumer)
    assert not world.press(queue, 8, 10 * 1024)
    assert not world.press(queue, 3 * PART)
    world.loop()
    consumer.credit = 0
    if is_settled_first:
        consumer.settle_all()
        world.scheduler.write_settled()
    assert not world.press(queue, 9, 10 * 1024)
    if not is_settled_first:
        consumer.settle_all()
        world.scheduler.write_settled()
    assert world.press(queue, 2, 10 * 1024)


def test_a_queue_without_a_consumer_makes_nobody_wait() -> None:
    world = PressedWorld()
    queue = world.declare()
    for _ in range(20):
        assert not world.press(queue, MOST)


def test_a_stream_makes_nobody_wait() -> None:
    world, queue, _ = make_queue("stream")
    for _ in range(20):
        assert not world.press(queue, MOST)


def test_a_backlog_from_before_makes_nobody_wait_as_long_as_it_does_not_grow() -> None:
    world = PressedWorld()
    queue = world.declare()
    assert not world.press(queue, 50 * MOST)
    consumer = AutoConsumer()
    world.add(queue, consumer)
    for _ in range(20):
        assert not world.press(queue, MOST // 2)
        world.drain(queue, consumer, MOST)
    assert world.press(queue, 3 * MOST)


def test_nobody_waits_for_a_consumer_that_has_stopped_reading() -> None:
    world, queue, _ = make_queue()
    assert world.press(queue, 2 * MOST)
    world.tick(GRACE_MS // 2)
    assert world.line.resumed == 0
    world.tick(GRACE_MS)
    assert world.line.resumed == 1


def test_publishers_wait_as_long_as_a_consumer_that_could_take_more_gets_some() -> None:
    world, queue, consumer = make_queue()
    assert world.press(queue, 2 * MOST)
    for _ in range(20):
        world.drain(queue, consumer, 1)
        world.tick(GRACE_MS * 3 // 4)
        assert world.line.resumed == 0


def test_nobody_waits_for_consumers_that_answer_nothing() -> None:
    world = PressedWorld()
    queue = world.declare()
    world.add(queue, FakeConsumer("c", 10))
    assert not world.press(queue, 10)
    world.loop()
    assert world.press(queue, MOST), "it was handed out just now"
    world.tick(GRACE_MS)
    world.tick(GRACE_MS)
    assert world.line.resumed == 1
    for _ in range(20):
        assert not world.press(queue, MOST)
        world.loop()


def test_publishers_wait_a_while_for_consumers_that_answer() -> None:
    world = PressedWorld()
    queue = world.declare()
    consumer = FakeConsumer("c", 10)
    world.add(queue, consumer)
    world.press(queue, 10)
    world.loop()
    consumer.settle_all()
    assert world.press(queue, 2 * MOST)
    world.loop()
    consumer.settle_all()
    for _ in range(4):
        world.tick(GRACE_MS // 2 + 1)
        consumer.settle_all()
    assert world.line.resumed == 1
    assert not world.press(queue, PART - 1)
    consumer.settle_all()
    assert world.press(queue, MOST)


def test_nobody_waits_for_his_own_answers() -> None:
    world = PressedWorld()
    queue = world.declare()
    owner = FakeLine()
    consumer = OwnConsumer(10, owner)
    world.add(queue, consumer)
    assert not world.press(queue, 10, source=owner)
    world.loop()
    consumer.settle_all()
    assert not world.press(queue, 5 * MOST, source=owner)
    consumer.settle_all()
    assert world.press(queue, 5 * MOST)


def test_who_consumes_without_answers_waits_for_himself_too() -> None:
    world, queue, consumer = make_queue()
    consumer.owner = world.line
    assert world.press(queue, 2 * MOST)


def test_publishers_go_on_when_the_consumer_leaves() -> None:
    world, queue, consumer = make_queue()
    assert world.press(queue, 2 * MOST)
    world.leave(queue, consumer)
    assert world.line.resumed == 1


def test_publishers_go_on_when_the_queue_is_emptied() -> None:
    world, queue, _ = make_queue()
    assert world.press(queue, 2 * MOST)
    purge(queue)
    assert world.line.resumed == 1


def test_publishers_go_on_when_the_queue_is_deleted() -> None:
    world, queue, _ = make_queue()
    assert world.press(queue, 2 * MOST)
    world.catalog.delete(queue)
    assert world.line.resumed == 1


def test_what_is_not_safe_yet_is_not_the_consumers_fault() -> None:
    world, queue, consumer = make_queue()
    world.facts.hold()
    assert not world.press(queue, 3 * MOST)
    world.facts.release()
    world.safe()
    assert world.press(queue, MOST)
    world.drain(queue, consumer, 4 * MOST)
    assert world.line.resumed == 1


def test_everybody_who_publishes_into_it_waits_and_nobody_else() -> None:
    world, queue, _ = make_queue()
    other = world.declare("other")
    assert world.press(queue, 2 * MOST)
    first, second, third = FakeLine(), FakeLine(), FakeLine()
    assert world.press(queue, 1, source=first)
    assert world.press(queue, 1, source=second)
    assert not world.press(other, 1, source=third)


def test_publishers_go_on_when_a_consumer_has_settled_out_of_order() -> None:
    for kind in ("work", "ephemeral"):
        world = PressedWorld()
        queue = world.declare(kind=kind)
        consumer = FakeConsumer("c", 10)
        world.add(queue, consumer)
        assert world.press(queue, MOST + 10)
        world.loop()
        for pending in consumer.got[1:]:  # it keeps the oldest
            pending.group.settle(pending, Outcome.ACCEPTED, "")
        while len(consumer.got) < MOST:
            consumer.settle(-1)
        world.scheduler.write_settled()
        assert world.line.resumed == 1, kind
