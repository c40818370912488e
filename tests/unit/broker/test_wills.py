"""Wills: at most once, after their delay or with their session, and only if the right is still there."""

from __future__ import annotations

import pytest
from fakes import EndpointWorld, FakeLine, World, make_message

from millstream.broker.fan_out import RECEIVERS_AT_ONCE, RECEIVERS_PER_STEP
from millstream.broker.session import Session
from millstream.broker.tasks import STEPS_PER_TURN
from millstream.broker.will import Will
from millstream.model.limits import NEVER_EXPIRES
from millstream.model.message import NANOSECONDS
from millstream.security.acl import Authorizer, parse_acl
from millstream.security.users import User, UserTable
from millstream.storage.store import Store


def make_will(delay_s: int = 0, lifetime_s: int = 0, retain: bool = False) -> Will:
    return Will(make_message(b"will/c", b"gone", 1, retain), delay_s, lifetime_s)


def watched(world: World) -> FakeLine:
    watcher, line = world.connect("watcher")
    world.subscribe(watcher, b"will/#")
    return line


def leave(delay_s: int, expiry_s: int = NEVER_EXPIRES) -> tuple[World, FakeLine, Session]:
    world = World()
    line = watched(world)
    session, _ = world.connect("c", expiry_s=expiry_s, will=make_will(delay_s))
    world.drop(session)
    return world, line, session


@pytest.mark.parametrize("expiry_s", [0, 100, NEVER_EXPIRES])
def test_a_will_without_delay_is_sent_at_once(expiry_s: int) -> None:
    world, line, _ = leave(0, expiry_s)
    assert line.payloads() == [b"gone"]
    world.move(1000)
    assert line.payloads() == [b"gone"]
    assert world.account.counters.wills_sent == 1


def test_a_client_that_says_goodbye_leaves_no_will() -> None:
    world = World()
    line = watched(world)
    session, _ = world.connect("c", will=make_will(5))
    world.drop(session, with_will=False)
    world.move(100)
    assert line.payloads() == []
    assert world.store.load().sessions[1].will is None


def test_a_delayed_will_is_sent_when_its_delay_is_over_and_not_before() -> None:
    world, line, _ = leave(10)
    world.move(9.999)
    assert line.payloads() == []
    world.move(0.001)
    assert line.payloads() == [b"gone"]
    world.move(100)
    assert line.payloads() == [b"gone"]


def test_a_session_resumed_in_time_takes_its_will_back() -> None:
    world, line, _ = leave(10)
    world.move(5)
    world.connect("c")
    world.move(100)
    assert line.payloads() == []


def test_a_resumed_session_with_a_new_will_sends_only_the_new_one() -> None:
    world, line, session = leave(10)
    world.connect("c", will=Will(make_message(b"will/c", b"second", 1), 20, 0))
    world.drop(session)
    world.move(15)  # the first one would be due
    assert line.payloads() == []
    world.move(5)
    assert line.payloads() == [b"second"]


def test_a_will_is_sent_with_the_end_of_its_session_if_that_comes_first() -> None:
    world, line, session = leave(50, expiry_s=10)
    world.move(10)
    assert session.is_ended
    assert line.payloads() == [b"gone"]
    world.move(100)
    assert line.payloads() == [b"gone"]


def test_a_will_of_a_session_that_ends_with_its_connection_does_not_wait() -> None:
    _, line, _ = leave(50, expiry_s=0)
    assert line.payloads() == [b"gone"]


def test_a_clean_start_ends_the_old_session_and_with_it_sends_its_will() -> None:
    world, line, _ = leave(50)
    world.connect("c", clean_start=True)
    assert line.payloads() == [b"gone"]


def test_a_take_over_sends_a_will_without_delay_and_takes_back_one_with_delay() -> None:
    for delay_s, wanted in ((0, [b"gone"]), (10, [])):
        world = World()
        line = watched(world)
        world.connect("c", will=make_will(delay_s))
        world.connect("c")
        world.move(100)
        assert line.payloads() == wanted


