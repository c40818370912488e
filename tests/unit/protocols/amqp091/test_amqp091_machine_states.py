"""Every method in every state of a connection and of a channel: what comes of it, as one table.

The table of the machine is not asked what it says: the expectations are written out here once more, from the
specification and from what RabbitMQ answers.
"""

from __future__ import annotations

import itertools

import pytest
from amqp091_peer import START_NS, TIMEOUT_NS, Peer, on, open_peer, show_events
from vectors.amqp091_methods import METHOD_VECTORS
from vectors.amqp091_vector import frame, method

from millstream.protocols.amqp091.machine.states import (
    CHANNEL_MOVES,
    CONNECTION_MOVES,
    ChannelState,
    ConnectionState,
)
from millstream.protocols.amqp091.wire import methods as m

# one of each, well-formed, and what fits into the terms the tests agree on
EXAMPLES: dict[str, m.Method] = {
    type(vector.method).__name__: vector.method for vector in METHOD_VECTORS if vector.method is not None
}
EXAMPLES["ConnectionTuneOk"] = m.ConnectionTuneOk(9, 8192, 10)
KINDS = sorted(EXAMPLES)

CLIENT_METHODS = {
    "AccessRequest", "BasicAck", "BasicCancel", "BasicConsume", "BasicGet", "BasicNack", "BasicQos", "BasicRecover",
    "BasicRecoverAsync", "BasicReject", "ConfirmSelect", "ExchangeBind", "ExchangeDeclare", "ExchangeDelete",
    "ExchangeUnbind", "QueueBind", "QueueDeclare", "QueueDelete", "QueuePurge", "QueueUnbind", "TxCommit", "TxRollback",
    "TxSelect",
}  # fmt: skip

HANDSHAKE = {
    ConnectionState.STARTING: ("ConnectionStartOk", "StartOkReceived"),
    ConnectionState.SECURING: ("ConnectionSecureOk", "SecureOkReceived"),
    ConnectionState.TUNING: ("ConnectionTuneOk", ""),
    ConnectionState.OPENING: ("ConnectionOpen", "OpenReceived"),
}
WAITING = (ConnectionState.AUTHENTICATING, ConnectionState.DECIDING)
STRANGE = (ConnectionState.STARTING, ConnectionState.SECURING)  # nobody is told anything yet


def expected_on_connection(state: ConnectionState, kind: str) -> tuple[str, str]:
    """(events, what is sent) for a method on channel 0."""
    if state in WAITING or state is ConnectionState.CLOSED:
        return "", ""
    if state is ConnectionState.AWAIT_HEADER:
        return "Closed 501", "AMQP"
    if state is ConnectionState.CLOSING:
        if kind == "ConnectionCloseOk":
            return "Closed 320", ""
        return "", "0 ConnectionCloseOk" if kind == "ConnectionClose" else ""
    if kind == "ConnectionClose":
        return "Closed 541", "0 ConnectionCloseOk"  # the code the example gives
    if state is ConnectionState.OPEN and kind == "ConnectionUpdateSecret":
        return "0 ConnectionUpdateSecret", ""
    if state in HANDSHAKE and HANDSHAKE[state][0] == kind:
        return HANDSHAKE[state][1], ""
    return ("Closed 504", "") if state in STRANGE else ("", "0 ConnectionClose 504")


def make_peer(state: ConnectionState) -> Peer:
    peer = Peer()
    peer.lead_to(state)
    return peer


def take(peer: Peer) -> str:
    peer.machine.send_farewell()
    data = peer.machine.outbox.take_all()
    if bytes(data[:4]) == b"AMQP":
        return "AMQP"
    peer.machine.outbox.write(data)
    return peer.take()


@pytest.mark.parametrize(
    ("state", "kind"),
    list(itertools.product(ConnectionState, KINDS)),
    ids=lambda value: value.name if isinstance(value, ConnectionState) else value,
)
def test_every_method_in_every_state_of_a_connection_has_its_outcome(
    state: ConnectionState, kind: str
) -> None:
    peer = make_peer(state)
    events = peer.receive(on(0, EXAMPLES[kind]))
    assert (show_events(events), take(peer)) == expected_on_connection(state, kind)
    if "Closed" in show_events(events):
        assert peer.machine.is_closed()
        assert peer.receive(on(0, EXAMPLES["ConnectionClose"])) == []  # nothing is heard any more
        assert take(peer) == ""


NO_CONTENT = {"BasicPublish": "", "BasicCancelOk": ""}


def expected_on_channel(state: ChannelState, kind: str) -> tuple[str, str]:
    """(events, what is sent) for a method on channel 1."""
    if state is ChannelState.ABSENT:
        return (
            ("ChannelOpened 1", "1 ChannelOpenOk") if kind == "ChannelOpen" else ("", "0 ConnectionClose 504")
        )
    if kind == "ChannelOpen":
        return "ChannelClosed 1" if state is not ChannelState.ENDING else "", "0 ConnectionClose 504"
    if state is ChannelState.CLOSING:
        if kind == "ChannelCloseOk":
            return "ChannelClosed 1", ""
        return "", "1 ChannelCloseOk" if kind == "ChannelClose" else ""
    if state is ChannelState.ENDING:
        return "", ""
    if kind == "ChannelClose":
        return "ChannelClosed 1", ""
    if kind == "ChannelFlow":
        return "", "1 ChannelFlowOk"
    if kind == "BasicAck":
        return "1 ack 258 multiple", ""
    if kind in CLIENT_METHODS:
        return f"1 {kind}", ""
    if kind in NO_CONTENT:
        return "", ""
    return "ChannelClosed 1", "0 ConnectionClose 503"


