"""What the broker does when memory is short, with a fake measure of memory and a fake outside."""

from __future__ import annotations

import pytest
from fakes import MEMORY_LIMIT, FakeLine, World
from queue_world import FakeConsumer, purge

from millstream.broker.conditions import MEMORY_CRITICAL, MEMORY_HIGH, PUBLISHERS_SLOWED, Condition
from millstream.broker.line import Line
from millstream.broker.memory_port import MemoryPort, Offender
from millstream.broker.memory_relief import MemoryRelief
from millstream.broker.memory_shedding import TransientQueue
from millstream.broker.memory_survey import MemorySurvey, transient_bytes
from millstream.broker.tasks import STEPS_PER_SLICE, STEPS_PER_TURN
from millstream.model.errors import Reason
from millstream.model.limits import Limits
from millstream.model.memory_budget import (
    CONNECTION_OVERHEAD,
    NODE_OVERHEAD,
    QUEUE_OVERHEAD,
    SESSION_OVERHEAD,
    STEP_MIN,
    SUBSCRIPTION_OVERHEAD,
)
from millstream.queues.definition import EPHEMERAL, WORK, Definition, make_definition


class Connection(Offender):
    def __init__(self, port: Port, name: str, size: int, is_stuck: bool) -> None:
        super().__init__("connection", name, size, is_stuck)
        self._port = port

    def shrink(self, wanted: int, steps: int) -> int:
        self.is_done = True
        self._port.dropped.append(self.name)
        return int(self.size_bytes)


class Port(MemoryPort):
    def __init__(self) -> None:
        self.connections: list[tuple[str, int, bool]] = []
        self.dropped: list[str] = []
        self.told: list[tuple[str, str]] = []
        self.resumed = 0
        self.folds = 0
        self.outside = 0
        self.held: tuple[str, int] = ("", 0)

    def lines(self) -> list[Line]:
        return []

    def begin_search(self) -> list[Line]:
        self.found: dict[Line, Offender] = {}
        for each in self.connections:
            self.found[FakeLine()] = Connection(self, *each)
        return list(self.found)

    def find_offender(self, line: Line, now_ns: int) -> Offender | None:
        return self.found[line]

    def end_search(self) -> None:
        pass

    def resume(self, count_max: int) -> None:
        self.resumed += 1

    def find_held(self) -> tuple[str, int]:
        return self.held

    def fold(self) -> None:
        self.folds += 1

    def give_back(self) -> None:
        pass

    def outside_bytes(self, high: int, critical: int) -> int:
        return self.outside

    def on_shrunk(self, offender: Offender, freed: int) -> None:
        self.told.append((offender.kind, offender.name))


class ReliefWorld(World):
    def __init__(self, limits: Limits | None = None, keeps_transient: bool = False) -> None:
        super().__init__(limits)
        self.port = Port()
        self.relief = MemoryRelief(self.broker, self.port, 5000, keeps_transient)

    def tick(self, percent: float, seconds: float = 0.05) -> None:
        """So long later so much of the limit is in use."""
        self.meter.resident = int(MEMORY_LIMIT * percent / 100)
        # something came in: a broker that is left alone is not measured by every tick
        self.broker.memory.intake += STEP_MIN
        self.move(seconds)
        self.relief.on_tick(self.now_ns)
        while self.broker.work_off_tasks():
            pass

    def fill_transient(self, name: str, count: int, size: int) -> None:
        self.account.queues.catalog.declare(name, Definition(EPHEMERAL))
        for _ in range(count):
            assert self.publish(f"$queue/{name}".encode(), bytes(size), 0) is Reason.SUCCESS

    def depth(self, name: str) -> int:
        return int(self.account.queues.catalog.get(name).depth())


def test_conditions_begin_and_end_with_the_states() -> None:
    world = ReliefWorld()
    seen = []
    for percent, seconds in ((10, 0.1), (75, 0.1), (95, 0.1), (75, 5.0), (10, 5.0)):
        world.tick(percent, seconds)
        seen.append([each.condition for each in world.broker.health.active()])
    assert seen == [[], [MEMORY_HIGH], [MEMORY_HIGH, MEMORY_CRITICAL], [MEMORY_HIGH], []]


