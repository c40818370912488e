"""Brokers with certificates and passwords, and clients that join them."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trustme
from foreign_client import Address, Certificate, ForeignClient, Options
from mqttjs_client import stop_driver

if TYPE_CHECKING:
    from links import Link

PASSWORDS = {"alice": "wonder land", "bob": "b/u+i#l:d"}
GUESSED_AT = (
    "paho",
    "aiomqtt",
    "gmqtt",
    "mqttjs",
)  # a name with ten wrong passwords is shut out for a minute
ACL = """
rules:
  - allow: all
    topics: ["home/%u/#", "open/#"]
  - allow: subscribe
    topics: ["news/#"]
  - deny: all
    topics: ["open/secret/#"]
"""

_numbers = itertools.count(1)


class Authority:
    """A certificate authority, with what it issued in files."""

    def __init__(self, folder: Path) -> None:
        self._authority = trustme.CA()
        self._folder = folder
        self.ca_file = folder / "ca.pem"
        self._authority.cert_pem.write_to_path(str(self.ca_file))
        self.server = self._write("server", self._authority.issue_cert("127.0.0.1", "localhost"))

    def issue(self, user: str) -> Certificate:
        return self._write(user, self._authority.issue_cert(f"{user}.example", common_name=user))

    def _write(self, name: str, issued: trustme.LeafCert) -> Certificate:
        files = Certificate(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        issued.cert_chain_pems[0].write_to_path(str(files.cert_file))
        issued.private_key_pem.write_to_path(str(files.key_file))
        files.key_file.chmod(0o600)
        return files

    def settings(self, section: str) -> list[str]:
        return [
            f"{section}.tls.port=0",
            f"{section}.tls.cert_file={self.server.cert_file}",
            f"{section}.tls.key_file={self.server.key_file}",
        ]

    def mutual_settings(self, section: str) -> list[str]:
        return [
            *self.settings(section),
            f"{section}.tls.ca_file={self.ca_file}",
            f"{section}.tls.require_client_certificate=true",
        ]


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def alice_certificate(authority: Authority) -> Certificate:
    return authority.issue("alice")


@pytest.fixture(scope="session")
def stranger_certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """Says it is alice, signed by somebody else."""
    return Authority(tmp_path_factory.mktemp("other_certificates")).issue("alice")


@pytest.fixture(scope="session")
def password_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("users") / "users.txt"
    for user, password in {**PASSWORDS, **dict.fromkeys(GUESSED_AT, "right")}.items():
        subprocess.run(
            [sys.executable, "-m", "millstream", "user", "add", user, "-f", str(file), "--password-stdin"],
            input=password,
            text=True,
            check=True,
            capture_output=True,
            env=os.environ,
        )
    return file


@pytest.fixture(scope="session")
def tls_broker(
    shared_broker: object, authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[object]:
    """Open to everyone, with TLS and secure WebSocket beside the plain ports."""
    settings = (*authority.settings("mqtt"), *authority.settings("websocket"))
    yield from _run_like(shared_broker, tmp_path_factory.mktemp("tls_broker"), settings)


@pytest.fixture(scope="session")
def guarded_broker(
    shared_broker: object,
    authority: Authority,
    password_file: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[object]:
    """Passwords on the plain ports, certificates on the others, and access rules for all."""
    folder = tmp_path_factory.mktemp("guarded_broker")
    acl_file = folder / "acl.yaml"
    acl_file.write_text(ACL, encoding="utf-8")
    settings = (
        *authority.mutual_settings("mqtt"),
        *authority.mutual_settings("websocket"),
        "auth.certificates_as_users=true",
        f"auth.password_file={password_file}",
        f"auth.acl_file={acl_file}",
    )
    yield from _run_like(shared_broker, folder, settings)


def _run_like(model: object, folder: Path, settings: tuple[str, ...]) -> Iterator[object]:
    """A broker of the same class for the whole session: `start_broker` ends its brokers with each test."""
    broker = type(model)(folder, settings, ())  # type: ignore[call-arg]
    try:
        broker.wait_ready()  # type: ignore[attr-defined]
        yield broker
    finally:
        if broker.process.poll() is None:  # type: ignore[attr-defined]
            broker.kill()  # type: ignore[attr-defined]


def addresses_of(ports: dict[str, int], ca_file: Path) -> dict[str, Address]:
    names = {"tcp": "mqtt", "ws": "websocket", "tls": "mqtt_tls", "wss": "websocket_tls"}
    return {
        transport: Address(transport, ports[name], ca_file if name.endswith("_tls") else None)
        for transport, name in names.items()
        if name in ports
    }


@pytest.fixture(scope="session")
def addresses(tls_broker: object, authority: Authority) -> dict[str, Address]:
    """Where the open broker listens, by transport."""
    return addresses_of(tls_broker.ports, authority.ca_file)  # type: ignore[attr-defined]


@pytest.fixture(scope="session")
def guarded_addresses(guarded_broker: object, authority: Authority) -> dict[str, Address]:
    return addresses_of(guarded_broker.ports, authority.ca_file)  # type: ignore[attr-defined]


@pytest.fixture(scope="session", autouse=True)
def _node_process() -> Iterator[None]:
    yield
    stop_driver()


@pytest.fixture
def topic() -> str:
    """A topic no other test uses."""
    return f"interop/{next(_numbers)}"


class Guests:
    """Clients of one test; all are gone at its end, and their sessions with them."""

    def __init__(self, addresses: dict[str, Address]) -> None:
        self._addresses = addresses
        self._clients: list[ForeignClient] = []

    def make(self, link: Link, **options: object) -> ForeignClient:
        """A client that has not connected yet."""
        options.setdefault("client_id", f"{link.kind.name}-{next(_numbers)}")
        said = Options(version=link.version, **options)  # type: ignore[arg-type]
        client = link.kind(self._addresses[link.transport], said)
        self._clients.append(client)
        return client

    def join(self, link: Link, **options: object) -> ForeignClient:
        client = self.make(link, **options)
        client.connect()
        return client

    def leave(self) -> None:
        for client in self._clients:
            if client.is_joined and not client.inbox.is_closed:
                client.disconnect()
        for client in self._clients:
            if client.is_joined and not client.options.clean:
                last = type(client)(client.address, replace(client.options, clean=True, will=None))
                last.connect()
                last.disconnect()


@pytest.fixture
def guests(addresses: dict[str, Address]) -> Iterator[Guests]:
    """Clients on the open broker."""
    guests = Guests(addresses)
    yield guests
    guests.leave()


@pytest.fixture
def guarded_guests(guarded_addresses: dict[str, Address]) -> Iterator[Guests]:
    guests = Guests(guarded_addresses)
    yield guests
    guests.leave()
