"""From CONNECT to CONNACK: who, which session, on which terms; also by SCRAM, and again on an open connection."""

from __future__ import annotations

import pytest
from fakes import MqttPeer, MqttWorld
from scramp import ScramClient  # type: ignore[import-untyped]

from millstream.broker.account_options import AccountOptions
from millstream.model.errors import Reason
from millstream.model.limits import Limits
from millstream.protocols.mqtt.wire import reason_codes as code
from millstream.protocols.mqtt.wire.packets import (
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    PingReq,
    PingResp,
    Publish,
    Subscribe,
    SubscribeEntry,
    Will,
)
from millstream.protocols.mqtt.wire.properties import Properties
from millstream.security.acl import Authorizer, parse_acl
from millstream.security.authentication import Decision, Verdict
from millstream.security.principal import Principal
from millstream.security.scram_record import derive_scram_record
from millstream.security.users import User, UserTable

HASH = "$6$tJNV6IhJOugpPj3s$SvLwKOTmYBm8bK+DlnOJLaIsVjox7w1HPjkFwiKsgtsNFkeaRDE912XRZhpwBTOkUSbqJ0rAUEGI+3+EHgXi0Q=="
RECORD = derive_scram_record("pencil", b"salt" * 4, 4096)
USERS = UserTable({name: User(name, HASH, "default", RECORD) for name in ("user", "other")})
SCRAM = b"SCRAM-SHA-256"


def connack(peer: MqttPeer) -> ConnAck:
    assert isinstance(peer.connack, ConnAck)
    return peer.connack


def terms(peer: MqttPeer) -> Properties:
    properties = connack(peer).properties
    assert properties is not None
    return properties


def with_properties(**values: object) -> Properties:
    properties = Properties()
    for name, value in values.items():
        setattr(properties, name, value)
    return properties


# --------------------------------------------------------------------- client ids


def test_a_client_without_an_id_is_given_one_and_told() -> None:
    world = MqttWorld()
    peer = world.client(Connect(5, ""))
    assert terms(peer).assigned_client_identifier == b"made-1"
    assert "made-1" in world.account.sessions
    old = world.client(Connect(4, ""))
    assert connack(old).reason == 0
    assert "made-2" in world.account.sessions


@pytest.mark.parametrize("packet", [Connect(4, "", False), Connect(3, "")])
def test_an_older_client_without_an_id_is_refused_where_the_version_says_so(packet: Connect) -> None:
    peer = MqttWorld().client(packet)
    assert connack(peer).reason == 2
    assert peer.link.is_closed


def test_session_present_tells_whether_there_was_one() -> None:
    world = MqttWorld()
    lasting = Connect(5, "c", False, properties=with_properties(session_expiry_interval=100))
    assert not connack(world.client(lasting)).session_present
    assert connack(world.client(lasting)).session_present
    lasting.clean_start = True
    assert not connack(world.client(lasting)).session_present


# -------------------------------------------------------------------------- terms


def test_the_terms_of_the_broker_are_told() -> None:
    limits = Limits(
        receive_maximum=7,
        topic_alias_maximum=8,
        packet_size_max=9999,
        guarantee_max=1,
        session_expiry_s_max=60,
    )
    peer = MqttWorld(limits).client(Connect(5, "c", properties=with_properties(session_expiry_interval=100)))
    told = terms(peer)
    assert (told.receive_maximum, told.topic_alias_maximum, told.maximum_packet_size) == (7, 8, 9999)
    assert (told.maximum_qos, told.session_expiry_interval) == (1, 60)
    assert told.server_keep_alive is None


@pytest.mark.parametrize(
    ("asked", "longest", "told", "grace_s"),
    [(10, 65_535, None, 15), (100, 60, 60, 90), (0, 60, 60, 90), (0, 65_535, None, 0)],
)
def test_a_keep_alive_is_bounded_and_the_client_is_told(
    asked: int, longest: int, told: int | None, grace_s: int
) -> None:
    world = MqttWorld(Limits(keep_alive_s_max=longest))
    peer = world.client(Connect(5, "c", keep_alive_s=asked))
    assert terms(peer).server_keep_alive == told
    wanted = world.now_ns + grace_s * 1_000_000_000 if grace_s else 0
    assert peer.endpoint.next_deadline() == wanted


