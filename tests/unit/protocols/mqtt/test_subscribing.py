"""SUBSCRIBE and UNSUBSCRIBE: one answer, one reason per filter, retained messages behind it."""

from __future__ import annotations

import itertools

import pytest
from fakes import MqttPeer, MqttWorld

from millstream.broker.account_options import AccountOptions
from millstream.broker.conditions import LIMIT_REACHED, QUOTA_REACHED
from millstream.model.limits import Limits
from millstream.protocols.mqtt.wire import reason_codes as code
from millstream.protocols.mqtt.wire.packets import (
    Connect,
    Disconnect,
    Packet,
    Publish,
    SubAck,
    Subscribe,
    SubscribeEntry,
    UnsubAck,
    Unsubscribe,
)
from millstream.protocols.mqtt.wire.properties import Properties
from millstream.security.acl import Authorizer, parse_acl
from millstream.security.quota import SUBSCRIPTIONS, Bound
from millstream.security.quotas import QuotaTerms, make_quota


def subscribe(peer: MqttPeer, *entries: SubscribeEntry, identifier: int = 0) -> list[Packet]:
    properties = None
    if identifier:
        properties = Properties()
        properties.subscription_identifiers = [identifier]
    return peer.send(Subscribe(7, list(entries), properties))


def reasons(packets: list[Packet]) -> list[int]:
    assert isinstance(packets[0], SubAck | UnsubAck)
    assert packets[0].packet_id == 7
    return packets[0].reasons


@pytest.mark.parametrize(
    "name",
    [
        b"a/#/b",
        b"a+",
        b"$share/g",
        b"$share//a",
        b"$share/g/",
        b"$share/+/a",
        b"$share/g/a/#/b",
        b"/" * 256,
    ],
)
def test_a_filter_that_cannot_be_is_refused_alone(name: bytes) -> None:
    world = MqttWorld()
    peer = world.client(Connect(5, "c"))
    got = subscribe(peer, SubscribeEntry(name, 1), SubscribeEntry(b"good", 1))
    assert reasons(got) == [code.TOPIC_FILTER_INVALID, 1]
    assert world.account.router.tree.count == 1
    old = world.client(Connect(4, "old"))
    assert reasons(subscribe(old, SubscribeEntry(name, 1), SubscribeEntry(b"good", 1))) == [0x80, 1]


def test_a_filter_that_is_not_allowed_is_refused_counted_and_logged() -> None:
    rules = {"rules": [{"allow": "subscribe", "topics": ["open/#"]}]}
    world = MqttWorld(authorizer=Authorizer(parse_acl(rules)))
    peer = world.client(Connect(5, "c"))
    got = subscribe(peer, SubscribeEntry(b"open/a"), SubscribeEntry(b"#"), SubscribeEntry(b"$share/g/shut"))
    assert reasons(got) == [0, code.NOT_AUTHORIZED, code.NOT_AUTHORIZED]
    assert world.account.counters.subscribes_denied == 2
    assert ("denied", "c", "subscribe $share/g/shut") in world.observer.lines


@pytest.mark.parametrize(
    ("limits", "granted"),
    [
        (Limits(), [0, 1, 2]),
        (Limits(guarantee_max=1), [0, 1, 1]),
        (Limits(downgrade_qos2_subscribe=True), [0, 1, 1]),
        (Limits(guarantee_max=0), [0, 0, 0]),
    ],
)
def test_the_guarantee_granted_is_what_the_broker_gives(limits: Limits, granted: list[int]) -> None:
    peer = MqttWorld(limits).client(Connect(5, "c"))
    got = subscribe(peer, *[SubscribeEntry(b"%d" % qos, qos) for qos in range(3)])
    assert reasons(got) == granted


def test_more_subscriptions_than_a_session_may_hold_are_refused() -> None:
    peer = MqttWorld(Limits(subscriptions_max=2)).client(Connect(5, "c"))
    got = subscribe(peer, *[SubscribeEntry(b"%d" % number) for number in range(3)])
    assert reasons(got) == [0, 0, code.QUOTA_EXCEEDED]


