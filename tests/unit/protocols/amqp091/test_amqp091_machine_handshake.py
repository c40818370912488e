"""The handshake of an AMQP 0-9-1 connection, its terms, its heartbeats and its end."""

from __future__ import annotations

import pytest
from amqp091_peer import (
    BODY_MAX,
    CHANNEL_MAX,
    FRAME_MAX,
    HEARTBEAT_S,
    MECHANISMS,
    OPEN,
    SECOND_NS,
    START_MAX,
    START_NS,
    START_OK,
    TIMEOUT_NS,
    TUNE_OK,
    Peer,
    make_terms,
    message,
    on,
    open_peer,
    show_events,
)
from vectors.amqp091_vector import frame

from millstream.protocols.amqp091.machine.connection import DEAF_NS, has_capability
from millstream.protocols.amqp091.machine.events import (
    Closed,
    OpenReceived,
    SecureOkReceived,
    StartOkReceived,
)
from millstream.protocols.amqp091.machine.states import ConnectionState
from millstream.protocols.amqp091.wire import methods as m
from millstream.protocols.amqp091.wire.frames import HEARTBEAT_FRAME, PROTOCOL_HEADER, find_frame_end

HALF_NS = HEARTBEAT_S * SECOND_NS // 2
HEARTBEAT = frame(8, 0)


def sent_method(peer: Peer) -> m.Method:
    """The one method that was sent."""
    data = peer.take_bytes()
    assert find_frame_end(data, 0, len(data), 0) == len(data)
    return m.decode_method(data, 7, len(data) - 1)


# -------------------------------------------------------------- the way in


def test_a_client_comes_in_step_by_step() -> None:
    peer = Peer()
    assert peer.receive(PROTOCOL_HEADER) == []
    assert sent_method(peer) == m.ConnectionStart(0, 9, {b"product": b"x"}, MECHANISMS, b"en_US")
    [started] = peer.receive(on(0, START_OK))
    assert isinstance(started, StartOkReceived)
    assert (started.mechanism, started.response, started.locale) == (
        b"PLAIN",
        b"\x00guest\x00guest",
        b"en_US",
    )
    assert peer.machine.is_waiting
    peer.machine.accept()
    assert sent_method(peer) == m.ConnectionTune(CHANNEL_MAX, FRAME_MAX, HEARTBEAT_S)
    [opened] = peer.receive(on(0, TUNE_OK) + on(0, OPEN))
    assert isinstance(opened, OpenReceived)
    assert opened.virtual_host == b"/"
    assert not peer.machine.is_open
    peer.machine.open_ok()
    assert peer.take() == "0 ConnectionOpenOk"
    assert peer.machine.is_open
    assert (peer.machine.frame_max, peer.machine.heartbeat_s) == (FRAME_MAX, HEARTBEAT_S)


def test_an_authentication_may_take_several_challenges() -> None:
    peer = Peer()
    peer.lead_to(ConnectionState.AUTHENTICATING)
    for step in (b"first", b"second"):
        peer.machine.secure(step)
        assert sent_method(peer) == m.ConnectionSecure(step)
        [answered] = peer.receive(on(0, m.ConnectionSecureOk(step * 2)))
        assert isinstance(answered, SecureOkReceived)
        assert answered.response == step * 2
    peer.machine.accept()
    assert peer.machine.state is ConnectionState.TUNING


def test_a_connection_may_offer_mechanisms_of_its_own() -> None:
    peer = Peer()
    peer.machine.mechanisms = b"EXTERNAL"
    peer.receive(PROTOCOL_HEADER)
    start = sent_method(peer)
    assert isinstance(start, m.ConnectionStart)
    assert start.mechanisms == b"EXTERNAL"


@pytest.mark.parametrize(
    "data",
    [
        b"AMQP\x00\x01\x00\x00",
        b"AMQP\x03\x01\x00\x00",
        b"AMQP\x01\x01\x08\x00",
        b"GET / HTTP/1.1\r\n",
        b"\x16\x03",
    ],
)
def test_another_protocol_is_told_ours_and_closed(data: bytes) -> None:
    peer = Peer()
    assert show_events(peer.receive(data)) == "Closed 501"
    assert peer.take_bytes() == PROTOCOL_HEADER
    assert peer.receive(PROTOCOL_HEADER) == []


