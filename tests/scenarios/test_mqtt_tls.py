"""TLS and client certificates: the same broker behind an encrypted listener, for TCP and WebSocket."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from conftest import BrokerProcess
from raw_client import BOTH_VERSIONS, Clients, RawClient, unique_topic

from millstream.protocols.mqtt.wire.packets import Publish

AUTHORITY = trustme.CA()
FOREIGN = trustme.CA()


class TlsClient(RawClient):
    def __init__(self, port: int, version: int, context: ssl.SSLContext) -> None:
        self._context = context
        super().__init__(port, version)

    def _open(self, port: int, timeout_s: float) -> socket.socket:
        return self._context.wrap_socket(super()._open(port, timeout_s), server_hostname="127.0.0.1")

    def _read_more(self) -> bool:
        try:
            return super()._read_more()
        except ssl.SSLError:  # the server did not like our certificate
            return False


def make_context(certificate: trustme.LeafCert | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    AUTHORITY.configure_trust(context)
    if certificate is not None:
        certificate.configure_cert(context)
    return context


def write_files(folder: Path) -> tuple[Path, Path, Path]:
    issued = AUTHORITY.issue_cert("127.0.0.1", "localhost")
    chain, key, authority = folder / "chain.pem", folder / "key.pem", folder / "ca.pem"
    chain.write_bytes(b"".join([blob.bytes() for blob in issued.cert_chain_pems]))
    key.touch(mode=0o600)
    key.write_bytes(issued.private_key_pem.bytes())
    AUTHORITY.cert_pem.write_to_path(str(authority))
    return chain, key, authority


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """TLS for everybody beside the plain listener."""
    folder = tmp_path_factory.mktemp("encrypted")
    chain, key, _ = write_files(folder)
    settings = (f"mqtt.tls.cert_file={chain}", f"mqtt.tls.key_file={key}", "mqtt.tls.port=0")
    broker = BrokerProcess(folder, settings, ())
    broker.wait_ready()
    yield broker
    broker.kill()


@pytest.fixture(scope="module")
def mutual(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Only clients with a certificate; their name in it is the user."""
    folder = tmp_path_factory.mktemp("mutual")
    chain, key, authority = write_files(folder)
    acl = folder / "acl.yaml"
    acl.touch(mode=0o600)
    acl.write_text('rules:\n  - {allow: all, topics: ["user/%u/#"]}\n', encoding="utf-8")
    settings = (
        f"mqtt.tls.cert_file={chain}",
        f"mqtt.tls.key_file={key}",
        f"mqtt.tls.ca_file={authority}",
        "mqtt.tls.require_client_certificate=true",
        "mqtt.tls.port=0",
        "mqtt.enabled=false",
        "websocket.enabled=false",
        "amqp.enabled=false",
        "auth.certificates_as_users=true",
        f"auth.acl_file={acl}",
    )
    broker = BrokerProcess(folder, settings, ())
    broker.wait_ready()
    yield broker
    broker.kill()


@BOTH_VERSIONS
def test_plain_and_encrypted_clients_share_all_topics(encrypted: BrokerProcess, version: int) -> None:
    topic = unique_topic()
    with TlsClient(encrypted.ports["mqtt_tls"], version, make_context()) as client:
        client.connect()
        client.subscribe(topic, 2)
        with Clients(encrypted.mqtt_port) as clients:
            plain = clients.open(version)
            for qos in (0, 1, 2):
                plain.publish(topic, b"x" * 50_000, qos)
                client.take(topic, b"x" * 50_000, qos)


def test_a_plain_client_on_the_encrypted_port_is_closed(encrypted: BrokerProcess) -> None:
    with RawClient(encrypted.ports["mqtt_tls"], 5) as client:
        client.send_connect()
        client.wait_closed()


def test_an_encrypted_client_on_the_plain_port_is_closed(encrypted: BrokerProcess) -> None:
    with pytest.raises((ssl.SSLError, OSError)):
        TlsClient(encrypted.mqtt_port, 5, make_context())


@BOTH_VERSIONS
def test_a_certificate_names_the_user(mutual: BrokerProcess, version: int) -> None:
    certificate = AUTHORITY.issue_cert("sensor-7.example", common_name="sensor-7")
    with TlsClient(mutual.ports["mqtt_tls"], version, make_context(certificate)) as client:
        client.connect()
        assert client.subscribe(b"user/sensor-7/x", 1) == 1
        assert client.subscribe(b"user/sensor-8/x", 1) == (0x87 if version == 5 else 0x80)
        client.send(Publish(b"user/sensor-7/x", b"mine"))
        client.take(b"user/sensor-7/x", b"mine")


@BOTH_VERSIONS
def test_a_user_name_may_not_differ_from_the_certificate(mutual: BrokerProcess, version: int) -> None:
    certificate = AUTHORITY.issue_cert("sensor-7.example", common_name="sensor-7")
    with TlsClient(mutual.ports["mqtt_tls"], version, make_context(certificate)) as client:
        client.send_connect(username="sensor-8")
        client.expect_refused(0x87, 5)


@pytest.mark.parametrize("certificate", [None, FOREIGN.issue_cert("x.example")], ids=["none", "foreign"])
def test_without_a_certificate_of_the_authority_nobody_comes_in(
    mutual: BrokerProcess, certificate: trustme.LeafCert | None
) -> None:
    try:
        client = TlsClient(mutual.ports["mqtt_tls"], 5, make_context(certificate))
        client.send_connect()
    except (ssl.SSLError, OSError):
        return  # refused during the handshake
    client.expect_closed()
    client.close()