def test_a_will_whose_right_was_withdrawn_meanwhile_is_not_sent_but_counted() -> None:
    world = World(authorizer=Authorizer(parse_acl({"rules": [{"allow": "all", "topics": ["#"]}]})))
    line = watched(world)
    session, _ = world.connect("c", will=make_will(10))
    world.drop(session)
    world.authorizer.replace(parse_acl({"rules": [{"allow": "subscribe", "topics": ["#"]}]}))
    world.account.on_rights_changed()
    world.move(10)
    assert line.payloads() == []
    assert world.account.counters.publishes_denied == 1
    assert world.account.counters.wills_sent == 0
    assert session.will is None


def table(*names: str) -> UserTable:
    return UserTable({name: User(name, "unused") for name in names})


class UserWorld(EndpointWorld):
    def __init__(self, store: Store | None = None, certificates: bool = False) -> None:
        rules = Authorizer(parse_acl({"rules": [{"allow": "all", "topics": ["#"]}]}))
        super().__init__(None, store, rules, None, table("ann", "user"), None, certificates)
        self.line = watched(self)

    def remove_ann(self) -> None:
        self.authenticator.replace_users(table("user"))
        self.account.on_rights_changed()


@pytest.mark.parametrize("delay_s", [0, 10])
def test_a_will_of_a_user_who_is_gone_is_not_sent_though_a_rule_would_allow_it(delay_s: int) -> None:
    world = UserWorld()
    session, _ = world.connect("c", will=make_will(delay_s), user="ann")
    if delay_s:
        world.drop(session)
        world.remove_ann()
        world.move(delay_s)
    else:
        world.remove_ann()
        world.drop(session)
    assert world.line.payloads() == []
    assert world.account.counters.publishes_denied == 1


@pytest.mark.parametrize(
    ("is_gone", "certificates", "sent"), [(False, False, 1), (True, False, 0), (True, True, 1)]
)
def test_a_will_that_is_due_after_a_restart_asks_whether_its_user_may_still_come(
    is_gone: bool, certificates: bool, sent: int
) -> None:
    before = UserWorld()
    session, _ = before.connect("c", will=make_will(10), user="ann")
    before.drop(session)
    after = UserWorld(before.store, certificates)
    if is_gone:
        after.remove_ann()
    after.broker.restore(after.now_ns)
    after.line = watched(after)
    after.move(10)
    assert len(after.line.payloads()) == sent


def test_the_expiry_of_a_will_begins_when_it_is_sent() -> None:
    world = World()
    line = watched(world)
    session, _ = world.connect("c", will=make_will(10, lifetime_s=30))
    world.drop(session)
    world.move(10)
    assert line.deliveries[0].message.expires_ns == world.now_ns + 30 * NANOSECONDS


def test_a_retained_will_is_retained() -> None:
    world = World()
    session, _ = world.connect("c", will=make_will(retain=True))
    world.drop(session)
    found = world.account.retained.find(b"will/c")
    assert found is not None
    assert found.payload == b"gone"


def test_a_session_does_not_hear_its_own_will_if_it_asked_for_no_local() -> None:
    world = World()
    session, _ = world.connect("c", will=make_will())
    world.subscribe(session, b"will/#", no_local=True)
    world.drop(session)
    assert session.queued_count() == 0


def test_wills_to_very_many_that_are_due_at_once_do_not_share_a_tick() -> None:
    world = World()
    for number in range(RECEIVERS_AT_ONCE):
        watcher, _ = world.connect(f"watcher{number}")
        world.subscribe(watcher, b"will/#")
    per_tick = STEPS_PER_TURN * RECEIVERS_PER_STEP // RECEIVERS_AT_ONCE
    for number in range(3 * per_tick):
        session, _ = world.connect(f"c{number}", will=make_will(10))
        world.drop(session)
    sent = []
    counters = world.account.counters
    world.now_ns += 11 * NANOSECONDS
    while counters.wills_sent < 3 * per_tick:
        before = counters.wills_sent
        world.broker.on_tick(world.now_ns, 0)
        sent.append(counters.wills_sent - before)
        world.broker.work_off()
    assert max(sent) <= per_tick
