"""Where the AMQP 0.9.1 tests find a broker: ours, or the one `AMQP_URL` names (RabbitMQ, to see what it answers).

Test modules name this file in `pytest_plugins`.
"""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from amqp_names import IS_OURS, URL
from conftest import BrokerProcess
from raw_amqp import AmqpClients
from raw_amqp_channel import AmqpChannel


def start_amqp_broker(folder_of: pytest.TempPathFactory, *settings: str) -> BrokerProcess:
    broker = BrokerProcess(folder_of.mktemp("amqp_broker"), settings, ())
    broker.wait_ready()
    return broker


@pytest.fixture(scope="session")
def amqp_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """One broker for all tests of a run: use names of your own."""
    if not IS_OURS:
        yield urlsplit(URL).port or 5672
        return
    broker = start_amqp_broker(tmp_path_factory)
    try:
        yield broker.ports["amqp"]
    finally:
        if broker.process.poll() is None:
            broker.kill()


@pytest.fixture
def amqp_url(amqp_port: int) -> str:
    return f"amqp://guest:guest@127.0.0.1:{amqp_port}/"


@pytest.fixture
def clients(amqp_port: int) -> Iterator[AmqpClients]:
    """Of raw frames; they are gone with the test, and so is what they declared."""
    with AmqpClients(amqp_port) as clients:
        yield clients


@pytest.fixture
def channel(clients: AmqpClients) -> AmqpChannel:
    """In confirm mode: what `publish_confirmed` sent has arrived."""
    channel = clients.channel()
    channel.confirm_select()
    return channel