def test_a_client_that_subscribes_too_fast_is_refused_until_time_has_passed() -> None:
    world = MqttWorld(Limits(subscribe_rate=1.0, subscribe_burst=2))
    peer = world.client(Connect(5, "c"))
    got = subscribe(peer, *[SubscribeEntry(b"%d" % number) for number in range(3)])
    assert reasons(got) == [0, 0, code.QUOTA_EXCEEDED]
    world.move(1)
    assert reasons(subscribe(peer, SubscribeEntry(b"2"))) == [0]


def test_a_client_that_subscribes_too_fast_is_named_with_the_key_of_the_limit() -> None:
    world = MqttWorld(Limits(subscribe_rate=1.0, subscribe_burst=2))
    peer = world.client(Connect(5, "c"))
    got = subscribe(peer, *[SubscribeEntry(b"%d" % number) for number in range(3)])
    text = "subscribe rate reached (ratelimit.subscribe.rate = 1)"
    assert ("limited", "c", text) in world.observer.lines
    assert isinstance(got[-1], SubAck)
    assert got[-1].properties is not None
    assert got[-1].properties.reason_string == text.encode()
    assert world.account.counters.subscribes_limited == 1


def test_a_shared_subscription_without_local_messages_is_an_error() -> None:
    peer = MqttWorld().client(Connect(5, "c"))
    got = subscribe(peer, SubscribeEntry(b"$share/g/a", 0, no_local=True))
    assert isinstance(got[-1], Disconnect)
    assert got[-1].reason == code.PROTOCOL_ERROR


def retained_world() -> MqttWorld:
    world = MqttWorld()
    for topic, guarantee in ((b"a/1", 0), (b"a/2", 2), (b"b", 1)):
        world.publish(topic, topic, guarantee, retain=True)
    return world


def test_retained_messages_come_behind_the_answer_with_flag_identifier_and_lower_guarantee() -> None:
    peer = retained_world().client(Connect(5, "c"))
    got = subscribe(peer, SubscribeEntry(b"a/+", 1), identifier=5)
    assert isinstance(got[0], SubAck)
    found = [packet for packet in got[1:] if isinstance(packet, Publish)]
    assert sorted((one.topic, one.qos, one.retain) for one in found) == [(b"a/1", 0, True), (b"a/2", 1, True)]
    assert all(one.properties and one.properties.subscription_identifiers == [5] for one in found)


@pytest.mark.parametrize(("handling", "first", "again"), [(0, 1, 1), (1, 1, 0), (2, 0, 0)])
def test_retain_handling_decides_when_retained_messages_are_sent(
    handling: int, first: int, again: int
) -> None:
    peer = retained_world().client(Connect(5, "c"))
    entry = SubscribeEntry(b"b", 0, retain_handling=handling)
    assert len(subscribe(peer, entry)) == 1 + first
    assert len(subscribe(peer, entry)) == 1 + again


def test_a_shared_subscription_gets_no_retained_messages() -> None:
    assert len(subscribe(retained_world().client(Connect(5, "c")), SubscribeEntry(b"$share/g/#"))) == 1


def test_retained_messages_that_may_not_be_seen_or_have_expired_are_left_out() -> None:
    rules = {
        "rules": [{"allow": "all", "topics": ["#"]}, {"deny": "subscribe", "topics": ["secret"]}],
    }
    world = MqttWorld(authorizer=Authorizer(parse_acl(rules)))
    world.publish(b"secret", retain=True)
    world.publish(b"short", retain=True, expiry_s=5)
    world.publish(b"open", retain=True)
    world.move(6)
    got = subscribe(world.client(Connect(5, "c")), SubscribeEntry(b"#"))
    assert [packet.topic for packet in got[1:] if isinstance(packet, Publish)] == [b"open"]
    assert world.account.counters.deliveries_denied == 1


def test_what_expires_tells_the_time_that_is_left() -> None:
    world = MqttWorld()
    world.publish(b"a", retain=True, expiry_s=10)
    world.move(3.5)
    packet = subscribe(world.client(Connect(5, "c")), SubscribeEntry(b"a"))[1]
    assert isinstance(packet, Publish)
    assert packet.properties is not None
    assert packet.properties.message_expiry_interval == 7


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize(
    "packet",
    [
        Subscribe(1, [SubscribeEntry(b"good"), SubscribeEntry(b"")]),
        Unsubscribe(1, [b"", b"good"]),
    ],
)
def test_an_empty_filter_beside_valid_ones_is_a_malformed_packet(version: int, packet: Packet) -> None:
    world = MqttWorld()
    got = world.client(Connect(version, "c")).send(packet)
    assert [found.reason for found in got if isinstance(found, Disconnect)] == [code.MALFORMED_PACKET] * (
        version == 5
    )
    assert len(got) == (version == 5)
    assert world.account.router.tree.is_empty()


