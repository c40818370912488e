"""Sessions: opened, resumed, taken over, expired by a clock that is moved, bounded in number."""

from __future__ import annotations

import gc

import pytest
from fakes import HeldStore, World, make_message

from millstream.broker.account_options import AccountOptions
from millstream.broker.line import Ending
from millstream.broker.session import Session
from millstream.broker.will import Will
from millstream.model.errors import Reason, Refused
from millstream.model.limits import Limits
from millstream.security.principal import Principal
from millstream.security.quota import CONNECTIONS, Bound
from millstream.security.quotas import QuotaTerms, make_quota


def test_a_resumed_session_keeps_subscriptions_and_unsettled_deliveries() -> None:
    world = World()
    session, line = world.connect("c", expiry_s=60)
    world.subscribe(session, b"t")
    world.publish(b"t", b"open")
    world.drop(session)
    world.publish(b"t", b"queued")
    again, line = world.connect("c", expiry_s=60)
    assert again is session
    assert line.sent == [(1, b"open", True), (2, b"queued", False)]


def test_a_clean_start_forgets_everything_and_sends_nothing() -> None:
    world = World()
    session, _ = world.connect("c")
    world.subscribe(session, b"t")
    world.publish(b"t")
    world.drop(session)
    again, line = world.connect("c", clean_start=True)
    assert again is not session
    assert line.sent == []
    assert session.is_ended
    assert world.account.router.tree.count == 0
    assert world.broker.session_count == 1
    assert world.publish(b"t") is Reason.NO_MATCHING_SUBSCRIBERS


def test_a_second_connection_takes_over_and_the_first_is_told() -> None:
    world = World()
    session, first = world.connect("c")
    world.subscribe(session, b"t")
    world.publish(b"t", b"open")
    again, second = world.connect("c")
    assert first.endings == [Ending.TAKEN_OVER]
    assert again is session
    assert session.line is second
    assert second.sent == [(1, b"open", True)]
    assert world.account.connected == 1
    world.broker.close_line(session, first, True)  # the loser's late goodbye changes nothing
    assert session.line is second
    assert world.account.connected == 1


def test_taking_over_a_session_that_ends_with_its_connection_begins_a_new_one() -> None:
    world = World()
    session, _first = world.connect("c", expiry_s=0)
    world.subscribe(session, b"t")
    again, second = world.connect("c", expiry_s=0)
    assert again is not session
    assert session.is_ended
    assert world.broker.session_count == 1
    world.publish(b"t")
    assert second.sent == []


def test_nobody_takes_over_a_session_of_another_user() -> None:
    world = World()
    session, first = world.connect("c", user="alice")
    with pytest.raises(Refused) as caught:
        world.connect("c", user="mallory")
    assert caught.value.reason is Reason.NOT_AUTHORIZED
    with pytest.raises(Refused):
        world.connect("c", user="mallory", clean_start=True)
    assert first.endings == []
    assert session.line is first
    world.drop(session)
    with pytest.raises(Refused):
        world.connect("c", user="mallory", clean_start=True)
    assert world.account.counters.connections_refused == 3


def test_equal_client_ids_of_two_accounts_are_two_sessions_with_topics_of_their_own() -> None:
    world = World(accounts={"other": AccountOptions()})
    here, here_line = world.connect("c")
    there, there_line = world.connect("c", account="other")
    world.subscribe(here, b"t")
    world.subscribe(there, b"t")
    world.publish(b"t", b"here")
    assert here_line.payloads() == [b"here"]
    assert there_line.payloads() == []
    assert here_line.endings == []


def test_an_account_nobody_configured_is_refused() -> None:
    with pytest.raises(Refused) as caught:
        World().broker.get_account("nobody")
    assert caught.value.reason is Reason.NOT_AUTHORIZED


def test_a_session_expires_when_its_time_is_over_and_not_before() -> None:
    world = World()
    session, _ = world.connect("c", expiry_s=60)
    world.subscribe(session, b"t")
    world.move(1000)
    assert not session.is_ended  # connected: no time runs
    world.drop(session)
    world.move(59.999)
    assert not session.is_ended
    assert world.publish(b"t") is Reason.SUCCESS
    world.move(0.001)
    assert session.is_ended
    assert world.publish(b"t") is Reason.NO_MATCHING_SUBSCRIBERS
    assert world.account.counters.sessions_expired == 1
    assert world.broker.session_count == 0
    assert world.store.load().sessions == []


