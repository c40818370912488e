"""Brokers with certificates and passwords, and clients that join them.

Test modules here name it in `pytest_plugins`. A second conftest.py would hide the one above from
`from conftest import BrokerProcess`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from certificates import Authority
from conftest import BrokerProcess
from foreign_client import Address, Certificate
from guests import Guests, numbers
from mqttjs_client import stop_driver
from passwords import GUESSED_AT, PASSWORDS

ACL = """
rules:
  - allow: all
    topics: ["house/%u/#", "open/#"]
  - allow: subscribe
    topics: ["news/#"]
  - deny: all
    topics: ["open/secret/#"]
"""


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
def tls_broker(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Open to everyone, with TLS and secure WebSocket beside the plain ports."""
    settings = (*authority.settings("mqtt"), *authority.settings("websocket"))
    yield from _run(tmp_path_factory.mktemp("tls_broker"), *settings)


@pytest.fixture(scope="session")
def guarded_broker(
    authority: Authority,
    password_file: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[BrokerProcess]:
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
    yield from _run(folder, *settings)


def _run(folder: Path, *settings: str) -> Iterator[BrokerProcess]:
    """A broker for the whole session: `start_broker` ends its brokers with each test."""
    broker = BrokerProcess(folder, settings, ())
    try:
        broker.wait_ready()
        yield broker
    finally:
        if broker.process.poll() is None:
            broker.kill()


def addresses_of(ports: dict[str, int], ca_file: Path) -> dict[str, Address]:
    names = {"tcp": "mqtt", "ws": "websocket", "tls": "mqtt_tls", "wss": "websocket_tls"}
    return {
        transport: Address(transport, ports[name], ca_file if name.endswith("_tls") else None)
        for transport, name in names.items()
        if name in ports
    }


@pytest.fixture(scope="session")
def addresses(tls_broker: BrokerProcess, authority: Authority) -> dict[str, Address]:
    """Where the open broker listens, by transport."""
    return addresses_of(tls_broker.ports, authority.ca_file)


@pytest.fixture(scope="session")
def guarded_addresses(guarded_broker: BrokerProcess, authority: Authority) -> dict[str, Address]:
    return addresses_of(guarded_broker.ports, authority.ca_file)


@pytest.fixture(scope="session", autouse=True)
def _node_process() -> Iterator[None]:
    yield
    stop_driver()


@pytest.fixture
def topic() -> str:
    """A topic no other test uses."""
    return f"interop/{next(numbers)}"


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