def make_channel(state: ChannelState) -> Peer:
    """Channel 1 in this state; channel 2 beside it is not touched by it."""
    peer = open_peer(2)
    if state is not ChannelState.ABSENT:
        peer.receive(on(1, m.ChannelOpen()))
    if state is ChannelState.ENDING:
        peer.receive(on(1, m.ChannelClose(200, b"", 0, 0)))
    if state is ChannelState.CLOSING:
        peer.machine.close_channel(1, 404, "no queue 'q'", 50, 10)
    peer.take_bytes()
    return peer


@pytest.mark.parametrize(
    ("state", "kind"),
    list(itertools.product(ChannelState, KINDS)),
    ids=lambda value: value.name if isinstance(value, ChannelState) else value,
)
def test_every_method_in_every_state_of_a_channel_has_its_outcome(state: ChannelState, kind: str) -> None:
    peer = make_channel(state)
    events, sent = expected_on_channel(state, kind)
    if sent.startswith("0"):  # the connection's end is the end of the other channel as well
        events = "ChannelClosed 2, " + events if events else "ChannelClosed 2"
    assert (peer.give(on(1, EXAMPLES[kind])), peer.take()) == (events, sent)
    if not sent.startswith("0"):
        assert peer.give(on(2, m.TxSelect())) == "2 TxSelect"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("state", [state for state in ConnectionState if state is not ConnectionState.OPEN])
def test_there_are_no_other_channels_before_the_connection_is_open(state: ConnectionState, kind: str) -> None:
    peer = make_peer(state)
    events = peer.give(on(1, EXAMPLES[kind]))
    sent = take(peer)
    if state in STRANGE:
        assert (events, sent) == ("Closed 505", "")
    elif state is ConnectionState.AWAIT_HEADER:
        assert (events, sent) == ("Closed 501", "AMQP")
    elif state in (ConnectionState.TUNING, ConnectionState.OPENING):
        assert (events, sent) == ("", "0 ConnectionClose 505")
    else:
        assert (events, sent) == ("", "")


@pytest.mark.parametrize("state", [ChannelState.ABSENT, ChannelState.OPEN])
@pytest.mark.parametrize(("class_id", "method_id"), [(99, 10), (60, 99), (10, 99), (0, 0)])
def test_a_method_nobody_knows_is_not_implemented(state: ChannelState, class_id: int, method_id: int) -> None:
    for channel in (0, 1):
        peer = make_channel(state)
        peer.give(frame(1, channel, method(class_id, method_id)))
        assert peer.take() == "0 ConnectionClose 540"


def test_the_tables_name_every_state_in_which_something_is_read() -> None:
    read = set(ConnectionState) - {*WAITING, ConnectionState.AWAIT_HEADER, ConnectionState.CLOSED}
    assert set(CONNECTION_MOVES) == read
    assert set(CHANNEL_MOVES) == set(ChannelState)


@pytest.mark.parametrize("state", ConnectionState)
def test_the_server_may_end_any_state_once(state: ConnectionState) -> None:
    peer = make_peer(state)
    events = show_events(peer.machine.close(320, "shutting down"))
    known = (ConnectionState.TUNING, ConnectionState.OPENING, ConnectionState.DECIDING, ConnectionState.OPEN)
    if state in (ConnectionState.CLOSED, ConnectionState.CLOSING):
        assert (events, peer.take()) == ("", "")
    elif state in known:
        assert (events, peer.take()) == ("", "0 ConnectionClose 320")
        assert peer.give(on(0, m.ConnectionCloseOk())) == "Closed 320"
    else:
        assert (events, peer.take()) == ("Closed 320", "")
    assert peer.machine.close(320, "again") == []


@pytest.mark.parametrize("state", ConnectionState)
def test_a_lost_transport_ends_any_state_once_and_nothing_is_said(state: ConnectionState) -> None:
    peer = make_peer(state)
    closed = "" if state is ConnectionState.CLOSED else "Closed 320"
    assert show_events(peer.machine.fail(320, "lost")) == closed
    assert peer.machine.fail(320, "again") == []
    assert take(peer) == ""


@pytest.mark.parametrize("state", [state for state in ConnectionState if state < ConnectionState.OPEN])
def test_every_step_of_the_handshake_has_its_time(state: ConnectionState) -> None:
    peer = make_peer(state)
    due_ns = START_NS + TIMEOUT_NS
    assert peer.machine.next_deadline() == due_ns
    assert peer.machine.on_deadline(due_ns - 1) == []
    assert show_events(peer.machine.on_deadline(due_ns)) == "Closed 320"
    assert peer.machine.next_deadline() == 0
    assert peer.machine.on_deadline(2 * due_ns) == []
