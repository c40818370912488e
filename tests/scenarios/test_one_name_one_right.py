"""A queue has one name: no other spelling of it leads around the rules, in any protocol, by command or by file."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pika
import pytest
from conftest import BrokerProcess, write_private
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker
from raw_client import Clients, RawClient

from millstream.protocols.mqtt.wire.packets import Will
from millstream.security.users import User, UserTable, format_users, hash_password

NOT_AUTHORIZED = 0x87
HASH = hash_password("secret")
RULES = """
rules:
  - {allow: all, topics: ["#", "$queue/#", "$dlq/#"], users: [owner]}
  - {allow: all, topics: ["$queue/#"], users: [mallory]}
  - {deny: all, topics: ["$queue/secret", "$queue/a%%2Fb/#", "$dlq/#"], users: [mallory]}
"""
# each is another spelling of a queue that mallory may not use
SPELLINGS = (
    "$queue/secret",
    "$queue/secre%74",
    "$queue/%73ecret",
    "$queue/%73%65%63%72%65%74",
    "$queue/a%2Fb",
    "$queue/a%2fb",
    "$queue/%61%2Fb",
    "$dlq/secret",
    "$queue/$dlq/secret",
    "$queue/%24dlq/secret",
    "$queue/$dlq/secre%74",
    "$queue/$dlq%2Fsecret",
    "$queue/%24dlq%2fsecret",
    "$dlq/secre%74",
)


@pytest.fixture(scope="module")
def ruled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("spelled")
    names = ("owner", "mallory")
    table = UserTable({name: User(name, HASH, "default") for name in names})
    users = write_private(folder / "users.txt", format_users(table))
    rules = write_private(folder / "acl.yaml", RULES)
    broker = BrokerProcess(folder, (f"auth.password_file={users}", f"auth.acl_file={rules}"), ())
    broker.wait_ready()
    with Clients(broker.mqtt_port) as clients:
        owner = clients.open(5, "owner", username="owner", password=b"secret")
        for topic in ("$queue/secret", "$queue/a%2Fb", "$dlq/secret"):
            assert owner.publish(topic.encode(), b"confidential", 1) == 0
    yield broker
    broker.kill()


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("version", [4, 5])
def test_no_spelling_of_a_denied_queue_is_taken_over_mqtt(
    ruled: BrokerProcess, spelling: str, version: int
) -> None:
    refused = NOT_AUTHORIZED if version == 5 else 0x80
    with Clients(ruled.mqtt_port) as clients:
        mallory = clients.open(version, None, username="mallory", password=b"secret")
        for filter in (spelling, "$share/g/" + spelling, spelling + "/#"):
            assert mallory.subscribe(filter.encode(), 1) == refused
        for topic in (spelling, spelling + "/$ack"):
            if topic != "$queue/secret/$ack":  # the rule names the queue alone
                answer = mallory.publish(topic.encode(), b"forged", 1)
                assert answer == NOT_AUTHORIZED or (version == 4 and answer == 0)
        mallory.expect_nothing()


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_no_spelling_of_a_denied_queue_is_taken_for_a_will(ruled: BrokerProcess, spelling: str) -> None:
    with RawClient(ruled.mqtt_port) as mallory:
        will = Will(spelling.encode(), b"forged", 1)
        mallory.send_connect(username="mallory", password=b"secret", will=will)
        mallory.expect_refused(NOT_AUTHORIZED, 5)


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_no_spelling_of_a_denied_queue_is_taken_over_amqp(ruled: BrokerProcess, spelling: str) -> None:
    credentials = pika.PlainCredentials("mallory", "secret")
    port = ruled.ports["amqp"]
    with pika.BlockingConnection(
        pika.ConnectionParameters("127.0.0.1", port, "/", credentials)
    ) as connection:

        def publish(channel: BlockingChannel) -> None:
            channel.basic_publish("", spelling, b"forged")
            channel.queue_declare("mine", passive=True)

        def copy(channel: BlockingChannel) -> None:
            properties = pika.BasicProperties(headers={"CC": [spelling]})
            channel.basic_publish("", "mine", b"forged", properties)
            channel.queue_declare("mine", passive=True)

        def dead(channel: BlockingChannel) -> None:
            arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": spelling}
            channel.queue_declare("dead", arguments=arguments)

        connection.channel().queue_declare("mine")
        actions: list[Callable[[BlockingChannel], object]] = [
            publish,
            copy,
            dead,
            lambda channel: channel.queue_declare(spelling, passive=True),
            lambda channel: channel.basic_get(spelling),
            lambda channel: channel.basic_consume(spelling, lambda *_: None),
            lambda channel: channel.basic_consume(spelling + "/#", lambda *_: None),
            lambda channel: channel.queue_purge(spelling),
            lambda channel: channel.queue_delete(spelling),
            lambda channel: channel.queue_bind(spelling, "amq.topic", "x"),
        ]
        for action in actions:
            with pytest.raises(ChannelClosedByBroker) as caught:
                action(connection.channel())
            assert caught.value.reply_code == 403
