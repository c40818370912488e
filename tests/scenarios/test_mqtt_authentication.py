"""Who may come in: passwords, SCRAM-SHA-256 and its repetition, tokens, and what a stranger may cost [MQTT-4.12]."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import BrokerProcess, StartBroker, write_private
from joserfc import jwt
from joserfc.jwk import OctKey
from raw_client import BOTH_VERSIONS, Clients, RawClient, frame, props, text, unique, unique_topic
from scramp import ScramClient  # type: ignore[import-untyped]

from millstream.protocols.mqtt.wire.packets import (
    Auth,
    ConnAck,
    Disconnect,
    PingReq,
    PingResp,
    Publish,
    Subscribe,
    SubscribeEntry,
    Will,
)
from millstream.security.scram_record import parse_scram_record
from millstream.security.users import User, UserTable, format_users, hash_password, make_scram_record

SCRAM = b"SCRAM-SHA-256"
SECRET = b"a shared secret of enough length for HS256"


def make_users(*names: str) -> UserTable:
    users = {}
    for name in names:
        password = f"{name}'s password"
        users[name] = User(
            name, hash_password(password), "default", parse_scram_record(make_scram_record(password))
        )
    return UserTable(users)


USERS = make_users("alice", "bob")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker with users and tokens for all tests of this file."""
    folder = tmp_path_factory.mktemp("guarded")
    users = write_private(folder / "users.txt", format_users(USERS))
    secret = write_private(folder / "secret.txt", SECRET.decode())
    settings = (
        f"auth.password_file={users}",
        "auth.jwt.algorithm=HS256",
        f"auth.jwt.secret_file={secret}",
        "auth.jwt.issuer=issuer",
        "auth.jwt.audience=broker",
    )
    broker = BrokerProcess(folder, settings, ())
    broker.wait_ready()
    yield broker
    broker.kill()


@pytest.fixture
def clients(guarded: BrokerProcess) -> Iterator[Clients]:
    with Clients(guarded.mqtt_port) as clients:
        yield clients


# ------------------------------------------------------------------- passwords


@BOTH_VERSIONS
def test_a_known_user_with_its_password_comes_in(clients: Clients, version: int) -> None:
    clients.open(version, username="alice", password=b"alice's password").expect_nothing()


@BOTH_VERSIONS
@pytest.mark.parametrize(
    ("username", "password"),
    [
        ("alice", b"wrong"),
        ("alice", b""),
        ("alice", None),
        ("bob", b"alice's password"),
        ("nobody", b"alice's password"),
        ("Alice", b"alice's password"),
    ],
)
def test_a_wrong_password_is_refused(
    clients: Clients, version: int, username: str, password: bytes | None
) -> None:
    client = clients.new(version)  # [MQTT-3.1.4-2]
    client.send_connect(username=username, password=password)
    client.expect_refused(0x86, 4)


@BOTH_VERSIONS
def test_a_client_without_credentials_is_refused(clients: Clients, version: int) -> None:
    client = clients.new(version)
    client.send_connect()
    client.expect_refused(0x87, 5)


@BOTH_VERSIONS
def test_what_a_refused_client_sent_behind_its_connect_is_not_done(clients: Clients, version: int) -> None:
    topic = unique_topic()  # [MQTT-3.1.4-6]
    watcher = clients.open(version, username="alice", password=b"alice's password")
    watcher.subscribe(topic, 1)
    client = clients.new(version)
    client.send_connect(username="alice", password=b"wrong", will=Will(topic, b"will"))
    client.send(Publish(topic, b"sneaked in"), Subscribe(1, [SubscribeEntry(b"#")]))
    client.expect_refused(0x86, 4)
    watcher.expect_nothing()


@BOTH_VERSIONS
def test_packets_behind_a_connect_that_needs_time_are_served_afterwards(
    clients: Clients, version: int
) -> None:
    client = clients.new(version)
    client.send_connect(username="bob", password=b"bob's password")
    topic = unique_topic()
    client.send(Subscribe(1, [SubscribeEntry(topic)]), Publish(topic, b"x"), PingReq())
    kinds = [type(client.receive()).__name__ for _ in range(4)]
    assert kinds == ["ConnAck", "SubAck", "Publish", "PingResp"]