def test_unsubscribing_says_for_each_filter_whether_it_was_there() -> None:
    world = MqttWorld()
    peer = world.client(Connect(5, "c"))
    subscribe(peer, SubscribeEntry(b"a"), SubscribeEntry(b"$share/g/b"))
    got = peer.send(Unsubscribe(7, [b"a", b"b", b"$share/g/b", b"bad/#/b", b"$share/+/x"]))
    assert reasons(got) == [
        code.SUCCESS,
        code.NO_SUBSCRIPTION_EXISTED,
        code.SUCCESS,
        code.TOPIC_FILTER_INVALID,
        code.TOPIC_FILTER_INVALID,
    ]
    assert world.account.router.tree.is_empty()
    world.publish(b"a", guarantee=0)
    assert peer.take() == []


def test_older_versions_are_answered_without_reasons() -> None:
    peer = MqttWorld().client(Connect(4, "c"))
    assert peer.send(Unsubscribe(7, [b"a"])) == [UnsubAck(7, [])]


def test_a_subscription_again_replaces_the_first_and_delivers_once() -> None:
    world = MqttWorld()
    peer = world.client(Connect(5, "c"))
    subscribe(peer, SubscribeEntry(b"a", 2), identifier=1)
    subscribe(peer, SubscribeEntry(b"a", 0), identifier=2)
    world.publish(b"a", guarantee=2)
    (packet,) = peer.take()
    assert isinstance(packet, Publish)
    assert packet.qos == 0
    assert packet.properties is not None
    assert packet.properties.subscription_identifiers == [2]


def test_retain_as_published_keeps_the_flag() -> None:
    world = MqttWorld()
    peer = world.client(Connect(5, "c"))
    subscribe(peer, SubscribeEntry(b"a", 0, retain_as_published=True), SubscribeEntry(b"b", 0))
    for topic in (b"a", b"b"):
        world.publish(topic, guarantee=0, retain=True)
    assert [(one.topic, one.retain) for one in peer.take() if isinstance(one, Publish)] == [
        (b"a", True),
        (b"b", False),
    ]


def test_filters_with_wildcards_in_too_many_places_are_refused_with_a_reason() -> None:
    """They would make every publish to a new topic slow for everybody."""
    world = MqttWorld(Limits(session_shapes_max=10))
    peer = world.client(Connect(5, "c"))
    wanted = [b"/".join(bits) for bits in itertools.product((b"a", b"+"), repeat=5)]
    answer = peer.send(Subscribe(1, [SubscribeEntry(filter, 0) for filter in wanted]))[0]
    assert isinstance(answer, SubAck)
    assert answer.reasons.count(0) == 11  # the first has no wildcard
    assert answer.reasons.count(0x97) == 21
    assert answer.properties is not None
    assert b"session.max_filter_shapes" in (answer.properties.reason_string or b"")
    assert ("limited", "c") in [line[:2] for line in world.observer.lines]
    assert world.account.counters.subscribes_limited == 21


def test_a_quota_that_is_reached_is_one_condition_and_not_a_limit_as_well() -> None:
    quota = make_quota({SUBSCRIPTIONS: Bound(1, "user_quotas.max_subscriptions")})
    options = {"default": AccountOptions(0, QuotaTerms(None, quota))}
    world = MqttWorld(Limits(session_shapes_max=1), accounts=options)
    peer = world.client(Connect(5, "c"))
    health = world.broker.health
    assert reasons(subscribe(peer, SubscribeEntry(b"a/+", 0), SubscribeEntry(b"b/+", 0))) == [0, 0x97]
    assert [active.condition for active in health.active()] == [QUOTA_REACHED]
    assert ("limited", "c") in [line[:2] for line in world.observer.lines]  # the log names the client
    both = (SubscribeEntry(b"+/b", 0), SubscribeEntry(b"b/+", 0))  # beyond the limit, and beyond the quota
    assert reasons(subscribe(peer, *both)) == [0x97, 0x97]
    assert [active.condition for active in health.active()] == [QUOTA_REACHED, LIMIT_REACHED]
    told = health.find(LIMIT_REACHED)
    assert told is not None
    assert "session.max_filter_shapes" in told.cause


