"""A broker in this process with a data directory and no AMQP, and a stream in it."""

from __future__ import annotations

from pathlib import Path

from millstream.app.server import Millstream
from millstream.broker.broker import DEFAULT_ACCOUNT
from millstream.config.load import config_of
from millstream.queues.definition import Definition
from millstream.queues.queue import Queue


def make_millstream(data_dir: Path, **storage: object) -> Millstream:
    off = {"enabled": False}
    values = {"data_dir": str(data_dir), "mqtt": {"port": 0}, "websocket": off, "amqp": off}
    return Millstream(config_of({**values, "storage": storage}))


def make_stream(millstream: Millstream, name: str = "readings") -> Queue:
    return millstream.broker.get_account(DEFAULT_ACCOUNT).queues.catalog.declare(name, Definition("stream"))