def test_response_information_is_given_to_those_who_ask() -> None:
    world = MqttWorld()
    asked = world.client(Connect(5, "c", properties=with_properties(request_response_information=1)))
    assert terms(asked).response_information == b"response/c/"
    assert terms(world.client(Connect(5, "d"))).response_information is None


@pytest.mark.parametrize(
    ("version", "clean", "interval", "expected"),
    [
        (4, True, None, 0),
        (4, False, None, 500),
        (5, True, None, 0),
        (5, False, 30, 30),
        (5, True, 5000, 1000),
    ],
)
def test_a_session_lives_as_long_as_the_version_and_the_limits_say(
    version: int, clean: bool, interval: int | None, expected: int
) -> None:
    world = MqttWorld(Limits(session_expiry_default_s=500, session_expiry_s_max=1000))
    properties = None if interval is None else with_properties(session_expiry_interval=interval)
    world.client(Connect(version, "c", clean, properties=properties))
    assert world.account.sessions["c"].expiry_s == expected


def test_the_receive_maximum_of_the_client_bounds_what_is_open() -> None:
    world = MqttWorld()
    peer = world.client(Connect(5, "c", properties=with_properties(receive_maximum=2)))
    peer.send(Subscribe(1, [SubscribeEntry(b"t", 1)]))
    for _ in range(5):
        world.publish(b"t")
    assert len(peer.take()) == 2


def test_packets_sent_behind_connect_are_served_after_it() -> None:
    peer = MqttWorld().peer(5)
    assert [type(one) for one in peer.send(Connect(5, "c"), PingReq(), PingReq())] == [
        ConnAck,
        PingResp,
        PingResp,
    ]


# ---------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("will", "reason"),
    [
        (Will(b"a/+", b""), code.TOPIC_NAME_INVALID),
        (Will(b"w", b"", 2), code.QOS_NOT_SUPPORTED),
        (Will(b"w", bytes(200)), code.PACKET_TOO_LARGE),
        (Will(b"denied", b""), code.NOT_AUTHORIZED),
        (Will(b"$SYS/w", b""), code.NOT_AUTHORIZED),
    ],
)
def test_a_will_that_could_not_be_sent_is_refused_at_once(will: Will, reason: int) -> None:
    rules = {
        "rules": [{"allow": "all", "topics": ["#", "$SYS/#"]}, {"deny": "publish", "topics": ["denied"]}]
    }
    world = MqttWorld(
        Limits(message_size_max=100, reject_qos2_publish=True), authorizer=Authorizer(parse_acl(rules))
    )
    peer = world.client(Connect(5, "c", will=will))
    assert connack(peer).reason == reason
    assert peer.link.is_closed
    assert world.account.sessions == {}


def test_a_full_broker_refuses_and_names_another_if_there_is_one() -> None:
    for reference, reason in (("", code.QUOTA_EXCEEDED), ("other", code.USE_ANOTHER_SERVER)):
        world = MqttWorld(Limits(sessions_max=1), server_reference=reference)
        world.client(Connect(5, "a"))
        peer = world.client(Connect(5, "b"))
        assert connack(peer).reason == reason
        assert (terms(peer).server_reference or b"").decode() == reference
        assert connack(world.client(Connect(4, "c"))).reason == 3


def test_a_handshake_that_takes_too_long_is_over() -> None:
    world = MqttWorld(Limits(handshake_timeout_ms=10_000))
    peer = world.peer(5)
    assert peer.endpoint.next_deadline() == world.now_ns + 10_000_000_000
    peer.send_bytes(b"\x10")  # a byte now and then buys no time
    world.move(10)
    peer.endpoint.on_deadline(world.now_ns)
    assert peer.take() == []
    assert peer.link.is_closed


# ---------------------------------------------------------- a password to verify


def asking() -> tuple[MqttWorld, MqttPeer]:
    world = MqttWorld(users=USERS)
    peer = world.peer(5)
    packets = (Connect(5, "c", username="user", password=b"pencil"), PingReq())
    assert peer.send(*packets) == []
    assert [one.username for one in peer.link.asked] == ["user"]
    return world, peer


def test_nothing_is_answered_before_the_password_is_verified() -> None:
    world, peer = asking()
    principal = Principal("user", "default", "user")
    peer.endpoint.on_decision(Decision(Verdict.ALLOWED, principal, Reason.SUCCESS, ""), world.now_ns)
    assert [type(one) for one in peer.take()] == [ConnAck, PingResp]
    assert peer.link.is_authenticated
    assert ("connected", "c", "mqtt 5") in world.observer.lines


