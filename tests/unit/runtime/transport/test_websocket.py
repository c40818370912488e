"""WebSocket links on a transport without a socket; the peer is the client half of the same library."""

from __future__ import annotations

import gc
import time
from collections import Counter

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
from millstream.runtime.transport.http_head import HEAD_BYTES_MAX
from millstream.runtime.transport.websocket import (
    REFUSED_BYTES_MAX,
    REFUSED_LINGER_NS,
    STRANGER_UNSENT_MAX,
    WebSocketConnection,
)
from millstream.runtime.transport.websocket_upgrade import WebSocketOptions

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
        self.world.settle_down()
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
    assert browser.transport.has_written_eof == (status != 101)


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


# ------------------------------------------------------------- strangers and refusals


UPGRADE = (
    b"GET /mqtt HTTP/1.1\r\nHost: 127.0.0.1:8083\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n"
)
LOCAL = WebSocketOptions("/mqtt", is_loopback=True)


class Stranger:
    """Raw bytes into a link on a listener on loopback."""

    def __init__(self, world: GateWorld, options: WebSocketOptions = LOCAL) -> None:
        self.world = world
        self.transport = FakeTransport()
        self.link = WebSocketConnection(world.gate, options)
        self.link.connection_made(self.transport)

    def send(self, data: bytes, step: int = 0) -> bytes:
        for at in range(0, len(data), step or len(data)):
            self.link.data_received(data[at : at + (step or len(data))])
        self.world.settle_down()
        return self.transport.take()

    def has_failed(self) -> bool:
        return any(line[0] == "failed" for line in self.world.observer.lines)


def masked(opcode: int, payload: bytes, *, is_final: bool = True) -> bytes:
    size = len(payload)
    length = bytes([0x80 | size]) if size < 126 else b"\xfe" + size.to_bytes(2, "big")
    return bytes([(0x80 if is_final else 0) | opcode]) + length + bytes(4) + payload


def test_the_answer_of_the_rfc_is_given() -> None:
    answer = Stranger(GateWorld()).send(UPGRADE)
    assert answer.startswith(b"HTTP/1.1 101 ")
    assert b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n" in answer


@pytest.mark.parametrize("step", [1, 7, 0])
@pytest.mark.parametrize(
    ("old", "new", "status"),
    [
        (b"/mqtt ", b"/other ", 404),
        (b"127.0.0.1:8083", b"evil.example", 421),
        (b"Host: 127.0.0.1:8083", b"Host: evil.example\r\nOrigin: http://evil.example", 421),
        (b"Upgrade: w", b"Origin: http://evil.example\r\nUpgrade: w", 403),
        (b"Upgrade: websocket", b"Upgrade: h2c", 426),
        (b"keep-alive, Upgrade", b"keep-alive", 426),
        (b"13", b"8", 426),
        (b"dGhlIHNhbXBsZSBub25jZQ==", b"short", 400),
        (b": mqtt\r", b": chat\r", 400),
        (b"Host: 127.0.0.1:8083\r\n", b"", 400),
        (b"HTTP/1.1", b"HTTP/1.0", 505),
        (b"Upgrade: w", b"Content-Length: 5\r\nUpgrade: w", 400),
        (b"Upgrade: w", b"Origin: http://[\r\nUpgrade: w", 403),
        (b"Upgrade: w", b"X: y\r\n" * 100 + b"Upgrade: w", 431),
        (b"Upgrade: w", b"X: " + bytes(HEAD_BYTES_MAX).replace(b"\0", b"y") + b"\r\nUpgrade: w", 431),
    ],
)
def test_bytes_behind_a_refused_upgrade_do_not_cost_the_answer(
    old: bytes, new: bytes, status: int, step: int
) -> None:
    stranger = Stranger(GateWorld())
    request = UPGRADE.replace(old, new, 1)
    answer = stranger.send(request + b"\r\n" + masked(2, CONNECT), step)
    assert answer.startswith(b"HTTP/1.1 %d " % status), answer
    assert answer.count(b"Content-Length") == 1
    assert stranger.transport.has_written_eof
    assert stranger.send(bytes(1000)) == b""
    assert not stranger.has_failed()
    assert stranger.world.gate.connections == 1
    stranger.link.connection_lost(None)
    assert stranger.world.gate.connections == 0


def test_a_refused_client_that_does_not_leave_is_cut_off() -> None:
    world = GateWorld()
    slow, loud = Stranger(world), Stranger(world)
    for stranger in (slow, loud):
        stranger.send(UPGRADE.replace(b"/mqtt ", b"/other "))
    loud.send(bytes(REFUSED_BYTES_MAX + 1), 65_536)
    assert loud.transport.is_aborted
    assert not slow.transport.is_aborted
    world.deadlines.on_tick(time.monotonic_ns())
    world.deadlines.on_tick(time.monotonic_ns() + REFUSED_LINGER_NS + 1_000_000_000)
    assert slow.transport.is_aborted


@pytest.mark.parametrize("step", [1, 3, 0])
def test_frames_sent_together_with_the_upgrade_are_read(step: int) -> None:
    stranger = Stranger(GateWorld())
    answer = stranger.send(UPGRADE + masked(2, CONNECT) + masked(2, PINGREQ), step)
    assert answer.startswith(b"HTTP/1.1 101 ")
    frames = answer.partition(b"\r\n\r\n")[2]
    assert CONNACK in frames
    assert PINGRESP in frames


