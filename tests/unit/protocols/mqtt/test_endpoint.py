"""The seam: packets of one client and what the broker makes of them. Sessions and wire are tested elsewhere."""

from __future__ import annotations

import gc

import pytest
from fakes import MqttPeer, MqttWorld

from millstream.broker.account_options import AccountOptions
from millstream.broker.line import Ending
from millstream.broker.session import Session
from millstream.model.errors import Reason
from millstream.model.limits import Limits
from millstream.protocols.mqtt.route_memory import ROUTES_MAX
from millstream.protocols.mqtt.wire import reason_codes as code
from millstream.protocols.mqtt.wire.encode import encode_packet
from millstream.protocols.mqtt.wire.packets import (
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PingReq,
    PingResp,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    Subscribe,
    SubscribeEntry,
)
from millstream.protocols.mqtt.wire.packets import Will as WillPacket
from millstream.protocols.mqtt.wire.properties import Properties
from millstream.routing.router import LIGHT, LONG, SHARED
from millstream.security.acl import Authorizer, parse_acl
from millstream.security.quota import QUEUES, SESSIONS, Bound, Quota
from millstream.security.quotas import QuotaTerms, make_quota

VERSIONS = [4, 5]


def reader(
    world: MqttWorld, name: bytes = b"#", version: int = 5, qos: int = 2, client_id: str = "r"
) -> MqttPeer:
    peer = world.client(Connect(version, client_id))
    peer.send(Subscribe(1, [SubscribeEntry(name, qos)]))
    return peer


def publishes(packets: list[Packet]) -> list[tuple[bytes, bytes, int]]:
    return [(one.topic, one.payload, one.qos) for one in packets if isinstance(one, Publish)]


def reason_of(packets: list[Packet]) -> int:
    assert isinstance(packets[-1], Disconnect)
    return packets[-1].reason


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("other", VERSIONS)
def test_messages_pass_between_versions_at_every_qos(version: int, other: int) -> None:
    world = MqttWorld()
    receiver = reader(world, version=other)
    sender = world.client(Connect(version, "s"))
    assert sender.send(Publish(b"a", b"0")) == []
    assert sender.send(Publish(b"a", b"1", 1, packet_id=5)) == [PubAck(5)]
    assert sender.send(Publish(b"a", b"2", 2, packet_id=6)) == [PubRec(6)]
    assert sender.send(PubRel(6)) == [PubComp(6)]
    got = receiver.take()
    assert publishes(got) == [(b"a", b"0", 0), (b"a", b"1", 1), (b"a", b"2", 2)]
    assert receiver.send(PubAck(1)) == []
    assert receiver.send(PubRec(2)) == [PubRel(2)]
    assert receiver.send(PubComp(2)) == []
    assert world.account.sessions["r"].window.count == 0


def test_many_publishes_of_one_read_leave_as_one_write() -> None:
    world = MqttWorld()
    receiver = reader(world)
    sender = world.client(Connect(5, "s"))
    writes = receiver.link.writes
    sender.send(*[Publish(b"a/%d" % (number % 3), b"%d" % number) for number in range(100)])
    assert len(publishes(receiver.take())) == 100
    assert receiver.link.writes == writes + 1
    assert world.account.counters.messages_received == 100
    assert world.account.counters.messages_sent == 100


def test_runs_of_several_topics_to_one_reader_keep_their_order() -> None:
    world = MqttWorld()
    receiver = reader(world)
    sender = world.client(Connect(5, "s"))
    sent = [(b"a" if number % 3 else b"b", b"%d" % number, 0) for number in range(30)]
    sender.send(*[Publish(topic, payload) for topic, payload, _ in sent])
    assert publishes(receiver.take()) == sent


@pytest.mark.parametrize("qos", [0, 1])
def test_who_subscribes_between_two_publishes_of_one_read_gets_the_second(qos: int) -> None:
    world = MqttWorld()
    peer = world.client(Connect(5, "c"))
    first, second = Publish(b"a", b"1", qos, packet_id=qos), Publish(b"a", b"2", qos, packet_id=2 * qos)
    got = peer.send(first, Subscribe(9, [SubscribeEntry(b"a", qos)]), second)
    assert publishes(got) == [(b"a", b"2", qos)]


def rights(*denied: str) -> Authorizer:
    rules: list[object] = [{"allow": "all", "topics": ["#"]}]
    rules += [{"deny": "publish", "topics": [topic]} for topic in denied]
    return Authorizer(parse_acl({"rules": rules}))