@BOTH_VERSIONS
def test_another_user_cannot_take_over_a_session(clients: Clients, version: int) -> None:
    name = unique()
    client = clients.open(
        version, name, clean=False, expiry_s=60, username="alice", password=b"alice's password"
    )
    for clean in (True, False):
        thief = clients.new(version)
        thief.send_connect(name, clean=clean, username="bob", password=b"bob's password")
        thief.expect_refused(0x87, 5)
    client.expect_nothing()
    client.disconnect()
    thief = clients.new(version)
    thief.send_connect(name, clean=True, username="bob", password=b"bob's password")
    thief.expect_refused(0x87, 5)
    owner = clients.new(version)
    answer = owner.connect(name, clean=False, expiry_s=60, username="alice", password=b"alice's password")
    assert answer.session_present


# ----------------------------------------------------------------------- tokens


def make_token(**changes: object) -> bytes:
    claims = {"iss": "issuer", "aud": "broker", "sub": "carol", "exp": int(time.time()) + 600, **changes}
    return jwt.encode({"alg": "HS256"}, claims, OctKey.import_key(SECRET), algorithms=["HS256"]).encode()


@BOTH_VERSIONS
@pytest.mark.parametrize("username", ["carol", None])
def test_a_sound_token_is_enough(clients: Clients, version: int, username: str | None) -> None:
    if version == 4 and username is None:
        username = ""
    clients.open(version, username=username, password=make_token()).expect_nothing()


@BOTH_VERSIONS
@pytest.mark.parametrize(
    "changes",
    [{"iss": "another"}, {"aud": "another"}, {"exp": 1}, {"sub": ""}, {"sub": 5}, {"nbf": 1 << 40}],
    ids=["issuer", "audience", "expired", "no subject", "subject no text", "not yet"],
)
def test_an_unsound_token_is_refused(clients: Clients, version: int, changes: dict[str, object]) -> None:
    client = clients.new(version)
    client.send_connect(username=unique(), password=make_token(**changes))
    client.expect_refused(0x86, 4)


def test_a_token_of_another_user_is_refused(clients: Clients) -> None:
    client = clients.new(5)
    client.send_connect(username="alice", password=make_token())
    client.expect_refused(0x86, 4)


@BOTH_VERSIONS
def test_a_connection_ends_with_its_token(clients: Clients, version: int) -> None:
    client = clients.open(version, username="dora", password=make_token(sub="dora", exp=int(time.time()) + 2))
    client.expect_disconnect(0x87)


# -------------------------------------------------------------------- SCRAM


def begin_scram(client: RawClient, name: str = "alice", password: str = "alice's password") -> ScramClient:
    """CONNECT with the first message; the broker has answered with its own."""
    scram = ScramClient(["SCRAM-SHA-256"], name, password)
    first = scram.get_client_first().encode()
    client.send_connect(properties=props(authentication_method=SCRAM, authentication_data=first))
    read_challenge(client, scram)
    return scram


def read_challenge(client: RawClient, scram: ScramClient) -> None:
    answer = client.receive()
    assert isinstance(answer, Auth), f"the broker sent {answer!r}"
    assert answer.reason == 0x18  # [MQTT-4.12.0-2]
    assert answer.properties is not None
    assert answer.properties.authentication_method == SCRAM  # [MQTT-4.12.0-5]
    assert answer.properties.authentication_data is not None
    scram.set_server_first(answer.properties.authentication_data.decode())


def finish_scram(client: RawClient, scram: ScramClient) -> ConnAck:
    answer = client.continue_authentication(SCRAM, scram.get_client_final().encode())
    assert isinstance(answer, ConnAck), f"the broker sent {answer!r}"
    assert answer.reason == 0
    assert answer.properties is not None
    assert answer.properties.authentication_method == SCRAM  # [MQTT-4.12.0-5]
    assert answer.properties.authentication_data is not None
    scram.set_server_final(
        answer.properties.authentication_data.decode()
    )  # raises if the broker is not genuine
    return answer