def test_what_comes_behind_an_undecided_step_is_done_after_it() -> None:
    peer = Peer()
    peer.lead_to(ConnectionState.OPENING)
    behind = on(1, m.ChannelOpen()) + message(1, b"early")
    assert show_events(peer.receive(on(0, OPEN) + behind[:9])) == "OpenReceived"
    assert peer.receive(behind[9:20]) == []
    assert peer.receive(behind[20:]) == []
    peer.machine.open_ok()
    assert show_events(peer.receive(b"")) == "ChannelOpened 1, 1 publish early"


def test_a_stranger_cannot_fill_our_memory_while_it_waits() -> None:
    peer = Peer()
    peer.lead_to(ConnectionState.AUTHENTICATING)
    assert peer.receive(b"x" * START_MAX) == []
    assert show_events(peer.receive(b"x")) == "Closed 506"
    assert peer.take_bytes() == b""


def test_a_known_client_cannot_either() -> None:
    peer = Peer()
    peer.lead_to(ConnectionState.DECIDING)
    assert peer.receive(bytes(1 << 20)) == []
    assert peer.receive(b"x") == []
    assert peer.take() == "0 ConnectionClose 506"


def test_a_frame_of_a_stranger_is_smaller_than_others() -> None:
    peer = Peer()
    peer.lead_to(ConnectionState.STARTING)
    assert show_events(peer.receive(b"\x01\x00\x00" + START_MAX.to_bytes(4, "big") + b"\x00")) == "Closed 501"
    assert peer.take_bytes() == b""


# --------------------------------------------------------------- refusals


def test_a_refused_login_is_told_to_those_who_understand_it() -> None:
    peer = Peer()
    peer.lead_to(ConnectionState.AUTHENTICATING)
    assert peer.machine.refuse(403, "Login was refused using authentication mechanism PLAIN.") == []
    text = b"ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN."
    assert sent_method(peer) == m.ConnectionClose(403, text, 0, 0)
    assert show_events(peer.receive(on(0, m.ConnectionCloseOk()))) == "Closed 403"


def test_a_refused_login_is_closed_in_silence_for_all_others() -> None:
    peer = Peer()
    peer.lead_to(ConnectionState.STARTING)
    peer.receive(on(0, m.ConnectionStartOk({}, b"PLAIN", b"", b"")))
    assert show_events(peer.machine.refuse(403, "no")) == "Closed 403"
    assert peer.take_bytes() == b""
    assert peer.machine.refuse(403, "no") == []


def test_a_refused_virtual_host_is_always_told() -> None:
    peer = Peer()
    peer.lead_to(ConnectionState.DECIDING)
    assert peer.machine.refuse(530, "vhost nope not found") == []
    assert sent_method(peer) == m.ConnectionClose(530, b"NOT_ALLOWED - vhost nope not found", 10, 40)


def test_a_decision_that_comes_too_late_changes_nothing() -> None:
    peer = Peer()
    peer.lead_to(ConnectionState.CLOSED)
    peer.machine.accept()
    peer.machine.open_ok()
    peer.machine.secure(b"x")
    assert peer.machine.refuse(403, "no") == []
    assert peer.take_bytes() == b""
    assert peer.machine.is_closed()


@pytest.mark.parametrize(
    ("capabilities", "has"),
    [
        ({b"c": True}, True),
        ({b"c": False}, False),
        ({b"c": 1}, False),
        ({}, False),
        (b"c", False),
        (None, False),
    ],
)
def test_only_a_true_capability_counts(capabilities: object, has: bool) -> None:
    assert has_capability({b"capabilities": capabilities}, b"c") is has
    assert not has_capability({}, b"c")


# ------------------------------------------------------------------ terms


@pytest.mark.parametrize(
    ("asked", "agreed"),
    [
        ((CHANNEL_MAX, FRAME_MAX, HEARTBEAT_S), (CHANNEL_MAX, FRAME_MAX, HEARTBEAT_S)),
        ((0, 0, 0), (CHANNEL_MAX, FRAME_MAX, 0)),  # no limit of its own, and no heartbeat
        ((1, 4096, 600), (1, 4096, 600)),  # a longer heartbeat is the client's to choose
    ],
)
def test_the_smaller_terms_hold(asked: tuple[int, int, int], agreed: tuple[int, int, int]) -> None:
    machine = open_peer(tune_ok=m.ConnectionTuneOk(*asked)).machine
    assert (machine.channel_max, machine.frame_max, machine.heartbeat_s) == agreed


