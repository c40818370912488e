"""The store: one battery for every store, and a broker built anew on what it kept.

`JournalStore` keeps nothing but what was said through the port, by value: a fact that a broker holds
back, or one that only survives because an object is shared, is lost in it.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fakes import START_NS, HeldStore, MqttPeer, MqttWorld, World, make_message
from logged_store import LoggedStore, folded_store

from millstream.broker.account_options import AccountOptions
from millstream.broker.will import Will
from millstream.model.delivery import QUEUED, RECEIVED, SENT, Delivery
from millstream.model.limits import NEVER_EXPIRES
from millstream.model.message import NANOSECONDS, Message
from millstream.protocols.mqtt.wire.packets import (
    ConnAck,
    Connect,
    Packet,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    SubscribeEntry,
)
from millstream.protocols.mqtt.wire.packets import Will as WillPacket
from millstream.protocols.mqtt.wire.properties import Properties
from millstream.storage.memory_store import MemoryStore
from millstream.storage.store import (
    SessionKey,
    Store,
    StoredSession,
    StoredState,
    StoredSubscription,
    StoredWill,
)

KEY = SessionKey("default", "c")


def copy_of(delivery: Delivery) -> Delivery:
    message = delivery.message
    copied = Message(
        message.topic,
        message.payload,
        message.guarantee,
        message.retain,
        message.properties,
        message.expires_ns,
        message.publisher,
    )
    made = Delivery(copied, delivery.guarantee, delivery.retain, delivery.identifiers, delivery.share)
    made.phase = delivery.phase
    made.packet_id = delivery.packet_id
    made.sequence = delivery.sequence
    return made


class JournalStore(Store):
    def __init__(self) -> None:
        self._sessions: dict[tuple[str, str], StoredSession] = {}
        self._retained: dict[tuple[str, bytes], Message] = {}
        self._position = 0

    def _at(self, key: SessionKey) -> StoredSession:
        self._position += 1
        return self._sessions[key.pair()]

    def load(self) -> StoredState:
        retained = [(account, message) for (account, _), message in self._retained.items()]
        found = []
        for stored in self._sessions.values():
            copied = StoredSession(stored.key, stored.principal, stored.expiry_s, stored.expires_ns)
            copied.subscriptions = dict(stored.subscriptions)
            copied.deliveries = {at: copy_of(stored.deliveries[at]) for at in sorted(stored.deliveries)}
            copied.received_ids = dict(stored.received_ids)
            copied.will = stored.will
            found.append(copied)
        return StoredState(found, retained, [])

    def position(self) -> int:
        return self._position

    def durable(self) -> int:
        return self._position

    def on_tick(self, now_ns: int) -> None:
        return

    def queue_fact(self, kind: int, body: bytes) -> int:
        self._position += 1
        return self._position

    def exchange_fact(self, kind: int, body: bytes) -> int:
        self._position += 1
        return self._position

    def session_saved(self, key: SessionKey, principal: str, expiry_s: int, expires_ns: int) -> None:
        self._position += 1
        stored = self._sessions.setdefault(key.pair(), StoredSession(key, "", 0, 0))
        stored.principal, stored.expiry_s, stored.expires_ns = principal, int(expiry_s), int(expires_ns)

    def session_removed(self, key: SessionKey) -> None:
        self._position += 1
        self._sessions.pop(key.pair(), None)

    def subscription_saved(self, key: SessionKey, subscription: StoredSubscription) -> None:
        self._at(key).subscriptions[subscription.name] = subscription

    def subscription_removed(self, key: SessionKey, name: bytes) -> None:
        self._at(key).subscriptions.pop(name, None)

    def delivery_added(self, key: SessionKey, delivery: Delivery) -> None:
        self._at(key).deliveries[int(delivery.sequence)] = copy_of(delivery)

    def delivery_advanced(self, key: SessionKey, delivery: Delivery) -> None:
        kept = self._at(key).deliveries[int(delivery.sequence)]
        kept.phase, kept.packet_id = delivery.phase, delivery.packet_id

    def delivery_removed(self, key: SessionKey, delivery: Delivery) -> None:
        del self._at(key).deliveries[int(delivery.sequence)]

    def id_received(self, key: SessionKey, packet_id: int) -> None:
        self._at(key).received_ids[int(packet_id)] = None

    def id_released(self, key: SessionKey, packet_id: int) -> None:
        del self._at(key).received_ids[int(packet_id)]

    def will_saved(self, key: SessionKey, will: StoredWill) -> None:
        self._at(key).will = will

    def will_removed(self, key: SessionKey) -> None:
        self._at(key).will = None

    def retained_saved(self, account: str, message: Message) -> None:
        self._position += 1
        self._retained[account, message.topic] = message

    def retained_removed(self, account: str, topic: bytes) -> None:
        self._position += 1
        self._retained.pop((account, topic), None)


STORES: dict[str, Callable[[], Store]] = {
    "memory": MemoryStore,
    "journal": JournalStore,
    "log": LoggedStore,
    "log and checkpoint": folded_store,
}


@pytest.fixture(params=sorted(STORES))
def store(request: pytest.FixtureRequest) -> Store:
    return STORES[str(request.param)]()


def make_delivery(sequence: int, phase: int = QUEUED, packet_id: int = 0) -> Delivery:
    delivery = Delivery(make_message(b"t", b"%d" % sequence, 2), 2, True, (4, 5), b"$share/g/t")
    delivery.sequence, delivery.phase, delivery.packet_id = sequence, phase, packet_id
    return delivery


def only(store: Store) -> StoredSession:
    (stored,) = store.load().sessions
    return stored


# ------------------------------------------------------------------ the battery


def test_an_empty_store_has_nothing(store: Store) -> None:
    state = store.load()
    assert state.sessions == []
    assert state.retained == []
    assert store.durable() >= store.position()


def test_every_fact_moves_the_position(store: Store) -> None:
    delivery = make_delivery(0)
    facts: list[Callable[[], None]] = [
        lambda: store.session_saved(KEY, "u", 9, 0),
        lambda: store.subscription_saved(KEY, StoredSubscription(b"t", 1, False, False, 0)),
        lambda: store.delivery_added(KEY, delivery),
        lambda: store.delivery_advanced(KEY, delivery),
        lambda: store.id_received(KEY, 7),
        lambda: store.will_saved(KEY, StoredWill(make_message(b"w"), 1, 2)),
        lambda: store.retained_saved("default", make_message(b"r")),
        lambda: store.retained_removed("default", b"r"),
        lambda: store.will_removed(KEY),
        lambda: store.id_released(KEY, 7),
        lambda: store.delivery_removed(KEY, delivery),
        lambda: store.subscription_removed(KEY, b"t"),
        lambda: store.session_removed(KEY),
    ]
    for fact in facts:
        before = store.position()
        fact()
        assert store.position() > before
    assert store.load().sessions == []


def test_a_session_is_kept_with_its_terms_and_saving_again_changes_only_those(store: Store) -> None:
    store.session_saved(KEY, "u", 60, 0)
    store.subscription_saved(KEY, StoredSubscription(b"t", 1, True, True, 3))
    store.session_saved(KEY, "v", 70, 123)
    stored = only(store)
    assert stored.key.pair() == ("default", "c")
    assert (stored.principal, stored.expiry_s, stored.expires_ns) == ("v", 70, 123)
    kept = stored.subscriptions[b"t"]
    assert (kept.name, kept.guarantee, kept.no_local, kept.retain_as_published, kept.identifier) == (
        b"t",
        1,
        True,
        True,
        3,
    )


def test_a_subscription_replaces_the_one_of_its_name(store: Store) -> None:
    store.session_saved(KEY, "u", 60, 0)
    for guarantee in (0, 2):
        store.subscription_saved(KEY, StoredSubscription(b"$share/g/t", guarantee, False, False, 0))
    store.subscription_saved(KEY, StoredSubscription(b"t", 1, False, False, 0))
    store.subscription_removed(KEY, b"t")
    store.subscription_removed(KEY, b"never there")
    assert [(one.name, one.guarantee) for one in only(store).subscriptions.values()] == [(b"$share/g/t", 2)]


def test_deliveries_are_kept_in_order_with_every_field(store: Store) -> None:
    store.session_saved(KEY, "u", 60, 0)
    for sequence in range(12):
        store.delivery_added(KEY, make_delivery(sequence, SENT if sequence < 4 else QUEUED, sequence + 1))
    store.delivery_removed(KEY, make_delivery(5))
    advanced = make_delivery(2, RECEIVED, 3)
    kept = only(store).deliveries
    kept[2].phase = RECEIVED
    store.delivery_advanced(KEY, advanced)
    kept = only(store).deliveries
    assert list(kept) == [0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11]
    found = kept[3]
    assert (found.message.payload, found.guarantee, found.retain) == (b"3", 2, True)
    assert (found.identifiers, found.share) == ((4, 5), b"$share/g/t")
    assert (found.phase, found.packet_id, found.sequence) == (SENT, 4, 3)


def test_received_ids_are_kept_until_released(store: Store) -> None:
    store.session_saved(KEY, "u", 60, 0)
    for packet_id in (9, 1, 65_535):
        store.id_received(KEY, packet_id)
    store.id_released(KEY, 1)
    assert sorted(only(store).received_ids) == [9, 65_535]


def test_a_will_is_kept_until_removed(store: Store) -> None:
    store.session_saved(KEY, "u", 60, 0)
    store.will_saved(KEY, StoredWill(make_message(b"w", b"gone"), 30, 77))
    will = only(store).will
    assert will is not None
    assert (will.message.payload, will.delay_s, will.due_ns) == (b"gone", 30, 77)
    store.will_removed(KEY)
    assert only(store).will is None


def test_retained_messages_are_kept_by_account_and_topic(store: Store) -> None:
    store.retained_saved("default", make_message(b"t", b"old"))
    store.retained_saved("default", make_message(b"t", b"new"))
    store.retained_saved("other", make_message(b"t", b"theirs"))
    store.retained_saved("other", make_message(b"u", b"gone"))
    store.retained_removed("other", b"u")
    store.retained_removed("other", b"never there")
    kept = [(account, message.payload) for account, message in store.load().retained]
    assert sorted(kept) == [("default", b"new"), ("other", b"theirs")]


def test_sessions_of_two_accounts_do_not_meet(store: Store) -> None:
    other = SessionKey("other", "c")
    store.session_saved(KEY, "u", 60, 0)
    store.session_saved(other, "v", 60, 0)
    store.id_received(other, 5)
    store.session_removed(KEY)
    assert only(store).principal == "v"
    assert list(only(store).received_ids) == [5]


# ----------------------------------------------------- a broker built anew on it


def rebuilt(world: World) -> World:
    """The process died; another one finds the store. The clock goes on."""
    anew = World(world.limits, world.store, world.authorizer, {"other": AccountOptions()})
    anew.now_ns = world.now_ns
    anew.broker.restore(anew.now_ns)
    return anew


def test_subscriptions_route_before_anybody_returns(store: Store) -> None:
    world = World(store=store)
    session, _ = world.connect("c")
    world.subscribe(session, b"a/+", 1, identifier=9)
    world.subscribe(session, b"$share/g/s", 2)
    world.subscribe(session, b"gone")
    world.broker.unsubscribe(session, b"gone")
    world = rebuilt(world)
    assert world.account.router.tree.count == 2
    world.publish(b"a/b", b"1", guarantee=2)
    world.publish(b"s", b"2", guarantee=2)
    world.publish(b"gone", b"3")
    session, line = world.connect("c")
    assert line.payloads() == [b"1", b"2"]
    assert [(int(one.guarantee), one.identifiers) for one in line.deliveries] == [(1, (9,)), (2, ())]
    assert line.deliveries[1].share == b"$share/g/s"


def test_deliveries_come_back_with_their_ids_phases_and_order(store: Store) -> None:
    world = World(store=store)
    session, line = world.connect("c", window=4)
    world.subscribe(session, b"t")
    for number, guarantee in enumerate([1, 2, 2, 1, 1, 2]):
        world.publish(b"t", b"%d" % number, guarantee)
    assert line.ids() == [1, 2, 3, 4]
    session.on_received(2, False)
    session.on_settled(4, SENT)  # number 4 follows under id 5
    world = rebuilt(world)
    assert world.account.sessions["c"].queued_count() == 1
    session, line = world.connect("c")
    assert line.sent == [(1, b"0", True), (3, b"2", True), (5, b"4", True), (6, b"5", False)]
    assert line.released == [2]
    session.on_settled(2, RECEIVED)
    world = rebuilt(world)
    _, line = world.connect("c")
    assert line.released == []
    assert line.ids() == [1, 3, 5, 6]
    assert all(is_repeat for _, _, is_repeat in line.sent)


def test_new_deliveries_after_a_restart_go_behind_the_old_ones(store: Store) -> None:
    world = World(store=store)
    session, _ = world.connect("c")
    world.subscribe(session, b"t")
    world.publish(b"t", b"old")
    world.drop(session)
    world.publish(b"t", b"queued")
    world = rebuilt(world)
    world.publish(b"t", b"new")
    _, line = world.connect("c")
    assert line.payloads() == [b"old", b"queued", b"new"]
    assert len(set(line.ids())) == 3


def test_received_ids_come_back(store: Store) -> None:
    world = World(store=store)
    session, _ = world.connect("c")
    session.add_received_id(7)
    session.add_received_id(8)
    session.remove_received_id(7)
    session, _ = rebuilt(world).connect("c")
    assert session.is_id_received(8)
    assert not session.is_id_received(7)


def test_retained_messages_come_back_to_their_accounts(store: Store) -> None:
    world = World(store=store, accounts={"other": AccountOptions()})
    world.publish(b"t", b"mine", retain=True)
    message = make_message(b"t", b"theirs", 0, True)
    world.broker.publish_internal(world.broker.get_account("other"), message, None)
    world = rebuilt(world)
    for account, payload in (("default", b"mine"), ("other", b"theirs")):
        found = world.broker.get_account(account).retained.find(b"t")
        assert found is not None
        assert found.payload == payload


def test_a_session_belongs_to_its_user_also_after_a_restart(store: Store) -> None:
    world = World(store=store)
    world.connect("c", user="alice")
    world = rebuilt(world)
    with pytest.raises(Exception, match="another user"):
        world.connect("c", user="mallory")


def make_will(delay_s: int, lifetime_s: int = 0) -> Will:
    return Will(make_message(b"w", b"gone", 1), delay_s, lifetime_s)


@pytest.mark.parametrize("expiry_s", [0, 100, NEVER_EXPIRES])
def test_the_will_of_a_client_that_was_connected_is_sent_once_after_its_delay(
    store: Store, expiry_s: int
) -> None:
    world = World(store=store)
    session, _ = world.connect("watcher")
    world.subscribe(session, b"w")
    world.connect("c", expiry_s=expiry_s, will=make_will(10))
    world = rebuilt(world)
    _, line = world.connect("watcher")
    world.move(9)
    assert line.payloads() == []
    world.move(1)
    assert line.payloads() == [b"gone"]
    world = rebuilt(world)
    world.move(100)
    assert world.account.counters.wills_sent == 0
    assert ("c" in world.account.sessions) == (expiry_s == NEVER_EXPIRES)


def test_a_will_that_was_waiting_keeps_its_moment(store: Store) -> None:
    world = World(store=store)
    session, _ = world.connect("watcher")
    world.subscribe(session, b"w")
    session, _ = world.connect("c", will=make_will(10))
    world.drop(session)
    world.move(6)
    world = rebuilt(world)
    _, line = world.connect("watcher")
    world.move(3)
    assert line.payloads() == []
    world.move(1)
    assert line.payloads() == [b"gone"]


def test_the_lifetime_of_a_will_survives_too(store: Store) -> None:
    world = World(store=store)
    session, _ = world.connect("watcher")
    world.subscribe(session, b"w")
    world.connect("c", will=make_will(10, lifetime_s=30))
    world = rebuilt(world)
    _, line = world.connect("watcher")
    world.move(10)
    assert line.deliveries[0].message.expires_ns == world.now_ns + 30 * NANOSECONDS


def test_a_will_is_taken_back_by_a_client_that_returns_after_the_restart(store: Store) -> None:
    world = World(store=store)
    world.connect("c", will=make_will(10))
    world = rebuilt(world)
    world.connect("c")
    world.move(100)
    assert world.account.counters.wills_sent == 0
    assert all(stored.will is None for stored in store.load().sessions)


def test_an_absent_session_keeps_its_deadline_and_a_connected_one_begins_its_time(store: Store) -> None:
    world = World(store=store)
    absent, _ = world.connect("absent", expiry_s=60)
    world.connect("connected", expiry_s=60)
    world.drop(absent)
    world.move(40)
    world = rebuilt(world)
    world.move(19)
    assert sorted(world.account.sessions) == ["absent", "connected"]
    world.move(1)
    assert sorted(world.account.sessions) == ["connected"]
    world.move(40)
    assert world.account.sessions == {}
    assert store.load().sessions == []


def test_a_session_resumed_for_this_connection_only_is_gone_after_a_restart(store: Store) -> None:
    """It came back with expiry 0: the broker's death is the end of its connection, and so of the session."""
    world = World(store=store)
    session, line = world.connect("c", expiry_s=100)
    world.subscribe(session, b"t")
    world.publish(b"t", b"settled")
    world.drop(session)
    session, line = world.connect("c", expiry_s=0)
    session.on_settled(line.ids()[0], SENT)
    world = rebuilt(world)
    world.move(1)
    _, line = world.connect("c", expiry_s=100)
    assert line.sent == []


