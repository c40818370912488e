"""One publish meets its targets: retained, no local, guarantees, deferred fan-out."""

from __future__ import annotations

from fakes import FakeRun, World, make_message

from millstream.broker.fan_out import RECEIVERS_FEW
from millstream.broker.publish import FAN_OUT_SLICE
from millstream.model.errors import Reason
from millstream.model.limits import Limits
from millstream.queues.definition import EPHEMERAL, WORK, Definition
from millstream.routing.shares import LARGE


def test_a_message_is_handed_out_at_the_lower_of_both_guarantees() -> None:
    world = World()
    for guarantee in (0, 1, 2):
        session, _ = world.connect(str(guarantee))
        world.subscribe(session, b"t", guarantee)
    seen = []
    for guarantee in (0, 1, 2):
        world.publish(b"t", b"%d" % guarantee, guarantee)
    for name in ("0", "1", "2"):
        line = world.account.sessions[name].line
        assert line is not None
        seen.append(
            (
                [payload for payload, _, _ in line.plain],  # type: ignore[attr-defined]
                [int(delivery.guarantee) for delivery in line.deliveries],  # type: ignore[attr-defined]
            )
        )
    assert seen == [([b"0", b"1", b"2"], []), ([b"0"], [1, 1]), ([b"0"], [1, 2])]


def test_a_publisher_gets_its_own_message_only_by_subscriptions_without_no_local() -> None:
    world = World()
    session, line = world.connect("c")
    world.subscribe(session, b"t", 2, no_local=True, identifier=1)
    world.publish(b"t", publisher=session)
    assert line.sent == []
    world.publish(b"t")
    assert line.deliveries[-1].identifiers == (1,)
    world.subscribe(session, b"+", 1, identifier=2)
    world.publish(b"t", guarantee=2, publisher=session)
    assert line.deliveries[-1].identifiers == (2,)
    assert line.deliveries[-1].guarantee == 1
    world.publish(b"t", guarantee=2)
    assert sorted(line.deliveries[-1].identifiers) == [1, 2]
    assert line.deliveries[-1].guarantee == 2


def test_a_run_respects_no_local_and_shares_it_out_message_by_message() -> None:
    world = World()
    publisher, own = world.connect("p")
    world.subscribe(publisher, b"t", no_local=True)
    _, plain = world.connect("plain")
    world.subscribe(world.account.sessions["plain"], b"t")
    lines = []
    for name in ("a", "b"):
        session, line = world.connect(name)
        world.subscribe(session, b"$share/g/t")
        lines.append(line)
    run = FakeRun([make_message(b"t", b"%d" % number) for number in range(4)])
    route = world.account.router.find_route(b"t")
    world.broker.publishing.publish_run(world.account, route, run, publisher)
    assert own.runs == []
    assert plain.runs == [run]
    assert sorted(payload for line in lines for payload, _, _ in line.plain) == [b"0", b"1", b"2", b"3"]
    assert [len(line.plain) for line in lines] == [2, 2]


def test_a_publish_without_receivers_says_so_and_is_counted() -> None:
    world = World()
    assert world.publish(b"t") is Reason.NO_MATCHING_SUBSCRIBERS
    route = world.account.router.find_route(b"t")
    run = FakeRun([make_message(b"t")] * 3)
    world.broker.publishing.publish_run(world.account, route, run, None)
    assert world.account.counters.dropped_no_receiver == 4


def test_a_retained_message_is_kept_replaced_and_removed_by_an_empty_one() -> None:
    world = World()
    world.publish(b"t", b"one", retain=True)
    world.publish(b"t", b"two", retain=True)
    found = world.account.retained.find(b"t")
    assert found is not None
    assert found.payload == b"two"
    assert [message.payload for _, message in world.store.load().retained] == [b"two"]
    world.publish(b"t", b"", retain=True)
    assert world.account.retained.find(b"t") is None
    assert world.store.load().retained == []


def test_a_retained_message_over_the_bound_is_refused_and_counted() -> None:
    world = World(Limits(retained_messages_max=1))
    assert world.publish(b"a", retain=True) is Reason.NO_MATCHING_SUBSCRIBERS
    assert world.publish(b"b", retain=True) is Reason.QUOTA_EXCEEDED
    assert world.account.counters.retained_refused == 1
    assert world.publish(b"a", b"again", retain=True) is Reason.NO_MATCHING_SUBSCRIBERS


def test_retained_messages_that_expired_are_swept_from_the_store_too() -> None:
    world = World()
    world.move(1)
    world.publish(b"short", retain=True, expiry_s=30)
    world.publish(b"long", retain=True, expiry_s=3000)
    world.move(61)
    world.broker.work_off()
    assert world.account.retained.count == 1
    assert [message.topic for _, message in world.store.load().retained] == [b"long"]


def test_retain_is_passed_on_only_to_those_who_want_it_as_published() -> None:
    world = World()
    session, line = world.connect("c")
    world.subscribe(session, b"t", 0)
    world.publish(b"t", retain=True)
    assert line.plain == [(b"x", False, ())]


def test_deferred_fan_out_keeps_the_order_and_leaves_lower_guarantees_inline() -> None:
    world = World(Limits(async_fan_out=True))
    session, line = world.connect("c")
    world.subscribe(session, b"t")
    for number in range(600):
        assert world.publish(b"t", b"%d" % number, guarantee=2) is Reason.SUCCESS
    assert line.sent == []
    assert world.broker.publishing.has_pending()
    world.publish(b"t", b"inline", guarantee=1)
    assert line.payloads() == [b"inline"]
    assert world.broker.work_off()
    assert world.broker.work_off()
    assert not world.broker.work_off()
    numbers = [int(delivery.message.payload) for delivery in line.deliveries[1:]]
    assert numbers == list(range(255))
    assert session.queued_count() == 600 - 255


