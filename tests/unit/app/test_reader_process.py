"""The reader is started with what it needs, or the start says what is missing and what to type."""

from __future__ import annotations

import importlib.util
import socket

import pytest

from millstream.app.reader_process import ReaderProcess, hold_port, open_socket
from millstream.broker.health import Health
from millstream.config.load import config_of
from millstream.model.clock import Clock
from millstream.runtime.transport.listeners import ListenFault


def test_without_pyarrow_the_start_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ListenFault, match="needs pyarrow") as caught:
        ReaderProcess(config_of({"reader": {"enabled": True, "port": 0}}), Health(Clock())).start()
    assert caught.value.hint == "pip install 'millstream[reader]'"


def test_an_address_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ListenFault, match=f"127.0.0.1 port {port}") as caught:
            open_socket("127.0.0.1", port)
    assert caught.value.hint == "millstream serve --set reader.port=0"


def test_a_port_that_is_held_can_be_opened_by_the_one_it_is_held_for() -> None:
    with hold_port("127.0.0.1", 0, "reader.flight_port") as held:
        port = held.getsockname()[1]
        with socket.create_server(("127.0.0.1", port)) as flight:
            socket.create_connection(flight.getsockname()).close()
            with pytest.raises(ListenFault) as caught:
                hold_port("127.0.0.1", port, "reader.flight_port")
    assert caught.value.hint == "millstream serve --set reader.flight_port=0"


def test_a_host_that_means_nothing_is_named() -> None:
    with pytest.raises(ListenFault, match=r"300\.1\.1\.1 port 0 cannot be listened on"):
        open_socket("300.1.1.1", 0)
