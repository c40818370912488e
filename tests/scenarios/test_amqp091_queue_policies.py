"""Policies by pattern, given at start: in force for what clients declare and for what is there."""

from __future__ import annotations

from pathlib import Path

import pika
import pytest
from amqp_names import IS_OURS
from conftest import BrokerProcess

pytestmark = pytest.mark.skipif(not IS_OURS, reason="brokers with settings of their own")


def start(folder: Path, name: str, *settings: str) -> BrokerProcess:
    (folder / name).mkdir()
    kept = f"data_dir={folder / 'data'}"
    broker = BrokerProcess(folder / name, (*settings, kept), ())
    broker.wait_ready()
    return broker


def fill(broker: BrokerProcess, queue: str) -> int:
    """How many of five messages it keeps."""
    parameters = pika.ConnectionParameters("127.0.0.1", broker.ports["amqp"])
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare(queue, durable=True, arguments={"x-max-length": 4})
        channel.queue_purge(queue)
        for _ in range(5):
            channel.basic_publish("", queue, b"x")
        return int(channel.queue_declare(queue, passive=True).method.message_count)


def test_a_policy_shapes_queues_by_their_names_and_leaves_them_when_it_goes(tmp_path: Path) -> None:
    pattern = "amqp.policies.short.pattern=^logs"
    for name, settings, kept in (
        ("none", (), 4),
        ("two", (pattern, "amqp.policies.short.max_length=2"), 2),
        ("nine", (pattern, "amqp.policies.short.max_length=9"), 4),
        ("again", (pattern, "amqp.policies.short.max_length=1"), 1),
        ("gone", (), 4),
    ):
        broker = start(tmp_path, name, *settings)
        try:
            assert (fill(broker, "logs.a"), fill(broker, "other")) == (kept, 4)
            assert broker.stop() == 0
        finally:
            if broker.process.poll() is None:
                broker.kill()
