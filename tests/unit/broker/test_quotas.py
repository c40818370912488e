"""One user, or one account, has no more than its quota, by whatever way it comes, and leaves the rest to others."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fakes import World, make_message
from queue_world import purge

from millstream.broker.account_options import AccountOptions
from millstream.broker.conditions import QUOTA_REACHED
from millstream.broker.health import QUIET_NS
from millstream.broker.queue_access import ConsumeRequest
from millstream.broker.session import Session
from millstream.broker.system_topics import SystemTopics
from millstream.broker.will import Will
from millstream.model.errors import Reason, Refused
from millstream.model.limits import Limits
from millstream.model.message import NANOSECONDS, Message
from millstream.model.owner import Owner
from millstream.queues.definition import WORK, Definition
from millstream.routing.subscription import Subscription
from millstream.security.quota import (
    BYTES,
    CONNECTIONS,
    KINDS,
    QUEUES,
    SESSIONS,
    SUBSCRIPTIONS,
    Bound,
    Quota,
)
from millstream.security.quotas import QuotaTerms, make_quota
from millstream.storage.memory_store import MemoryStore
from millstream.storage.records.exchange_records import StoredBinding, encode_identity
from millstream.storage.records.stored_queue import StoredQueue


def terms_of(kind: int, user: int = 0, account: int = 0) -> dict[str, AccountOptions]:
    user_quota = make_quota({kind: Bound(user, f"user_quotas.max_{KINDS[kind]}")})
    whole = make_quota({kind: Bound(account, f"accounts.default.quotas.max_{KINDS[kind]}")})
    return {"default": AccountOptions(0, QuotaTerms(whole, user_quota))}


def bounded(kind: int, user: int = 0, account: int = 0, limits: Limits | None = None) -> World:
    return World(limits, accounts=terms_of(kind, user, account))


def refusal(act: Callable[[], object]) -> str:
    with pytest.raises(Refused) as caught:
        act()
    assert caught.value.reason is Reason.QUOTA_EXCEEDED
    return caught.value.text


def used(world: World, kind: int, user: str = "") -> int:
    return world.account.quotas.of(user).used[kind]


# -------------------------------------------------------- sessions, connections


def test_a_user_has_no_more_sessions_than_its_quota_and_others_are_served() -> None:
    world = bounded(SESSIONS, user=2)
    first, _ = world.connect("a1", user="ann")
    world.drop(world.connect("a2", user="ann")[0])
    text = refusal(lambda: world.connect("a3", user="ann"))
    assert text == "the user 'ann' has 2 sessions, as many as user_quotas.max_sessions = 2 allows"
    world.connect("a2", user="ann")
    world.connect("b1", user="ben")
    world.broker.end_session(first)
    world.connect("a3", user="ann")
    assert used(world, SESSIONS) == 3


def test_an_account_has_no_more_sessions_than_its_quota() -> None:
    world = bounded(SESSIONS, account=2)
    world.connect("a", user="ann")
    world.connect("b", user="ben")
    text = refusal(lambda: world.connect("c", user="cid"))
    assert (
        text
        == "the account 'default' has 2 sessions, as many as accounts.default.quotas.max_sessions = 2 allows"
    )
    assert world.account.counters.connections_refused == 1


def test_a_user_has_no_more_connections_than_its_quota_but_may_take_over_its_own() -> None:
    world = bounded(CONNECTIONS, user=1)
    session, _ = world.connect("a", user="ann")
    assert "connections" in refusal(lambda: world.connect("b", user="ann"))
    session, _ = world.connect("a", user="ann")
    world.connect("c", user="ben")
    world.drop(session)
    world.connect("b", user="ann")
    assert used(world, CONNECTIONS, "ann") == 1


def test_sessions_that_a_start_finds_count() -> None:
    store = MemoryStore()
    world = World(store=store)
    for name in ("a", "b"):
        session, _ = world.connect(name, user="ann")
        world.subscribe(session, b"t/" + name.encode())
        world.drop(session)
    anew = World(store=store, accounts=terms_of(SESSIONS, user=2))
    anew.broker.restore(anew.now_ns)
    assert used(anew, SESSIONS, "ann") == 2
    assert used(anew, SUBSCRIPTIONS, "ann") == 2
    refusal(lambda: anew.connect("c", user="ann"))
    anew.connect("d", user="ben")


# ---------------------------------------------------------------------- queues


def consume(world: World, session: Session, filter: bytes) -> None:
    request = ConsumeRequest("g", 1, 0, False, False, b"")
    world.broker.consume(session, Subscription(session, filter, b"", 1, False, False, 0), request)


def test_a_user_makes_no_more_queues_than_its_quota_by_publishing_or_subscribing() -> None:
    world = bounded(QUEUES, user=2)
    ann, _ = world.connect("a", user="ann")
    ben, _ = world.connect("b", user="ben")
    assert world.publish(b"$queue/one", publisher=ann) is Reason.SUCCESS
    consume(world, ann, b"$queue/two")
    assert world.publish(b"$queue/three", publisher=ann) is Reason.QUOTA_EXCEEDED
    text = refusal(lambda: consume(world, ann, b"$queue/four"))
    assert text == "the user 'ann' has 2 queues, as many as user_quotas.max_queues = 2 allows"
    assert world.publish(b"$queue/one", publisher=ann) is Reason.SUCCESS
    assert world.publish(b"$queue/three", publisher=ben) is Reason.SUCCESS
    catalog = world.account.queues.catalog
    catalog.delete(catalog.get("one"))
    assert world.publish(b"$queue/four", publisher=ann) is Reason.SUCCESS


def test_queues_named_as_dead_letters_count_like_others() -> None:
    world = bounded(QUEUES, user=1)
    ann, _ = world.connect("a", user="ann")
    assert world.publish(b"$dlq/one", publisher=ann) is Reason.SUCCESS
    assert world.publish(b"$dlq/two", publisher=ann) is Reason.QUOTA_EXCEEDED


def test_a_dead_letter_finds_its_place_whatever_quota_is_reached() -> None:
    world = bounded(QUEUES, user=1)
    catalog = world.account.queues.catalog
    queue = catalog.declare("q", Definition(WORK), "ann")
    queue.append(make_message(b"$queue/q"))
    pending = queue.find_pending(None, 0)
    assert pending is not None
    assert catalog.dead_letter(queue, "", pending, "rejected")
    assert catalog.get("$dlq/q").depth() == 1
    assert used(world, QUEUES, "ann") == 2


def test_the_operator_makes_queues_beyond_the_quotas_of_users() -> None:
    world = bounded(QUEUES, user=1, account=1)
    catalog = world.account.queues.catalog
    for name in ("one", "two"):
        catalog.declare(name, Definition(WORK))
    refusal(lambda: catalog.declare("three", Definition(WORK), "ann"))


def test_a_queue_stays_whose_it_is_when_it_is_declared_again() -> None:
    world = bounded(QUEUES, user=1)
    catalog = world.account.queues.catalog
    catalog.declare("q", Definition(WORK), "ann")
    other = Definition(WORK)
    other.max_deliveries = 9
    assert catalog.declare("q", other, "ben").definition.user == "ann"
    assert (used(world, QUEUES, "ann"), used(world, QUEUES, "ben")) == (1, 0)


def test_queues_that_a_start_finds_count_for_whoever_declared_them() -> None:
    store = MemoryStore()
    world = World(store=store)
    ann, _ = world.connect("a", user="ann")
    for name in (b"one", b"two"):
        world.publish(b"$queue/" + name, publisher=ann)
    anew = World(store=store, accounts=terms_of(QUEUES, user=2))
    for queue in world.account.queues.catalog.queues.values():
        anew.account.queues.catalog.restore(stored_of(queue.name, queue.definition))
    ann, _ = anew.connect("a", user="ann")
    assert anew.publish(b"$queue/three", publisher=ann) is Reason.QUOTA_EXCEEDED
    assert anew.publish(b"$queue/one", publisher=ann) is Reason.SUCCESS


def stored_of(name: str, definition: Definition) -> StoredQueue:
    return StoredQueue(1 + len(name), "default", name, definition.encode())


# --------------------------------------------------------------- subscriptions


def test_a_user_has_no_more_subscriptions_than_its_quota_in_all_its_sessions() -> None:
    world = bounded(SUBSCRIPTIONS, user=2)
    first, _ = world.connect("a1", user="ann")
    second, _ = world.connect("a2", user="ann")
    world.subscribe(first, b"one")
    consume(world, second, b"$queue/two")
    assert refusal(lambda: world.subscribe(second, b"three")) == (
        "the user 'ann' has 2 subscriptions, as many as user_quotas.max_subscriptions = 2 allows"
    )
    refusal(lambda: consume(world, first, b"$queue/three"))
    world.subscribe(first, b"one")  # again
    world.broker.unsubscribe(first, b"one")
    world.subscribe(second, b"three")
    world.broker.end_session(second)
    assert used(world, SUBSCRIPTIONS, "ann") == used(world, SUBSCRIPTIONS) == 0


def test_a_binding_counts_for_whoever_makes_it_first_whoever_declared_the_queue() -> None:
    world = bounded(SUBSCRIPTIONS, user=1)
    exchanges = world.account.exchanges
    queue = world.account.queues.catalog.declare("q", Definition(WORK), "ann")
    ann, ben = Owner("ann", "user", "a"), Owner("ben", "user", "b")
    exchanges.bind_queue(queue, "amq.topic", b"a", {}, ben)
    exchanges.bind_queue(queue, "amq.topic", b"a", {}, ann)
    assert (used(world, SUBSCRIPTIONS, "ann"), used(world, SUBSCRIPTIONS, "ben")) == (0, 1)
    for again in (
        lambda: exchanges.bind_queue(queue, "amq.topic", b"b", {}, ben),
        lambda: exchanges.bind_exchange("amq.fanout", "amq.direct", b"b", {}, ben),
    ):
        assert refusal(again) == (
            "the user 'ben' has 1 subscriptions, as many as user_quotas.max_subscriptions = 1 allows"
        )
    exchanges.bind_exchange("amq.fanout", "amq.direct", b"b", {}, ann)
    exchanges.bind_queue(queue, "amq.topic", b"c", {})  # by the operator, who is never refused
    assert used(world, SUBSCRIPTIONS) == 3
    exchanges.bind_queue(queue, "amq.topic", b"a", {})  # from now on it is the account's own
    assert (used(world, SUBSCRIPTIONS), used(world, SUBSCRIPTIONS, "ben")) == (3, 0)
    world.account.queues.catalog.delete(queue)
    exchanges.unbind_exchange("amq.fanout", "amq.direct", b"b", {})
    assert used(world, SUBSCRIPTIONS, "ann") == used(world, SUBSCRIPTIONS) == 0


def test_a_binding_counts_after_a_start_for_whom_it_counted_before() -> None:
    world = bounded(SUBSCRIPTIONS, user=1)
    catalog = world.account.queues.catalog
    catalog.declare("q", Definition(WORK), "ann")
    owners = [Owner("ben", "user", "b"), Owner("ann", "user", "a")]
    for target, to_exchange in (("q", False), ("amq.fanout", True)):
        identity = encode_identity(to_exchange, target, b"k", {})
        stored = StoredBinding("default", "amq.direct", to_exchange, target, b"k", {}, identity)
        stored.owners = list(owners)
        world.account.exchanges.restore_binding(stored)
    assert (used(world, SUBSCRIPTIONS, "ann"), used(world, SUBSCRIPTIONS, "ben")) == (0, 2)
    catalog.delete(catalog.get("q"))
    world.account.exchanges.unbind_exchange("amq.fanout", "amq.direct", b"k", {})
    assert used(world, SUBSCRIPTIONS, "ben") == used(world, SUBSCRIPTIONS) == 0


# ----------------------------------------------------------------------- bytes


def test_queues_of_a_user_that_stores_too_much_refuse_until_there_is_less() -> None:
    world = bounded(BYTES, user=5000)
    ann, _ = world.connect("a", user="ann")
    ben, _ = world.connect("b", user="ben")
    for name in (b"$queue/one", b"$queue/two"):
        assert world.publish(name, bytes(3000), publisher=ann) is Reason.SUCCESS
    assert world.publish(b"$queue/ben", bytes(3000), publisher=ben) is Reason.SUCCESS
    world.move(0.1)
    assert world.publish(b"$queue/two", publisher=ann) is Reason.QUOTA_EXCEEDED
    assert world.publish(b"$queue/two", publisher=ben) is Reason.QUOTA_EXCEEDED, "it is ann's queue"
    assert world.publish(b"$queue/ben", publisher=ann) is Reason.SUCCESS
    purge(world.account.queues.catalog.get("one"))
    world.move(0.1)
    assert world.publish(b"$queue/two", publisher=ann) is Reason.SUCCESS
    assert world.account.counters.quota_bytes == 2


def test_an_account_that_stores_too_much_refuses_for_all_its_users() -> None:
    world = bounded(BYTES, account=5000)
    ann, _ = world.connect("a", user="ann")
    ben, _ = world.connect("b", user="ben")
    world.publish(b"$queue/one", bytes(6000), publisher=ann)
    world.move(0.1)
    assert world.publish(b"$queue/ben", publisher=ben) is Reason.QUOTA_EXCEEDED
    assert "the account 'default' has" in cause(world)


def test_a_message_for_a_session_of_a_user_that_stores_too_much_takes_the_place_of_the_oldest() -> None:
    world = bounded(BYTES, user=5000)
    session, _ = world.connect("a", user="ann")
    world.subscribe(session, b"t")
    world.drop(session)
    for number in range(3):
        world.publish(b"t", b"%d" % number + bytes(3000))
    world.move(0.1)
    for number in range(3, 10):
        world.publish(b"t", b"%d" % number + bytes(3000))
    assert session.queued_count() == 3
    assert world.account.counters.dropped_queue_full == 7


def test_messages_for_sessions_are_refused_where_the_policy_is_to_reject() -> None:
    world = bounded(BYTES, user=5000, limits=Limits(offline_policy="reject"))
    session, _ = world.connect("a", user="ann")
    world.subscribe(session, b"t")
    world.drop(session)
    for _ in range(2):
        world.publish(b"t", bytes(3000))
    world.move(0.1)
    world.publish(b"t", bytes(3000))
    assert session.queued_count() == 2
    assert world.account.counters.dropped_queue_full == 1


def test_a_user_retains_no_more_than_its_quota() -> None:
    world = bounded(BYTES, user=5000)
    ann, _ = world.connect("a", user="ann")
    ben, _ = world.connect("b", user="ben")
    for number in range(2):
        assert (
            world.publish(b"t/%d" % number, bytes(3000), retain=True, publisher=ann)
            is not Reason.QUOTA_EXCEEDED
        )
    world.move(0.1)
    assert world.publish(b"t/9", b"x", retain=True, publisher=ann) is Reason.QUOTA_EXCEEDED
    assert world.publish(b"t/8", b"x", retain=True, publisher=ben) is not Reason.QUOTA_EXCEEDED
    world.publish(b"t/0", b"", retain=True, publisher=ann)
    world.move(0.1)
    assert world.publish(b"t/9", b"x", retain=True, publisher=ann) is not Reason.QUOTA_EXCEEDED


def test_what_one_user_retains_over_anothers_counts_for_the_last() -> None:
    world = bounded(BYTES, user=5000)
    ann, _ = world.connect("a", user="ann")
    ben, _ = world.connect("b", user="ben")
    world.publish(b"t", bytes(6000), retain=True, publisher=ann)
    world.publish(b"t", bytes(6000), retain=True, publisher=ben)
    world.move(0.1)
    assert used(world, BYTES, "ann") == 0
    assert used(world, BYTES, "ben") > 6000


# ------------------------------------------------------------------------ told


def cause(world: World) -> str:
    (active,) = world.broker.health.active()
    assert active.condition is QUOTA_REACHED
    return active.cause


def test_a_reached_quota_is_a_condition_of_its_own_for_each_user_and_ends_by_itself() -> None:
    world = bounded(SESSIONS, user=1)
    for user in ("ann", "ben"):
        world.connect(user, user=user)
        for _ in range(3):
            refusal(lambda user=user: world.connect(user + "2", user=user))
    active = world.broker.health.active()
    assert [(each.name, int(each.count)) for each in active] == [
        ("quota_reached/sessions of default%2Fann", 3),
        ("quota_reached/sessions of default%2Fben", 3),
    ]
    assert "the user 'ann' has 1 sessions, as many as user_quotas.max_sessions = 1 allows" in active[0].cause
    assert world.broker.health.status() == "ok"
    world.move(QUIET_NS / NANOSECONDS + 1)
    assert world.broker.health.active() == []


def test_very_many_users_at_their_quotas_share_a_condition() -> None:
    world = bounded(SESSIONS, user=1)
    for number in range(150):
        world.connect(f"{number}", user=f"u{number}")
        refusal(lambda number=number: world.connect(f"{number}-2", user=f"u{number}"))
    assert len(world.broker.health.active()) == 101
    assert int(world.broker.health.active()[-1].count) == 50


def test_refusals_are_counted_under_sys() -> None:
    world = bounded(QUEUES, user=1)
    ann, _ = world.connect("a", user="ann")
    for name in (b"$queue/one", b"$queue/two"):
        world.publish(name, publisher=ann)
    values = SystemTopics(world.broker, "1", 10, world.now_ns).values(world.now_ns)
    assert values["quotas/refused/queues"] == "1"
    assert values["quotas/refused/sessions"] == "0"


def test_users_that_have_nothing_are_forgotten() -> None:
    world = bounded(SESSIONS, user=1)
    for number in range(5000):
        session, _ = world.connect("a", user=f"u{number}", expiry_s=0)
        world.drop(session)
    assert len(world.account.quotas.users) <= 1001


def test_a_user_with_a_quota_of_its_own_has_that() -> None:
    wide = make_quota({SESSIONS: Bound(3, "user_quotas.users.ann.max_sessions")})
    narrow = make_quota({SESSIONS: Bound(1, "user_quotas.max_sessions")})
    world = World(accounts={"default": AccountOptions(0, QuotaTerms(Quota(), narrow, {"ann": wide}))})
    for number in range(3):
        world.connect(f"a{number}", user="ann")
    assert "user_quotas.users.ann.max_sessions = 3" in refusal(lambda: world.connect("a9", user="ann"))
    world.connect("b", user="ben")
    refusal(lambda: world.connect("b2", user="ben"))


# ---------------------------------------------------------------------- memory


def test_when_memory_is_used_up_no_more_is_made_of_what_already_takes_much_of_it() -> None:
    world = World()
    session, _ = world.connect("a")
    world.use_memory(101)
    world.subscribe(session, b"few")
    consume(world, session, b"$queue/q")
    world.account.quotas.whole.used[SUBSCRIPTIONS] = 100_000
    text = refusal(lambda: world.subscribe(session, b"many"))
    assert "beside 100000 subscriptions there is no room for another" in text
    assert "memory.critical_watermark of memory.limit = 1024 MiB" in text
    assert "1034 MiB are in use" in text
    for kind in (SESSIONS, CONNECTIONS, QUEUES):
        world.account.quotas.whole.used[kind] = 100_000
    refusal(lambda: world.connect("b"))
    assert world.publish(b"$queue/other", publisher=session) is Reason.QUOTA_EXCEEDED
    refusal(lambda: world.account.queues.catalog.declare("other", Definition(WORK), "user"))
    assert world.broker.memory.values()["refused"] == "4"
    world.use_memory(10)
    world.subscribe(session, b"many")


def test_small_things_are_made_until_memory_is_used_up() -> None:
    world = World()
    session, _ = world.connect("a")
    for kind in (SESSIONS, CONNECTIONS, SUBSCRIPTIONS):
        world.account.quotas.whole.used[kind] = 100_000
    world.use_memory(99)
    world.subscribe(session, b"many")
    world.connect("b")


def test_large_wills_are_refused_as_soon_as_memory_is_short_and_wills_take_much_of_it() -> None:
    world = World()
    broker = world.broker
    large = Will(Message(b"t", b"x" * 60_000, 1, False, b"", 0, "a"), 20, 0)
    small = Will(Message(b"t", b"x" * 100, 1, False, b"", 0, "a"), 20, 0)
    world.use_memory(75)
    broker.wills.check_room(world.account, large)  # there are none yet
    for number in range(1200):
        session, _ = world.connect(f"c{number}")
        broker.wills.put(session, large)
        broker.wills.put(session, large)
    assert broker.memory.wills < 1200 * 61_000
    assert "beside the wills of others there is no room" in refusal(
        lambda: broker.wills.check_room(world.account, large)
    )
    broker.wills.check_room(world.account, small)
    world.use_memory(10)
    broker.wills.check_room(world.account, large)


def test_a_will_that_was_sent_or_given_up_takes_no_memory_any_more() -> None:
    world = World()
    session, _ = world.connect("a")
    world.broker.wills.put(session, Will(Message(b"t", b"x" * 60_000, 1, False, b"", 0, "a"), 20, 0))
    assert world.broker.memory.wills > 60_000
    world.broker.wills.drop(session)
    assert world.broker.memory.wills == 0


def test_when_memory_is_used_up_a_queue_gets_no_more_than_a_few_groups() -> None:
    world = World()
    session, _ = world.connect("a")
    world.use_memory(101)
    wishes = [ConsumeRequest(f"g{number}", 1, 0, False, False, b"") for number in range(20)]

    def join(number: int) -> None:
        filter = b"$queue/q/%d" % number
        world.broker.consume(session, Subscription(session, filter, b"", 1, False, False, 0), wishes[number])

    for number in range(16):
        join(number)
    assert "16 groups of the queue 'q'" in refusal(lambda: join(16))


def test_what_is_made_counts_as_work_that_makes_memory_grow() -> None:
    world = World()
    session, _ = world.connect("a")
    before = int(world.broker.memory.intake)
    world.subscribe(session, b"t")
    assert int(world.broker.memory.intake) - before == 1024
