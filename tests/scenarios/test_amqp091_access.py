"""AMQP 0.9.1 with users, accounts, certificates and rules: who may what, also when the files change meanwhile."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pika
import pytest
import trustme
from amqp_names import IS_OURS
from conftest import BrokerProcess, write_private
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker, ConnectionClosedByBroker, ProbableAccessDeniedError
from raw_client import Clients

from millstream.security.users import User, UserTable, format_users, hash_password

pytestmark = pytest.mark.skipif(not IS_OURS, reason="brokers with settings of their own")

CLAIM_S = 2.0  # a change of rights is in force within so long
PATIENCE_S = 10.0
HASH = hash_password("secret")
ACCOUNTS = {"alice": "default", "bob": "default", "north": "north"}
RULES = """
rules:
  - {allow: all, topics: ["plant/#", "$queue/plant", "letters/#"]}
  - {deny: subscribe, topics: ["plant/secret/#"], accounts: [default]}
  - {allow: all, topics: ["$queue/%u"]}
  - {allow: all, topics: ["#", "$queue/#"], accounts: [north]}
"""


def users_text(*names: str) -> str:
    return format_users(UserTable({name: User(name, HASH, ACCOUNTS[name]) for name in names}))


class Ruled:
    def __init__(self, folder: Path) -> None:
        self.users = write_private(folder / "users.txt", users_text(*ACCOUNTS))
        self.rules = write_private(folder / "acl.yaml", RULES)
        config = write_private(folder / "millstream.yaml", "accounts:\n  north: {max_connections: 1}\n")
        self._folder = folder
        self._settings = (f"auth.password_file={self.users}", f"auth.acl_file={self.rules}")
        self._options = ("--config", str(config))
        self.broker = BrokerProcess(folder, self._settings, self._options)
        self.broker.wait_ready()

    def restart(self) -> None:
        assert self.broker.stop() == 0
        (self._folder / "ready.json").unlink()
        self.broker = BrokerProcess(self._folder, self._settings, self._options)
        self.broker.wait_ready()

    def open(self, name: str, host: str = "/") -> pika.BlockingConnection:
        return pika.BlockingConnection(
            pika.ConnectionParameters(
                "127.0.0.1", self.broker.ports["amqp"], host, pika.PlainCredentials(name, "secret")
            )
        )


@pytest.fixture
def ruled(tmp_path: Path) -> Iterator[Ruled]:
    ruled = Ruled(tmp_path)
    yield ruled
    ruled.broker.kill()


def refused(code: int, channel: BlockingChannel, action: Callable[[BlockingChannel], object]) -> None:
    """On a channel of its own: a refusal closes it."""
    with pytest.raises(ChannelClosedByBroker) as caught:
        action(channel.connection.channel())
    assert caught.value.reply_code == code


def test_rules_hold_for_queues_bindings_and_publishes(ruled: Ruled) -> None:
    with ruled.open("alice") as connection:
        channel = connection.channel()
        channel.queue_declare("plant")
        channel.queue_bind("plant", "amq.topic", "plant.hall1.#")
        channel.basic_publish("amq.topic", "plant.hall1.temperature", b"21.5")
        channel.queue_declare("plant", passive=True)
        assert channel.basic_get("plant", auto_ack=True)[2] == b"21.5"
        refused(403, channel, lambda own: own.queue_declare("bob"))
        refused(403, channel, lambda own: own.queue_declare("bob", passive=True))
        refused(403, channel, lambda own: own.basic_get("bob"))
        refused(403, channel, lambda own: own.queue_delete("bob"))
        refused(403, channel, lambda own: own.queue_bind("plant", "amq.topic", "#"))
        refused(403, channel, lambda own: own.queue_bind("plant", "amq.topic", "plant.#"))
        refused(403, channel, lambda own: own.queue_bind("plant", "amq.topic", "plant.secret.door"))
        refused(403, channel, lambda own: own.exchange_declare("other", "fanout"))
        dead = {"x-dead-letter-exchange": "other"}
        refused(403, channel, lambda own: own.queue_declare("alice", durable=True, arguments=dead))

        def publish(own: BlockingChannel) -> None:
            own.basic_publish("amq.topic", "office.lamp", b"on")
            own.queue_declare("plant", passive=True)

        refused(403, channel, publish)


def test_a_virtual_host_is_an_account(ruled: Ruled) -> None:
    with ruled.open("north", "north") as north:
        channel = north.channel()
        channel.queue_declare("plant")
        channel.queue_bind("plant", "amq.topic", "#")
        with pytest.raises(ProbableAccessDeniedError, match="limit"):
            ruled.open("north")
        with ruled.open("alice") as alice:
            alice.channel().queue_declare("plant")
            alice.channel().basic_publish("amq.topic", "plant.a", b"for the default account")
            assert alice.channel().queue_declare("plant", passive=True).method.message_count == 0
        assert channel.queue_declare("plant", passive=True).method.message_count == 0
    with pytest.raises(ProbableAccessDeniedError, match="vhost north not found"):
        ruled.open("alice", "north")


def wait_until(connection: pika.BlockingConnection, is_over: Callable[[], bool]) -> float:
    """Seconds until it is, while the connection is served."""
    began = time.monotonic()
    while not is_over():
        assert time.monotonic() - began < PATIENCE_S
        connection.process_data_events(0.05)
    return time.monotonic() - began


def test_a_consumer_is_cancelled_when_the_rules_no_longer_allow_it(ruled: Ruled) -> None:
    with ruled.open("alice") as connection:
        channel = connection.channel()
        cancelled: list[str] = []
        channel.add_on_cancel_callback(lambda frame: cancelled.append(frame.method.consumer_tag))
        for name in ("plant", "alice"):
            channel.queue_declare(name)
            channel.basic_consume(name, lambda *_: None, consumer_tag=name)
        ruled.rules.write_text(RULES.replace('"$queue/plant", ', ""), encoding="utf-8")
        assert wait_until(connection, lambda: bool(cancelled)) < CLAIM_S
        assert cancelled == ["plant"]
        assert channel.queue_declare("alice", passive=True).method.consumer_count == 1
        refused(403, channel, lambda own: own.queue_declare("plant", passive=True))


@pytest.mark.parametrize("with_restart", [False, True])
def test_a_durable_binding_brings_nothing_once_its_right_is_gone(ruled: Ruled, with_restart: bool) -> None:
    """Neither over AMQP nor over MQTT, neither at once nor after a restart; and again when the right is back."""
    for_bob = RULES + '  - {allow: all, topics: ["plant/#"], users: [bob]}\n'
    without = for_bob.replace('"plant/#", "$queue/plant"', '"$queue/plant"')
    with ruled.open("alice") as alice:
        alice.channel().queue_declare("plant", durable=True)
        alice.channel().queue_bind("plant", "amq.topic", "plant.hall1.#")
        ruled.rules.write_text(without, encoding="utf-8")
        wait_until(alice, lambda: is_refused(alice))
    if with_restart:
        ruled.restart()
    with ruled.open("alice") as alice, ruled.open("bob") as bob:
        channel = bob.channel()
        channel.confirm_delivery()
        channel.basic_publish("amq.topic", "plant.hall1.door", b"not for alice")
        assert alice.channel().basic_get("plant")[0] is None
        with Clients(ruled.broker.mqtt_port) as clients:
            reader = clients.open(5, None, username="alice", password=b"secret")
            assert reader.subscribe(b"$queue/plant", 1) == 1
            reader.expect_nothing()
        ruled.rules.write_text(for_bob, encoding="utf-8")
        wait_until(alice, lambda: not is_refused(alice))
        channel.basic_publish("amq.topic", "plant.hall1.door", b"for alice")
        assert alice.channel().basic_get("plant", auto_ack=True)[2] == b"for alice"


def is_refused(connection: pika.BlockingConnection) -> bool:
    """Whether the right to bind is gone."""
    try:
        connection.channel().queue_bind("plant", "amq.topic", "plant.hall2.#")
    except ChannelClosedByBroker:
        return True
    return False


def test_a_dead_letter_comes_to_no_topic_its_declarer_may_not_publish_to(ruled: Ruled) -> None:
    """The right to every queue is none to the topic that a key without a queue stands for."""
    office = '  - {allow: all, topics: ["office/#"], users: [alice]}\n'
    queues = '  - {allow: all, topics: ["$queue/#"], users: [bob]}\n'
    ruled.rules.write_text(RULES + office + queues, encoding="utf-8")
    ruled.restart()
    with ruled.open("bob") as bob, Clients(ruled.broker.mqtt_port) as clients:
        alice = clients.open(5, None, username="alice", password=b"secret")
        assert alice.subscribe(b"office/#", 1) == 1
        dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "office/lamp", "x-max-length": 1}
        with pytest.raises(ChannelClosedByBroker, match="403"):
            bob.channel().queue_declare("bob", arguments=dead)
        dead["x-dead-letter-routing-key"] = "office.lamp"  # it could be a queue that is made later
        channel = bob.channel()
        channel.queue_declare("bob", arguments=dead)
        channel.basic_publish("", "bob", b"forged")
        channel.basic_publish("", "bob", b"kept")
        assert channel.queue_declare("bob", passive=True).method.message_count == 1
        alice.expect_nothing()


def test_a_direct_reply_needs_no_rule(ruled: Ruled) -> None:
    """The address was given to who was asked, and to nobody else."""
    answers: list[bytes] = []
    with ruled.open("alice") as alice, ruled.open("bob") as bob:
        asker, server = alice.channel(), bob.channel()
        server.queue_declare("plant")
        asker.basic_consume("amq.rabbitmq.reply-to", lambda *got: answers.append(got[3]), auto_ack=True)
        properties = pika.BasicProperties(reply_to="amq.rabbitmq.reply-to")
        asker.basic_publish("", "plant", b"question", properties)
        asker.queue_declare("plant", passive=True)
        asked = server.basic_get("plant", auto_ack=True)[1]
        assert asked is not None
        server.basic_publish("", asked.reply_to, b"answer")
        server.queue_declare("plant", passive=True)
        wait_until(alice, lambda: answers == [b"answer"])


def test_a_connection_ends_when_its_user_is_removed(ruled: Ruled) -> None:
    with ruled.open("alice") as alice, ruled.open("bob") as bob:
        ruled.users.write_text(users_text("alice", "north"), encoding="utf-8")
        began = time.monotonic()
        with pytest.raises(ConnectionClosedByBroker) as caught:
            wait_until(bob, lambda: False)
        assert time.monotonic() - began < CLAIM_S
        assert caught.value.reply_code == 403
        alice.channel().queue_declare("plant")


def test_clients_are_told_that_the_broker_stops(ruled: Ruled) -> None:
    connection = ruled.open("alice")
    ruled.broker.process.terminate()
    with pytest.raises(ConnectionClosedByBroker, match="CONNECTION_FORCED") as caught:
        wait_until(connection, lambda: False)
    assert caught.value.reply_code == 320
    assert ruled.broker.stop() == 0


# ---------------------------------------------------------------- certificates


def make_context(authority: trustme.CA, certificate: trustme.LeafCert | None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    if certificate is not None:
        certificate.configure_cert(context)
    return context


def test_a_certificate_is_enough_to_be_known(tmp_path: Path) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1", "localhost")
    chain, key, trusted = tmp_path / "chain.pem", tmp_path / "key.pem", tmp_path / "ca.pem"
    issued.cert_chain_pems[0].write_to_path(str(chain))
    write_private(key, issued.private_key_pem.bytes().decode())
    authority.cert_pem.write_to_path(str(trusted))
    rules = write_private(tmp_path / "acl.yaml", 'rules:\n  - {allow: all, topics: ["$queue/%u"]}\n')
    settings = (
        f"amqp.tls.cert_file={chain}",
        f"amqp.tls.key_file={key}",
        f"amqp.tls.ca_file={trusted}",
        "amqp.tls.port=0",
        "auth.certificates_as_users=true",
        f"auth.acl_file={rules}",
    )
    broker = BrokerProcess(tmp_path, settings, ())
    try:
        broker.wait_ready()
        port = broker.ports["amqp_tls"]
        sensor = authority.issue_cert("sensor.example", common_name="sensor-7")
        external = pika.credentials.ExternalCredentials()
        for certificate, is_known in ((sensor, True), (None, False)):
            options = pika.SSLOptions(make_context(authority, certificate), "localhost")
            parameters = pika.ConnectionParameters(
                "127.0.0.1", port, credentials=external, ssl_options=options
            )
            if is_known:
                with pika.BlockingConnection(parameters) as connection:
                    channel = connection.channel()
                    channel.queue_declare("sensor-7")
                    refused(403, channel, lambda own: own.queue_declare("sensor-8"))
            else:
                with pytest.raises(pika.exceptions.AMQPConnectionError):
                    pika.BlockingConnection(parameters)
    finally:
        broker.kill()