def test_what_was_handed_over_belongs_to_its_new_owner_after_a_restart(store: Store) -> None:
    world = World(store=store)
    first, _ = world.connect("first")
    world.subscribe(first, b"$share/g/t")
    world.publish(b"t", b"shared")
    second, _ = world.connect("second")
    world.subscribe(second, b"$share/g/t")
    world.drop(first)
    world = rebuilt(world)
    _, first_line = world.connect("first")
    _, second_line = world.connect("second")
    assert first_line.sent == []
    assert second_line.sent == [(1, b"shared", True)]


def test_what_was_dropped_or_expired_does_not_come_back(store: Store) -> None:
    world = World(store=store)
    session, _ = world.connect("c")
    world.subscribe(session, b"t")
    world.drop(session)
    world.publish(b"t", b"short", expiry_s=5)
    world.publish(b"t", b"long", expiry_s=500)
    world = rebuilt(world)
    world.move(10)
    _, line = world.connect("c")
    assert line.payloads() == [b"long"]
    assert [one.message.payload for one in only(store).deliveries.values()] == [b"long"]


# ------------------------------------------------- confirms wait for durability


def lasting(client_id: str) -> Connect:
    properties = Properties()
    properties.session_expiry_interval = 1000
    return Connect(5, client_id, False, properties=properties)