def test_a_wrong_password_is_refused_and_logged() -> None:
    world, peer = asking()
    peer.endpoint.on_decision(Decision(Verdict.DENIED, None, Reason.BAD_CREDENTIALS, "wrong"), world.now_ns)
    (answer,) = peer.take()
    assert isinstance(answer, ConnAck)
    assert answer.reason == code.BAD_USER_NAME_OR_PASSWORD
    assert not peer.link.is_authenticated
    assert world.observer.lines[-1][:2] == ("refused", "c")
    assert world.account.sessions == {}


def test_an_answer_that_comes_after_the_client_left_changes_nothing() -> None:
    world, peer = asking()
    peer.lose()
    principal = Principal("user", "default", "user")
    peer.endpoint.on_decision(Decision(Verdict.ALLOWED, principal, Reason.SUCCESS, ""), world.now_ns)
    assert world.account.sessions == {}
    assert world.account.connected == 0


def test_a_user_of_another_account_lives_in_its_topics() -> None:
    users = UserTable({"user": User("user", HASH, "other", RECORD)})
    world = MqttWorld(users=users, accounts={"other": AccountOptions()})
    peer = world.peer(5)
    peer.send(Connect(5, "c", username="user", password=b"x"))
    principal = Principal("user", "other", "user")
    peer.endpoint.on_decision(Decision(Verdict.ALLOWED, principal, Reason.SUCCESS, ""), world.now_ns)
    assert world.account.sessions == {}
    assert "c" in world.broker.get_account("other").sessions


# ------------------------------------------------------------------------- SCRAM


def auth(reason: int, data: str | None) -> Auth:
    encoded = None if data is None else data.encode()
    return Auth(reason, with_properties(authentication_method=SCRAM, authentication_data=encoded))


def data_of(packet: object) -> str:
    assert isinstance(packet, Auth | ConnAck)
    assert packet.properties is not None
    assert packet.properties.authentication_method == SCRAM
    return (packet.properties.authentication_data or b"").decode()


def log_in(world: MqttWorld, name: str = "user", password: str = "pencil") -> tuple[MqttPeer, object]:
    client = ScramClient([SCRAM.decode()], name, password)
    peer = world.peer(5)
    first = with_properties(
        authentication_method=SCRAM, authentication_data=client.get_client_first().encode()
    )
    (challenge,) = peer.send(Connect(5, "c", properties=first))
    assert isinstance(challenge, Auth)
    assert challenge.reason == code.CONTINUE_AUTHENTICATION
    client.set_server_first(data_of(challenge))
    (answer,) = peer.send(auth(code.CONTINUE_AUTHENTICATION, client.get_client_final()))
    assert isinstance(answer, ConnAck)
    if answer.reason == 0:
        client.set_server_final(data_of(answer))
    return peer, answer


def test_both_sides_prove_that_they_know_the_password() -> None:
    world = MqttWorld(users=USERS)
    peer, answer = log_in(world)
    assert isinstance(answer, ConnAck)
    assert answer.reason == 0
    assert world.account.sessions["c"].principal.name == "user"
    assert peer.send(PingReq()) == [PingResp()]


@pytest.mark.parametrize(("name", "password"), [("user", "wrong"), ("nobody", "pencil")])
def test_a_wrong_proof_is_refused_and_repeating_it_is_throttled(name: str, password: str) -> None:
    world = MqttWorld(users=USERS)
    for _ in range(10):
        _, answer = log_in(world, name, password)
        assert isinstance(answer, ConnAck)
        assert answer.reason == code.NOT_AUTHORIZED
    client = ScramClient([SCRAM.decode()], name, "pencil")
    first = with_properties(
        authentication_method=SCRAM, authentication_data=client.get_client_first().encode()
    )
    (answer,) = world.peer(5).send(Connect(5, "c", properties=first))
    assert isinstance(answer, ConnAck)
    assert answer.reason == code.CONNECTION_RATE_EXCEEDED


def test_a_method_the_broker_does_not_know_is_refused() -> None:
    packet = Connect(5, "c", properties=with_properties(authentication_method=b"PLAIN"))
    assert connack(MqttWorld(users=USERS).client(packet)).reason == code.BAD_AUTHENTICATION_METHOD