def test_a_session_that_came_back_in_time_runs_its_whole_time_anew() -> None:
    world = World()
    session, _ = world.connect("c", expiry_s=60)
    world.drop(session)
    world.move(50)
    world.connect("c", expiry_s=60)
    world.move(50)
    assert not session.is_ended
    world.drop(session)
    world.move(50)  # the deadlines of the first absence are long past
    assert not session.is_ended
    world.move(10)
    assert session.is_ended


def test_a_session_without_end_outlives_any_clock() -> None:
    world = World()
    session, _ = world.connect("c")
    world.drop(session)
    world.move(10 * 365 * 86_400)
    assert not session.is_ended


def test_the_expiry_given_at_the_end_is_the_one_that_counts() -> None:
    world = World()
    session, _ = world.connect("c", expiry_s=60)
    world.broker.change_expiry(session, 5)
    world.drop(session)
    world.move(5)
    assert session.is_ended
    session, _ = world.connect("c", expiry_s=60)
    world.broker.change_expiry(session, 0)
    world.drop(session)
    assert session.is_ended
    assert world.store.load().sessions == []


def test_sessions_are_bounded_and_an_old_one_may_still_come_back() -> None:
    world = World(Limits(sessions_max=2))
    first, _ = world.connect("a")
    world.connect("b")
    with pytest.raises(Refused) as caught:
        world.connect("c")
    assert caught.value.reason is Reason.QUOTA_EXCEEDED
    world.drop(first)
    world.connect("a")
    world.broker.end_session(first)
    assert world.broker.session_count == 1


def test_connections_of_an_account_are_bounded_but_not_its_take_overs() -> None:
    world = World(
        accounts={
            "small": AccountOptions(
                0, QuotaTerms(make_quota({CONNECTIONS: Bound(1, "accounts.small.max_connections")}))
            )
        }
    )
    session, _ = world.connect("a", account="small")
    with pytest.raises(Refused) as caught:
        world.connect("b", account="small")
    assert caught.value.reason is Reason.QUOTA_EXCEEDED
    world.connect("a", account="small")
    world.drop(session)
    world.connect("b", account="small")
    assert world.broker.get_account("small").connected == 1


def test_the_window_is_the_smallest_of_what_client_operator_and_account_allow() -> None:
    world = World(Limits(inflight_max=100, max_ack_pending=50), accounts={"a": AccountOptions(20)})
    assert world.account.window_limit(65_535) == 50
    assert world.account.window_limit(10) == 10
    assert world.broker.get_account("a").window_limit(65_535) == 20
    assert World(Limits(inflight_max=100)).account.window_limit(65_535) == 100


def test_subscriptions_of_a_session_are_bounded_and_replacing_one_is_always_possible() -> None:
    world = World(Limits(subscriptions_max=2))
    session, line = world.connect("c")
    world.subscribe(session, b"a")
    world.subscribe(session, b"b")
    with pytest.raises(Refused) as caught:
        world.subscribe(session, b"c")
    assert caught.value.reason is Reason.QUOTA_EXCEEDED
    world.subscribe(session, b"a", guarantee=0)
    assert world.account.router.tree.count == 2
    assert world.broker.unsubscribe(session, b"a")
    assert not world.broker.unsubscribe(session, b"a")
    world.subscribe(session, b"c")
    world.publish(b"a")
    assert line.sent == []
    assert line.plain == []


def test_the_filters_of_a_session_are_bounded_in_bytes_and_room_comes_back() -> None:
    world = World(Limits(subscription_bytes_max=10))
    session, _ = world.connect("c")
    world.subscribe(session, b"four")
    world.subscribe(session, b"sixsix")
    world.subscribe(session, b"four")  # replaced, not added
    with pytest.raises(Refused) as refused:
        world.subscribe(session, b"x")
    assert refused.value.reason is Reason.QUOTA_EXCEEDED
    assert world.broker.unsubscribe(session, b"four")
    world.subscribe(session, b"1234")
    with pytest.raises(Refused):
        world.subscribe(session, b"x")


def test_a_session_that_ends_with_its_connection_leaves_nothing_in_the_store() -> None:
    store = HeldStore()
    world = World(store=store)
    session, line = world.connect("c", expiry_s=0)
    world.subscribe(session, b"t")
    world.publish(b"t", guarantee=2)
    session.add_received_id(5)
    session.on_received(line.ids()[0], False)
    world.drop(session)
    assert store.facts == []