def test_a_publish_that_is_not_allowed_is_answered_counted_and_logged() -> None:
    world = MqttWorld(authorizer=rights("secret"))
    receiver = reader(world)
    sender = world.client(Connect(5, "s"))
    assert sender.send(Publish(b"secret", b"0"), Publish(b"open", b"1")) == []
    assert sender.send(Publish(b"secret", b"", 1, packet_id=1)) == [PubAck(1, code.NOT_AUTHORIZED)]
    assert sender.send(Publish(b"secret", b"", 2, packet_id=2)) == [PubRec(2, code.NOT_AUTHORIZED)]
    assert sender.send(PubRel(2)) == [PubComp(2, code.PACKET_IDENTIFIER_NOT_FOUND)]
    assert publishes(receiver.take()) == [(b"open", b"1", 0)]
    assert world.account.counters.publishes_denied == 3
    assert ("denied", "s", "publish secret") in world.observer.lines


def test_a_denied_run_between_two_reads_does_not_spoil_the_runs_around_it() -> None:
    """The first packet is completed from two reads; the ones behind it lie in another buffer at like places."""
    world = MqttWorld(authorizer=rights("no"))
    receiver = reader(world)
    sender = world.client(Connect(4, "s"))
    first = encode_packet(Publish(b"yes", b"1234567890"), 4)
    last = encode_packet(Publish(b"yes", b"last"), 4)
    for cut in range(1, len(first)):
        for size in range(40):
            denied = encode_packet(Publish(b"no", bytes(size)), 4)
            sender.send_bytes(first[:cut])
            sender.send_bytes(first[cut:] + denied + last)
            assert publishes(receiver.take()) == [(b"yes", b"1234567890", 0), (b"yes", b"last", 0)]


def test_nobody_publishes_below_the_brokers_own_topics() -> None:
    world = MqttWorld()
    receiver = reader(world, b"$SYS/#")
    sender = world.client(Connect(5, "s"))
    assert sender.send(Publish(b"$SYS/broker/version", b"mine", 1, True, packet_id=1)) == [
        PubAck(1, code.NOT_AUTHORIZED)
    ]
    assert publishes(receiver.take()) == []
    assert world.account.retained.count == 0


def test_rights_that_change_take_effect_on_the_next_publish() -> None:
    world = MqttWorld(authorizer=rights())
    receiver = reader(world)
    sender = world.client(Connect(5, "s"))
    sender.send(Publish(b"a", b"before"))
    world.authorizer.replace(parse_acl({"rules": [{"allow": "subscribe", "topics": ["#"]}]}))
    world.account.on_rights_changed()
    sender.send(Publish(b"a", b"after"))
    assert publishes(receiver.take()) == [(b"a", b"before", 0)]


@pytest.mark.parametrize(
    ("topic", "reason"),
    [
        (b"a/+", code.TOPIC_NAME_INVALID),
        (b"#", code.TOPIC_NAME_INVALID),
        (b"a/" * 256, code.TOPIC_NAME_INVALID),
        (b"\xff", code.MALFORMED_PACKET),
        (b"a\x00", code.MALFORMED_PACKET),
    ],
)
@pytest.mark.parametrize("qos", [0, 1])
def test_a_topic_that_cannot_be_ends_the_connection(topic: bytes, reason: int, qos: int) -> None:
    world = MqttWorld()
    receiver = reader(world)
    sender = world.client(Connect(5, "s"))
    got = sender.send(Publish(b"a", b"good"), Publish(topic, b"", qos, packet_id=qos))
    assert reason_of(got) == reason
    assert len(got) == 1
    assert sender.link.is_closed
    assert publishes(receiver.take()) == [(b"a", b"good", 0)]


def test_a_connection_remembers_fewer_routes_to_many_members_of_share_groups() -> None:
    world = MqttWorld()
    for number in range(2000):
        session, _ = world.connect(f"m{number}", expiry_s=0)
        world.subscribe(session, b"$share/g/t/+", 0)
    sender = world.client(Connect(5, "s"))
    for number in range(100):
        sender.send(Publish(b"t/%d" % number, b""))
    weight = 1 + SHARED * 2000 // LIGHT
    assert len(sender.endpoint._routes.topics()) <= ROUTES_MAX // weight
    assert world.context.route_count.count <= ROUTES_MAX


