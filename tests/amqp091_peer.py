"""A client of the AMQP 0-9-1 machine without a transport: bytes in, events and frames out as readable text."""

from __future__ import annotations

from collections.abc import Iterable

from vectors.amqp091_vector import frame, header, publish

from millstream.model.outbox import Flushable, Outbox, OutboxPool, Wakeup
from millstream.protocols.amqp091.machine.connection import Connection
from millstream.protocols.amqp091.machine.events import (
    AckReceived,
    ChannelClosed,
    ChannelOpened,
    Closed,
    Event,
    MethodReceived,
    PublishReceived,
)
from millstream.protocols.amqp091.machine.states import ConnectionState
from millstream.protocols.amqp091.machine.terms import Terms
from millstream.protocols.amqp091.wire import methods as m
from millstream.protocols.amqp091.wire.codes import BODY, HEADER, HEARTBEAT, METHOD
from millstream.protocols.amqp091.wire.field_table import FieldTable
from millstream.protocols.amqp091.wire.frames import PROTOCOL_HEADER, find_frame_end

START_NS = 1_000_000_000_000
SECOND_NS = 1_000_000_000
FRAME_MAX = 8192
CHANNEL_MAX = 9
HEARTBEAT_S = 10
BODY_MAX = 100_000
PROPERTIES_MAX = 2000
TIMEOUT_NS = 5 * SECOND_NS
START_MAX = 4000
MECHANISMS = b"PLAIN AMQPLAIN"
NO_PROPERTIES = b"\x00\x00"
CLOSE_CAPABLE: FieldTable = {b"capabilities": {b"authentication_failure_close": True}}

START_OK = m.ConnectionStartOk(CLOSE_CAPABLE, b"PLAIN", b"\x00guest\x00guest", b"en_US")
TUNE_OK = m.ConnectionTuneOk(CHANNEL_MAX, FRAME_MAX, HEARTBEAT_S)
OPEN = m.ConnectionOpen(b"/")


class SilentLoop(Wakeup):
    def request(self) -> None:
        """The test takes the output itself."""


class NoTransport(Flushable):
    def flush(self) -> None:
        raise AssertionError("nothing flushes here")

    def on_flush_failed(self, error: Exception) -> None:
        raise error


POOL = OutboxPool(SilentLoop())
NO_TRANSPORT = NoTransport()


def make_terms(
    frame_max: int = FRAME_MAX,
    channel_max: int = CHANNEL_MAX,
    body_size_max: int = BODY_MAX,
    start_bytes_max: int = START_MAX,
) -> Terms:
    return Terms(
        frame_max,
        channel_max,
        HEARTBEAT_S,
        body_size_max,
        PROPERTIES_MAX,
        TIMEOUT_NS,
        start_bytes_max,
        MECHANISMS,
        {b"product": b"x"},
    )


TERMS = make_terms()


def on(channel: int, method: m.Method) -> bytes:
    return frame(METHOD, channel, m.encode_method(method))


def message(
    channel: int,
    body: bytes,
    properties: bytes = NO_PROPERTIES,
    exchange: bytes = b"e",
    key: bytes = b"k",
    pieces: Iterable[int] = (),
) -> bytes:
    """A publish; `pieces` are the sizes of its first body frames, the rest goes into one more."""
    data = frame(METHOD, channel, publish(exchange, key)) + frame(
        HEADER, channel, header(len(body), properties)
    )
    at = 0
    for size in pieces:
        data += frame(BODY, channel, body[at : at + size])
        at += size
    return data + (frame(BODY, channel, body[at:]) if at < len(body) else b"")


START_OK_FRAME = on(0, START_OK)
SECURE_OK_FRAME = on(0, m.ConnectionSecureOk(b"response"))
OPEN_FRAME = on(0, OPEN)


class Peer:
    def __init__(self, terms: Terms = TERMS) -> None:
        self._outbox = Outbox(POOL, NO_TRANSPORT)
        self.machine = Connection(terms, self._outbox, START_NS)

    def receive(self, data: bytes, now_ns: int = START_NS) -> list[Event]:
        return self.machine.receive_data(data, now_ns)

    def give(self, *frames: bytes) -> str:
        """What comes of these frames, as text."""
        return show_events(self.receive(b"".join(frames)))

    def take_bytes(self) -> bytes:
        return bytes(self._outbox.take_all())

    def take(self) -> str:
        """What was sent, as text."""
        return ", ".join(show_frames(self.take_bytes()))

    def lead_to(self, state: ConnectionState, tune_ok: m.ConnectionTuneOk = TUNE_OK) -> None:
        """Bring the connection into `state` by what leads there."""
        machine = self.machine
        steps = [
            (ConnectionState.STARTING, lambda: self.receive(PROTOCOL_HEADER)),
            (ConnectionState.AUTHENTICATING, lambda: self.receive(START_OK_FRAME)),
            (ConnectionState.SECURING, lambda: machine.secure(b"challenge")),
            (ConnectionState.TUNING, lambda: (self.receive(SECURE_OK_FRAME), machine.accept())),
            (ConnectionState.OPENING, lambda: self.receive(on(0, tune_ok))),
            (ConnectionState.DECIDING, lambda: self.receive(OPEN_FRAME)),
            (ConnectionState.OPEN, machine.open_ok),
            (ConnectionState.CLOSING, lambda: machine.close(320, "bye")),
            (ConnectionState.CLOSED, lambda: self.receive(on(0, m.ConnectionCloseOk()))),
        ]
        for reached, step in steps:
            if machine.state >= state:
                break
            step()
            assert machine.state is reached, reached
        self.take_bytes()


def open_peer(*channels: int, terms: Terms = TERMS, tune_ok: m.ConnectionTuneOk = TUNE_OK) -> Peer:
    peer = Peer(terms)
    peer.lead_to(ConnectionState.OPEN, tune_ok)
    for channel in channels:
        peer.receive(on(channel, m.ChannelOpen()))
    peer.take_bytes()
    return peer


def show_event(event: Event) -> str:
    if isinstance(event, Closed):
        return f"Closed {event.code}"
    if isinstance(event, ChannelClosed):
        return f"ChannelClosed {event.channel}" + (f" {event.code}" if event.code else "")
    if isinstance(event, ChannelOpened):
        return f"ChannelOpened {event.channel}"
    if isinstance(event, MethodReceived):
        return f"{event.channel} {type(event.method).__name__}"
    if isinstance(event, AckReceived):
        return f"{event.channel} ack {event.delivery_tag}" + (" multiple" if event.multiple else "")
    if isinstance(event, PublishReceived):
        body = event.body.decode("latin-1") if len(event.body) < 20 else f"{len(event.body)} bytes"
        return f"{event.channel} publish {body}"
    return type(event).__name__


def show_events(events: list[Event]) -> str:
    return ", ".join([show_event(event) for event in events])


def show_frames(data: bytes) -> list[str]:
    shown: list[str] = []
    at = 0
    while at < len(data):
        end = int(find_frame_end(data, at, len(data), 0))
        assert end, "what is sent is whole"
        channel = int.from_bytes(data[at + 1 : at + 3], "big")
        kind = data[at]
        if kind == METHOD:
            method = m.decode_method(data, at + 7, end - 1)
            code = method.reply_code if isinstance(method, (m.ConnectionClose, m.ChannelClose)) else ""
            shown.append(f"{channel} {type(method).__name__} {code}".rstrip())
        elif kind == HEARTBEAT:
            shown.append("heartbeat")
        else:
            shown.append(f"{channel} {'header' if kind == HEADER else 'body'} {end - at - 8}")
        at = end
    return shown