def test_a_saturated_fan_out_does_the_work_at_once_and_in_order() -> None:
    world = World(Limits(async_fan_out=True, fan_out_pending_max=3))
    session, line = world.connect("c")
    world.subscribe(session, b"t")
    for number in range(5):
        world.publish(b"t", b"%d" % number, guarantee=2)
    assert line.payloads() == [b"0", b"1", b"2", b"3"]
    assert not world.broker.work_off()
    assert line.payloads() == [b"0", b"1", b"2", b"3", b"4"]


def test_deferred_fan_outs_to_many_receivers_are_fewer_in_a_turn() -> None:
    world = World(Limits(async_fan_out=True, fan_out_pending_max=100))
    lines = []
    for number in range(2000):
        session, line = world.connect(f"c{number}")
        world.subscribe(session, b"t")
        lines.append(line)
    for number in range(100):
        world.publish(b"t", b"%d" % number, guarantee=2)
    assert world.broker.work_off()
    done = len(lines[0].sent)
    assert 0 < done * len(lines) <= FAN_OUT_SLICE * RECEIVERS_FEW + len(lines)
    for number in range(100, 100 + done + 2):  # more than may wait
        before = len(lines[0].sent)
        world.publish(b"t", b"%d" % number, guarantee=2)
        assert len(lines[0].sent) - before <= done
    while world.broker.work_off():
        pass
    assert lines[1999].payloads() == [b"%d" % number for number in range(100 + done + 2)]


def test_deferred_fan_out_goes_to_those_who_are_subscribed_when_it_is_done() -> None:
    world = World(Limits(async_fan_out=True))
    gone, gone_line = world.connect("gone")
    world.subscribe(gone, b"t")
    world.publish(b"t", guarantee=2)
    world.broker.unsubscribe(gone, b"t")
    new, new_line = world.connect("new")
    world.subscribe(new, b"t")
    world.broker.work_off()
    assert gone_line.sent == []
    assert len(new_line.sent) == 1


def test_a_message_that_would_go_to_very_many_queues_is_refused_and_its_publisher_named() -> None:
    """It is put into all of them in one turn of the loop."""
    world = World(Limits(queues_per_message_max=3))
    catalog = world.account.queues.catalog
    queues = [catalog.declare(f"q{number}", Definition(EPHEMERAL)) for number in range(4)]
    session, line = world.connect("reader")
    world.subscribe(session, b"t", 1)
    for queue in queues[:3]:
        catalog.bind(queue, "t")
    assert world.publish(b"t", b"x", 1) is Reason.SUCCESS
    catalog.bind(queues[3], "t")
    assert world.publish(b"t", b"y", 1) is Reason.QUOTA_EXCEEDED
    assert [int(queue.depth()) for queue in queues] == [1, 1, 1, 0]
    assert len(line.sent) == 1
    assert "broker.max_queues_per_message" in str([each.cause for each in world.broker.health.active()])


def test_a_message_that_would_take_too_much_room_in_durable_queues_is_refused_and_told() -> None:
    """Each of them stores a copy; queues in memory share one."""
    world = World(Limits(stored_bytes_per_message_max=2000))
    catalog = world.account.queues.catalog
    durable = [catalog.declare(f"d{number}", Definition(WORK)) for number in range(3)]
    in_memory = [catalog.declare(f"m{number}", Definition(EPHEMERAL)) for number in range(5)]
    for queue in (*durable[:2], *in_memory):
        catalog.bind(queue, "t")
    assert world.publish(b"t", b"x" * 1000, 1) is Reason.SUCCESS
    assert world.publish(b"t", b"x" * 1001, 1) is Reason.QUOTA_EXCEEDED
    catalog.bind(durable[2], "t")
    assert world.publish(b"t", b"x" * 1000, 1) is Reason.QUOTA_EXCEEDED
    assert [int(queue.depth()) for queue in durable] == [1, 1, 0]
    assert [int(queue.depth()) for queue in in_memory] == [1] * 5
    assert "broker.max_stored_bytes_per_message" in str([each.cause for each in world.broker.health.active()])


def test_one_queue_takes_a_message_however_large() -> None:
    world = World(Limits(stored_bytes_per_message_max=10))
    queue = world.account.queues.catalog.declare("q", Definition(WORK))
    world.account.queues.catalog.bind(queue, "t")
    session, line = world.connect("reader")
    world.subscribe(session, b"t", 1)
    assert world.publish(b"t", b"x" * 1000, 1) is Reason.SUCCESS
    assert (int(queue.depth()), len(line.sent)) == (1, 1)


def test_a_member_of_a_large_share_group_is_found_as_soon_as_it_connects() -> None:
    world = World()
    sessions = [world.connect(f"m{number}")[0] for number in range(LARGE + 10)]
    for session in sessions:
        world.subscribe(session, b"$share/g/t")
        world.drop(session)
    world.publish(b"t", b"first")
    assert sum(int(session.queued_count()) for session in sessions) == 1
    _, line = world.connect("m50")
    sent = len(line.sent)
    for _ in range(3):
        world.publish(b"t", b"live")
    assert [payload for _, payload, _ in line.sent[sent:]] == [b"live"] * 3
