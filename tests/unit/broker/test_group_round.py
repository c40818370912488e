"""A receiver with very many consumers has room again: all of their groups have their turn, none of them on the spot."""

from __future__ import annotations

from queue_world import FakeConsumer, QueueBroker, QueueWorld

from millstream.broker.group_round import CONSUMERS_FEW, GroupRound
from millstream.broker.tasks import STEPS_PER_SLICE, TaskQueue
from millstream.queues.group import Group

MANY = 3 * STEPS_PER_SLICE * 8


class Looks(FakeConsumer):
    """Counts how often it was asked, for all of them; takes nothing."""

    def __init__(self, seen: list[str], name: str) -> None:
        super().__init__(name)
        self.seen = seen

    def has_credit(self) -> bool:
        self.seen.append(self.name)
        return False


def make_groups(seen: list[str], count: int) -> list[Group]:
    world = QueueWorld()
    groups = []
    for number in range(count):
        group = world.declare(f"q{number}").get_group("g", b"")
        group.rotation.join(Looks(seen, f"c{number}"))
        groups.append(group)
    return groups


def test_a_slice_of_a_round_tells_no_more_groups_than_it_has_time_for() -> None:
    seen: list[str] = []
    tasks = TaskQueue(None)
    round = GroupRound(tasks)
    round.begin(make_groups(seen, MANY))
    assert round.run(STEPS_PER_SLICE) >= STEPS_PER_SLICE
    assert 0 < len(seen) <= STEPS_PER_SLICE * 8
    while tasks.work_off():
        pass
    assert len(seen) == len(set(seen)) == MANY


def test_what_asks_for_a_round_while_one_goes_on_gets_one_more_behind_it() -> None:
    seen: list[str] = []
    tasks = TaskQueue(None)
    round = GroupRound(tasks)
    assert not round.goes_on()
    round.begin(make_groups(seen, 10))
    assert [round.goes_on() for _ in range(100)] == [True] * 100
    while tasks.work_off():
        pass
    assert len(seen) == 20
    assert not round.goes_on()


def test_every_round_begins_with_another_group() -> None:
    seen: list[str] = []
    tasks = TaskQueue(None)
    round = GroupRound(tasks)
    groups = make_groups(seen, 3)
    for _ in range(3):
        round.begin(groups)
        tasks.work_off()
    assert [seen[0], seen[3], seen[6]] == ["c0", "c1", "c2"]


def test_answers_of_a_session_with_very_many_consumers_bring_about_one_round() -> None:
    world = QueueBroker()
    session, line = world.connect("c", window=4)
    count = CONSUMERS_FEW + 1
    for number in range(count):
        world.consume(session, b"$queue/q%d" % number)
    for number in range(8):
        world.put(b"%d" % number, topic=b"$queue/q%d" % number)
    assert len(line.deliveries) == 4
    for delivery in list(line.deliveries):
        session.on_settled(delivery.packet_id, delivery.phase)
    assert (len(line.deliveries), world.broker.tasks.count()) == (4, 1)
    world.loop()
    assert sorted(delivery.message.payload for delivery in line.deliveries) == [
        b"%d" % number for number in range(8)
    ]


def test_a_session_with_few_consumers_is_served_on_the_spot() -> None:
    world = QueueBroker()
    session, line = world.connect("c", window=1)
    for number in range(3):
        world.consume(session, b"$queue/q%d" % number)
        world.put(b"%d" % number, topic=b"$queue/q%d" % number)
    session.on_settled(line.deliveries[0].packet_id, line.deliveries[0].phase)
    assert (len(line.deliveries), world.broker.tasks.count()) == (2, 0)


def test_a_session_that_ends_drops_its_round() -> None:
    world = QueueBroker()
    session, line = world.connect("c", window=1, expiry_s=0)
    for number in range(CONSUMERS_FEW + 1):
        world.consume(session, b"$queue/q%d" % number)
        world.put(b"x", topic=b"$queue/q%d" % number)
    session.on_settled(line.deliveries[0].packet_id, line.deliveries[0].phase)
    assert world.broker.tasks.count() == 1
    world.drop(session)
    assert (len(line.deliveries), world.broker.tasks.count()) == (1, 0)
