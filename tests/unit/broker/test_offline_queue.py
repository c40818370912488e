"""What waits for an absent session: bounds in messages and bytes, both policies, expiry, rights."""

from __future__ import annotations

import pytest
from fakes import World

from millstream.model.limits import Limits
from millstream.security.acl import Authorizer, parse_acl


def absent(limits: Limits) -> World:
    world = World(limits)
    session, _ = world.connect("s")
    world.subscribe(session, b"t/#")
    world.drop(session)
    return world


def received(world: World) -> list[bytes]:
    _, line = world.connect("s")
    return line.payloads()


def test_evict_keeps_the_newest_and_counts_what_went() -> None:
    world = absent(Limits(offline_messages_max=3, offline_policy="evict"))
    for number in range(5):
        world.publish(b"t/a", b"%d" % number)
    assert world.account.counters.dropped_queue_full == 2
    assert received(world) == [b"2", b"3", b"4"]


def test_reject_keeps_the_oldest_and_counts_what_was_refused() -> None:
    world = absent(Limits(offline_messages_max=3, offline_policy="reject"))
    for number in range(5):
        world.publish(b"t/a", b"%d" % number)
    assert world.account.counters.dropped_queue_full == 2
    assert received(world) == [b"0", b"1", b"2"]


@pytest.mark.parametrize(("policy", "kept"), [("evict", [b"c" * 100, b"d" * 100]), ("reject", [b"a" * 100])])
def test_bytes_are_bounded_as_messages_are(policy: str, kept: list[bytes]) -> None:
    world = absent(Limits(offline_bytes_max=400, offline_policy=policy))
    for payload in (b"a" * 100, b"b" * 200, b"c" * 100, b"d" * 100):
        world.publish(b"t/a", payload)
    if policy == "reject":
        kept = [b"a" * 100, b"c" * 100]  # b does not fit behind a, c does, d does not
    assert received(world) == kept
    assert world.account.counters.dropped_queue_full == 2


def test_a_message_larger_than_the_whole_queue_evicts_nothing() -> None:
    world = absent(Limits(offline_bytes_max=400, offline_policy="evict"))
    world.publish(b"t/a", b"small")
    world.publish(b"t/a", b"L" * 500)
    assert world.account.counters.dropped_queue_full == 1
    assert received(world) == [b"small"]


@pytest.mark.parametrize(("policy", "kept"), [("evict", [b"4", b"5"]), ("reject", [b"2", b"3"])])
def test_a_backlog_is_cut_to_the_bound_by_policy_when_its_connection_goes(
    policy: str, kept: list[bytes]
) -> None:
    world = World(Limits(offline_messages_max=2, offline_policy=policy))
    session, line = world.connect("s", window=2)
    world.subscribe(session, b"t/#")
    for number in range(6):
        world.publish(b"t/a", b"%d" % number)
    assert session.queued_count() == 4
    world.drop(session)
    assert session.queued_count() == 2
    assert world.account.counters.dropped_queue_full == 2
    assert line.payloads() == [b"0", b"1"]
    assert received(world) == [b"0", b"1", *kept]


def test_what_expired_while_it_waited_is_dropped_and_counted() -> None:
    world = absent(Limits())
    world.publish(b"t/a", b"short", expiry_s=5)
    world.publish(b"t/a", b"long", expiry_s=50)
    world.publish(b"t/a", b"for ever")
    world.move(10)
    assert received(world) == [b"long", b"for ever"]
    assert world.account.counters.dropped_expired == 1


def test_what_may_no_longer_be_seen_is_not_handed_out_from_the_queue() -> None:
    rules = {"rules": [{"allow": "all", "topics": ["t/#"]}]}
    world = World(authorizer=Authorizer(parse_acl(rules)))
    session, _ = world.connect("s")
    world.subscribe(session, b"t/#")
    world.drop(session)
    world.publish(b"t/secret", b"secret")
    world.publish(b"t/open", b"open")
    world.authorizer.replace(
        parse_acl({"rules": [*rules["rules"], {"deny": "subscribe", "topics": ["t/secret"]}]})
    )
    world.account.on_rights_changed()
    assert received(world) == [b"open"]
    assert world.account.counters.deliveries_denied == 1


def test_at_most_once_to_an_absent_session_is_dropped_and_counted() -> None:
    world = absent(Limits())
    world.publish(b"t/a", guarantee=0)
    assert world.account.counters.dropped_offline == 1
    assert received(world) == []


def test_a_delivery_the_receiver_can_never_take_is_settled_and_counted() -> None:
    world = absent(Limits())
    world.publish(b"t/a", b"L" * 100)
    session = world.account.sessions["s"]
    _, line = world.connect("s")
    assert line.payloads() == [b"L" * 100]  # unsettled
    world.drop(session)
    _, line = world.connect("small", window=1)
    session, _ = world.connect("s2", window=1)
    world.subscribe(session, b"t/#")
    assert session.line is not None
    assert isinstance(session.line, type(line))
    session.line.refuse_over = 10
    world.publish(b"t/a", b"L" * 100)
    world.publish(b"t/a", b"small")
    assert session.line.payloads() == [b"small"]
    assert world.account.counters.dropped_too_large == 1
    assert session.window.open == 1


def test_an_answer_to_a_delivery_that_waits_to_be_sent_again_settles_it_for_good() -> None:
    """A client that resumes with a smaller window may still answer what it got before."""
    world = World()
    session, line = world.connect("s", window=3)
    world.subscribe(session, b"t")
    for number in range(3):
        world.publish(b"t", b"%d" % number)
    third = line.ids()[2]
    world.drop(session)
    _, line = world.connect("s", window=1)
    assert line.payloads() == [b"0"]
    session.on_settled(third, 1)
    assert session.window.open == 1
    session.on_settled(line.ids()[0], 1)
    session.on_settled(line.ids()[-1], 1)
    assert line.payloads() == [b"0", b"1"]
    assert session.window.open == 0
    assert session.window.count == 0
