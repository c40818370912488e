"""TLS and client certificates: the same broker behind an encrypted listener, for TCP and WebSocket."""

from __future__ import annotations

import contextlib
import select
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


# ------------------------------------------------------------ strangers at the door


def client_hello() -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    hello = make_context().wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    with contextlib.suppress(ssl.SSLWantReadError):
        hello.do_handshake()
    return outgoing.read()


def open_raw(port: int, data: bytes) -> socket.socket:
    opened = socket.create_connection(("127.0.0.1", port), 10)
    opened.sendall(data)
    return opened


def read_to_end(opened: socket.socket) -> bytes:
    found = b""
    with contextlib.suppress(ConnectionResetError):
        while data := opened.recv(65_536):
            found += data
    return found


def is_ended(opened: socket.socket) -> bool:
    try:
        return opened.recv(65_536) == b""
    except ConnectionResetError:
        return True


@pytest.fixture
def narrow(tmp_path: Path) -> Iterator[BrokerProcess]:
    """Two places for handshakes, and a long time for each."""
    chain, key, _ = write_files(tmp_path)
    settings = (
        f"mqtt.tls.cert_file={chain}",
        f"mqtt.tls.key_file={key}",
        "mqtt.tls.port=0",
        "mqtt.max_tls_handshakes=2",
        "mqtt.handshake_timeout=60s",
    )
    broker = BrokerProcess(tmp_path, settings, ())
    broker.wait_ready()
    yield broker
    broker.kill()


def test_who_sends_no_whole_hello_takes_no_place(narrow: BrokerProcess) -> None:
    port = narrow.ports["mqtt_tls"]
    hello = client_hello()
    strangers = [open_raw(port, data) for data in (b"", hello[:1], hello[:8], hello[:100], hello[:-1]) * 4]
    with TlsClient(port, 5, make_context()) as client:
        client.connect()
    assert not select.select(strangers, [], [], 0)[0], "somebody had to make room"
    # the rest of a hello may still come
    late = open_raw(port, hello[:100])
    late.sendall(hello[100:])
    assert late.recv(1) == b"\x16"
    for opened in (*strangers, late):
        opened.close()


def test_handshakes_that_stall_make_room_for_others(narrow: BrokerProcess) -> None:
    port = narrow.ports["mqtt_tls"]
    stalled = [open_raw(port, client_hello()) for _ in range(6)]
    with TlsClient(port, 5, make_context()) as client:
        client.connect()
    ended: set[socket.socket] = set()
    while len(ended) < 3:  # long before their time
        ready, _, _ = select.select([opened for opened in stalled if opened not in ended], [], [], 10)
        assert ready, "nobody had to make room"
        ended |= {opened for opened in ready if is_ended(opened)}


@pytest.mark.parametrize(
    "data",
    [
        b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x00\x00\x00",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\xff\xff\x01\x00\x00\x00",
    ],
)
def test_bytes_that_are_no_tls_are_closed_at_once(narrow: BrokerProcess, data: bytes) -> None:
    assert read_to_end(open_raw(narrow.ports["mqtt_tls"], data)) == b""
    half = open_raw(narrow.ports["mqtt_tls"], client_hello()[:50])
    half.shutdown(socket.SHUT_WR)
    assert read_to_end(half) == b""


def test_a_broker_stops_though_strangers_stand_at_its_door(narrow: BrokerProcess) -> None:
    port = narrow.ports["mqtt_tls"]
    strangers = [open_raw(port, data) for data in (b"", client_hello()[:20], client_hello(), client_hello())]
    assert narrow.stop() == 0
    for opened in strangers:
        opened.close()