@pytest.mark.parametrize(
    ("channel_max", "frame_max", "text"),
    [
        (9, 4095, "negotiated frame_max = 4095 is lower than the minimum allowed value (4096)"),
        (9, 8193, "negotiated frame_max = 8193 is higher than the maximum allowed value (8192)"),
        (10, 8192, "negotiated channel_max = 10 is higher than the maximum allowed value (9)"),
    ],
)
def test_terms_beyond_ours_are_not_allowed(channel_max: int, frame_max: int, text: str) -> None:
    peer = Peer()
    peer.lead_to(ConnectionState.TUNING)
    peer.receive(on(0, m.ConnectionTuneOk(channel_max, frame_max, 0)))
    assert sent_method(peer) == m.ConnectionClose(530, f"NOT_ALLOWED - {text}".encode(), 10, 31)


def test_without_a_limit_of_ours_every_channel_number_may_be_used() -> None:
    tune_ok = m.ConnectionTuneOk(0, 0, 0)
    peer = open_peer(terms=make_terms(channel_max=0), tune_ok=tune_ok)
    assert peer.give(on(65535, m.ChannelOpen())) == "ChannelOpened 65535"
    assert peer.take() == "65535 ChannelOpenOk"
    peer.machine.deliver(65535, b"t", 1, False, b"e", b"k", b"\x00\x00", b"x")
    assert peer.take() == "65535 BasicDeliver, 65535 header 14, 65535 body 1"


# ------------------------------------------------------------- heartbeats


def test_an_idle_connection_sends_heartbeats() -> None:
    peer = open_peer()
    machine = peer.machine
    now_ns = START_NS + HALF_NS
    assert machine.next_deadline() == now_ns
    assert machine.on_deadline(now_ns) == []
    assert peer.take_bytes() == b""  # open-ok was sent in this half
    for _ in range(3):
        now_ns += HALF_NS
        peer.receive(HEARTBEAT, now_ns)
        assert machine.next_deadline() == now_ns
        assert machine.on_deadline(now_ns - 1) == []
        assert machine.on_deadline(now_ns) == []
        assert peer.take_bytes() == HEARTBEAT_FRAME


def test_a_busy_connection_sends_none() -> None:
    peer = open_peer(1)
    now_ns = START_NS
    for _ in range(3):
        now_ns += HALF_NS
        peer.machine.deliver(1, b"t", 1, False, b"e", b"k", b"\x00\x00", b"x")
        peer.receive(HEARTBEAT, now_ns)
        peer.machine.on_deadline(now_ns)
        assert "heartbeat" not in peer.take()


def test_two_missed_heartbeats_end_the_connection_without_a_word() -> None:
    peer = open_peer(1)
    heard_ns = START_NS + 3 * SECOND_NS
    peer.receive(on(1, m.TxSelect())[:5], heard_ns)  # any byte counts
    dead_ns = heard_ns + 2 * HEARTBEAT_S * SECOND_NS
    while peer.machine.next_deadline() < dead_ns:
        assert peer.machine.on_deadline(peer.machine.next_deadline()) == []
    peer.take_bytes()
    assert peer.machine.on_deadline(dead_ns - 1) == []
    events = peer.machine.on_deadline(dead_ns)
    assert show_events(events) == "ChannelClosed 1, Closed 320"
    assert isinstance(events[1], Closed)
    assert events[1].text == "missed heartbeats from client, timeout: 10s"
    assert peer.take_bytes() == b""
    assert peer.machine.next_deadline() == 0


def test_a_silence_of_our_own_making_is_not_held_against_the_client() -> None:
    peer = open_peer()
    late_ns = START_NS + 3 * HEARTBEAT_S * SECOND_NS
    peer.machine.touch(late_ns)
    assert peer.machine.on_deadline(late_ns) == []
    assert peer.machine.is_open


def test_without_a_heartbeat_there_is_no_deadline() -> None:
    peer = open_peer(tune_ok=m.ConnectionTuneOk(0, 0, 0))
    assert peer.machine.next_deadline() == 0
    assert peer.machine.on_deadline(START_NS * 100) == []