def test_client_and_broker_prove_each_other_by_scram(clients: Clients) -> None:
    client = clients.new(5)
    finish_scram(client, begin_scram(client))
    topic = unique_topic()
    client.subscribe(topic, 1)
    client.send(Publish(topic, b"x"))
    client.take(topic, b"x")


def test_the_first_message_may_come_in_an_auth_of_its_own(clients: Clients) -> None:
    client = clients.new(5)
    client.send_connect(properties=props(authentication_method=SCRAM))
    answer = client.receive()
    assert isinstance(answer, Auth)
    assert answer.reason == 0x18
    scram = ScramClient(["SCRAM-SHA-256"], "alice", "alice's password")
    first = props(authentication_method=SCRAM, authentication_data=scram.get_client_first().encode())
    client.send(Auth(0x18, first))
    read_challenge(client, scram)
    finish_scram(client, scram)


@pytest.mark.parametrize(("name", "password"), [("alice", "wrong"), ("nobody", "alice's password")])
def test_a_failed_proof_is_refused(clients: Clients, name: str, password: str) -> None:
    client = clients.new(5)  # [MQTT-4.12.0-4]
    scram = begin_scram(client, name, password)
    answer = client.continue_authentication(SCRAM, scram.get_client_final().encode())
    assert isinstance(answer, ConnAck)
    assert answer.reason == 0x87
    client.expect_closed()


def test_a_change_of_method_is_a_protocol_error(clients: Clients) -> None:
    client = clients.new(5)  # [MQTT-4.12.0-5]
    scram = begin_scram(client)
    answer = client.continue_authentication(b"PLAIN", scram.get_client_final().encode())
    assert isinstance(answer, ConnAck)
    assert answer.reason in (0x82, 0x8C)
    client.expect_closed()


@pytest.mark.parametrize("packet", [PingReq(), Publish(b"t", b"x"), Subscribe(1, [SubscribeEntry(b"#")])])
def test_only_auth_and_disconnect_may_come_during_an_authentication(
    clients: Clients, packet: PingReq | Publish | Subscribe
) -> None:
    client = clients.new(5)  # [MQTT-3.1.2-30]
    begin_scram(client)
    client.send(packet)
    client.expect_no_welcome(0x82)


def test_a_client_may_give_up_during_an_authentication(clients: Clients) -> None:
    client = clients.new(5)
    begin_scram(client)
    client.send(Disconnect())
    client.expect_closed()


@pytest.mark.parametrize("data", [b"", b"\xff\xfe", b"n,,", b"p=tls-unique,,n=a,r=b", b"x" * 5000])
def test_rubbish_instead_of_a_first_message_is_refused(clients: Clients, data: bytes) -> None:
    client = clients.new(5)
    client.send_connect(properties=props(authentication_method=SCRAM, authentication_data=data))
    answer = client.receive()
    if data == b"":
        assert isinstance(answer, Auth)
        return
    assert isinstance(answer, ConnAck)
    assert answer.reason >= 0x80
    client.expect_closed()


def reauthenticate(
    client: RawClient, name: str = "alice", password: str = "alice's password"
) -> Auth | Disconnect:
    scram = ScramClient(["SCRAM-SHA-256"], name, password)
    first = props(authentication_method=SCRAM, authentication_data=scram.get_client_first().encode())
    client.send(Auth(0x19, first))
    read_challenge(client, scram)
    answer = client.continue_authentication(SCRAM, scram.get_client_final().encode())
    if isinstance(answer, Auth):
        assert answer.properties is not None
        assert answer.properties.authentication_data is not None
        scram.set_server_final(answer.properties.authentication_data.decode())
        return answer
    assert isinstance(answer, Disconnect)
    return answer


def test_an_open_connection_may_authenticate_again(clients: Clients) -> None:
    client = clients.new(5)  # [MQTT-4.12.1-1]
    finish_scram(client, begin_scram(client))
    for _ in range(2):
        answer = reauthenticate(client)
        assert answer.reason == 0
    client.expect_nothing()


