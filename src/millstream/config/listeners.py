"""Which listeners a configuration asks for, and whether strangers may use them."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from millstream.config.keys import KeyPath
from millstream.config.schema import Config
from millstream.config.tls import Tls


@dataclass(frozen=True)
class Listener:
    """One address to listen on. `name` is mqtt, websocket or amqp, or one of them with `_tls`, reader or flight."""

    name: str
    section: str
    host: str
    port: int
    tls: Tls | None

    @property
    def port_path(self) -> KeyPath:
        if self.name == "flight":
            return (self.section, "flight_port")
        return (self.section, "port") if self.tls is None else (self.section, "tls", "port")


def listeners_of(config: Config) -> list[Listener]:
    mqtt, websocket, amqp = config.mqtt, config.websocket, config.amqp
    listeners: list[Listener] = []
    if mqtt.enabled:
        listeners.append(Listener("mqtt", "mqtt", mqtt.host, mqtt.port, None))
    if mqtt.tls.is_enabled:
        listeners.append(Listener("mqtt_tls", "mqtt", mqtt.host, mqtt.tls.port, mqtt.tls))
    if websocket.enabled:
        listeners.append(Listener("websocket", "websocket", websocket.host, websocket.port, None))
    if websocket.tls.is_enabled:
        tls = websocket.tls
        listeners.append(Listener("websocket_tls", "websocket", websocket.host, tls.port, tls))
    if amqp.enabled:
        listeners.append(Listener("amqp", "amqp", amqp.host, amqp.port, None))
    if amqp.tls.is_enabled:
        listeners.append(Listener("amqp_tls", "amqp", amqp.host, amqp.tls.port, amqp.tls))
    if config.reader.enabled:
        listeners.append(Listener("reader", "reader", config.reader.host, config.reader.port, None))
        if config.reader.flight_port is not None:
            listeners.append(
                Listener("flight", "reader", config.reader.host, config.reader.flight_port, None)
            )
    return listeners


def is_loopback(host: str) -> bool:
    """A name other than localhost counts as beyond loopback: it may come to mean another address tomorrow."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def has_credentials(config: Config) -> bool:
    """Whether there is any way to prove who one is by password or token."""
    return config.auth.password_file is not None or config.auth.jwt.is_enabled


def is_anonymous_allowed(config: Config) -> bool:
    """The meaning of `auth.allow_anonymous`, null included."""
    if config.auth.allow_anonymous is not None:
        return config.auth.allow_anonymous
    if has_credentials(config) or config.auth.certificates_as_users:
        return False
    return all(is_loopback(listener.host) for listener in listeners_of(config))


def is_protected(config: Config, listener: Listener) -> bool:
    """Whether someone who reaches this listener must prove who they are, or was let in on purpose."""
    if config.auth.allow_anonymous or has_credentials(config):
        return True
    has_certificates = listener.tls is not None and listener.tls.require_client_certificate
    return has_certificates and config.auth.certificates_as_users