def test_a_condition_goes_on_until_memory_was_normal_for_five_seconds() -> None:
    world = ReliefWorld()
    began = ended = 0
    held: set[Condition] = set()
    for number in range(40):
        world.tick((95, 75, 60)[number % 3], 0.5)
        active = {each.condition for each in world.broker.health.active()}
        began += len(active - held)
        ended += len(held - active)
        held = active
    assert (began, ended) == (2, 0)
    world.tick(60, 5.0)
    assert world.broker.health.active() == []


def test_publishers_go_on_only_when_memory_is_below_the_high_mark() -> None:
    world = ReliefWorld()
    world.tick(75)
    assert world.port.resumed == 0
    world.tick(60)
    assert world.port.resumed == 1


def test_publishers_that_wait_for_memory_are_named_once_a_second() -> None:
    world = ReliefWorld()
    health = world.broker.health
    world.tick(75)
    assert health.find(PUBLISHERS_SLOWED) is None  # nobody brings much
    world.port.held = ("c from 10.0.0.1", 3)
    for _ in range(30):
        world.tick(75, 0.1)
    told = health.find(PUBLISHERS_SLOWED)
    assert told is not None
    assert told.cause == "c from 10.0.0.1 waits for memory, and 2 others wait"
    assert told.count == 3


def test_above_the_critical_mark_large_publishes_are_refused_or_dropped_and_counted() -> None:
    world = ReliefWorld()
    session, line = world.connect("reader")
    world.subscribe(session, b"t", 1)
    world.use_memory(95)
    large = b"x" * 70_000
    assert world.publish(b"t", large, 1) is Reason.UNAVAILABLE
    assert world.publish(b"t", large, 0) is Reason.UNAVAILABLE
    assert line.sent == []
    assert world.account.counters.dropped_memory == 2
    world.use_memory(80)
    assert world.publish(b"t", large, 1) is Reason.SUCCESS


def test_small_publishes_are_taken_until_the_limit_is_exceeded_by_a_fifth() -> None:
    world = ReliefWorld()
    session, _ = world.connect("reader")
    world.subscribe(session, b"t", 1)
    world.use_memory(95)
    assert world.publish(b"t", b"x", 1) is Reason.SUCCESS
    assert world.publish(b"t", b"x", 0) is Reason.SUCCESS
    world.use_memory(119)
    assert world.publish(b"t", b"x", 1) is Reason.SUCCESS
    world.use_memory(120)
    assert world.publish(b"t", b"x", 1) is Reason.UNAVAILABLE
    assert world.publish(b"t", b"x", 0) is Reason.UNAVAILABLE


def test_a_small_message_to_very_many_receivers_is_a_large_one() -> None:
    world = ReliefWorld()
    for number in range(300):
        session, _ = world.connect(f"reader-{number}")
        world.subscribe(session, b"t", 1)
    world.use_memory(95)
    assert world.publish(b"t", b"x", 1) is Reason.UNAVAILABLE


def test_above_the_critical_mark_the_largest_connections_go_those_that_stand_still_first() -> None:
    world = ReliefWorld()
    part = MEMORY_LIMIT // 10
    world.port.connections = [("moves", 2 * part, False), ("large", 2 * part, True), ("small", part, True)]
    world.tick(95)
    assert world.port.dropped == ["large", "small", "moves"]


