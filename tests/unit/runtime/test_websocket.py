"""WebSocket links on a transport without a socket; the peer is the client half of the same library."""

from __future__ import annotations

import pytest
from fake_transport import FakeTransport, GateWorld
from websockets.client import ClientProtocol
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Response
from websockets.typing import Origin, Subprotocol
from websockets.uri import parse_uri

from millstream.model.limits import Limits
from millstream.protocols.mqtt.wire.encode import encode_packet
from millstream.protocols.mqtt.wire.packets import Connect, PingReq, Publish, Subscribe, SubscribeEntry
from millstream.runtime.websocket import WebSocketConnection, WebSocketOptions

CONNECT = encode_packet(Connect(4, "c"), 4)
CONNACK = b"\x20\x02\x00\x00"
PINGREQ = encode_packet(PingReq(), 4)
PINGRESP = b"\xd0\x00"


class Browser:
    def __init__(
        self,
        world: GateWorld,
        path: str = "/mqtt",
        origin: str | None = None,
        allowed: tuple[str, ...] = (),
        subprotocol: str = "mqtt",
    ) -> None:
        self.world = world
        self.transport = FakeTransport()
        self.link = WebSocketConnection(world.gate, WebSocketOptions("/mqtt", allowed))
        self.link.connection_made(self.transport)
        self.protocol = ClientProtocol(
            parse_uri(f"ws://broker.example{path}"),
            origin=None if origin is None else Origin(origin),
            subprotocols=[Subprotocol(subprotocol)],
        )
        self.protocol.send_request(self.protocol.connect())
        self.response: Response | None = None
        self.closed_with: int | None = None
        self.exchange()

    def exchange(self) -> list[bytes]:
        """Both sides send what they have; gives the payloads of binary frames that came."""
        for data in self.protocol.data_to_send():
            if data:
                self.link.data_received(data)
        self.world.pool.flush()
        self.protocol.receive_data(self.transport.take())
        found = []
        for event in self.protocol.events_received():
            if isinstance(event, Response):
                self.response = event
            elif isinstance(event, Frame) and event.opcode is Opcode.BINARY:
                found.append(bytes(event.data))
            elif isinstance(event, Frame) and event.opcode is Opcode.CLOSE:
                self.closed_with = int.from_bytes(event.data[:2], "big")
        return found

    def send(self, data: bytes) -> list[bytes]:
        self.protocol.send_binary(data)
        return self.exchange()

    @property
    def status(self) -> int:
        assert self.response is not None
        return self.response.status_code


def test_mqtt_passes_in_binary_frames_and_the_subprotocol_is_agreed_on() -> None:
    browser = Browser(GateWorld())
    assert browser.status == 101
    assert browser.protocol.subprotocol == "mqtt"
    assert browser.send(CONNECT) == [CONNACK]
    assert browser.send(PINGREQ + PINGREQ) == [PINGRESP + PINGRESP]


def test_packets_may_be_cut_across_frames_and_fragments() -> None:
    browser = Browser(GateWorld())
    for at in range(len(CONNECT) - 1):
        assert browser.send(CONNECT[at : at + 1]) == []
    assert browser.send(CONNECT[-1:]) == [CONNACK]
    browser.protocol.send_binary(PINGREQ[:1], fin=False)
    browser.protocol.send_continuation(PINGREQ[1:], fin=True)
    assert browser.exchange() == [PINGRESP]


@pytest.mark.parametrize(
    ("path", "status"), [("/mqtt", 101), ("/mqtt?token=1", 101), ("/", 404), ("/mqtt/x", 404)]
)
def test_only_the_configured_path_is_served(path: str, status: int) -> None:
    browser = Browser(GateWorld(), path)
    assert browser.status == status
    assert browser.transport.is_closing_now == (status != 101)


@pytest.mark.parametrize(
    ("allowed", "origin", "status"),
    [
        ((), None, 101),
        ((), "http://broker.example", 101),
        ((), "https://broker.example:8443", 101),
        ((), "http://evil.example", 403),
        ((), "http://notbroker.example", 403),
        ((), "null", 403),
        (("https://app.example",), "https://app.example", 101),
        (("https://app.example",), "http://app.example", 403),
        (("https://app.example",), "http://broker.example", 403),
        (("https://app.example",), None, 101),
        (("*.app.example",), "https://one.app.example", 101),
        (("*.app.example",), "https://app.example.evil.example", 403),
        (("*.app.example",), "https://evilapp.example", 403),
        (("*",), "http://evil.example", 101),
    ],
)
def test_pages_of_other_origins_are_refused_unless_allowed(
    allowed: tuple[str, ...], origin: str | None, status: int
) -> None:
    assert Browser(GateWorld(), origin=origin, allowed=allowed).status == status


def test_text_frames_are_refused() -> None:
    browser = Browser(GateWorld())
    browser.protocol.send_text(b"hello")
    browser.exchange()
    assert browser.closed_with == CloseCode.UNSUPPORTED_DATA


def test_a_stranger_may_not_send_a_frame_larger_than_a_connect() -> None:
    world = GateWorld(Limits(connect_packet_size_max=1000))
    browser = Browser(world)
    browser.send(bytes([0x10]) + bytes(5000))
    assert browser.closed_with == CloseCode.MESSAGE_TOO_BIG
    friend = Browser(world)
    friend.send(CONNECT)
    big = encode_packet(Publish(b"t", bytes(5000), 1, packet_id=1), 4)
    assert friend.send(big) == [b"\x40\x02\x00\x01"]


def test_the_broker_closes_with_a_close_frame() -> None:
    browser = Browser(GateWorld())
    browser.send(CONNECT)
    browser.send(b"\xe0\x00")
    assert browser.closed_with == CloseCode.NORMAL_CLOSURE
    assert browser.transport.is_closing_now


def test_bytes_that_are_no_websocket_are_answered_and_closed() -> None:
    world = GateWorld()
    transport = FakeTransport()
    link = WebSocketConnection(world.gate, WebSocketOptions("/mqtt", ()))
    link.connection_made(transport)
    link.data_received(CONNECT + b"\r\n\r\n" + bytes(100))
    assert b" 101 " not in transport.take()
    assert transport.is_closing()
    link.connection_lost(None)
    assert world.gate.connections == 0


def test_a_ping_frame_is_answered_by_the_library() -> None:
    browser = Browser(GateWorld())
    browser.protocol.send_ping(b"hi")
    browser.exchange()
    assert browser.transport.take() == b""
    assert browser.send(CONNECT) == [CONNACK]


def test_nothing_is_sent_behind_a_close_frame_and_others_still_get_theirs() -> None:
    """A peer that has closed its half may still be subscribed until its socket is gone."""
    world = GateWorld()
    subscribe = encode_packet(Subscribe(1, [SubscribeEntry(b"t", 0)]), 4)
    first, leaving, last = (Browser(world) for _ in range(3))
    for number, browser in enumerate((first, leaving, last)):
        browser.send(encode_packet(Connect(4, f"c{number}"), 4) + subscribe)
    leaving.protocol.send_close(CloseCode.GOING_AWAY)
    for data in leaving.protocol.data_to_send():
        leaving.link.data_received(data)
    leaving.transport.take()
    for payload in (b"1", b"2"):
        world.publish(b"t", payload, 0)
        world.pool.flush()
        wanted = [encode_packet(Publish(b"t", payload), 4)]
        assert first.exchange() == wanted
        assert last.exchange() == wanted
    assert leaving.transport.take() == b""
    assert not [line for line in world.observer.lines if line[0] == "failed"]
