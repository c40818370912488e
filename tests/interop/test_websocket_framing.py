"""MQTT in WebSocket frames cut as no MQTT client cuts them, by a WebSocket library nobody here wrote."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from foreign_client import TIMEOUT_S, Address
from links import Link
from paho_client import PahoClient
from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

if TYPE_CHECKING:
    from conftest import BrokerProcess
    from guests import Guests

pytest_plugins = ["interop_fixtures"]

CONNACK = b"\x20\x02\x00\x00"
PINGREQ, PINGRESP = b"\xc0\x00", b"\xd0\x00"
DISCONNECT = b"\xe0\x00"
UNSUPPORTED_DATA = 1003


def text(value: str) -> bytes:
    return len(value).to_bytes(2, "big") + value.encode()


def connect_packet(client_id: str, will: tuple[str, str] | None = None) -> bytes:
    flags, rest = 0x02, text(client_id)
    if will is not None:
        flags |= 0x04 | 0x08  # a will at QoS 1
        rest += text(will[0]) + text(will[1])
    body = text("MQTT") + bytes([4, flags, 0, 60]) + rest
    return b"\x10" + bytes([len(body)]) + body


def publish_packet(topic: str, payload: bytes, packet_id: int) -> bytes:
    body = text(topic) + packet_id.to_bytes(2, "big") + payload
    return b"\x32" + bytes([len(body)]) + body


class WebSocket:
    """A client that decides itself which bytes go out together."""

    def __init__(self, address: Address, subprotocol: str = "mqtt") -> None:
        uri = parse_uri(f"ws://{address.host}:{address.port}{address.path}")
        self.protocol = ClientProtocol(uri, subprotocols=[Subprotocol(subprotocol)])
        self._socket = socket.create_connection((address.host, address.port), TIMEOUT_S)
        self._events: list[Frame | Response] = []
        self.protocol.send_request(self.protocol.connect())
        self.flush()
        self.response = self._next_event()

    def flush(self) -> None:
        """Everything since the last time, in one write."""
        self._socket.sendall(b"".join(self.protocol.data_to_send()))

    def send(self, *packets: bytes) -> None:
        """A frame each, in one write."""
        for packet in packets:
            self.protocol.send_binary(packet)
        self.flush()

    def expect(self, expected: bytes) -> None:
        """These bytes come next, in whatever frames."""
        received = b""
        while len(received) < len(expected):
            frame = self._next_event()
            assert isinstance(frame, Frame)
            assert frame.opcode in (Opcode.BINARY, Opcode.CONT)
            received += frame.data
        assert received == expected

    def wait_closed(self) -> int | None:
        """The code in the broker's close frame."""
        while self._receive():
            pass
        close = self.protocol.close_rcvd
        return None if close is None else close.code

    def close(self) -> None:
        self._socket.close()

    def _receive(self) -> bool:
        data = self._socket.recv(65536)
        if data:
            self.protocol.receive_data(data)
        else:
            self.protocol.receive_eof()
        self._events += [
            event for event in self.protocol.events_received() if isinstance(event, Frame | Response)
        ]
        return bool(data)

    def _next_event(self) -> Frame | Response:
        while not self._events:
            assert self._receive(), "closed"
        return self._events.pop(0)


@pytest.fixture
def websocket(addresses: dict[str, Address]) -> Iterator[WebSocket]:
    websocket = WebSocket(addresses["ws"])
    yield websocket
    websocket.close()


def test_the_broker_agrees_to_the_mqtt_subprotocol(websocket: WebSocket) -> None:
    assert isinstance(websocket.response, Response)
    assert websocket.response.status_code == 101
    assert websocket.protocol.subprotocol == "mqtt"


def test_a_packet_may_be_spread_over_frames(websocket: WebSocket, topic: str) -> None:
    packets = connect_packet(topic) + PINGREQ
    for position in range(len(packets)):
        websocket.send(packets[position : position + 1])
    websocket.expect(CONNACK + PINGRESP)


def test_a_frame_may_hold_several_packets(websocket: WebSocket, topic: str) -> None:
    websocket.send(connect_packet(topic) + PINGREQ + PINGREQ)
    websocket.expect(CONNACK + PINGRESP + PINGRESP)


def test_a_fragmented_message_is_put_together(websocket: WebSocket, topic: str) -> None:
    packets = connect_packet(topic) + PINGREQ
    websocket.protocol.send_binary(packets[:5], fin=False)
    websocket.protocol.send_continuation(packets[5:9], fin=False)
    websocket.protocol.send_continuation(packets[9:], fin=True)
    websocket.flush()
    websocket.expect(CONNACK + PINGRESP)


def test_a_text_frame_ends_the_connection(websocket: WebSocket, topic: str) -> None:
    websocket.send(connect_packet(topic))
    websocket.expect(CONNACK)
    websocket.protocol.send_text(PINGREQ.replace(b"\xc0", b"x"))
    websocket.flush()
    assert websocket.wait_closed() == UNSUPPORTED_DATA


def errors_since(log_file: Path, position: int) -> list[str]:
    lines = log_file.read_bytes()[position:].decode().splitlines()
    return [line for line in lines if '"level": "error"' in line]


@pytest.mark.parametrize("has_unsent_answers", [False, True])
def test_leaving_in_one_write_is_a_proper_disconnect(
    websocket: WebSocket, guests: Guests, tls_broker: BrokerProcess, topic: str, has_unsent_answers: bool
) -> None:
    """DISCONNECT and the close frame in one TCP segment, as MQTT.js sends them."""
    observer = guests.join(Link(PahoClient, "tcp", 4))
    observer.subscribe(f"{topic}/#", 1)
    log_file = tls_broker.log_file
    logged = log_file.stat().st_size
    websocket.send(connect_packet(topic, (f"{topic}/will", "a will")))
    websocket.expect(CONNACK)
    if has_unsent_answers:
        websocket.protocol.send_binary(publish_packet(f"{topic}/a", b"last", 1))
    websocket.protocol.send_binary(DISCONNECT)
    websocket.protocol.send_close(1000)
    websocket.flush()
    websocket.wait_closed()
    observer.publish(f"{topic}/end", b"end", 1)
    expected = [b"last", b"end"] if has_unsent_answers else [b"end"]
    assert [message.payload for message in observer.take(len(expected))] == expected
    assert errors_since(log_file, logged) == []


def test_a_connection_that_closes_with_unsent_answers_holds_no_other_up(
    websocket: WebSocket, guests: Guests, tls_broker: BrokerProcess, topic: str
) -> None:
    observer = guests.join(Link(PahoClient, "tcp", 4))
    observer.subscribe(topic, 1)
    log_file = tls_broker.log_file
    logged = log_file.stat().st_size
    websocket.send(connect_packet(topic))
    websocket.expect(CONNACK)
    websocket.protocol.send_binary(PINGREQ)  # its answer waits for the end of this round of reads ...
    websocket.protocol.send_binary(publish_packet(topic, b"for another", 1))  # ... and so does this
    websocket.protocol.send_close(1000)  # by then nothing may be sent here any more
    websocket.flush()
    assert observer.take_one().payload == b"for another"
    assert errors_since(log_file, logged) == []