def held_world() -> tuple[MqttWorld, HeldStore, MqttPeer]:
    store = HeldStore()
    world = MqttWorld(store=store)
    reader = world.client(lasting("reader"))
    assert isinstance(reader.send(Subscribe(1, [SubscribeEntry(b"t", 2)]))[0], SubAck)
    peer = world.client(lasting("publisher"))
    assert isinstance(peer.connack, ConnAck)
    store.hold()
    return world, store, peer


def kinds(packets: list[Packet]) -> list[tuple[str, int]]:
    return [(type(packet).__name__, packet.packet_id) for packet in packets]  # type: ignore[attr-defined]


def test_a_confirm_is_given_only_once_what_it_rests_on_is_durable() -> None:
    world, store, peer = held_world()
    assert peer.send(Publish(b"t", b"x", 1, packet_id=1)) == []
    world.broker.on_durable()
    assert peer.take() == []
    store.release()
    world.broker.on_durable()
    assert kinds(peer.take()) == [("PubAck", 1)]
    world.broker.on_durable()
    assert peer.take() == []


def test_confirms_come_in_order_as_far_as_the_store_has_come() -> None:
    world, store, peer = held_world()
    positions = []
    for number, qos in ((1, 1), (2, 2), (3, 1)):
        assert peer.send(Publish(b"t", b"x", qos, packet_id=number)) == []
        positions.append(int(store.position()))
        world.now_ns += 1  # another read: what came in one waits as one
    store.advance(positions[0] - 1)
    world.broker.on_durable()
    assert peer.take() == []
    store.advance(positions[1])
    world.broker.on_durable()
    assert kinds(peer.take()) == [("PubAck", 1), ("PubRec", 2)]
    store.advance(positions[2])
    world.broker.on_durable()
    assert kinds(peer.take()) == [("PubAck", 3)]