def test_nothing_but_auth_may_come_during_the_exchange() -> None:
    client = ScramClient([SCRAM.decode()], "user", "pencil")
    first = with_properties(
        authentication_method=SCRAM, authentication_data=client.get_client_first().encode()
    )
    peer = MqttWorld(users=USERS).peer(5)
    peer.send(Connect(5, "c", properties=first))
    (answer,) = peer.send(Publish(b"t", b"early"))
    assert isinstance(answer, ConnAck)
    assert answer.reason == code.PROTOCOL_ERROR
    assert peer.link.is_closed


def begin_again(peer: MqttPeer, name: str = "user", password: str = "pencil") -> ScramClient:
    client = ScramClient([SCRAM.decode()], name, password)
    got = peer.send(auth(code.REAUTHENTICATE, client.get_client_first()), PingReq())
    assert [type(one) for one in got] == [Auth, PingResp]
    client.set_server_first(data_of(got[0]))
    return client


def test_a_client_may_prove_itself_again_and_what_it_sends_meanwhile_is_served() -> None:
    world = MqttWorld(users=USERS)
    peer, _ = log_in(world)
    client = begin_again(peer)
    got = peer.send(auth(code.CONTINUE_AUTHENTICATION, client.get_client_final()), PingReq())
    assert [type(one) for one in got] == [Auth, PingResp]
    assert isinstance(got[0], Auth)
    assert got[0].reason == code.SUCCESS
    client.set_server_final(data_of(got[0]))
    begin_again(peer)  # and once more


@pytest.mark.parametrize(("name", "password"), [("user", "wrong"), ("other", "pencil")])
def test_who_fails_to_prove_itself_again_or_becomes_another_is_disconnected(name: str, password: str) -> None:
    world = MqttWorld(users=USERS)
    peer, _ = log_in(world)
    client = begin_again(peer, name, password)
    (answer,) = peer.send(auth(code.CONTINUE_AUTHENTICATION, client.get_client_final()))
    assert isinstance(answer, Disconnect)
    assert answer.reason == code.NOT_AUTHORIZED
    assert peer.link.is_closed


def test_a_client_that_is_asked_to_begin_and_says_nothing_is_refused() -> None:
    """Else it could send for as long as a handshake may take, and all of it would be kept."""
    peer = MqttWorld(users=USERS).peer(5)
    (asked,) = peer.send(Connect(5, "c", properties=with_properties(authentication_method=SCRAM)))
    assert data_of(asked) == ""
    many = [auth(code.CONTINUE_AUTHENTICATION, None) for _ in range(1000)]
    (answer,) = peer.send(*many)
    assert isinstance(answer, ConnAck)
    assert answer.reason == code.NOT_AUTHORIZED
    assert peer.link.is_closed
    assert peer.endpoint.machine.kept_bytes() == 0


def test_a_client_that_proves_itself_again_cannot_be_asked_for_ever() -> None:
    peer, _ = log_in(MqttWorld(users=USERS))
    begin_again(peer)
    got = peer.send(*[auth(code.CONTINUE_AUTHENTICATION, None) for _ in range(5000)])
    assert [type(packet) for packet in got] == [Disconnect]
    assert peer.link.is_closed


def test_a_client_may_let_itself_be_asked_before_it_begins() -> None:
    peer = MqttWorld(users=USERS).peer(5)
    client = ScramClient([SCRAM.decode()], "user", "pencil")
    peer.send(Connect(5, "c", properties=with_properties(authentication_method=SCRAM)))
    (challenge,) = peer.send(auth(code.CONTINUE_AUTHENTICATION, client.get_client_first()))
    client.set_server_first(data_of(challenge))
    (answer,) = peer.send(auth(code.CONTINUE_AUTHENTICATION, client.get_client_final()))
    assert isinstance(answer, ConnAck)
    assert answer.reason == 0


def test_auth_without_an_enhanced_connect_is_an_error() -> None:
    peer = MqttWorld().client(Connect(5, "c"))
    (answer,) = peer.send(auth(code.REAUTHENTICATE, "n,,n=user,r=abc"))
    assert isinstance(answer, Disconnect)
    assert answer.reason == code.PROTOCOL_ERROR


def test_another_method_in_the_middle_is_an_error() -> None:
    peer, _ = log_in(MqttWorld(users=USERS))
    begin_again(peer)
    (answer,) = peer.send(Auth(code.CONTINUE_AUTHENTICATION, with_properties(authentication_method=b"OTHER")))
    assert isinstance(answer, Disconnect)
    assert answer.reason == code.PROTOCOL_ERROR