@pytest.mark.parametrize("filter", [b"t/%d", b"t/%d/#"], ids=["exact", "wildcard"])
def test_a_connection_does_not_keep_those_who_have_gone_with_the_routes_to_them(filter: bytes) -> None:
    world = MqttWorld()
    sender = world.client(Connect(5, "s"))
    for number in range(1000):
        visitor = world.client(Connect(5, f"r{number}"))
        visitor.send(Subscribe(1, [SubscribeEntry(filter % number, 0)]))
        sender.send(Publish(b"t/%d" % number, b""))
        assert publishes(visitor.take()) == [(b"t/%d" % number, b"", 0)]
        visitor.lose()
    world.settle_down()
    gc.collect()
    sessions = [each for each in gc.get_objects() if isinstance(each, Session)]
    assert len([session for session in sessions if session.account is world.account]) < 200
    assert world.context.route_count.count < 200
    assert [session for session in sessions if session.is_ended and session.subscriptions.count()] == []


def test_a_connection_that_publishes_to_many_topics_remembers_them_all() -> None:
    world = MqttWorld()
    world.client(Connect(5, "r")).send(Subscribe(1, [SubscribeEntry(b"#", 0)]))
    sender = world.client(Connect(5, "s"))
    for number in range(1000):
        sender.send(Publish(b"t/%d" % number, b""))
    assert len(sender.endpoint._routes.topics()) == world.context.route_count.count == 1000


def test_a_connection_does_not_remember_very_long_topics() -> None:
    world = MqttWorld()
    receiver = reader(world)
    sender = world.client(Connect(5, "s"))
    sender.send(Publish(b"a", b"short"), *[Publish(b"x" * (LONG + 1 + each), b"") for each in range(3)])
    assert sender.endpoint._routes.topics() == [b"a"]
    assert len(publishes(receiver.take())) == 4


def test_what_was_published_before_a_fault_comes_before_the_will() -> None:
    world = MqttWorld()
    receiver = reader(world)
    sender = world.client(Connect(5, "s", will=WillPacket(b"w", b"will")))
    sender.send(Publish(b"a", b"good"), Publish(b"+", b""))
    assert publishes(receiver.take()) == [(b"a", b"good", 0), (b"w", b"will", 0)]


def test_a_repeated_exactly_once_publish_is_answered_but_not_published_again() -> None:
    world = MqttWorld()
    receiver = reader(world)
    sender = world.client(Connect(5, "s"))
    packet = Publish(b"a", b"once", 2, packet_id=3)
    assert sender.send(packet, packet) == [PubRec(3), PubRec(3)]
    assert len(publishes(receiver.take())) == 1
    assert sender.send(PubRel(3), packet) == [PubComp(3), PubRec(3)]
    assert len(publishes(receiver.take())) == 1


def test_a_publish_nobody_receives_says_so_in_version_five_only() -> None:
    world = MqttWorld()
    assert world.client(Connect(5, "a")).send(Publish(b"a", b"", 1, packet_id=1)) == [
        PubAck(1, code.NO_MATCHING_SUBSCRIBERS)
    ]
    assert world.client(Connect(4, "b")).send(Publish(b"a", b"", 1, packet_id=1)) == [PubAck(1)]


def test_more_open_publishes_than_the_receive_maximum_end_the_connection() -> None:
    world = MqttWorld(Limits(receive_maximum=2))
    sender = world.client(Connect(5, "s"))
    for number in (1, 2):
        sender.send(Publish(b"a", b"", 2, packet_id=number))
    assert reason_of(sender.send(Publish(b"a", b"", 2, packet_id=3))) == code.RECEIVE_MAXIMUM_EXCEEDED
    sender = world.client(Connect(5, "t"))
    got = sender.send(*[Publish(b"a", b"", 1, packet_id=number) for number in (1, 2, 3)])
    assert reason_of(got) == code.RECEIVE_MAXIMUM_EXCEEDED
    sender = world.client(Connect(5, "u"))
    for number in range(1, 10):  # answered each time: never more than one open
        assert len(sender.send(Publish(b"a", b"", 1, packet_id=number))) == 1


@pytest.mark.parametrize(
    ("limits", "qos"),
    [(Limits(guarantee_max=1), 2), (Limits(guarantee_max=0), 1), (Limits(reject_qos2_publish=True), 2)],
)
def test_a_qos_the_broker_does_not_take_ends_the_connection(limits: Limits, qos: int) -> None:
    sender = MqttWorld(limits).client(Connect(5, "s"))
    assert reason_of(sender.send(Publish(b"a", b"", qos, packet_id=1))) == code.QOS_NOT_SUPPORTED


@pytest.mark.parametrize("answer", [PubRec(1), PubComp(1)])
def test_an_answer_that_does_not_fit_its_delivery_ends_the_connection(answer: Packet) -> None:
    world = MqttWorld()
    receiver = reader(world)
    world.publish(b"a", guarantee=1)
    receiver.take()
    assert reason_of(receiver.send(answer)) == code.PROTOCOL_ERROR
    assert world.account.counters.protocol_errors == 1