def test_a_heartbeat_may_come_during_the_handshake() -> None:
    peer = Peer()
    peer.lead_to(ConnectionState.STARTING)
    assert peer.receive(HEARTBEAT) == []
    assert not peer.machine.is_closed()


def test_bytes_of_an_unfinished_step_give_a_stranger_no_more_time() -> None:
    peer = Peer()
    before = peer.machine.next_deadline()
    peer.receive(PROTOCOL_HEADER[:3], START_NS + SECOND_NS)
    assert peer.machine.next_deadline() == before
    peer.receive(PROTOCOL_HEADER[3:] + on(0, START_OK), START_NS + 2 * SECOND_NS)
    assert peer.machine.next_deadline() == before + 2 * SECOND_NS
    peer.machine.secure(b"c")
    peer.receive(on(0, m.ConnectionSecureOk(b"r")), START_NS + 3 * SECOND_NS)
    assert peer.machine.next_deadline() == before + 2 * SECOND_NS  # challenges share their time


# ---------------------------------------------------------------- the end


def test_a_clients_close_is_answered_after_everything_before_it() -> None:
    peer = open_peer(1, 2)
    events = peer.give(on(1, m.TxSelect()), on(0, m.ConnectionClose(200, b"bye", 0, 0)), on(1, m.TxSelect()))
    assert events == "1 TxSelect, ChannelClosed 1, ChannelClosed 2, Closed 200"
    assert peer.take_bytes() == b""
    peer.machine.send(1, m.TxSelectOk())
    peer.machine.send(0, m.ConnectionUnblocked())
    peer.machine.end_channel(1)
    peer.machine.end_channel(2)
    peer.machine.send_farewell()
    assert peer.take() == "1 TxSelectOk, 0 ConnectionUnblocked, 0 ConnectionCloseOk"
    peer.machine.send_farewell()
    peer.machine.send(1, m.TxSelectOk())
    peer.machine.send(0, m.ConnectionUnblocked())
    assert peer.take_bytes() == b""


def test_a_farewell_before_the_end_is_no_farewell() -> None:
    peer = open_peer(1)
    peer.machine.send_farewell()
    assert peer.take_bytes() == b""
    assert peer.give(message(1, b"x")) == "1 publish x"


def test_after_our_close_nothing_is_said_and_nothing_heard_but_the_answer() -> None:
    peer = open_peer(1)
    assert show_events(peer.machine.close(320, "shutdown")) == "ChannelClosed 1"
    assert peer.take() == "0 ConnectionClose 320"
    peer.machine.send(1, m.TxSelectOk())
    peer.machine.send(0, m.ConnectionUnblocked())
    peer.machine.deliver(1, b"t", 1, False, b"e", b"k", b"\x00\x00", b"x")
    assert peer.take_bytes() == b""
    assert peer.give(message(1, b"x"), on(2, m.ChannelOpen()), HEARTBEAT, on(1, m.ChannelCloseOk())) == ""
    assert peer.give(on(0, m.ConnectionClose(200, b"", 0, 0))) == ""  # both at once
    assert peer.take() == "0 ConnectionCloseOk"
    assert peer.give(on(0, m.ConnectionCloseOk())) == "Closed 320"


def test_the_answer_to_our_close_is_not_waited_for_for_ever() -> None:
    peer = open_peer()
    peer.machine.close(320, "shutdown")
    now_ns = START_NS + 100 * SECOND_NS
    assert peer.machine.next_deadline() <= now_ns
    assert peer.machine.on_deadline(now_ns) == []
    assert peer.machine.next_deadline() == now_ns + TIMEOUT_NS
    assert peer.receive(HEARTBEAT * 3, now_ns + 1) == []
    assert show_events(peer.machine.on_deadline(now_ns + TIMEOUT_NS)) == "Closed 320"


def test_the_close_of_a_wrongdoer_has_its_time_at_once() -> None:
    peer = open_peer(1)
    assert show_events(peer.receive(on(1, m.QueueDeclareOk(b"", 0, 0)), START_NS + 7)) == "ChannelClosed 1"
    assert peer.machine.next_deadline() == START_NS + 7 + TIMEOUT_NS