def test_ending_a_session_twice_does_it_once() -> None:
    world = World()
    session, _ = world.connect("c")
    world.drop(session)
    world.broker.end_session(session)
    world.broker.end_session(session)
    assert world.broker.session_count == 0


def test_a_line_that_waits_for_the_store_is_told_once_and_not_after_it_left() -> None:
    world = World()
    _, one = world.connect("a")
    _, other = world.connect("b")
    world.broker.wait_durable(one)
    world.broker.wait_durable(other)
    world.broker.forget_line(other)
    world.broker.on_durable()
    world.broker.on_durable()
    assert (one.durable_calls, other.durable_calls) == (1, 0)


def test_the_new_principal_of_a_resumed_session_is_the_one_asked_for_rights() -> None:
    world = World()
    session, line = world.connect("c")
    world.drop(session)
    renewed = Principal("user", "default", "token", 99)
    again, present = world.broker.open_session(world.account, "c", renewed, False, line)
    assert present
    assert again.principal is renewed


def restarted(world: World, seconds: float) -> World:
    """The broker was away for so long and is about to serve."""
    after = World(store=world.store)
    after.now_ns = world.now_ns + int(seconds * 1_000_000_000)
    after.broker.restore(after.now_ns)
    after.broker.end_overdue(after.now_ns)
    return after


@pytest.mark.parametrize(("away_s", "is_there"), [(59, True), (60, False)])
def test_a_session_that_ended_while_the_broker_was_away_is_gone_when_it_serves(
    away_s: float, is_there: bool
) -> None:
    world = World()
    session, _ = world.connect("c", expiry_s=60)
    world.subscribe(session, b"t")
    world.drop(session)
    after = restarted(world, away_s)
    assert ("c" in after.account.sessions) is is_there
    assert after.account.counters.sessions_expired == (not is_there)
    matched = after.publish(b"t")
    assert matched is (Reason.SUCCESS if is_there else Reason.NO_MATCHING_SUBSCRIBERS)


def test_a_will_that_became_due_while_the_broker_was_away_is_sent_before_it_serves() -> None:
    world = World()
    hearer, _ = world.connect("hearer", expiry_s=600)
    world.subscribe(hearer, b"will")
    session, _ = world.connect("c", expiry_s=600, will=Will(make_message(b"will", b"gone", 1, False), 30, 0))
    world.drop(hearer)
    world.drop(session)
    after = restarted(world, 30)
    assert after.account.counters.wills_sent == 1
    _, line = after.connect("hearer", expiry_s=600)
    assert line.payloads() == [b"gone"]


def test_what_expired_in_a_queue_while_the_broker_was_away_is_not_delivered() -> None:
    world = World()
    session, _ = world.connect("c", expiry_s=600)
    world.subscribe(session, b"t")
    world.drop(session)
    world.publish(b"t", b"short", expiry_s=20)
    world.publish(b"t", b"long", expiry_s=200)
    after = restarted(world, 30)
    _, line = after.connect("c", expiry_s=600)
    assert line.payloads() == [b"long"]


def test_a_session_whose_time_is_over_is_not_resumed_before_the_next_tick() -> None:
    world = World()
    session, _ = world.connect("c", expiry_s=60)
    world.drop(session)
    world.now_ns += 60 * 1_000_000_000
    world.broker.clock.now_ns = world.now_ns
    again, _ = world.connect("c", expiry_s=60, user="another")
    assert again is not session
    assert session.is_ended


def come_and_end(world: World, client_id: str, expiry_s: int) -> None:
    session, _ = world.connect(client_id, expiry_s=expiry_s)
    world.subscribe(session, b"t/" + client_id.encode())
    world.publish(b"t/" + client_id.encode())
    world.drop(session)
    if expiry_s:
        world.broker.end_session(session)


@pytest.mark.parametrize("expiry_s", [0, 3600])
def test_a_session_that_has_ended_is_held_by_nothing(expiry_s: int) -> None:
    """One object that lives on keeps a whole arena of memory after a flood."""
    world = World()
    for number in range(20):
        come_and_end(world, str(number), expiry_s)
    assert world.broker.session_count == 0
    gc.collect()
    sessions = [each for each in gc.get_objects() if isinstance(each, Session)]
    assert not [session for session in sessions if session.account is world.account]