def test_a_failed_repetition_ends_the_connection(clients: Clients) -> None:
    client = clients.new(5)  # [MQTT-4.12.1-2]
    finish_scram(client, begin_scram(client, "bob", "bob's password"))
    answer = reauthenticate(client, "bob", "wrong")
    assert answer.reason == 0x87
    client.expect_closed()


def test_a_session_cannot_change_its_user_by_a_repetition(clients: Clients) -> None:
    client = clients.new(5)
    finish_scram(client, begin_scram(client))
    answer = reauthenticate(client, "bob", "bob's password")
    assert answer.reason >= 0x80
    client.expect_closed()


def test_other_packets_go_on_during_a_repetition(clients: Clients) -> None:
    topic = unique_topic()  # [MQTT-4.12.1: both sides may go on]
    client = clients.new(5)
    finish_scram(client, begin_scram(client))
    client.subscribe(topic, 1)
    scram = ScramClient(["SCRAM-SHA-256"], "alice", "alice's password")
    first = props(authentication_method=SCRAM, authentication_data=scram.get_client_first().encode())
    client.send(Auth(0x19, first), Publish(topic, b"meanwhile"), PingReq())  # all in one write
    read_challenge(client, scram)
    client.take(topic, b"meanwhile")
    client.expect(PingResp())
    last = props(authentication_method=SCRAM, authentication_data=scram.get_client_final().encode())
    client.send(Auth(0x18, last), PingReq())
    answer = client.receive()
    assert isinstance(answer, Auth)
    assert answer.reason == 0
    client.expect(PingResp())


def test_a_connection_without_a_method_cannot_authenticate_again(clients: Clients) -> None:
    client = clients.open(5, username="alice", password=b"alice's password")  # [MQTT-4.12.0-6]
    client.send(Auth(0x19, props(authentication_method=SCRAM, authentication_data=b"n,,n=alice,r=x")))
    client.expect_disconnect(0x82)


# ------------------------------------------------------- what a stranger may cost


@BOTH_VERSIONS
def test_a_connect_larger_than_the_limit_is_cut_off(clients: Clients, version: int) -> None:
    client = clients.new(version)
    client.send_bytes(b"\x10\x80\x80\x10" + text(b"MQTT"))  # announces 256 KiB
    client.wait_closed()


def test_the_limit_of_a_connect_is_configured(start_broker: StartBroker) -> None:
    broker = start_broker("mqtt.max_connect_packet_size=200")
    with Clients(broker.mqtt_port) as clients:
        clients.open(4, "x" * 150)
        client = clients.new(4)
        client.send_bytes(frame(0x10, text(b"MQTT"), b"\x04\x02\x00\x00", text(b"x" * 250)))
        client.wait_closed()


def test_a_slow_connect_is_cut_off(start_broker: StartBroker) -> None:
    broker = start_broker("mqtt.handshake_timeout=300ms")
    with Clients(broker.mqtt_port) as clients:
        silent = clients.new(4)
        partial = clients.new(4)
        partial.send_bytes(b"\x10\x10\x00\x04MQ")
        served = clients.open(4)
        silent.expect_closed()
        partial.expect_closed()
        served.expect_nothing()


def test_an_authentication_that_does_not_go_on_is_cut_off(start_broker: StartBroker, tmp_path: Path) -> None:
    users = write_private(tmp_path / "users.txt", format_users(USERS))
    broker = start_broker(
        f"auth.password_file={users}", "mqtt.handshake_timeout=300ms", "mqtt.authentication_timeout=300ms"
    )
    with Clients(broker.mqtt_port) as clients:
        client = clients.new(5)
        begin_scram(client)
        client.wait_closed()


def test_an_anonymous_client_may_name_any_user_where_nobody_is_known(shared_broker: BrokerProcess) -> None:
    with Clients(shared_broker.mqtt_port) as clients:
        clients.open(4, username="anybody", password=b"anything").expect_nothing()
