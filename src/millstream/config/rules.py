"""Rules that look at several keys at once. They run when every single key is well formed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from pydantic import BaseModel

from millstream.config.keys import KeyPath
from millstream.config.listeners import Listener, is_loopback, is_protected, listeners_of
from millstream.config.policies import find_broken_policies
from millstream.config.schema import DEFAULT_ACCOUNT, Config
from millstream.model.errors import Refused
from millstream.queues.definition import check_name, make_definition

ACCOUNT_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
ORIGIN: Final = re.compile(r"\*|\*\.[^/\s:*]+|[a-z][a-z0-9+.-]*://[^/\s*]+", re.IGNORECASE)
HOST_NAME: Final = re.compile(r"\*|[^/\s:*\[\]]+|[0-9a-f:.]+", re.IGNORECASE)
EVERY_ADDRESS: Final = ("", "*", "0.0.0.0", "::")  # noqa: S104  (compared with, not bound to)

Broken = tuple[KeyPath, str]


def find_broken_rules(config: Config) -> list[Broken]:
    """(key, end of a sentence that begins with the key) of every rule the configuration breaks."""
    return [
        *_broken_listeners(config),
        *_broken_tls(config),
        *_broken_reader(config),
        *_broken_tokens(config),
        *_broken_accounts(config),
        *_broken_queues(config),
        *find_broken_policies(config),
        *_broken_sessions(config),
        *_broken_memory(config),
        *_unprotected_listeners(config),
    ]


def _broken_listeners(config: Config) -> Iterator[Broken]:
    listeners = listeners_of(config)
    if all(listener.section == "reader" for listener in listeners):
        yield (
            ("mqtt", "enabled"),
            "leaves no listener open; enable mqtt, websocket or amqp, or set mqtt.tls.cert_file",
        )
    hosts = (
        ("mqtt", config.mqtt.host),
        ("websocket", config.websocket.host),
        ("amqp", config.amqp.host),
        ("reader", config.reader.host),
    )
    for section, host in hosts:
        if not host or re.search(r"[\s/]", host):
            yield (section, "host"), 'must be an address or a host name such as 127.0.0.1, "::" or 0.0.0.0'
    for index, listener in enumerate(listeners):
        for other in listeners[:index]:
            if _collide(listener, other):
                blamed = _written(config, listener.port_path, other.port_path)
                excused = listener if blamed == other.port_path else other
                place = f"{excused.host}:{excused.port}"
                yield blamed, f"opens {place}, which {'.'.join(excused.port_path)} opens too"
    if not config.websocket.path.startswith("/") or re.search(r"[\s?#]", config.websocket.path):
        yield ("websocket", "path"), "must begin with / and hold no space, ? or #"
    for origin in config.websocket.allowed_origins:
        if not ORIGIN.fullmatch(origin):
            text = f"has {origin!r}; write scheme://host[:port], *.host or *"
            yield ("websocket", "allowed_origins"), text
    for name in config.websocket.allowed_hosts:
        if not HOST_NAME.fullmatch(name):
            text = f"has {name!r}; write a host name or address without scheme and port, or *"
            yield ("websocket", "allowed_hosts"), text


def _written(config: Config, *paths: KeyPath) -> KeyPath:
    """The first of the keys that somebody wrote; a default is not to blame."""
    for path in paths:
        section: BaseModel = config
        for part in path[:-1]:
            section = getattr(section, part)
        if path[-1] in section.model_fields_set:
            return path
    return paths[0]


def _collide(one: Listener, other: Listener) -> bool:
    if one.port != other.port or one.port == 0:
        return False
    return one.host == other.host or one.host in EVERY_ADDRESS or other.host in EVERY_ADDRESS


def _broken_tls(config: Config) -> Iterator[Broken]:
    can_verify = False
    sections = (("mqtt", config.mqtt.tls), ("websocket", config.websocket.tls), ("amqp", config.amqp.tls))
    for section, tls in sections:
        if tls.cert_file is not None and tls.key_file is None:
            yield (section, "tls", "cert_file"), f"needs {section}.tls.key_file beside it"
        if tls.cert_file is None:
            for name in ("key_file", "ca_file", "require_client_certificate"):
                if getattr(tls, name):
                    yield (section, "tls", name), f"does nothing without {section}.tls.cert_file"
        if tls.require_client_certificate and tls.ca_file is None:
            yield (section, "tls", "require_client_certificate"), f"needs {section}.tls.ca_file"
        can_verify = can_verify or (tls.is_enabled and tls.ca_file is not None)
    if config.auth.certificates_as_users and not can_verify:
        yield (
            ("auth", "certificates_as_users"),
            "needs mqtt.tls.ca_file, websocket.tls.ca_file or amqp.tls.ca_file",
        )


def _broken_reader(config: Config) -> Iterator[Broken]:
    reader = config.reader
    if reader.tls.cert_file is not None and reader.tls.key_file is None:
        yield ("reader", "tls", "cert_file"), "needs reader.tls.key_file beside it"
    if reader.tls.key_file is not None and reader.tls.cert_file is None:
        yield ("reader", "tls", "key_file"), "does nothing without reader.tls.cert_file"
    if not reader.enabled:
        return
    if not config.control.enabled:
        yield ("reader", "enabled"), "needs control.enabled: the reader asks the broker through control.sock"
    if config.storage.durability == "memory":
        yield ("reader", "enabled"), "needs storage.durability fsync or os: it reads what is on disk"


def _broken_tokens(config: Config) -> Iterator[Broken]:
    jwt = config.auth.jwt
    if jwt.algorithm is None:
        for name in ("secret_file", "public_key_file", "issuer", "audience"):
            if getattr(jwt, name) is not None:
                yield ("auth", "jwt", name), "does nothing without auth.jwt.algorithm"
        return
    for name in ("issuer", "audience"):
        if not getattr(jwt, name):
            yield ("auth", "jwt", "algorithm"), f"needs auth.jwt.{name}, or tokens made for others would do"
    is_shared = jwt.algorithm.startswith("HS")
    needed, other = ("secret_file", "public_key_file") if is_shared else ("public_key_file", "secret_file")
    if getattr(jwt, needed) is None:
        yield ("auth", "jwt", "algorithm"), f"needs auth.jwt.{needed}"
    if getattr(jwt, other) is not None:
        yield (
            ("auth", "jwt", other),
            f"is not used by {jwt.algorithm}; that algorithm takes auth.jwt.{needed}",
        )


def _broken_accounts(config: Config) -> Iterator[Broken]:
    for name in config.accounts:
        if not ACCOUNT_NAME.fullmatch(name):
            yield ("accounts", name), "must be named with 1 to 64 letters, digits, - or _"
    account = config.auth.anonymous_account
    if account != DEFAULT_ACCOUNT and account not in config.accounts:
        yield ("auth", "anonymous_account"), f"names an account that is not under accounts: {account}"


def _broken_queues(config: Config) -> Iterator[Broken]:
    for name, settings in config.queues.items():
        try:
            check_name(name)
            make_definition(settings.model_dump() | {"bindings": list(settings.bindings)})
        except Refused as refused:
            yield ("queues", name), f"cannot be made: {refused.text}"


def _broken_memory(config: Config) -> Iterator[Broken]:
    memory = config.memory
    if memory.high_watermark >= memory.critical_watermark:
        blamed = _written(config, ("memory", "high_watermark"), ("memory", "critical_watermark"))
        yield blamed, "breaks the order memory.high_watermark < memory.critical_watermark"


def _broken_sessions(config: Config) -> Iterator[Broken]:
    session = config.session
    if session.send_queue_low_bytes > session.send_queue_high_bytes:
        blamed = _written(config, ("session", "send_queue_low_bytes"), ("session", "send_queue_high_bytes"))
        yield blamed, "breaks the order session.send_queue_low_bytes ≤ session.send_queue_high_bytes"
    if session.send_queue_high_bytes > session.max_send_queue_bytes:
        blamed = _written(config, ("session", "send_queue_high_bytes"), ("session", "max_send_queue_bytes"))
        yield blamed, "breaks the order session.send_queue_high_bytes ≤ session.max_send_queue_bytes"
    is_chosen = "default_expiry_interval" in session.model_fields_set
    if is_chosen and session.default_expiry_interval > session.max_expiry_interval:
        yield ("session", "default_expiry_interval"), "must not be above session.max_expiry_interval"


def _unprotected_listeners(config: Config) -> Iterator[Broken]:
    told: set[str] = set()
    for listener in listeners_of(config):
        if is_loopback(listener.host) or is_protected(config, listener) or listener.section in told:
            continue
        told.add(listener.section)
        text = (
            f"opens {listener.host} beyond this machine without authentication. Type `millstream user add NAME "
            "--password-file users.txt` and set auth.password_file to that file, or set auth.allow_anonymous "
            "to true if everyone may come in"
        )
        yield (listener.section, "host"), text