def test_a_release_is_confirmed_only_once_the_id_is_safely_gone() -> None:
    world, store, peer = held_world()
    store.release()
    assert kinds(peer.send(Publish(b"t", b"x", 2, packet_id=5))) == [("PubRec", 5)]
    store.hold()
    assert peer.send(PubRel(5)) == []
    store.release()
    world.broker.on_durable()
    assert kinds(peer.take()) == [("PubComp", 5)]


def test_an_answer_that_rests_on_nothing_new_does_not_overtake_one_that_waits() -> None:
    world, store, peer = held_world()
    peer.send(Publish(b"t", b"x", 1, packet_id=1))
    assert peer.send(Publish(b"nobody", b"x", 1, packet_id=2)) == []
    store.release()
    world.broker.on_durable()
    assert kinds(peer.take()) == [("PubAck", 1), ("PubAck", 2)]


def test_a_publish_that_is_durable_at_once_does_not_overtake_confirms_not_yet_given() -> None:
    world, store, peer = held_world()
    peer.send(Publish(b"t", b"x", 1, packet_id=1))
    store.release()  # the store has caught up, but has not told anybody yet
    assert peer.send(Publish(b"t", b"x", 1, packet_id=2)) == []
    world.broker.on_durable()
    assert kinds(peer.take()) == [("PubAck", 1), ("PubAck", 2)]