def test_no_more_go_than_need_be() -> None:
    world = ReliefWorld()
    world.port.connections = [("large", MEMORY_LIMIT // 2, True), ("small", MEMORY_LIMIT // 4, True)]
    world.tick(95)
    assert world.port.dropped == ["large"]


def test_below_the_critical_mark_nobody_is_dropped_as_long_as_memory_gets_less() -> None:
    world = ReliefWorld()
    world.port.connections = [("stuck", MEMORY_LIMIT // 10, True)]
    for step in range(14):
        world.tick(88 - step, 1.0)
    assert world.port.dropped == []


def test_when_memory_stays_high_what_stands_still_goes_and_what_moves_stays() -> None:
    world = ReliefWorld()
    world.port.connections = [("moves", MEMORY_LIMIT // 5, False), ("stuck", MEMORY_LIMIT // 10, True)]
    world.tick(75)
    for _ in range(4):
        world.tick(75, 1.0)
    assert world.port.dropped == []
    world.tick(75, 1.1)
    assert world.port.dropped == ["stuck"]


def test_the_oldest_messages_of_a_large_transient_queue_go_and_are_counted() -> None:
    world = ReliefWorld()
    world.fill_transient("bulk", 100, 10_000)
    world.fill_transient("tiny", 5, 100)
    world.tick(95)
    assert world.depth("bulk") == 50
    assert world.depth("tiny") == 5
    assert world.account.counters.dropped_memory == 50
    assert world.port.told == [("queue", "bulk")]


def test_letting_go_continues_until_enough_has_gone() -> None:
    world = ReliefWorld()
    world.fill_transient("q", 4000, 100)
    world.tick(75)
    world.tick(75, 5.1)
    left = [world.depth("q")]
    for _ in range(3):
        world.tick(75, 0.3)
        left.append(world.depth("q"))
    assert left == [2000, 1000, 500, 250]


def test_a_transient_queue_keeps_everything_where_the_policy_says_so() -> None:
    world = ReliefWorld(keeps_transient=True)
    world.fill_transient("bulk", 100, 10_000)
    world.tick(95)
    assert world.depth("bulk") == 100


def test_records_of_durable_queues_are_never_dropped_but_folded() -> None:
    world = ReliefWorld()
    world.account.queues.catalog.declare("orders", Definition(WORK))
    payload = bytes(MEMORY_LIMIT // 200)
    for _ in range(10):
        world.publish(b"$queue/orders", payload)
    world.tick(95, 1.1)
    assert world.depth("orders") == 10
    assert world.port.folds == 1


def test_queues_of_sessions_shrink_by_the_policy_they_have() -> None:
    for policy, left in (("evict", 50), ("reject", 100)):
        world = ReliefWorld(Limits(offline_policy=policy))
        session, _ = world.connect("absent")
        world.subscribe(session, b"t", 1)
        world.drop(session)
        for _ in range(100):
            world.publish(b"t", bytes(10_000))
        world.tick(95)
        assert session.queued_count() == left
        assert world.account.counters.dropped_memory == 100 - left
        assert world.account.counters.dropped_queue_full == 0


def test_retained_messages_take_no_more_than_their_share() -> None:
    world = ReliefWorld()
    world.broker.memory.retained_max = 10_000
    reasons = [world.publish(b"r/%d" % n, bytes(1000), retain=True) for n in range(10)]
    kept = sum(reason is not Reason.QUOTA_EXCEEDED for reason in reasons)
    assert 0 < kept == world.account.retained.count < 10
    assert world.account.counters.retained_refused == 10 - kept
    assert world.publish(b"r/0", b"new", retain=True) is not Reason.QUOTA_EXCEEDED  # a topic that is there
    world.publish(b"r/1", b"", retain=True)
    world.publish(b"r/2", b"", retain=True)
    world.tick(10)
    assert world.publish(b"r/9", bytes(1000), retain=True) is not Reason.QUOTA_EXCEEDED


def test_levels_of_topics_that_no_other_retained_message_has_are_memory_too() -> None:
    world = ReliefWorld()
    deep = [b"%d" % number + b"/" * 254 for number in range(100)]
    for topic in deep:
        world.publish(topic, retain=True)
    nodes = 254 * len(deep)
    assert int(world.broker.memory.retained) >= nodes * NODE_OVERHEAD
    before = int(world.broker.memory.retained)
    world.tick(10)
    assert int(world.broker.memory.retained) == before
    world.broker.memory.retained_max = before
    assert world.publish(b"new", retain=True) is Reason.QUOTA_EXCEEDED
    for topic in deep[1:]:
        world.publish(topic, b"", retain=True)
    world.tick(10)
    world.publish(deep[0] + b"more", retain=True)  # all but its last level is there
    assert int(world.broker.memory.retained) < 2 * 254 * NODE_OVERHEAD
    assert int(world.account.retained.nodes) == 256


def test_what_was_let_go_and_is_still_resident_counts_as_free() -> None:
    world = ReliefWorld()
    world.fill_transient("bulk", 100, MEMORY_LIMIT // 200)
    world.tick(75, 1.1)
    world.tick(75, 1.1)
    assert world.broker.memory.is_high
    purge(world.account.queues.catalog.get("bulk"))
    world.tick(75, 1.1)  # the allocator has given nothing back
    assert not world.broker.memory.is_high
    assert world.broker.memory.used() < MEMORY_LIMIT // 2


def test_what_many_shared_and_let_go_does_not_count_as_more_free_memory_than_there_is() -> None:
    world = ReliefWorld()
    sessions = [world.connect(f"s{number}")[0] for number in range(150)]
    for session in sessions:
        world.subscribe(session, b"t", 1)
        world.drop(session)
    for _ in range(16):
        world.publish(b"t", bytes(1 << 20), 1)
    for _ in range(2):
        world.tick(75, 1.1)  # 2 GiB by the survey, in a process of 0.75 GiB
    for session in sessions:
        world.broker.end_session(session)
    world.fill_transient("q", 3000, 100_000)
    world.tick(91, 1.1)
    assert int(world.broker.memory.used()) >= 300_000_000
    before = world.depth("q")
    world.tick(91, 0.3)
    assert world.depth("q") < before


def test_what_stays_resident_and_holds_nothing_counts_as_fragmented_once_trims_bring_nothing() -> None:
    world = ReliefWorld()
    memory = world.broker.memory
    world.tick(10, 11.0)
    world.fill_transient("q", 100, MEMORY_LIMIT // 1000)
    world.tick(92, 1.1)
    seen = []
    for _ in range(4):
        seen.append(memory.state())
        world.tick(92, 1.1)
    assert seen == ["critical", "critical", "critical", "normal"]
    # the process itself, and what the queue has kept, and a quarter more
    assert MEMORY_LIMIT * 12 // 100 < int(memory.used()) < MEMORY_LIMIT * 30 // 100
    world.tick(95.1)
    assert memory.is_critical  # whatever is free in it
    for _ in range(2):
        world.tick(60, 1.1)
    assert int(memory.fragmented) == 0


def test_what_a_peak_has_left_behind_is_trimmed_before_it_counts_as_fragmented() -> None:
    world = ReliefWorld()
    world.tick(10, 11.0)
    for percent in (90, 88, 86, 84, 82, 80, 78, 76, 74, 72):
        world.tick(percent, 2.1)
        assert int(world.broker.memory.fragmented) == 0


def test_sessions_queues_subscriptions_and_connections_are_memory_themselves() -> None:
    world = ReliefWorld()
    for number in range(100):
        session, _ = world.connect(f"s{number}")
        world.subscribe(session, b"t/%d" % number, 1)
        world.account.queues.catalog.declare(f"q{number}", Definition(EPHEMERAL))
    survey = MemorySurvey(world.broker)
    survey.begin([FakeLine() for _ in range(100)])
    world.broker.work_off_tasks()
    found = survey.by_kind()
    assert found["sessions"] == 100 * SESSION_OVERHEAD
    assert found["queues"] == 100 * QUEUE_OVERHEAD
    assert found["subscriptions"] == 100 * SUBSCRIPTION_OVERHEAD
    assert found["connections"] == 100 * CONNECTION_OVERHEAD


def test_a_full_control_group_slows_publishers_too() -> None:
    world = ReliefWorld()
    world.port.outside = int(MEMORY_LIMIT * 0.75)
    world.tick(10, 11.0)
    assert world.broker.memory.is_high


def test_the_survey_names_every_kind() -> None:
    world = ReliefWorld()
    session, _ = world.connect("absent")
    world.subscribe(session, b"t", 1)
    world.drop(session)
    world.publish(b"t", bytes(10_000))
    world.publish(b"r", bytes(1000), retain=True)
    world.fill_transient("bulk", 3, 5_000)
    world.account.queues.catalog.declare("orders", Definition(WORK))
    world.publish(b"$queue/orders", bytes(7000))
    survey = MemorySurvey(world.broker)
    survey.begin([])
    found = survey.by_kind()
    assert found["session_queues"] > 10_000
    assert found["retained"] > 1000
    assert found["transient_queues"] > 15_000
    assert found["queue_tails"] > 7000


def test_the_system_topics_show_state_limit_and_kinds() -> None:
    world = ReliefWorld()
    world.tick(75, 1.1)
    values = world.broker.memory.values()
    assert values["state"] == "high"
    assert values["limit"] == str(MEMORY_LIMIT)
    assert "kinds/transient_queues" in values


def test_a_queue_whose_oldest_message_is_with_a_consumer_lets_go_of_the_others() -> None:
    world = ReliefWorld()
    world.fill_transient("bulk", 100, 10_000)
    queue = world.account.queues.catalog.get("bulk")
    queue.get_group("g", b"").join(FakeConsumer("c", 1))
    world.broker.work_off()
    before = transient_bytes(queue)
    world.tick(95)
    assert queue.unsettled() == 1
    assert world.depth("bulk") == 50
    assert transient_bytes(queue) <= before // 2
    assert world.port.told == [("queue", "bulk")]


def test_a_queue_lets_go_of_the_others_also_where_several_groups_read_it_and_its_bytes_are_bounded() -> None:
    world = ReliefWorld()
    world.fill_transient("bulk", 100, 10_000)
    definition = make_definition({"kind": "ephemeral", "bytes_max": 10_000_000, "bounds_ready": True})
    queue = world.account.queues.catalog.declare("bulk", definition)
    for name in ("g", "h"):
        queue.get_group(name, b"").join(FakeConsumer("c", 1))
    world.broker.work_off()
    before = queue.size.bytes
    world.tick(95)
    assert queue.unsettled() == 2
    assert queue.size.bytes <= before // 2
    assert world.port.told == [("queue", "bulk")]


def test_a_tick_lets_go_of_no_more_than_a_slice_however_many_offend() -> None:
    world = ReliefWorld()
    for number in range(5):
        world.fill_transient(f"q{number}", 2000, 100)
    world.meter.resident = int(MEMORY_LIMIT * 0.95)
    world.move(0.05)
    world.relief.on_tick(world.now_ns)
    assert 0 < world.account.counters.dropped_memory <= STEPS_PER_SLICE
    while world.broker.work_off_tasks():
        pass
    assert [world.depth(f"q{number}") for number in range(5)] == [1000] * 5
    assert len(world.port.told) == 5


def test_a_queue_with_very_many_groups_lets_go_of_a_few_messages_in_each_slice() -> None:
    world = ReliefWorld()
    world.fill_transient("bulk", 1000, 1000)
    queue = world.account.queues.catalog.get("bulk")
    for number in range(800):
        queue.get_group(f"g{number}", b"")
    offender = TransientQueue(queue, world.account)
    slices = 0
    while not offender.is_done:
        before = queue.depth()
        offender.shrink(MEMORY_LIMIT, 100)
        assert before - queue.depth() <= 1
        assert offender.steps >= 100 or offender.is_done
        slices += 1
    assert slices >= 500


def test_one_that_can_let_go_of_nothing_keeps_none_of_those_behind_it() -> None:
    world = ReliefWorld()
    world.fill_transient("held", 3000, 1000)
    world.account.queues.catalog.get("held").get_group("g", b"").join(FakeConsumer("c", 3000))
    while world.broker.work_off():
        pass
    world.fill_transient("free", 100, 1000)
    world.tick(95)
    assert (world.depth("held"), world.depth("free")) == (3000, 50)
    assert world.port.told == [("queue", "free")]


def test_after_a_fault_while_it_lets_go_the_next_tick_does_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ReliefWorld()
    world.fill_transient("bulk", 100, 10_000)
    world.port.connections = [("c", 1000, True)]
    find_offender = world.port.find_offender

    def fail(line: Line, now_ns: int) -> Offender | None:
        raise ZeroDivisionError

    monkeypatch.setattr(world.port, "find_offender", fail)
    for _ in range(2000):
        world.port.connections.append(("c", 1000, True))
    world.broker.tasks.spend(10 * STEPS_PER_TURN)  # so that it begins as a task
    with pytest.raises(ZeroDivisionError):
        world.tick(95)
    monkeypatch.setattr(world.port, "find_offender", find_offender)
    world.tick(95, 1.0)
    assert ("queue", "bulk") in world.port.told


def test_very_many_queues_are_surveyed_in_slices() -> None:
    world = ReliefWorld()
    for number in range(3000):
        world.account.queues.catalog.declare(f"q{number}", Definition(EPHEMERAL))
    world.publish(b"$queue/q0", bytes(1000))
    survey = MemorySurvey(world.broker)
    survey.begin([])
    assert survey.is_going_on
    while world.broker.work_off_tasks():
        pass
    assert not survey.is_going_on
    assert survey.by_kind()["transient_queues"] > 1000
