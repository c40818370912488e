"""AMQP 0.9.1 on our broker: logins, restarts, stops, power cuts and full disks."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from amqp_names import IS_OURS, unique
from conftest import BrokerProcess, StartBroker
from pika.spec import Basic, Connection, Exchange, Queue
from raw_amqp import CAPABILITIES, AmqpClients, ConnectionClosed, ConnectionLost

from crash.broker import Broker
from crash.faulty import FULL, VARIABLE

pytestmark = pytest.mark.skipif(not IS_OURS, reason="brokers with settings of their own")


def clients_of(broker: BrokerProcess) -> AmqpClients:
    return AmqpClients(broker.ports["amqp"])


# ---- logins


@pytest.fixture
def guarded(start_broker: StartBroker, tmp_path: Path) -> BrokerProcess:
    users = tmp_path / "users.txt"
    subprocess.run(
        [sys.executable, "-m", "millstream", "user", "add", "alice", "-f", str(users), "--password-stdin"],
        input="wonderland",
        text=True,
        check=True,
        capture_output=True,
    )
    return start_broker(f"auth.password_file={users}")


def test_a_right_password_opens_and_a_wrong_one_is_refused(guarded: BrokerProcess) -> None:
    clients = clients_of(guarded)
    channel = clients.channel(user="alice", password="wonderland")
    queue = channel.temporary()
    channel.publish("", queue, b"x", user_id="alice")
    assert channel.get_one(queue).body == b"x"
    for user, password in (("alice", "wrong"), ("nobody", "wonderland"), ("guest", "guest"), ("", "")):
        client = clients.connect()
        with pytest.raises(ConnectionClosed, match=r"403 ACCESS_REFUSED - Login was refused"):
            client.open(user=user, password=password)
        client.expect_end()
    for client in clients.opened:
        client.cut()


def test_a_client_that_cannot_be_told_is_just_let_go(guarded: BrokerProcess) -> None:
    client = clients_of(guarded).connect()
    with pytest.raises(ConnectionLost):
        client.open(
            user="alice",
            password="wrong",
            capabilities={**CAPABILITIES, "authentication_failure_close": False},
        )


# ---- restarts


class Twice:
    """One broker on one folder, ended and started again."""

    def __init__(self, folder: Path) -> None:
        self._broker = Broker(folder, ())
        self.start()

    def start(self) -> None:
        self._broker.start()
        self.clients = AmqpClients(self._broker.ports["amqp"])

    def kill(self) -> None:
        for client in self.clients.opened:
            client.cut()
        self._broker.kill()

    def stop(self) -> int:
        return self._broker.stop()


@pytest.fixture
def twice(tmp_path: Path) -> Iterator[Twice]:
    twice = Twice(tmp_path)
    yield twice
    twice.kill()


@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "stopped"])
def test_what_is_durable_is_there_after_a_restart(twice: Twice, is_killed: bool) -> None:
    channel = twice.clients.channel()
    exchange, other, queue = unique("x"), unique("x"), unique()
    arguments = {"x-max-length": 100, "x-dead-letter-exchange": other}
    channel.exchange(exchange, "topic", durable=True, arguments={"alternate-exchange": other})
    channel.exchange(other, "fanout", durable=True)
    channel.exchange("transient", "fanout")
    channel.declare(queue, durable=True, arguments=arguments)
    channel.declare("transient")
    channel.bind(queue, exchange, "a.#", kind="kept")
    channel.bind(queue, other)
    channel.call(Exchange.Bind(destination=other, source="amq.direct", routing_key="e2e"), Exchange.BindOk)
    channel.confirm_select()
    for number in range(20):
        channel.publish(exchange, f"a.{number}", b"%d" % number, delivery_mode=2, headers={"n": number})
    channel.wait_confirms(20)
    worker = channel.client.channel()
    worker.tx_select()
    worker.get_one(queue)  # held, and given back by the end
    worker.ack(worker.get_one(queue).tag)
    worker.commit()  # an acknowledgement alone has no answer: a power cut may take it back
    channel.client.close()
    if is_killed:
        twice.kill()
    else:
        assert twice.stop() == 0
    twice.start()
    channel = twice.clients.channel()
    assert channel.declare(queue, durable=True, arguments=arguments).message_count == 19
    channel.exchange(exchange, "topic", durable=True, arguments={"alternate-exchange": other})
    found = [channel.get_one(queue) for _ in range(19)]
    assert [one.body for one in found] == [b"0", *(b"%d" % number for number in range(2, 20))]
    assert found[1].headers == {"n": 2}
    assert (found[1].method.exchange, found[1].method.routing_key) == (exchange, "a.2")
    channel.publish(exchange, "a.new", b"by topic")
    channel.publish(exchange, "unknown", b"by alternate")
    channel.publish("amq.direct", "e2e", b"by exchange")
    bodies = [channel.get_one(queue, no_ack=True).body for _ in range(3)]
    assert bodies == [b"by topic", b"by alternate", b"by exchange"]
    for method in (
        Queue.Declare(queue="transient", passive=True),
        Exchange.Declare(exchange="transient", passive=True),
    ):
        probe = channel.client.channel()
        probe.send(method)
        probe.expect_closed(404)


def test_what_was_deleted_stays_deleted(twice: Twice) -> None:
    channel = twice.clients.channel()
    channel.exchange("gone", "fanout", durable=True)
    channel.exchange("stays", "fanout", durable=True)
    channel.declare("gone", durable=True)
    channel.declare("stays", durable=True)
    for exchange in ("gone", "stays"):
        channel.bind("stays", exchange)
    channel.call(Exchange.Delete(exchange="gone"), Exchange.DeleteOk)
    channel.delete("gone")
    channel.unbind("stays", "stays")
    twice.kill()
    twice.start()
    channel = twice.clients.channel()
    channel.confirm_select()
    channel.publish_confirmed("stays", "", b"x")
    assert channel.counts("stays") == (0, 0)
    for method in (
        Queue.Declare(queue="gone", passive=True),
        Exchange.Declare(exchange="gone", passive=True),
    ):
        probe = channel.client.channel()
        probe.send(method)
        probe.expect_closed(404)


def test_a_committed_transaction_is_there_after_a_power_cut_and_an_open_one_is_not(twice: Twice) -> None:
    channel = twice.clients.channel()
    channel.declare("jobs", durable=True)
    channel.tx_select()
    for number in range(5):
        channel.publish("", "jobs", b"%d" % number, delivery_mode=2)
    channel.commit()
    channel.ack(channel.get_one("jobs").tag)
    channel.commit()
    channel.publish("", "jobs", b"never committed", delivery_mode=2)
    channel.sync()
    twice.kill()
    twice.start()
    channel = twice.clients.channel()
    assert channel.counts("jobs") == (4, 0)
    assert [channel.get_one("jobs").body for _ in range(4)] == [b"1", b"2", b"3", b"4"]


def test_a_stopping_broker_says_so(twice: Twice) -> None:
    client = twice.clients.open()
    channel = client.channel()
    channel.consume(channel.temporary())
    stopping = threading.Thread(target=twice.stop)
    stopping.start()
    with pytest.raises((ConnectionClosed, ConnectionLost)) as caught:
        client.pump_for_ever()
    stopping.join()
    assert isinstance(caught.value, ConnectionClosed), "it went without a word"
    assert caught.value.code == 320


# ---- trouble


def test_publishers_are_told_when_the_disk_is_full_and_when_it_has_room_again(tmp_path: Path) -> None:
    control = tmp_path / "control"
    broker = Broker(tmp_path, (), "crash.faulty")
    broker.start({VARIABLE: str(control)})
    try:
        clients = AmqpClients(broker.ports["amqp"])
        channel = clients.channel()
        channel.declare("jobs", durable=True)
        channel.confirm_select()
        channel.publish_confirmed("", "jobs", b"before", delivery_mode=2)
        control.write_text(FULL)
        channel.publish("", "jobs", b"x" * 100_000, delivery_mode=2)
        client = channel.client
        while not any(isinstance(method, Connection.Blocked) for method in client.control):
            client.pump()
        client.control.clear()
        control.unlink()
        while not any(isinstance(method, Connection.Unblocked) for method in client.control):
            client.pump()
        assert isinstance(channel.confirm(), Basic.Ack | Basic.Nack)
        channel.publish_confirmed("", "jobs", b"after", delivery_mode=2)
    finally:
        broker.kill()
