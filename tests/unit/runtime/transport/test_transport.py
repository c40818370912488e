"""What TCP and WebSocket links share, on a transport without a socket."""

from __future__ import annotations

import time

from fake_transport import FakeTransport, GateWorld
from fakes import RecordingObserver

from millstream.model.errors import Reason
from millstream.model.limits import Limits
from millstream.protocols.mqtt.wire.encode import encode_packet
from millstream.protocols.mqtt.wire.packets import Connect, PingReq, Publish, Subscribe, SubscribeEntry
from millstream.runtime.transport.client_certificate import find_certificate_name
from millstream.runtime.transport.gate import HandshakePlace
from millstream.runtime.transport.link import LINGER_NS
from millstream.runtime.transport.tcp import TcpConnection
from millstream.security.authentication import Credentials, Decision, Verdict

CONNECT = encode_packet(Connect(4, "c"), 4)
CONNACK = b"\x20\x02\x00\x00"
PINGREQ = encode_packet(PingReq(), 4)
PINGRESP = b"\xd0\x00"


def opened(world: GateWorld, address: str = "192.0.2.1") -> tuple[TcpConnection, FakeTransport]:
    transport = FakeTransport(address)
    link = TcpConnection(world.gate)
    link.connection_made(transport)
    return link, transport


def connected(world: GateWorld) -> tuple[TcpConnection, FakeTransport]:
    link, transport = opened(world)
    link.data_received(CONNECT)
    world.pool.flush()
    assert transport.take() == CONNACK
    return link, transport


def test_bytes_go_to_the_endpoint_and_its_answers_to_the_transport() -> None:
    world = GateWorld()
    link, transport = connected(world)
    assert world.gate.strangers == 0
    assert world.gate.connections == 1
    link.data_received(PINGREQ)
    assert transport.take() == b""  # nothing is written before the flush
    world.pool.flush()
    assert transport.take() == PINGRESP


def test_a_connection_the_gate_refuses_is_aborted_and_never_speaks() -> None:
    world = GateWorld(Limits(connections_max=0))
    link, transport = opened(world)
    assert transport.is_aborted
    link.data_received(CONNECT)
    link.connection_lost(None)
    assert world.gate.connections == 0


def test_a_lost_connection_ends_its_session_and_its_counts() -> None:
    world = GateWorld()
    link, _ = connected(world)
    link.connection_lost(ConnectionResetError())
    assert world.account.connected == 0
    assert world.gate.connections == 0
    link.connection_lost(None)
    assert world.gate.connections == 0


def test_reading_stops_while_any_cause_holds_and_goes_on_with_the_last() -> None:
    world = GateWorld()
    link, transport = connected(world)
    link.pause_reading()
    link.pause_reading()
    link.pause_for(5)
    link.pause_for(7)
    assert not transport.is_reading_now
    assert world.asker.delays == [5]
    link.resume_reading()
    assert not transport.is_reading_now
    link.resume_after_pause()
    assert transport.is_reading_now
    link.resume_reading()
    link.resume_after_pause()
    assert transport.is_reading_now


def test_a_closing_transport_is_neither_paused_nor_resumed() -> None:
    world = GateWorld()
    link, transport = connected(world)
    link.pause_reading()
    transport.is_closing_now = True
    link.resume_reading()
    assert not transport.is_reading_now


def test_nothing_is_read_while_a_password_is_verified() -> None:
    world = GateWorld()
    link, transport = opened(world)
    link.ask(Credentials("c", "u", b"p", None, "192.0.2.1"))
    assert not transport.is_reading_now
    assert len(world.asker.asked) == 1
    assert link.on_answer() is link.endpoint
    assert transport.is_reading_now
    link.connection_lost(None)
    assert link.on_answer() is None


class RecordingPlace(HandshakePlace):
    def __init__(self) -> None:
        self.told: list[str] = []

    def release(self) -> None:
        self.told.append("release")

    def lend(self) -> None:
        self.told.append("lend")

    def reclaim(self) -> None:
        self.told.append("reclaim")


def test_a_place_for_tls_is_lent_while_a_login_is_checked() -> None:
    world = GateWorld()
    place = RecordingPlace()
    link = TcpConnection(world.gate)
    assert world.gate.admit("192.0.2.1", 1)
    link.take_over("192.0.2.1", 1, place)
    link.connection_made(FakeTransport())
    link.ask(Credentials("c", "u", b"p", None, "192.0.2.1"))
    assert place.told == ["lend"]
    assert not link.waits_for_peer
    link.on_answer()
    assert place.told == ["lend", "reclaim"]
    assert link.waits_for_peer
    link.connection_lost(None)
    link.on_answer()
    assert place.told == ["lend", "reclaim", "release"]


def test_an_answer_for_a_connection_that_is_gone_asks_nobody() -> None:
    world = GateWorld()
    link, _ = opened(world)
    link.connection_lost(None)
    link.ask(Credentials("c", "u", b"p", None, "192.0.2.1"))
    assert world.asker.asked == []


