"""What the reader needs of the rest of the configuration, and what opening it means for strangers."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.config.faults import ConfigFault
from millstream.config.listeners import is_anonymous_allowed, listeners_of
from millstream.config.load import config_of


def refusal(values: dict[str, object]) -> str:
    with pytest.raises(ConfigFault) as caught:
        config_of(values)
    return str(caught.value)


def test_the_reader_is_off_until_it_is_asked_for() -> None:
    assert [listener.name for listener in listeners_of(config_of({}))] == ["mqtt", "websocket", "amqp"]
    config = config_of({"reader": {"enabled": True}})
    assert [(listener.name, listener.port) for listener in listeners_of(config)][-1] == ("reader", 8090)


def test_flight_is_off_until_it_has_a_port() -> None:
    config = config_of({"reader": {"enabled": True, "flight_port": 0}})
    assert [(listener.name, listener.port) for listener in listeners_of(config)][-1] == ("flight", 0)
    nothing = config_of({"reader": {"enabled": True, "flight_port": None}})
    assert [listener.name for listener in listeners_of(nothing)][-1] == "reader"
    text = refusal({"reader": {"enabled": True, "flight_port": 8090}})
    assert "reader.flight_port opens 127.0.0.1:8090, which reader.port opens too" in text
    assert "reader.flight_port" in refusal({"reader": {"flight_port": 65_536}})


def test_the_reader_needs_the_control_socket_and_a_disk() -> None:
    assert "control.enabled" in refusal({"reader": {"enabled": True}, "control": {"enabled": False}})
    text = refusal({"reader": {"enabled": True}, "storage": {"durability": "memory"}})
    assert "storage.durability" in text


def test_a_reader_beyond_this_machine_needs_authentication() -> None:
    assert "without authentication" in refusal({"reader": {"enabled": True, "host": "0.0.0.0"}})
    open_to_all = config_of(
        {"reader": {"enabled": True, "host": "0.0.0.0"}, "auth": {"allow_anonymous": True}}
    )
    assert is_anonymous_allowed(open_to_all)


def test_a_reader_on_the_port_of_another_listener_is_refused() -> None:
    assert "opens too" in refusal({"reader": {"enabled": True, "port": 1883}})


def test_a_certificate_comes_with_its_key(tmp_path: Path) -> None:
    file = tmp_path / "server.pem"
    file.touch(mode=0o600)
    assert "key_file" in refusal({"reader": {"tls": {"cert_file": str(file)}}})
    assert "cert_file" in refusal({"reader": {"tls": {"key_file": str(file)}}})
    both = {"cert_file": str(file), "key_file": str(file)}
    assert "not a certificate" in refusal({"reader": {"tls": both}})


def test_a_reader_alone_is_no_broker() -> None:
    off = {"enabled": False}
    values = {"reader": {"enabled": True}, "mqtt": off, "websocket": off, "amqp": off}
    assert "no listener" in refusal(values)
