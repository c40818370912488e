"""MQTT over WebSocket: the opening handshake, frames and packets that do not fit each other [MQTT-6.0]."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator

import pytest
from conftest import BrokerProcess, StartBroker
from raw_client import BOTH_VERSIONS, Clients, RawClient, unique, unique_topic

from millstream.protocols.mqtt.wire.encode import encode_packet
from millstream.protocols.mqtt.wire.packets import (
    ConnAck,
    Connect,
    PingReq,
    PingResp,
    Publish,
    SubAck,
    Subscribe,
    SubscribeEntry,
    Will,
)

CONTINUATION = 0x0
TEXT = 0x1
BINARY = 0x2
CLOSE = 0x8
PING = 0x9
PONG = 0xA


class WebSocketClient(RawClient):
    """A raw client that speaks through frames of its own making."""

    def __init__(self, port: int, version: int = 5) -> None:
        super().__init__(port, version)
        self.frames: list[tuple[int, bytes]] = []
        self._input = b""
        self._is_open = False

    def upgrade(self, **changes: str | None) -> bytes:
        """Ask for the upgrade; gives the head of the answer. A change to None leaves a header out."""
        headers: dict[str, str | None] = {
            "Host": "127.0.0.1",
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode(),
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Protocol": "mqtt",
        }
        path = changes.pop("path", "/mqtt")
        for name, value in changes.items():
            headers[name.replace("_", "-")] = value
        lines = [f"GET {path} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in headers.items() if value is not None]
        self._socket.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        while b"\r\n\r\n" not in self._input:
            data = self._socket.recv(65_536)
            if not data:
                break
            self._input += data
        head, _, self._input = self._input.partition(b"\r\n\r\n")
        self._is_open = head.startswith(b"HTTP/1.1 101")
        return head

    def drain(self) -> None:
        """Read to the end, whatever comes."""
        try:
            while self._socket.recv(65_536):
                pass
        except ConnectionResetError:
            pass

    def read_to_end(self) -> bytes:
        found = b""
        while data := self._socket.recv(65_536):
            found += data
        return found

    def send_bare(self, data: bytes) -> None:
        self._socket.sendall(data)

    def send_frame(self, opcode: int, payload: bytes, *, is_final: bool = True) -> None:
        size = len(payload)
        head = bytes([(0x80 if is_final else 0) | opcode])
        if size < 126:
            head += bytes([0x80 | size])
        elif size < 65_536:
            head += b"\xfe" + size.to_bytes(2, "big")
        else:
            head += b"\xff" + size.to_bytes(8, "big")
        mask = os.urandom(4)
        masked = bytes([byte ^ mask[index % 4] for index, byte in enumerate(payload)])
        self._socket.sendall(head + mask + masked)

    def send_bytes(self, data: bytes) -> None:
        if self._is_open:
            self.send_frame(BINARY, data)
        else:
            super().send_bytes(data)

    def _read_more(self) -> bool:
        while True:
            found = self._take_frame()
            if found is not None:
                break
            try:
                data = self._socket.recv(65_536)
            except ConnectionResetError:
                return False
            if not data:
                return False
            self._input += data
        opcode, payload = found
        self.frames.append(found)
        if opcode in (BINARY, CONTINUATION):
            self._unread += payload
        return True

    def _take_frame(self) -> tuple[int, bytes] | None:
        if len(self._input) < 2:
            return None
        assert not self._input[1] & 0x80, "a server must not mask its frames"
        size = self._input[1] & 0x7F
        start = 2
        if size == 126:
            size, start = int.from_bytes(self._input[2:4], "big"), 4
        elif size == 127:
            size, start = int.from_bytes(self._input[2:10], "big"), 10
        if len(self._input) < start or len(self._input) < start + size:
            return None
        opcode = self._input[0] & 0x0F
        payload = self._input[start : start + size]
        self._input = self._input[start + size :]
        return opcode, payload


@pytest.fixture
def sockets(shared_broker: BrokerProcess) -> Iterator[list[WebSocketClient]]:
    opened: list[WebSocketClient] = []
    yield opened
    for client in opened:
        client.close()


def open_socket(broker: BrokerProcess, opened: list[WebSocketClient], version: int = 5) -> WebSocketClient:
    client = WebSocketClient(broker.websocket_port, version)
    opened.append(client)
    return client


Sockets = list[WebSocketClient]


@pytest.mark.parametrize("version", [3, 4, 5])
def test_a_client_connects_and_exchanges_messages(
    shared_broker: BrokerProcess, sockets: Sockets, version: int
) -> None:
    client = open_socket(shared_broker, sockets, version)
    head = client.upgrade()
    assert head.startswith(b"HTTP/1.1 101")
    assert b"sec-websocket-protocol: mqtt" in head.lower()  # [MQTT-6.0.0-4]
    client.connect()
    topic = unique_topic()
    client.subscribe(topic, 2)
    for qos in (0, 1, 2):
        packet_id = 10 + qos if qos else 0
        client.send(Publish(topic, b"x" * 70_000, qos, packet_id=packet_id))
        found = client.receive()
        while not isinstance(found, Publish):
            found = client.receive()
        assert found.payload == b"x" * 70_000
    assert {opcode for opcode, _ in client.frames} == {BINARY}  # [MQTT-6.0.0-1]


@BOTH_VERSIONS
def test_tcp_and_websocket_clients_share_all_topics(
    shared_broker: BrokerProcess, sockets: Sockets, version: int
) -> None:
    topic = unique_topic()
    client = open_socket(shared_broker, sockets, version)
    client.upgrade()
    client.connect()
    client.subscribe(topic, 1)
    with Clients(shared_broker.mqtt_port) as clients:
        plain = clients.open(version)
        plain.subscribe(topic, 1)
        plain.send(Publish(topic, b"both"))
        plain.take(topic, b"both")
    client.take(topic, b"both")


@pytest.mark.parametrize("path", ["/", "/mqtt/x", "/other", "/MQTT"])
def test_another_path_is_not_found(shared_broker: BrokerProcess, sockets: Sockets, path: str) -> None:
    assert open_socket(shared_broker, sockets).upgrade(path=path).startswith(b"HTTP/1.1 404")


@pytest.mark.parametrize("protocol", [None, "chat", "MQTT5"])
def test_a_request_without_the_subprotocol_is_refused(
    shared_broker: BrokerProcess, sockets: Sockets, protocol: str | None
) -> None:
    client = open_socket(shared_broker, sockets)  # [MQTT-6.0.0-3]
    head = client.upgrade(Sec_WebSocket_Protocol=protocol)
    assert head.startswith(b"HTTP/1.1 4")


def test_mqtt_is_chosen_among_several_subprotocols(shared_broker: BrokerProcess, sockets: Sockets) -> None:
    head = open_socket(shared_broker, sockets).upgrade(Sec_WebSocket_Protocol="chat, mqtt, soap")
    assert b"sec-websocket-protocol: mqtt\r\n" in head.lower() + b"\r\n"


def test_the_subprotocol_of_mqtt_3_1_is_known(shared_broker: BrokerProcess, sockets: Sockets) -> None:
    client = open_socket(shared_broker, sockets, 3)
    assert client.upgrade(Sec_WebSocket_Protocol="mqttv3.1").startswith(b"HTTP/1.1 101")
    client.connect()


def test_a_plain_http_request_is_not_served(shared_broker: BrokerProcess, sockets: Sockets) -> None:
    head = open_socket(shared_broker, sockets).upgrade(Upgrade=None, Connection="close")
    assert head.startswith(b"HTTP/1.1 4")


@pytest.mark.parametrize(
    ("origin", "is_allowed"),
    [
        (None, True),
        ("http://127.0.0.1", True),
        ("http://127.0.0.1:8080", True),
        ("http://evil.example", False),
        ("http://127.0.0.1.evil.example", False),
        ("null", False),
    ],
)
def test_pages_of_other_hosts_may_not_connect(
    shared_broker: BrokerProcess, sockets: Sockets, origin: str | None, is_allowed: bool
) -> None:
    head = open_socket(shared_broker, sockets).upgrade(Origin=origin)
    assert head.startswith(b"HTTP/1.1 101" if is_allowed else b"HTTP/1.1 403")


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8083", 101),
        ("localhost", 101),
        ("[::1]:8083", 101),
        ("evil.example", 421),
        ("evil.example:8083", 421),
    ],
)
@pytest.mark.parametrize("has_origin", [False, True])
def test_a_name_that_was_made_to_mean_this_machine_is_refused(
    shared_broker: BrokerProcess, sockets: Sockets, host: str, status: int, has_origin: bool
) -> None:
    head = open_socket(shared_broker, sockets).upgrade(
        Host=host, Origin=f"http://{host}" if has_origin else None
    )
    assert head.startswith(b"HTTP/1.1 %d " % status)


def test_a_configured_name_may_be_called(start_broker: StartBroker, sockets: Sockets) -> None:
    broker = start_broker('websocket.allowed_hosts=["plant.example"]')
    for host, status in (("plant.example", 101), ("localhost", 101), ("evil.example", 421)):
        assert open_socket(broker, sockets).upgrade(Host=host).startswith(b"HTTP/1.1 %d " % status)


@pytest.mark.parametrize("path", ["/other", "/mqtt"])
def test_bytes_behind_a_refused_upgrade_do_not_cost_the_answer(
    broker: BrokerProcess, sockets: Sockets, path: str
) -> None:
    for tail in (b"\r\n", bytes(2), bytes(100_000)):
        client = open_socket(broker, sockets)
        client.send_bare(f"GET {path} HTTP/1.1\r\nHost: evil.example\r\n\r\n".encode() + tail)
        assert client.read_to_end().startswith(b"HTTP/1.1 4")
    assert "connection_failed" not in broker.log()


def test_the_allow_list_names_origins(start_broker: StartBroker, sockets: Sockets) -> None:
    origins = '["https://plant.example","*.fleet.example"]'
    broker = start_broker(f"websocket.allowed_origins={origins}")
    for origin, is_allowed in (
        ("https://plant.example", True),
        ("https://a.fleet.example", True),
        ("https://fleet.example.evil", False),
        ("http://plant.example", False),
        ("http://127.0.0.1", False),
    ):
        head = open_socket(broker, sockets).upgrade(Origin=origin)
        assert head.startswith(b"HTTP/1.1 101" if is_allowed else b"HTTP/1.1 403"), origin


@BOTH_VERSIONS
def test_a_text_frame_ends_the_connection(
    shared_broker: BrokerProcess, sockets: Sockets, version: int
) -> None:
    client = open_socket(shared_broker, sockets, version)  # [MQTT-6.0.0-1]
    client.upgrade()
    client.connect()
    client.send_frame(TEXT, b"hello")
    client.wait_closed()
    assert client.frames[-1] == (CLOSE, (1003).to_bytes(2, "big") + b"MQTT needs binary frames")


def test_an_unmasked_frame_ends_the_connection(shared_broker: BrokerProcess, sockets: Sockets) -> None:
    client = open_socket(shared_broker, sockets)
    client.upgrade()
    client.send_bare(b"\x82\x02\xc0\x00")
    client.wait_closed()
    assert client.frames[-1][0] == CLOSE


@BOTH_VERSIONS
def test_several_packets_may_stand_in_one_frame(
    shared_broker: BrokerProcess, sockets: Sockets, version: int
) -> None:
    client = open_socket(shared_broker, sockets, version)  # [MQTT-6.0.0-2]
    client.upgrade()
    topic = unique_topic()
    client.send(
        Connect(version, unique()), Subscribe(1, [SubscribeEntry(topic)]), Publish(topic, b"x"), PingReq()
    )
    assert isinstance(client.receive(), ConnAck)
    client.expect(SubAck(1, [0]))
    client.take(topic, b"x")
    client.expect(PingResp())


@BOTH_VERSIONS
def test_a_packet_may_be_spread_over_frames(
    shared_broker: BrokerProcess, sockets: Sockets, version: int
) -> None:
    client = open_socket(shared_broker, sockets, version)  # [MQTT-6.0.0-2]
    client.upgrade()
    topic = unique_topic()
    packets = [Connect(version, unique()), Subscribe(1, [SubscribeEntry(topic)]), Publish(topic, b"x" * 300)]
    data = b"".join([encode_packet(packet, version) for packet in packets])
    for at in range(0, len(data), 7):
        client.send_bytes(data[at : at + 7])
    assert isinstance(client.receive(), ConnAck)
    client.expect(SubAck(1, [0]))
    client.take(topic, b"x" * 300)


@BOTH_VERSIONS
def test_a_fragmented_message_is_joined(shared_broker: BrokerProcess, sockets: Sockets, version: int) -> None:
    client = open_socket(shared_broker, sockets, version)
    client.upgrade()
    client.connect()
    topic = unique_topic()
    client.subscribe(topic)
    data = encode_packet(Publish(topic, b"in pieces"), version)
    client.send_frame(BINARY, data[:4], is_final=False)
    client.send_frame(PING, b"between")
    client.send_frame(CONTINUATION, data[4:9], is_final=False)
    client.send_frame(CONTINUATION, data[9:])
    client.take(topic, b"in pieces")
    assert (PONG, b"between") in client.frames


def test_a_close_frame_is_answered_and_sends_the_will(shared_broker: BrokerProcess, sockets: Sockets) -> None:
    topic = unique_topic()
    client = open_socket(shared_broker, sockets)
    client.upgrade()
    client.connect(will=Will(topic, b"gone", 1))
    with Clients(shared_broker.mqtt_port) as clients:
        watcher = clients.open()
        watcher.subscribe(topic, 1)
        client.send_frame(CLOSE, (1000).to_bytes(2, "big"))
        client.wait_closed()
        assert client.frames[-1][0] == CLOSE
        watcher.take(topic, b"gone", 1)


def test_a_disconnect_closes_the_websocket_in_good_order(
    shared_broker: BrokerProcess, sockets: Sockets
) -> None:
    client = open_socket(shared_broker, sockets)
    client.upgrade()
    client.connect()
    client.send(Connect(5, unique()))  # a protocol error: DISCONNECT, then a close frame
    client.expect_disconnect(0x82)
    assert client.frames[-1] == (CLOSE, (1000).to_bytes(2, "big"))


def test_a_frame_larger_than_a_connect_may_be_is_refused(
    shared_broker: BrokerProcess, sockets: Sockets
) -> None:
    client = open_socket(shared_broker, sockets)
    client.upgrade()
    try:
        client.send_frame(BINARY, bytes(200_000))
    except OSError:
        pass
    client.wait_closed()


def test_mqtt_without_websocket_is_closed_at_once(start_broker: StartBroker, sockets: Sockets) -> None:
    broker = start_broker("mqtt.handshake_timeout=60s")  # longer than the client waits
    client = open_socket(broker, sockets)
    client.send(Connect(5, unique()))
    client.wait_closed()


def test_a_half_open_upgrade_does_not_last(start_broker: StartBroker, sockets: Sockets) -> None:
    broker = start_broker("mqtt.handshake_timeout=300ms")
    quiet = open_socket(broker, sockets)
    half = open_socket(broker, sockets)
    half.send_bytes(b"GET /mqtt HTTP/1.1\r\nHost: x\r\n")
    upgraded = open_socket(broker, sockets)
    assert upgraded.upgrade().startswith(b"HTTP/1.1 101")
    for client in (quiet, half, upgraded):
        client.drain()
