"""Accounts, access rules and their change on living connections."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import BrokerProcess, StartBroker, write_private
from raw_client import BOTH_VERSIONS, Clients, RawClient, unique, unique_topic

from millstream.protocols.mqtt.wire.packets import SubscribeEntry, Will
from millstream.security.users import User, UserTable, format_users, hash_password

CLAIM_S = 2.0  # a change of rights is in force within so long
NOT_AUTHORIZED = 0x87

ACCOUNTS = {"alice": "default", "bob": "default", "north-1": "north", "north-2": "north", "south-1": "south"}
USERS = UserTable({name: User(name, hash_password("secret"), account) for name, account in ACCOUNTS.items()})

RULES = """
rules:
  - {allow: all, topics: ["open/#"]}
  - {allow: publish, topics: ["in/#"], users: [alice]}
  - {allow: subscribe, topics: ["in/#"], users: [bob]}
  - {deny: subscribe, topics: ["open/secret/#"], users: [bob]}
  - {allow: all, topics: ["own/%c/#", "user/%u/#"]}
  - {allow: subscribe, topics: ["$SYS/#"], users: [alice]}
"""


@pytest.fixture(scope="module")
def ruled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("ruled")
    users = write_private(folder / "users.txt", format_users(USERS))
    rules = write_private(folder / "acl.yaml", RULES)
    config = write_private(
        folder / "millstream.yaml", "accounts:\n  north: {max_connections: 3}\n  south: {}\n"
    )
    settings = (f"auth.password_file={users}", f"auth.acl_file={rules}")
    broker = BrokerProcess(folder, settings, ("--config", str(config)))
    broker.wait_ready()
    yield broker
    broker.kill()


@pytest.fixture
def clients(ruled: BrokerProcess) -> Iterator[Clients]:
    with Clients(ruled.mqtt_port) as clients:
        yield clients


def log_in(clients: Clients, version: int, name: str, client_id: str | None = None) -> RawClient:
    return clients.open(version, client_id, username=name, password=b"secret")


# -------------------------------------------------------------------- accounts


@BOTH_VERSIONS
def test_accounts_do_not_see_each_other(clients: Clients, version: int) -> None:
    topic = b"open/" + unique_topic()
    north, north_too, south = (log_in(clients, version, name) for name in ("north-1", "north-2", "south-1"))
    for client in (north_too, south):
        client.subscribe(topic, 1)
        client.subscribe(b"$share/g/" + topic, 1)
    north.publish(topic, b"north", 1, retain=True)
    payloads = [north_too.take(topic, b"north", 1).payload for _ in range(2)]
    assert payloads == [b"north", b"north"]
    south.expect_nothing()
    south.subscribe(topic, 1)  # no retained message of another account
    south.expect_nothing()


@BOTH_VERSIONS
def test_a_client_id_belongs_to_its_account(clients: Clients, version: int) -> None:
    name = unique()
    north = log_in(clients, version, "north-1", name)
    south = log_in(clients, version, "south-1", name)
    north.expect_nothing()
    south.expect_nothing()


@BOTH_VERSIONS
def test_wills_stay_in_their_account(clients: Clients, version: int) -> None:
    topic = b"open/" + unique_topic()
    north, south = log_in(clients, version, "north-2"), log_in(clients, version, "south-1")
    for client in (north, south):
        client.subscribe(topic, 1)
    clients.open(version, username="north-1", password=b"secret", will=Will(topic, b"gone", 1)).close()
    north.take(topic, b"gone", 1)
    south.expect_nothing()


@BOTH_VERSIONS
def test_an_account_has_its_own_bound_of_connections(clients: Clients, version: int) -> None:
    held = [log_in(clients, version, "north-1") for _ in range(3)]
    client = clients.new(version)
    client.send_connect(username="north-2", password=b"secret")
    client.expect_refused(0x97, 3)
    log_in(clients, version, "south-1")
    held[0].disconnect()
    log_in(clients, version, "north-2")


# ----------------------------------------------------------------------- rules


@BOTH_VERSIONS
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_publish_without_the_right_is_not_delivered(clients: Clients, version: int, qos: int) -> None:
    topic = b"in/" + unique_topic()
    bob = log_in(clients, version, "bob")
    assert bob.subscribe(topic, 2) == 2
    reason = bob.publish(topic, b"not mine", qos, retain=True)
    assert reason == (NOT_AUTHORIZED if version == 5 and qos else 0)
    bob.expect_nothing()
    alice = log_in(clients, version, "alice")
    alice.publish(topic, b"allowed", qos)
    bob.take(topic, b"allowed", qos)
    late = log_in(clients, version, "bob")
    late.subscribe(topic, 2)
    late.expect_nothing()  # and nothing was retained


@BOTH_VERSIONS
def test_a_subscribe_without_the_right_is_refused(clients: Clients, version: int) -> None:
    alice = log_in(clients, version, "alice")
    refused = NOT_AUTHORIZED if version == 5 else 0x80
    entries = [
        SubscribeEntry(name, 1) for name in (b"in/x", b"open/x", b"#", b"+/x", b"$share/g/in/x", b"open/#")
    ]
    assert alice.subscribe_all(entries) == [refused, 1, refused, refused, refused, 1]


@BOTH_VERSIONS
def test_a_deny_inside_a_wide_subscription_is_kept_for_every_message(clients: Clients, version: int) -> None:
    base = unique_topic()
    secret, plain = b"open/secret/" + base, b"open/plain/" + base
    alice = log_in(clients, version, "alice")
    alice.publish(secret + b"/kept", b"retained", 1, retain=True)
    name = unique()
    bob = clients.open(version, name, clean=False, expiry_s=60, username="bob", password=b"secret")
    refused = NOT_AUTHORIZED if version == 5 else 0x80
    assert bob.subscribe(b"open/secret/#", 1) == refused
    assert bob.subscribe(b"open/+/" + base + b"/#", 1) == 1
    alice.publish(secret, b"live", 1)
    alice.publish(plain, b"live", 1)
    bob.take(plain, b"live", 1)
    bob.expect_nothing()
    bob.disconnect()
    alice.publish(secret, b"offline", 1)
    alice.publish(plain, b"offline", 1)
    bob = clients.open(version, name, clean=False, expiry_s=60, username="bob", password=b"secret")
    bob.take(plain, b"offline", 1)
    bob.expect_nothing()


@BOTH_VERSIONS
def test_a_rule_may_name_the_client_and_the_user(clients: Clients, version: int) -> None:
    name = unique()
    client = log_in(clients, version, "alice", name)
    refused = NOT_AUTHORIZED if version == 5 else 0x80
    assert client.subscribe(b"own/" + name.encode() + b"/x", 1) == 1
    assert client.subscribe(b"own/other/x", 1) == refused
    assert client.subscribe(b"user/alice/x", 1) == 1
    assert client.subscribe(b"user/bob/x", 1) == refused
    wild = log_in(clients, version, "alice", "+")
    assert wild.subscribe(b"own/+/x", 1) == refused
    assert wild.subscribe(b"own/anything/x", 1) == refused


@BOTH_VERSIONS
def test_a_will_without_the_right_is_refused(clients: Clients, version: int) -> None:
    client = clients.new(version)
    client.send_connect(username="bob", password=b"secret", will=Will(b"in/x", b"gone"))
    client.expect_refused(NOT_AUTHORIZED, 5)


@BOTH_VERSIONS
def test_the_broker_state_is_for_those_whom_a_rule_allows_it(clients: Clients, version: int) -> None:
    refused = NOT_AUTHORIZED if version == 5 else 0x80
    assert log_in(clients, version, "bob").subscribe(b"$SYS/#", 0) == refused
    alice = log_in(clients, version, "alice")
    assert alice.subscribe(b"$SYS/broker/version", 0) == 0
    assert alice.expect_publish().retain


# --------------------------------------------------------------------- changes


def start_changeable(start_broker: StartBroker, folder: Path, rules: str) -> tuple[BrokerProcess, Path, Path]:
    users = write_private(folder / "users.txt", format_users(FEW_USERS))
    acl = write_private(folder / "acl.yaml", rules)
    return start_broker(f"auth.password_file={users}", f"auth.acl_file={acl}"), users, acl


FEW_USERS = UserTable({user.name: user for user in USERS.users() if user.account == "default"})
ALLOW_ALL = 'rules:\n  - {allow: all, topics: ["#"]}\n'
DENY_X = ALLOW_ALL + '  - {deny: all, topics: ["x/#"]}\n'


def wait_until(is_true: Callable[[], bool]) -> None:
    """Ask again and again until it is true, for no longer than the claim."""
    start = time.monotonic()
    while not is_true():
        assert time.monotonic() - start < CLAIM_S, "the change did not take effect in time"


def wait_logged(broker: BrokerProcess, client: RawClient, event: str) -> None:
    def is_logged() -> bool:
        client.expect_nothing()  # a round trip between two looks
        return event in broker.log()

    wait_until(is_logged)


@BOTH_VERSIONS
def test_a_change_of_rules_reaches_living_connections(
    start_broker: StartBroker, tmp_path: Path, version: int
) -> None:
    broker, _, acl = start_changeable(start_broker, tmp_path, ALLOW_ALL)
    with Clients(broker.mqtt_port) as clients:
        alice, bob = log_in(clients, version, "alice"), log_in(clients, version, "bob")
        bob.subscribe(b"#", 1)
        alice.publish(b"x/1", b"before", 1)
        bob.take(b"x/1", b"before", 1)
        acl.write_text(DENY_X, encoding="utf-8")

        def is_silent() -> bool:
            """Whether a publish to x/ no longer arrives, while others do."""
            alice.publish(b"x/1", b"probe", 1)
            alice.publish(b"y/1", b"mark", 1)
            found = bob.expect_publish()
            bob.answer(found)
            if found.topic == b"y/1":
                return True
            bob.take(b"y/1", b"mark", 1)
            return False

        wait_until(is_silent)
        if version == 5:
            assert alice.publish(b"x/1", b"denied", 1) == NOT_AUTHORIZED
        assert alice.subscribe(b"x/1", 1) == (NOT_AUTHORIZED if version == 5 else 0x80)
        acl.write_text(ALLOW_ALL, encoding="utf-8")

        def is_heard() -> bool:
            return not is_silent()

        wait_until(is_heard)


def test_a_broken_rules_file_changes_nothing(start_broker: StartBroker, tmp_path: Path) -> None:
    broker, _, acl = start_changeable(start_broker, tmp_path, DENY_X)
    with Clients(broker.mqtt_port) as clients:
        alice = log_in(clients, 5, "alice")
        acl.write_text("rules: [this is: not a rule", encoding="utf-8")
        wait_logged(broker, alice, "rules_not_reloaded")
        assert alice.publish(b"x/1", b"denied", 1) == NOT_AUTHORIZED
        assert alice.publish(b"y/1", b"allowed", 1) == 0x10


@BOTH_VERSIONS
def test_a_removed_user_is_disconnected(start_broker: StartBroker, tmp_path: Path, version: int) -> None:
    broker, users, _ = start_changeable(start_broker, tmp_path, ALLOW_ALL)
    with Clients(broker.mqtt_port) as clients:
        alice, bob = log_in(clients, version, "alice"), log_in(clients, version, "bob")
        start = time.monotonic()
        users.write_text(format_users(FEW_USERS.without_user("alice")), encoding="utf-8")
        alice.expect_disconnect(NOT_AUTHORIZED)
        assert time.monotonic() - start < CLAIM_S
        bob.expect_nothing()
        again = clients.new(version)
        again.send_connect(username="alice", password=b"secret")
        again.expect_refused(0x86, 4)


def test_a_will_is_not_sent_when_its_right_is_gone(start_broker: StartBroker, tmp_path: Path) -> None:
    broker, _, acl = start_changeable(start_broker, tmp_path, ALLOW_ALL)
    with Clients(broker.mqtt_port) as clients:
        bob = log_in(clients, 5, "bob")
        bob.subscribe(b"#", 1)
        alice = clients.open(5, username="alice", password=b"secret", will=Will(b"x/will", b"gone", 1))
        acl.write_text(ALLOW_ALL + '  - {deny: publish, topics: ["x/#"]}\n', encoding="utf-8")
        wait_logged(broker, alice, "rules_reloaded")
        alice.close()
        clients.open(5, username="alice", password=b"secret", will=Will(b"y/will", b"mark", 1)).close()
        bob.take(b"y/will", b"mark", 1)
