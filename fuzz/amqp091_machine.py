"""The AMQP 0-9-1 machine as a target: a client gone mad, before and after it is let in."""

from __future__ import annotations

from amqp091_peer import Peer, message, on, open_peer, show_events, show_frames
from target import Target, expect
from vectors.amqp091_contents import PUBLISHES
from vectors.amqp091_methods import METHOD_VECTORS
from vectors.amqp091_vector import frame

from millstream.protocols.amqp091.machine.events import ChannelClosed, Closed, Event
from millstream.protocols.amqp091.machine.states import ConnectionState
from millstream.protocols.amqp091.wire import methods as m
from millstream.protocols.amqp091.wire.frames import PROTOCOL_HEADER
from millstream.protocols.amqp091.wire.violation import Violation

LATER_NS = 1 << 60
STEPS = [state for state in ConnectionState if state < ConnectionState.CLOSED]


def serve(state: ConnectionState, reads: list[bytes]) -> tuple[str, bytes]:
    """(events, what was sent) when the endpoint does its part behind the last read."""
    peer = begin(state)
    events: list[Event] = []
    try:
        for read in reads:
            events += peer.receive(read)
    except Violation as violation:
        raise AssertionError("the machine answers violations itself") from violation
    for event in events:
        if isinstance(event, ChannelClosed):
            peer.machine.end_channel(event.channel)
    peer.machine.send_farewell()
    sent = peer.take_bytes()
    for now_ns in (LATER_NS, 2 * LATER_NS):
        events += peer.machine.on_deadline(now_ns)
    expect(sum(isinstance(event, Closed) for event in events) <= 1, "a connection closes once")
    return show_events(events), sent


def begin(state: ConnectionState) -> Peer:
    if state is ConnectionState.OPEN:
        return open_peer(1, 2)
    peer = Peer()
    peer.lead_to(state)
    return peer


def serve_cut(state: ConnectionState, data: bytes, cut: int) -> None:
    whole = serve(state, [data])
    parts = serve(state, [data[:cut], data[cut:]])
    expect(whole == parts, "where the bytes are cut makes no difference")
    if not whole[1].startswith(b"AMQP"):
        show_frames(whole[1])


def drive_open(data: bytes) -> object:
    """The first byte chooses where the rest is cut."""
    if data:
        serve_cut(ConnectionState.OPEN, data[1:], data[0] % len(data))
    return None


def drive_handshake(data: bytes) -> object:
    """The first byte chooses how far the handshake has come, and where the rest is cut."""
    if data:
        serve_cut(STEPS[data[0] % len(STEPS)], data[1:], data[0] % len(data))
    return None


FRAMES = [frame(1, 1, vector.data) for vector in METHOD_VECTORS if len(vector.data) < 2000] + PUBLISHES
CONTROL = [frame(1, 0, vector.data) for vector in METHOD_VECTORS if vector.data[:2] == b"\x00\x0a"]
CONVERSATIONS = [
    message(1, b"one") + message(2, b"two", pieces=[1]) + on(1, m.BasicAck(1, True)) + message(1, b""),
    on(1, m.ChannelClose(200, b"", 0, 0)) + on(1, m.ChannelOpen()) + message(1, b"x"),
    on(3, m.ChannelOpen()) + message(3, b"x") + on(3, m.ChannelClose(200, b"", 0, 0)),
    on(1, m.BasicAck(1, False)) * 100,
    message(1, b"x" * 50, pieces=[1] * 49),
    message(1, b"x")[:-9] + frame(8, 0) + on(0, m.ConnectionClose(200, b"", 0, 0)),
]

AMQP091_MACHINE_TARGETS: dict[str, Target] = {
    "amqp091-server": Target(drive_open, [b"\x20" + data for data in FRAMES + CONTROL + CONVERSATIONS]),
    "amqp091-handshake": Target(
        drive_handshake,
        [bytes([step]) + data for step in range(len(STEPS)) for data in CONTROL]
        + [bytes([0]) + PROTOCOL_HEADER, bytes([0]) + PROTOCOL_HEADER + CONTROL[1]],
    ),
}
