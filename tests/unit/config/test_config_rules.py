from __future__ import annotations

from pathlib import Path

import pytest
import trustme

from millstream.config.faults import ConfigFault
from millstream.config.listeners import is_anonymous_allowed, is_loopback, listeners_of
from millstream.config.load import config_of
from millstream.config.rules import find_broken_rules
from millstream.config.schema import Config


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "localhost", "LOCALHOST"])
def test_loopback_is_recognised(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "10.0.0.1", "broker.example", "localhost.example", "", "127.0.0.1.x"]
)
def test_everything_else_is_beyond_loopback(host: str) -> None:
    assert not is_loopback(host)


def test_anonymous_clients_are_let_in_on_loopback_when_nothing_else_is_said() -> None:
    assert is_anonymous_allowed(Config())


def test_anonymous_clients_are_kept_out_once_there_are_users(tmp_path: Path) -> None:
    users = tmp_path / "users.txt"
    users.touch(0o600)
    assert not is_anonymous_allowed(config_of({"auth": {"password_file": str(users)}}))
    both = config_of({"auth": {"password_file": str(users), "allow_anonymous": True}})
    assert is_anonymous_allowed(both)


def test_anonymous_clients_can_be_kept_out_on_loopback_too() -> None:
    assert not is_anonymous_allowed(config_of({"auth": {"allow_anonymous": False}}))


@pytest.mark.parametrize("section", ["mqtt", "websocket"])
def test_a_listener_beyond_loopback_needs_authentication(section: str) -> None:
    with pytest.raises(ConfigFault) as caught:
        config_of({section: {"host": "0.0.0.0"}})
    [fault] = caught.value.faults
    assert fault.key == f"{section}.host"
    assert "millstream user add" in fault.text


def test_refusing_anonymous_clients_is_no_authentication() -> None:
    with pytest.raises(ConfigFault, match="without authentication"):
        config_of({"mqtt": {"host": "0.0.0.0"}, "auth": {"allow_anonymous": False}})


def test_a_password_file_opens_the_way_beyond_loopback(tmp_path: Path) -> None:
    users = tmp_path / "users.txt"
    users.touch(0o600)
    config = config_of({"mqtt": {"host": "0.0.0.0"}, "auth": {"password_file": str(users)}})
    assert not is_anonymous_allowed(config)


def test_saying_so_opens_the_way_beyond_loopback() -> None:
    config = config_of({"mqtt": {"host": "0.0.0.0"}, "auth": {"allow_anonymous": True}})
    assert is_anonymous_allowed(config)


def test_a_disabled_listener_is_not_judged() -> None:
    config_of({"websocket": {"host": "0.0.0.0", "enabled": False}})


def certificates(tmp_path: Path) -> dict[str, str]:
    authority = trustme.CA()
    issued = authority.issue_cert("localhost")
    files = {name: str(tmp_path / f"{name}.pem") for name in ("cert_file", "key_file", "ca_file")}
    issued.private_key_pem.write_to_path(files["key_file"])
    issued.cert_chain_pems[0].write_to_path(files["cert_file"])
    authority.cert_pem.write_to_path(files["ca_file"])
    Path(files["key_file"]).chmod(0o600)
    return files


def test_required_certificates_taken_as_users_are_authentication_for_tls_only(tmp_path: Path) -> None:
    tls = {**certificates(tmp_path), "require_client_certificate": True}
    auth = {"certificates_as_users": True}
    config_of({"mqtt": {"host": "0.0.0.0", "enabled": False, "tls": tls}, "auth": auth})
    with pytest.raises(ConfigFault, match="without authentication"):
        config_of({"mqtt": {"host": "0.0.0.0", "enabled": True, "tls": tls}, "auth": auth})


def test_listeners_are_those_asked_for(tmp_path: Path) -> None:
    config = config_of({"mqtt": {"tls": certificates(tmp_path)}, "websocket": {"enabled": False}})
    assert [(listener.name, listener.port) for listener in listeners_of(config)] == [
        ("mqtt", 1883),
        ("mqtt_tls", 8883),
        ("amqp", 5672),
    ]
    amqp = {"enabled": False, "tls": certificates(tmp_path)}
    config = config_of({"amqp": amqp, "mqtt": {"enabled": False}, "websocket": {"enabled": False}})
    assert [(listener.name, listener.port) for listener in listeners_of(config)] == [("amqp_tls", 5671)]


def test_an_amqp_listener_is_judged_like_the_others(tmp_path: Path) -> None:
    with pytest.raises(ConfigFault, match=r"amqp\.host opens 0\.0\.0\.0 .*without authentication"):
        config_of({"amqp": {"host": "0.0.0.0"}})
    with pytest.raises(ConfigFault, match=r"amqp\.port opens 127\.0\.0\.1:1883, which mqtt\.port opens too"):
        config_of({"amqp": {"port": 1883}})
    with pytest.raises(ConfigFault, match=r"amqp\.tls\.key_file does nothing without amqp\.tls\.cert_file"):
        config_of({"amqp": {"tls": {"key_file": certificates(tmp_path)["key_file"]}}})
    tls = {**certificates(tmp_path), "require_client_certificate": True}
    config_of({"amqp": {"tls": tls}, "auth": {"certificates_as_users": True}})


def test_two_listeners_on_a_chosen_port_do_not_collide() -> None:
    config_of({"mqtt": {"port": 0}, "websocket": {"port": 0}})


def test_listeners_on_different_addresses_may_share_a_port() -> None:
    config_of({"mqtt": {"port": 9000}, "websocket": {"port": 9000, "host": "127.0.0.2"}})


def test_an_address_that_means_all_collides_with_each() -> None:
    values = {
        "mqtt": {"port": 9000, "host": "0.0.0.0"},
        "websocket": {"port": 9000},
        "auth": {"allow_anonymous": True},
    }
    with pytest.raises(ConfigFault, match="opens too"):
        config_of(values)


def test_a_key_nobody_wrote_is_not_blamed() -> None:
    broken = find_broken_rules(Config.model_validate({"mqtt": {"port": 8083}}))
    assert [path for path, _ in broken] == [("mqtt", "port")]


@pytest.mark.parametrize("origin", ["*", "https://a.example", "http://localhost:8080", "*.plant.example"])
def test_origins_in_use_are_accepted(origin: str) -> None:
    assert config_of({"websocket": {"allowed_origins": [origin]}}).websocket.allowed_origins == (origin,)


@pytest.mark.parametrize(
    "origin", ["a.example", "https://a.example/page", "https://*.example", "*example", "", "a b"]
)
def test_origins_that_could_never_match_are_refused(origin: str) -> None:
    with pytest.raises(ConfigFault, match="scheme://host"):
        config_of({"websocket": {"allowed_origins": [origin]}})