def test_any_number_of_filters_may_place_their_wildcards_alike() -> None:
    world = MqttWorld(Limits(session_shapes_max=2))
    peer = world.client(Connect(5, "c"))
    filters = [b"device/%d/%s" % (number, end) for number in range(400) for end in (b"#", b"+/x")]
    answer = peer.send(Subscribe(1, [SubscribeEntry(filter, 0) for filter in filters]))[0]
    assert isinstance(answer, SubAck)
    assert set(answer.reasons) == {0}
    refused = peer.send(Subscribe(2, [SubscribeEntry(b"+/+/#", 0)]))[0]
    assert isinstance(refused, SubAck)
    assert refused.reasons == [0x97]
    peer.send(Unsubscribe(3, [filter for filter in filters if filter.endswith(b"/x")]))
    granted = peer.send(Subscribe(4, [SubscribeEntry(b"+/+/#", 0)]))[0]
    assert isinstance(granted, SubAck)
    assert granted.reasons == [0]


def test_an_account_takes_so_many_shapes_of_all_its_sessions() -> None:
    world = MqttWorld(Limits(shapes_max=5))
    filters = [b"/".join(bits) for bits in itertools.product((b"a", b"+"), repeat=3)][1:]
    granted = 0
    for number, filter in enumerate(filters):
        answer = world.client(Connect(5, f"c{number}")).send(Subscribe(1, [SubscribeEntry(filter, 0)]))[0]
        assert isinstance(answer, SubAck)
        granted += answer.reasons == [0]
    assert granted == 5
    again = world.client(Connect(5, "last")).send(Subscribe(1, [SubscribeEntry(filters[0], 0)]))[0]
    assert isinstance(again, SubAck)
    assert again.reasons == [0]


def test_share_groups_beside_the_first_of_each_filter_are_bounded_with_a_reason() -> None:
    """A message goes to a member of each of them."""
    world = MqttWorld(Limits(share_groups_max=3))
    peer = world.client(Connect(5, "c"))
    other = world.client(Connect(5, "other"))
    wanted = [b"$share/g%d/%s" % (number, filter) for filter in (b"t", b"t/+") for number in range(3)]
    answers = subscribe(peer, *[SubscribeEntry(filter, 0) for filter in wanted])
    assert reasons(answers) == [0, 0, 0, 0, 0, 0x97]
    assert ("limited", "c") in [line[:2] for line in world.observer.lines]
    # another member of a group that is there, the first group of another filter, and one that has made room
    joined = (b"$share/g2/t", b"$share/g1/t/+", b"$share/g0/u", b"$share/g0/a/#")
    assert reasons(subscribe(other, *[SubscribeEntry(filter, 0) for filter in joined])) == [0, 0, 0, 0]
    assert reasons(subscribe(other, SubscribeEntry(b"$share/g9/t", 0))) == [0x97]
    peer.send(Unsubscribe(9, [b"$share/g0/t"]))
    assert reasons(subscribe(other, SubscribeEntry(b"$share/g9/t", 0))) == [0]


@pytest.mark.parametrize("kind", [Subscribe, Unsubscribe])
def test_a_packet_with_too_many_filters_is_told_the_limit_and_its_key(
    kind: type[Subscribe] | type[Unsubscribe],
) -> None:
    peer = MqttWorld(Limits(filters_per_subscribe_max=3)).client(Connect(5, "c"))
    packet = Subscribe(7, [SubscribeEntry(b"a", 0)] * 4) if kind is Subscribe else Unsubscribe(7, [b"a"] * 4)
    (farewell,) = peer.send(packet)
    assert isinstance(farewell, Disconnect)
    assert farewell.reason == code.QUOTA_EXCEEDED
    assert farewell.properties is not None
    text = b"limit of filters in one packet reached (session.max_filters_per_subscribe = 3)"
    assert farewell.properties.reason_string == text