def test_answers_for_unknown_ids_are_harmless() -> None:
    receiver = reader(MqttWorld())
    assert receiver.send(PubAck(9), PubComp(9)) == []
    assert receiver.send(PubRec(9)) == [PubRel(9, code.PACKET_IDENTIFIER_NOT_FOUND)]


def test_a_refused_exactly_once_delivery_is_over() -> None:
    world = MqttWorld()
    receiver = reader(world)
    world.publish(b"a", guarantee=2)
    receiver.take()
    assert receiver.send(PubRec(1, code.QUOTA_EXCEEDED)) == []
    assert world.account.sessions["r"].window.count == 0


def test_a_ping_is_answered_behind_what_came_before_it() -> None:
    world = MqttWorld()
    peer = reader(world)
    got = peer.send(Publish(b"a", b"0"), Publish(b"a", b"", 1, packet_id=1), PingReq())
    assert [type(packet) for packet in got] == [Publish, Publish, PubAck, PingResp]


def test_silence_beyond_one_and_a_half_keep_alives_ends_the_connection() -> None:
    world = MqttWorld()
    peer = world.client(Connect(5, "c", keep_alive_s=10))
    world.move(10)
    peer.send(PingReq())
    assert peer.endpoint.next_deadline() == world.now_ns + 15_000_000_000
    world.move(14.999)
    peer.endpoint.on_deadline(world.now_ns)
    assert not peer.link.is_closed
    world.move(0.001)
    peer.endpoint.on_deadline(world.now_ns)
    assert reason_of(peer.take()) == code.KEEP_ALIVE_TIMEOUT
    assert peer.link.is_closed
    assert peer.endpoint.next_deadline() == 0


@pytest.mark.parametrize(
    ("disconnect", "sent"),
    [(Disconnect(0), []), (Disconnect(0x04), [(b"w", b"gone", 0)]), (None, [(b"w", b"gone", 0)])],
)
def test_a_will_is_sent_unless_the_client_said_goodbye(
    disconnect: Disconnect | None, sent: list[tuple[bytes, bytes, int]]
) -> None:
    world = MqttWorld()
    receiver = reader(world)
    peer = world.client(Connect(5, "c", will=WillPacket(b"w", b"gone")))
    if disconnect is None:
        peer.lose()
    else:
        peer.send(disconnect)
    assert publishes(receiver.take()) == sent
    peer.lose()
    assert publishes(receiver.take()) == []


def test_goodbye_may_change_the_expiry_within_the_limit() -> None:
    world = MqttWorld(Limits(session_expiry_s_max=50))
    properties = Properties()
    properties.session_expiry_interval = 10
    peer = world.client(Connect(5, "c", properties=properties))
    properties = Properties()
    properties.session_expiry_interval = 1000
    peer.send(Disconnect(0, properties))
    world.move(49)
    assert "c" in world.account.sessions
    world.move(1)
    assert "c" not in world.account.sessions


@pytest.mark.parametrize("ending", list(Ending))
def test_the_broker_ends_a_connection_with_the_code_of_its_reason(ending: Ending) -> None:
    world = MqttWorld(server_reference="other:1883")
    peer = world.client(Connect(5, "c", will=WillPacket(b"w", b"gone")))
    receiver = reader(world)
    peer.endpoint.end(ending)
    got = peer.take()
    assert reason_of(got) >= 0x80
    properties = got[-1].properties  # type: ignore[attr-defined]
    is_shutdown = ending is Ending.SHUTTING_DOWN
    assert properties.server_reference == (b"other:1883" if is_shutdown else None)
    assert bool(publishes(receiver.take())) == (not is_shutdown)
    assert peer.link.is_closed


def test_older_versions_are_closed_without_a_word() -> None:
    peer = MqttWorld().client(Connect(4, "c"))
    peer.endpoint.end(Ending.ADMINISTRATIVE)
    assert peer.take() == []
    assert peer.link.is_closed


def test_a_client_that_publishes_too_fast_is_not_read_for_a_while() -> None:
    world = MqttWorld(Limits(message_rate=10.0, message_burst=5))
    peer = world.client(Connect(5, "c"))
    peer.send(*[Publish(b"a", b"")] * 5)
    assert peer.link.paused_ns == []
    peer.send(Publish(b"a", b"", 1, packet_id=1))
    assert peer.link.paused_ns == [100_000_000]
    assert world.account.counters.rate_pauses == 1


