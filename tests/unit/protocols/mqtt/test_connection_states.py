"""Every packet type in every state of a connection, for every version: what comes of it, as one table."""

from __future__ import annotations

import itertools

import pytest

from millstream.model.limits import Limits
from millstream.model.outbox import Flushable, Outbox, OutboxPool, Wakeup
from millstream.protocols.mqtt.machine.connection import Connection, State
from millstream.protocols.mqtt.machine.events import Closed, Event
from millstream.protocols.mqtt.machine.terms import Terms
from millstream.protocols.mqtt.wire import kinds
from millstream.protocols.mqtt.wire.decode import decode_frame
from millstream.protocols.mqtt.wire.encode import encode_packet
from millstream.protocols.mqtt.wire.packets import (
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PingReq,
    PingResp,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    SubscribeEntry,
    UnsubAck,
    Unsubscribe,
)
from millstream.protocols.mqtt.wire.properties import Properties

METHOD = b"SCRAM-SHA-256"
VERSIONS = (3, 4, 5)
START_NS = 1_000_000_000
LIMITS = Limits()


class SilentWakeup(Wakeup):
    def request(self) -> None:
        """The test takes the output itself."""


class NoTransport(Flushable):
    def flush(self) -> None:
        raise AssertionError("nothing flushes here")

    def on_flush_failed(self, error: Exception) -> None:
        raise error


class Peer:
    """A connection with everything around it faked: bytes in, names of events and packets out."""

    def __init__(self, version: int) -> None:
        self.version = version
        pool = OutboxPool(SilentWakeup())
        self._outbox = Outbox(pool, NoTransport())
        self.machine = Connection(Terms(LIMITS, pool), self._outbox, START_NS)

    def receive(self, data: bytes, now_ns: int = START_NS) -> list[Event]:
        return self.machine.receive_data(data, now_ns)

    def take_sent(self) -> list[Packet]:
        self.machine.send_farewell()
        data = self._outbox.take_all()
        packets: list[Packet] = []
        at = 0
        while at < len(data):
            packet, at = decode_frame(data, at, self.version, 1_000_000)
            assert packet is not None
            packets.append(packet)
        return packets


def packet_bytes(kind: int, version: int) -> bytes:
    """A well-formed packet of each type; type 0 and AUTH before MQTT 5 do not exist and are made by hand."""
    properties = None
    if version == 5:
        properties = Properties()
        properties.authentication_method = METHOD
    if kind == 0 or (kind == kinds.AUTH and version < 5):
        return bytes([kind << 4, 0])
    packets: dict[int, Packet] = {
        kinds.CONNECT: Connect(version, "client"),
        kinds.CONNACK: ConnAck(False, 0),
        kinds.PUBLISH: Publish(b"topic", b"payload"),
        kinds.PUBACK: PubAck(1),
        kinds.PUBREC: PubRec(1),
        kinds.PUBREL: PubRel(1),
        kinds.PUBCOMP: PubComp(1),
        kinds.SUBSCRIBE: Subscribe(1, [SubscribeEntry(b"filter", 1)]),
        kinds.SUBACK: SubAck(1, [0]),
        kinds.UNSUBSCRIBE: Unsubscribe(1, [b"filter"]),
        kinds.UNSUBACK: UnsubAck(1, [0] if version == 5 else []),
        kinds.PINGREQ: PingReq(),
        kinds.PINGRESP: PingResp(),
        kinds.DISCONNECT: Disconnect(),
        kinds.AUTH: Auth(0x18, properties),
    }
    return encode_packet(packets[kind], version)


def make_peer(state: State, version: int) -> Peer:
    """A connection brought into `state` by what leads there."""
    peer = Peer(version)
    if state is State.AWAIT_CONNECT:
        return peer
    peer.receive(encode_packet(Connect(version, "client", keep_alive_s=10), version))
    if state is State.AUTHENTICATING:
        peer.machine.ask_authentication(b"challenge", METHOD)
    elif state is not State.CONNECTING:
        peer.machine.accept(ConnAck(False, 0), 10, False, START_NS)
        if state is State.CLOSED:
            peer.receive(encode_packet(Disconnect(), version))
    peer.take_sent()
    assert peer.machine.state is state
    return peer


# What comes of a packet: the events, then what is sent, as text.
KEPT = "kept"  # nothing happens until the decision on CONNECT is there
DROPPED = "dropped"  # the connection is over
SILENT_82 = "Closed 0x82"
MALFORMED = "Closed 0x81"


def closed(reason: int, version: int) -> str:
    """The end of an open connection: DISCONNECT says why, but only MQTT 5 has it."""
    return f"Closed 0x{reason:02x}" + (f" > Disconnect 0x{reason:02x}" if version == 5 else "")


OPEN_EVENTS = {
    kinds.PUBLISH: "RunReceived",
    kinds.PUBACK: "AnswerReceived",
    kinds.PUBREC: "AnswerReceived",
    kinds.PUBREL: "AnswerReceived",
    kinds.PUBCOMP: "AnswerReceived",
    kinds.SUBSCRIBE: "SubscribeReceived",
    kinds.UNSUBSCRIBE: "UnsubscribeReceived",
    kinds.PINGREQ: "PingReceived",
    kinds.DISCONNECT: "DisconnectReceived, Closed 0x00",
}