def test_a_repeated_publish_is_confirmed_no_sooner_than_the_first() -> None:
    world, store, peer = held_world()
    peer.send(Publish(b"t", b"x", 2, packet_id=1))
    assert peer.send(Publish(b"t", b"x", 2, dup=True, packet_id=1)) == []
    store.release()
    world.broker.on_durable()
    assert kinds(peer.take()) == [("PubRec", 1), ("PubRec", 1)]
    assert world.account.sessions["reader"].window.count == 1


def test_a_connection_that_left_is_not_confirmed_to() -> None:
    world, store, peer = held_world()
    peer.send(Publish(b"t", b"x", 1, packet_id=1))
    peer.lose()
    store.release()
    world.broker.on_durable()
    assert peer.take() == []


def test_a_publish_and_its_id_survive_together_through_mqtt() -> None:
    world = MqttWorld(store=JournalStore())
    reader = world.client(lasting("reader"))
    reader.send(Subscribe(1, [SubscribeEntry(b"t", 2)]))
    peer = world.client(lasting("publisher"))
    assert kinds(peer.send(Publish(b"t", b"once", 2, packet_id=9))) == [("PubRec", 9)]
    assert reader.take() == [Publish(b"t", b"once", 2, packet_id=1)]
    assert kinds(reader.send(PubRec(1))) == [("PubRel", 1)]
    anew = MqttWorld(store=world.store)
    anew.broker.restore(START_NS)
    peer = anew.client(lasting("publisher"))
    assert kinds(peer.send(Publish(b"t", b"once", 2, dup=True, packet_id=9))) == [("PubRec", 9)]
    assert kinds(peer.send(PubRel(9))) == [("PubComp", 9)]
    reader = anew.peer()
    answer = reader.send(lasting("reader"))
    assert isinstance(answer[0], ConnAck)
    assert answer[0].session_present
    assert kinds(answer[1:]) == [("PubRel", 1)]
    assert reader.send(PubComp(1)) == []
    assert reader.send(PubAck(1)) == []
    assert anew.account.sessions["reader"].window.count == 0


def test_a_will_set_through_mqtt_is_kept_with_its_properties() -> None:
    store = JournalStore()
    world = MqttWorld(store=store)
    wishes = Properties()
    wishes.will_delay_interval = 20
    wishes.content_type = b"text"
    packet = lasting("c")
    packet.will = WillPacket(b"w", b"gone", 1, True, wishes)
    world.client(packet)
    will = only(store).will
    assert will is not None
    assert (will.delay_s, will.due_ns, will.message.retain) == (20, 0, True)
    assert b"text" in will.message.properties