def test_a_close_waits_for_the_peer_to_read_but_not_for_ever() -> None:
    world = GateWorld()
    link, transport = connected(world)
    link.close()
    assert transport.is_closing_now
    assert not transport.is_aborted
    now_ns = time.monotonic_ns()
    link.on_due(now_ns)
    assert not transport.is_aborted
    assert link.on_due(now_ns + LINGER_NS) == 0
    assert transport.is_aborted


def test_a_silent_stranger_is_closed_at_its_deadline() -> None:
    world = GateWorld(Limits(handshake_timeout_ms=1000))
    link, transport = opened(world)
    now_ns = time.monotonic_ns()
    link.on_due(now_ns)
    world.pool.flush()
    assert not transport.is_closing_now
    link.on_due(now_ns + 2_000_000_000)
    world.pool.flush()
    assert transport.is_closing_now


def test_the_transport_says_when_it_lags_and_when_it_has_caught_up() -> None:
    world = GateWorld(Limits(unsent_bytes_high=1000, unsent_bytes_low=400))
    link, transport = connected(world)
    high, low = transport.limits
    assert high is not None
    assert low is not None
    assert low < high <= 1000
    link.pause_writing()
    assert link.endpoint is not None
    assert link.endpoint.is_lagging
    link.resume_writing()
    assert not link.endpoint.is_lagging
    transport.unsent = 123
    assert link.unsent_bytes() == 123


def test_our_own_fault_ends_its_connection_and_is_told() -> None:
    world = GateWorld()
    link, transport = connected(world)
    _other, other_transport = opened(world)
    link.on_fault(ValueError("ours"))
    assert transport.is_aborted
    assert not other_transport.is_aborted
    observer = world.gate.observer
    assert isinstance(observer, RecordingObserver)
    assert observer.lines[-1] == ("failed", "", "ValueError('ours')")


def test_a_decision_that_comes_back_reaches_the_client() -> None:
    world = GateWorld()
    link, transport = opened(world)
    link.data_received(CONNECT[:-1])
    assert link.endpoint is not None
    denied = Decision(Verdict.DENIED, None, Reason.SERVER_BUSY, "busy")
    link.endpoint.on_decision(denied, time.monotonic_ns())  # nobody asked: nothing happens
    world.pool.flush()
    assert transport.take() == b""


def test_the_name_of_a_verified_certificate_is_found() -> None:
    subject = ((("countryName", "XX"),), (("commonName", "device-7"),))
    assert find_certificate_name(FakeTransport(certificate={"subject": subject})) == "device-7"
    assert find_certificate_name(FakeTransport(certificate={"subject": ()})) is None
    assert find_certificate_name(FakeTransport()) is None


def test_one_connection_that_cannot_be_written_to_keeps_nobody_else_waiting() -> None:
    class Broken(FakeTransport):
        def write(self, data: bytes | bytearray | memoryview) -> None:
            raise RuntimeError("our bug")

    world = GateWorld()
    subscribe = encode_packet(Subscribe(1, [SubscribeEntry(b"t", 0)]), 4)
    links = []
    transports: list[FakeTransport] = []
    for number, kind in enumerate((FakeTransport, Broken, FakeTransport)):
        transport = FakeTransport()
        link = TcpConnection(world.gate)
        link.connection_made(transport)
        link.data_received(encode_packet(Connect(4, f"c{number}"), 4) + subscribe)
        world.pool.flush()
        broken = kind()
        link.transport = broken
        links.append(link)
        transports.append(broken)
    sender, _ = connected(world)
    for _ in range(2):
        sender.data_received(encode_packet(Publish(b"t", b"x"), 4))
        world.pool.flush()
    wanted = encode_packet(Publish(b"t", b"x"), 4) * 2
    assert transports[0].take() == wanted
    assert transports[2].take() == wanted
    assert transports[1].is_aborted


def test_a_client_is_not_silent_while_it_is_not_read_and_not_at_once_when_it_is_again() -> None:
    """What it has sent meanwhile is read behind the deadlines of the next turn."""
    world = GateWorld()
    link, transport = opened(world)
    link.data_received(encode_packet(Connect(4, "c", True, 1), 4))
    endpoint = link.endpoint
    assert endpoint is not None
    link.wait_for_turn(True)
    later = time.monotonic_ns() + 10**12
    assert link.on_due(later) == later + 1_500_000_000
    endpoint.touch(1)  # long ago
    world.clock.forget()
    before = time.monotonic_ns()
    link.wait_for_turn(False)
    assert endpoint.next_deadline() >= before + 1_500_000_000
    assert not transport.is_closing()
    link.on_due(later + 10**12)
    world.settle_down()
    assert transport.is_closing()


def test_one_that_has_gone_is_not_kept_until_its_deadline() -> None:
    world = GateWorld()
    link, _ = opened(world)
    link.data_received(encode_packet(Connect(4, "c", True, 65_535), 4))
    now_ns = time.monotonic_ns()
    hour_ns = 3_600_000_000_000
    for minute in range(2):
        world.deadlines.on_tick(now_ns + (minute + 1) * hour_ns // 60)
        assert link.endpoint is not None, "it is not silent yet"
    link.connection_lost(None)
    world.deadlines.on_tick(now_ns + hour_ns // 20)
    assert world.deadlines._buckets == {}