@pytest.mark.parametrize(
    "tail",
    [
        masked(8, b"\x03\xe8") + masked(2, CONNECT),
        masked(1, b"text") + masked(2, CONNECT) + masked(8, b""),
        masked(8, b"\x03\xe8") * 3,
        masked(8, b"x"),
        masked(8, b"\x00\x00"),
        masked(8, b"\x03\xe8\xff"),
        b"\x82\x02\xc0\x00",  # not masked
        b"\xc2\x82" + bytes(6),  # the bit of compression
        b"\x83\x80" + bytes(4),  # an opcode of no meaning
        masked(9, b"a", is_final=False),
        b"\x89\xfe\x00\x80" + bytes(200),  # a ping that is too long
        masked(0, b"a"),
        masked(2, b"a", is_final=False) * 2,
        b"\x82\xff" + b"\xff" * 8,
        b"\x82\xff" + b"\x7f" + b"\xff" * 11,
    ],
)
@pytest.mark.parametrize("step", [1, 0])
def test_no_frame_is_a_fault_of_the_broker(tail: bytes, step: int) -> None:
    stranger = Stranger(GateWorld())
    stranger.send(UPGRADE)
    stranger.send(tail + masked(2, CONNECT) + b"more" * 10, step)
    assert stranger.transport.is_closing()
    assert not stranger.has_failed()
    stranger.link.connection_lost(None)
    stranger.link.data_received(b"late")


def test_a_flood_of_pings_leaves_no_answers_queued() -> None:
    stranger = Stranger(GateWorld())
    stranger.send(UPGRADE)
    assert stranger.send(masked(9, b"1") + masked(9, b"2") + masked(9, b"3")) == b"\x8a\x013"
    stranger.transport.unsent = STRANGER_UNSENT_MAX + 1
    assert stranger.send(masked(9, b"4") * 1000) == b""
    stranger.transport.unsent = 0
    assert stranger.send(masked(9, b"5")) == b"\x8a\x015"


@pytest.mark.parametrize(
    "data",
    [
        UPGRADE.replace(b"/mqtt ", b"/other ") + b"xx",
        UPGRADE.replace(b"13", b"8"),
        UPGRADE,
        UPGRADE + masked(2, CONNECT),
        UPGRADE + masked(1, b"text"),
        UPGRADE + b"\x82\x02\xc0\x00",
        UPGRADE[:40],
    ],
)
def test_a_connection_that_is_gone_is_freed_without_the_garbage_collector(data: bytes) -> None:
    world = GateWorld()
    gc.collect()
    before = library_objects()
    gc.disable()
    try:
        stranger = Stranger(world)
        stranger.send(data)
        stranger.link.connection_lost(None)
        # the deadlines still know the link for a while: what must be gone is what it held
        assert stranger.link.endpoint is None
        assert not library_objects() - before
    finally:
        gc.enable()


def library_objects() -> Counter[str]:
    """All there are in this process, whether anybody can reach them or not, by the names of their classes."""
    kinds = [type(each) for each in gc.get_objects()]
    return Counter(kind.__name__ for kind in kinds if str(kind.__module__).startswith("websockets."))


@pytest.mark.parametrize(
    ("options", "host", "status"),
    [
        (LOCAL, b"localhost", 101),
        (LOCAL, b"localhost:8083", 101),
        (LOCAL, b"[::1]:8083", 101),
        (LOCAL, b"plant.example", 421),
        (WebSocketOptions("/mqtt", (), ("plant.example",), True), b"plant.example:443", 101),
        (WebSocketOptions("/mqtt", ("https://plant.example",), (), True), b"plant.example", 101),
        (WebSocketOptions("/mqtt", ("https://plant.example",), (), True), b"evil.example", 421),
        (WebSocketOptions("/mqtt", ("*",), (), True), b"evil.example", 101),
        (WebSocketOptions("/mqtt"), b"plant.example", 101),
        (WebSocketOptions("/mqtt", (), ("plant.example",)), b"evil.example", 421),
    ],
)
def test_a_foreign_name_is_refused_on_loopback(options: WebSocketOptions, host: bytes, status: int) -> None:
    answer = Stranger(GateWorld(), options).send(UPGRADE.replace(b"127.0.0.1:8083", host))
    assert answer.startswith(b"HTTP/1.1 %d " % status)


def test_a_large_read_of_tiny_frames_is_parsed_by_turns() -> None:
    stranger = Stranger(GateWorld())
    stranger.send(UPGRADE)
    pings = masked(9, b"") * 20_000
    stranger.link.data_received(pings)
    assert stranger.world.gate.intake.unread > 0
    assert not stranger.transport.is_reading_now
    stranger.world.settle_down()
    assert stranger.world.gate.intake.unread == 0
    assert stranger.transport.is_reading_now


def test_what_was_sent_before_the_end_is_acted_on_though_it_waited_for_its_turn() -> None:
    world = GateWorld()
    stranger = Stranger(world)
    stranger.send(UPGRADE)
    connect = encode_packet(Connect(4, "late", True, 0), 4)
    stranger.link.data_received(masked(9, b"") * 20_000 + masked(2, connect))
    assert world.gate.intake.unread > 0
    stranger.link.connection_lost(None)
    world.settle_down()
    assert ("connected", "late") in [line[:2] for line in world.observer.lines]