def expected(state: State, kind: int, version: int) -> str:
    if state is State.AWAIT_CONNECT:  # [MQTT-3.1.0-1]
        return "ConnectReceived" if kind == kinds.CONNECT else SILENT_82
    if state is State.CONNECTING:
        return KEPT
    if state is State.CLOSED:
        return DROPPED
    if state is State.AUTHENTICATING:
        if kind == kinds.AUTH:
            return "AuthReceived"
        if kind == kinds.DISCONNECT:
            return "DisconnectReceived, Closed 0x00"
        reason = 0x81 if kind == 0 else 0x82  # [MQTT-3.1.2-30]
        return f"Closed 0x{reason:02x} > ConnAck 0x{reason:02x}"
    if kind in OPEN_EVENTS:
        return OPEN_EVENTS[kind]
    if kind == kinds.AUTH and version == 5:
        return "AuthReceived"
    if kind in (0, kinds.AUTH):
        return closed(0x81, version)
    return closed(0x82, version)  # CONNECT again [MQTT-3.1.0-2], or what only a server sends


def describe(event: Event) -> str:
    return f"Closed 0x{event.reason:02x}" if isinstance(event, Closed) else type(event).__name__


def outcome(peer: Peer, events: list[Event]) -> str:
    shown = ", ".join([describe(event) for event in events])
    for packet in peer.take_sent():
        reason = packet.reason if isinstance(packet, (ConnAck, Disconnect)) else 0
        shown += f" > {type(packet).__name__} 0x{reason:02x}"
    return shown


TABLE = [
    (state, kind, version)
    for state, kind, version in itertools.product(State, range(16), VERSIONS)
    if state is not State.AUTHENTICATING or version == 5  # enhanced authentication is MQTT 5
]


@pytest.mark.parametrize(
    ("state", "kind", "version"),
    TABLE,
    ids=[
        f"{state.name}-{kinds.KIND_NAMES[kind] if kind else 'reserved'}-{version}"
        for state, kind, version in TABLE
    ],
)
def test_every_packet_in_every_state_has_its_outcome(state: State, kind: int, version: int) -> None:
    peer = make_peer(state, version)
    found = outcome(peer, peer.receive(packet_bytes(kind, version)))
    wanted = expected(state, kind, version)
    if wanted in (KEPT, DROPPED):
        assert found == ""
        assert peer.machine.state is state
        return
    assert found == wanted
    if "Closed" in wanted:
        assert peer.machine.state is State.CLOSED
        assert peer.receive(packet_bytes(kinds.PINGREQ, version)) == []  # nothing is heard any more
        assert peer.take_sent() == []


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", range(16))
def test_what_came_during_the_decision_is_done_after_it(kind: int, version: int) -> None:
    peer = make_peer(State.CONNECTING, version)
    data = packet_bytes(kind, version)
    for byte in data:
        assert peer.receive(bytes([byte])) == []
    peer.machine.accept(ConnAck(False, 0), 10, False, START_NS)
    peer.take_sent()
    assert outcome(peer, peer.receive(b"")) == expected(State.OPEN, kind, version)


@pytest.mark.parametrize(
    ("state", "version"),
    [*[(State.CONNECTING, version) for version in VERSIONS], (State.AUTHENTICATING, 5)],
)
def test_a_refusal_is_the_last_word(state: State, version: int) -> None:
    peer = make_peer(state, version)
    reason = 0x87 if version == 5 else 5
    events = peer.machine.refuse(0x87, ConnAck(False, reason), "no")
    assert outcome(peer, events) == f"Closed 0x87 > ConnAck 0x{reason:02x}"
    assert peer.machine.refuse(0x87, ConnAck(False, reason), "no") == []
    assert peer.take_sent() == []


# state: how long it may last, and what its end says
DEADLINES = {
    State.AWAIT_CONNECT: (LIMITS.handshake_timeout_ms * 1_000_000, "Closed 0x8d"),
    State.CONNECTING: (LIMITS.authentication_timeout_ms * 1_000_000, "Closed 0x8d"),
    State.AUTHENTICATING: (LIMITS.authentication_timeout_ms * 1_000_000, "Closed 0x8d"),
    State.OPEN: (15_000_000_000, "Closed 0x8d > Disconnect 0x8d"),  # keep alive 10 s [MQTT-3.1.2-22]
}


@pytest.mark.parametrize(("state", "lasts_ns", "wanted"), [(state, *row) for state, row in DEADLINES.items()])
def test_every_state_ends_when_its_time_is_over(state: State, lasts_ns: int, wanted: str) -> None:
    peer = make_peer(state, 5)
    due_ns = START_NS + lasts_ns
    assert peer.machine.next_deadline() == due_ns
    assert peer.machine.on_deadline(due_ns - 1) == []
    assert outcome(peer, peer.machine.on_deadline(due_ns)) == wanted
    assert peer.machine.next_deadline() == 0


def test_a_closed_connection_has_no_deadline() -> None:
    peer = make_peer(State.CLOSED, 5)
    assert peer.machine.next_deadline() == 0
    assert peer.machine.on_deadline(START_NS * 100) == []


def test_bytes_of_an_unfinished_packet_keep_an_open_connection_alive_but_not_a_stranger() -> None:
    stranger = make_peer(State.AWAIT_CONNECT, 5)
    before = stranger.machine.next_deadline()
    stranger.receive(b"\x10", START_NS + 5_000_000_000)
    assert stranger.machine.next_deadline() == before
    client = make_peer(State.OPEN, 5)
    client.receive(b"\xc0", START_NS + 5_000_000_000)
    assert client.machine.next_deadline() == START_NS + 20_000_000_000


@pytest.mark.parametrize("version", VERSIONS)
def test_the_server_may_end_any_state_once(version: int) -> None:
    for state in State:
        if state is State.AUTHENTICATING and version < 5:
            continue
        peer = make_peer(state, version)
        found = outcome(peer, peer.machine.end(0x8B, "shutting down", None))
        if state is State.CLOSED:
            assert found == ""
        elif state is State.OPEN:
            assert found == closed(0x8B, version)
        else:
            assert found.startswith("Closed 0x8b")
        assert peer.machine.end(0x8B, "again", None) == []