def test_bytes_are_counted_from_the_first_one_on() -> None:
    world = MqttWorld()
    data = encode_packet(Connect(5, "c"), 5) + encode_packet(PingReq(), 5)
    peer = world.peer()
    peer.send_bytes(data[:5])
    assert world.account.counters.bytes_received == 0  # it is not known yet whose they are
    peer.send_bytes(data[5:])
    assert world.account.counters.bytes_received == len(data)


def test_bytes_are_counted_both_ways() -> None:
    world = MqttWorld()
    peer = world.client(Connect(5, "c"))
    counters = world.account.counters
    received, sent = counters.bytes_received, counters.bytes_sent
    peer.send(PingReq())
    assert counters.bytes_received == received + 2
    assert counters.bytes_sent == sent + 2


def test_a_connection_that_was_lost_writes_nothing_more() -> None:
    world = MqttWorld()
    receiver = reader(world)
    receiver.lose()
    world.publish(b"a", guarantee=0)
    assert receiver.take() == []
    assert ("disconnected", "r", code.get_reason_name(code.UNSPECIFIED_ERROR)) in world.observer.lines
    assert world.account.connected == 0


def test_lagging_and_catching_up_reach_the_session() -> None:
    world = MqttWorld(Limits(unsent_bytes_high=1000))
    receiver = reader(world)
    receiver.endpoint.on_lagging()
    assert not receiver.endpoint.is_blocked
    receiver.link.unsent = 1000
    world.publish(b"a", guarantee=0)
    receiver.take()
    assert receiver.endpoint.is_blocked
    world.publish(b"a", b"waits", guarantee=1)
    assert receiver.take() == []
    receiver.link.unsent = 0
    receiver.endpoint.on_caught_up()
    assert publishes(receiver.take()) == [(b"a", b"waits", 1)]


def test_a_refused_retained_message_is_refused_to_its_publisher() -> None:
    world = MqttWorld(Limits(retained_messages_max=0))
    peer = world.client(Connect(5, "c"))
    assert peer.send(Publish(b"a", b"x", 1, True, packet_id=1)) == [PubAck(1, code.QUOTA_EXCEEDED)]
    assert peer.send(Publish(b"a", b"x", 2, True, packet_id=2)) == [PubRec(2, code.QUOTA_EXCEEDED)]
    assert world.publish(b"a", retain=True) is Reason.QUOTA_EXCEEDED


def test_a_connection_taken_over_is_told_and_its_late_packets_are_dropped() -> None:
    world = MqttWorld()
    receiver = reader(world, client_id="watcher")
    first = world.client(Connect(5, "c"))
    second = world.client(Connect(5, "c"))
    assert isinstance(second.connack, ConnAck)
    assert reason_of(first.take()) == code.SESSION_TAKEN_OVER
    first.send(Publish(b"a", b"late"))
    first.lose()
    assert publishes(receiver.take()) == []
    assert second.send(PingReq()) == [PingResp()]


def test_clients_of_a_user_share_its_rate() -> None:
    terms = QuotaTerms(None, Quota(None, 10.0, 3))
    world = MqttWorld(accounts={"default": AccountOptions(0, terms)})
    first, second = world.client(Connect(5, "a")), world.client(Connect(5, "b"))
    first.send(*[Publish(b"a", b"")] * 3)
    assert first.link.paused_ns == []
    second.send(Publish(b"a", b"", 1, packet_id=1))
    assert second.link.paused_ns == [100_000_000]
    assert world.account.counters.rate_pauses == 1


@pytest.mark.parametrize("version", [4, 5])
def test_a_user_at_its_quota_of_sessions_is_refused_with_the_code_of_its_version(version: int) -> None:
    user = make_quota({SESSIONS: Bound(1, "user_quotas.max_sessions")})
    world = MqttWorld(accounts={"default": AccountOptions(0, QuotaTerms(None, user))})
    world.client(Connect(5, "a"))
    refused = world.client(Connect(version, "b")).connack
    assert isinstance(refused, ConnAck)
    assert refused.reason == (0x97 if version == 5 else 3)


def test_a_publish_that_was_refused_for_want_of_memory_is_not_refused_when_there_is_some() -> None:
    """To a queue that it would make: nobody else makes it meanwhile."""
    world = MqttWorld()
    sender = world.client(Connect(5, "s"))
    used = world.account.quotas.whole.used
    used[QUEUES] += 100_000
    world.use_memory(101)
    assert sender.send(Publish(b"$queue/new", b"1", 1, packet_id=1)) == [PubAck(1, code.QUOTA_EXCEEDED)]
    used[QUEUES] -= 100_000
    world.use_memory(10)
    assert sender.send(Publish(b"$queue/new", b"1", 1, packet_id=2)) == [PubAck(2)]
