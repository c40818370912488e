"""Who gets a record unmarked may rely on it: nobody had it before, in this run of the broker or an earlier one."""

from __future__ import annotations

import pytest
from queue_world import FakeConsumer, QueueWorld

from millstream.model.outcome import Outcome
from millstream.queues.queue import Queue
from millstream.runtime.disk.failpoints import NoFailpoints
from simulation.disk import Mood, SimulatedDisk
from simulation.node import Node
from simulation.table import SimulatedTable


class Lives:
    """Queues on the log of a simulated disk, from one run to the next."""

    def __init__(self) -> None:
        self._disk = SimulatedDisk(1)
        self._table = SimulatedTable()
        self._start()

    def _start(self) -> None:
        self._node = Node(self._disk, self._table, NoFailpoints(), 1 << 16)
        self.world = QueueWorld(self._node.store)
        for queue in self._node.state.queues:
            self.world.catalog.restore(queue)

    def sync(self) -> None:
        self.world.loop()
        self._node.log.flush()
        self._node.writer.work()
        self.world.safe()

    def crash(self) -> None:
        self._disk = self._disk.crash(Mood.NOTHING)
        self._table = self._table.crash()
        self._start()

    def stop(self) -> None:
        """As the broker does it: halt, part with everybody, make facts of what is open, end the log."""
        self.world.catalog.halt()
        self.world.catalog.take_back_all()
        self.world.loop()
        assert self._node.stop()
        self._start()

    def declare(self, **fields: object) -> Queue:
        return self.world.declare(**fields)

    @property
    def queue(self) -> Queue:
        return self.world.queue()

    def fill(self, *payloads: bytes, **words: object) -> None:
        for payload in payloads:
            self.world.publish(self.queue, payload, **words)
        self.sync()

    def join(self, credit: int = 100) -> FakeConsumer:
        consumer = self.world.join(self.queue, credit=credit)
        self.sync()
        return consumer


def marks(consumer: FakeConsumer) -> list[tuple[bytes, bool]]:
    return [(pending.message.payload, pending.is_repeated()) for pending in consumer.got]


def attempts(consumer: FakeConsumer) -> list[int]:
    return [int(pending.attempts) for pending in consumer.got]


@pytest.fixture
def lives() -> Lives:
    lives = Lives()
    lives.declare()
    return lives


def test_without_a_restart_only_what_comes_again_is_marked(lives: Lives) -> None:
    lives.fill(b"a", b"b")
    consumer = lives.join(credit=1)
    consumer.settle(0, Outcome.MODIFIED)
    consumer.settle(1)
    lives.world.move(3_600_000)
    assert marks(consumer) == [(b"a", False), (b"b", False), (b"a", True)]


def test_after_a_crash_what_was_open_is_marked_and_no_attempt_is_made_up(lives: Lives) -> None:
    lives.fill(b"a", b"b")
    lives.join(credit=1)
    lives.crash()
    consumer = lives.join()
    assert marks(consumer) == [(b"a", True), (b"b", True)]
    assert attempts(consumer) == [1, 1]


def test_what_came_after_the_crash_is_not_marked(lives: Lives) -> None:
    lives.fill(b"a")
    lives.crash()
    lives.fill(b"b")
    assert marks(lives.join()) == [(b"a", True), (b"b", False)]


def test_after_a_clean_stop_only_what_was_open_is_marked(lives: Lives) -> None:
    lives.fill(b"a", b"b", b"c")
    consumer = lives.join(credit=2)
    assert marks(consumer) == [(b"a", False), (b"b", False)]
    lives.stop()
    again = lives.join()
    assert marks(again) == [(b"a", True), (b"b", True), (b"c", False)]
    assert attempts(again) == [2, 2, 1]


def test_what_was_settled_before_a_clean_stop_does_not_come_back_at_all(lives: Lives) -> None:
    lives.fill(b"a", b"b")
    consumer = lives.join()
    consumer.settle(0)
    lives.stop()
    assert marks(lives.join()) == [(b"b", True)]


def test_a_start_without_a_single_fact_after_it_counts_as_well(lives: Lives) -> None:
    lives.fill(b"a")
    lives.join(credit=0)
    lives.stop()
    assert marks(lives.join()) == [(b"a", False)]
    lives.crash()
    assert marks(lives.join()) == [(b"a", True)]


def test_the_doubt_of_a_crash_outlives_a_clean_stop(lives: Lives) -> None:
    lives.fill(b"a")
    lives.crash()
    lives.fill(b"b")
    lives.stop()
    assert marks(lives.join()) == [(b"a", True), (b"b", False)]


def test_a_group_that_was_not_safe_when_it_got_its_first_record_is_marked_too(lives: Lives) -> None:
    lives.fill(b"a")
    consumer = lives.world.join(lives.queue)  # nothing of it reaches the disk
    assert marks(consumer) == [(b"a", False)]
    lives.crash()
    assert not lives.queue.groups
    lives.stop()
    assert marks(lives.join()) == [(b"a", True)]


def test_what_needs_no_answer_is_marked_when_its_end_was_not_safe(lives: Lives) -> None:
    lives.fill(b"a")
    consumer = FakeConsumer()
    consumer.accepts_at_once = True
    lives.queue.get_group("g", b"").join(consumer)
    lives.world.loop()
    assert marks(consumer) == [(b"a", False)]
    lives.crash()
    assert marks(lives.join()) == [(b"a", True)]


def test_a_record_that_was_handed_out_of_turn_is_marked() -> None:
    lives = Lives()
    lives.declare(priority_max=9)
    lives.fill(b"low")
    lives.fill(b"high", priority=5)
    assert marks(lives.join(credit=1)) == [(b"high", False)]
    lives.crash()
    assert (b"high", True) in marks(lives.join())


def test_after_a_clean_stop_order_does_not_matter_for_what_is_marked() -> None:
    lives = Lives()
    lives.declare(priority_max=9)
    lives.fill(b"low")
    lives.fill(b"high", priority=5)
    lives.join(credit=1)
    lives.stop()
    assert sorted(marks(lives.join())) == [(b"high", True), (b"low", False)]


def test_a_reader_of_a_stream_without_a_name_had_nothing_before() -> None:
    lives = Lives()
    lives.declare(kind="stream")
    lives.fill(b"a")
    lives.crash()
    named, nameless = FakeConsumer(), FakeConsumer()
    lives.queue.get_group("named", b"").join(named)
    lives.queue.get_group("7.1.tag", b"", False).join(nameless)
    lives.sync()
    assert marks(named) == [(b"a", True)]
    assert marks(nameless) == [(b"a", False)]


def test_the_limit_of_deliveries_counts_only_known_ones_after_a_crash() -> None:
    lives = Lives()
    lives.declare(max_deliveries=2)
    lives.fill(b"a")
    lives.join()
    lives.crash()
    consumer = lives.join()
    consumer.settle(0, Outcome.MODIFIED)
    lives.world.move(3_600_000)
    assert attempts(consumer) == [1, 2]


def test_a_broker_that_stops_hands_nothing_on_to_those_who_are_to_go_next(lives: Lives) -> None:
    lives.fill(b"a")
    first, second = lives.join(), lives.join()
    assert first.payloads() == [b"a"]
    lives.world.catalog.halt()
    lives.world.leave(lives.queue, first)
    assert second.payloads() == []
    lives.world.leave(lives.queue, second)
    lives.stop()
    assert attempts(lives.join()) == [2]