def test_frames_behind_a_violation_are_still_told_apart() -> None:
    peer = open_peer(1)
    wrong = on(1, m.QueueDeclareOk(b"", 0, 0))
    assert peer.give(wrong, message(1, b"x"), on(0, m.ConnectionCloseOk())) == "ChannelClosed 1, Closed 503"


def test_behind_a_broken_frame_nothing_is_heard() -> None:
    peer = open_peer(1)
    assert (
        peer.give(b"\x01\x00\x01\x00\x00\x00\x04\x00\x5a\x00\x0a\xcd" + on(1, m.TxSelect()))
        == "ChannelClosed 1"
    )
    assert peer.take() == "0 ConnectionClose 501"
    assert peer.give(on(0, m.ConnectionCloseOk())) == ""
    assert peer.machine.next_deadline() == START_NS + DEAF_NS < START_NS + TIMEOUT_NS
    assert peer.machine.on_deadline(START_NS + DEAF_NS - 1) == []
    assert show_events(peer.machine.on_deadline(START_NS + DEAF_NS)) == "Closed 501"


def test_who_breaks_frames_behind_our_close_has_a_little_time_to_read_why() -> None:
    peer = open_peer(1)
    assert peer.give(on(1, m.QueueDeclareOk(b"", 0, 0))) == "ChannelClosed 1"
    assert peer.take() == "0 ConnectionClose 503"
    broken_ns = START_NS + SECOND_NS
    assert peer.receive(b"\x09" * 8, broken_ns) == []
    assert peer.receive(on(0, m.ConnectionCloseOk()), broken_ns) == []
    assert peer.machine.next_deadline() == broken_ns + DEAF_NS
    assert show_events(peer.machine.on_deadline(broken_ns + DEAF_NS)) == "Closed 503"


def test_who_breaks_frames_late_gets_no_more_time_for_it() -> None:
    peer = open_peer(1)
    assert peer.give(on(1, m.QueueDeclareOk(b"", 0, 0))) == "ChannelClosed 1"
    assert peer.receive(b"\x09" * 8, START_NS + TIMEOUT_NS - 1) == []
    assert peer.machine.next_deadline() == START_NS + TIMEOUT_NS


def test_a_wrong_frame_behind_our_close_is_dropped_like_all_others() -> None:
    peer = open_peer()
    peer.machine.close(320, "shutdown")
    assert peer.give(frame(8, 1), frame(3, 0, b"x"), frame(1, 0, b"\x00")) == ""
    assert peer.give(on(0, m.ConnectionCloseOk())) == "Closed 320"


def test_a_long_text_is_cut_where_a_character_ends() -> None:
    peer = open_peer()
    peer.machine.close(404, "ä" * 300)
    close = sent_method(peer)
    assert isinstance(close, m.ConnectionClose)
    assert len(close.reply_text) <= 255
    assert close.reply_text.decode().startswith("NOT_FOUND - ää")
    assert close.reply_text.endswith(b"...")


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (frame(8, 0, b"x"), 501),
        (frame(8, 1), 505),
        (frame(7, 1, b"x"), 501),
        (frame(1, 1, b"\x00\x3c"), 501),
        (frame(1, 1), 501),
        (frame(2, 0, b"\x00\x3c" + b"\x00" * 12), 505),
        (frame(3, 0, b"x"), 505),
        (frame(2, 5, b"\x00\x3c" + b"\x00" * 12), 505),
        (frame(1, 1, b"\x00\x3c\x00\x0a\x00"), 502),
        (frame(3, 1, bytes(FRAME_MAX + 1)), 501),
        (b"\x03\x00\x01" + (FRAME_MAX + 1).to_bytes(4, "big") + b"\x00", 501),  # before it has come
    ],
)
def test_what_is_no_frame_in_its_place_ends_the_connection(data: bytes, code: int) -> None:
    peer = open_peer(1)
    assert peer.give(data) == "ChannelClosed 1"
    assert peer.take() == f"0 ConnectionClose {code}"


def test_the_payload_alone_may_fill_a_frame() -> None:
    peer = open_peer(1)
    assert FRAME_MAX < BODY_MAX
    assert peer.give(message(1, bytes(FRAME_MAX))) == f"1 publish {FRAME_MAX} bytes"
