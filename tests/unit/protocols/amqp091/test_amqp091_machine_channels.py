"""Channels: opened, closed by either side or both, used again; and what is sent on them."""

from __future__ import annotations

import pytest
from amqp091_peer import CHANNEL_MAX, FRAME_MAX, NO_PROPERTIES, TUNE_OK, message, on, open_peer, show_events
from vectors.amqp091_vector import frame, header

from millstream.model.outbox import LARGE
from millstream.protocols.amqp091.machine.events import ChannelClosed
from millstream.protocols.amqp091.wire import methods as m

CLOSE = m.ChannelClose(200, b"bye", 0, 0)
CLOSE_OK = m.ChannelCloseOk()


# ---------------------------------------------------------- open and close


def test_a_channel_is_opened_and_closed_by_the_client() -> None:
    peer = open_peer()
    assert peer.give(on(3, m.ChannelOpen())) == "ChannelOpened 3"
    assert peer.take() == "3 ChannelOpenOk"
    assert peer.give(on(3, CLOSE)) == "ChannelClosed 3"
    peer.machine.end_channel(3)
    assert peer.take() == "3 ChannelCloseOk"
    peer.machine.end_channel(3)
    assert peer.take() == ""


def test_close_ok_comes_after_the_answers_to_what_came_before_it() -> None:
    peer = open_peer(1)
    events = peer.give(
        on(1, m.TxSelect()), message(1, b"x"), on(1, CLOSE), on(1, m.TxSelect()), message(1, b"y")
    )
    assert events == "1 TxSelect, 1 publish x, ChannelClosed 1"
    peer.machine.send(1, m.TxSelectOk())
    peer.machine.end_channel(1)
    peer.machine.send(1, m.TxSelectOk())  # nobody is there to hear it
    assert peer.take() == "1 TxSelectOk, 1 ChannelCloseOk"


def test_a_number_is_used_again_after_its_close() -> None:
    peer = open_peer(1)
    for _ in range(3):
        assert peer.give(message(1, b"x"), on(1, m.BasicAck(1, True)), on(1, CLOSE)) == (
            "1 publish x, 1 ack 1 multiple, ChannelClosed 1"
        )
        peer.machine.end_channel(1)
        assert peer.give(on(1, m.ChannelOpen()), message(1, b"y")) == "ChannelOpened 1, 1 publish y"
        peer.machine.send_ack(1, 5, True)
        assert peer.take() == "1 ChannelCloseOk, 1 ChannelOpenOk, 1 BasicAck"


def test_a_number_is_not_used_again_before_its_close_is_answered() -> None:
    peer = open_peer(1)
    assert peer.give(on(1, CLOSE), on(1, m.ChannelOpen())) == "ChannelClosed 1"
    assert peer.take() == "0 ConnectionClose 504"


def test_every_channel_number_up_to_the_limit_may_be_open_at_once() -> None:
    peer = open_peer(*range(1, CHANNEL_MAX + 1))
    for channel in range(1, CHANNEL_MAX + 1):
        assert peer.give(message(channel, b"x")) == f"{channel} publish x"
    peer.give(on(CHANNEL_MAX + 1, m.ChannelOpen()))
    data = peer.take_bytes()
    text = b"NOT_ALLOWED - number of channels opened (9) has reached the negotiated channel_max (9)"
    assert m.decode_method(data, 7, len(data) - 1) == m.ConnectionClose(530, text, 20, 10)


def test_the_limit_on_channels_is_the_agreed_one() -> None:
    peer = open_peer(1, 2, tune_ok=m.ConnectionTuneOk(2, TUNE_OK.frame_max, 0))
    peer.give(on(3, m.ChannelOpen()))
    assert peer.take() == "0 ConnectionClose 530"


def test_a_channel_may_have_any_number_while_few_are_open() -> None:
    peer = open_peer(1, tune_ok=m.ConnectionTuneOk(2, TUNE_OK.frame_max, 0))
    assert peer.give(on(0xFFFF, m.ChannelOpen()), message(0xFFFF, b"x")) == (
        "ChannelOpened 65535, 65535 publish x"
    )


def test_a_channel_closed_by_the_server_hears_nothing_until_it_is_answered() -> None:
    peer = open_peer(1, 2)
    peer.machine.close_channel(1, 404, "no queue 'q' in vhost '/'", 50, 10)
    data = peer.take_bytes()
    text = b"NOT_FOUND - no queue 'q' in vhost '/'"
    assert m.decode_method(data, 7, len(data) - 1) == m.ChannelClose(404, text, 50, 10)
    peer.machine.send(1, m.TxSelectOk())
    peer.machine.deliver(1, b"t", 1, False, b"e", b"k", NO_PROPERTIES, b"x")
    peer.machine.send_content(1, m.BasicGetOk(1, False, b"", b"", 0), NO_PROPERTIES, b"x")
    peer.machine.send_ack(1, 1, False)
    peer.machine.close_channel(1, 404, "again", 50, 10)
    assert peer.take() == ""
    assert peer.give(message(1, b"x"), on(1, m.BasicAck(1, False)), frame(3, 1, b"x"), message(2, b"y")) == (
        "2 publish y"
    )
    assert peer.give(on(1, CLOSE_OK)) == "ChannelClosed 1"
    assert peer.give(on(1, m.ChannelOpen())) == "ChannelOpened 1"


def test_both_sides_may_close_at_once() -> None:
    peer = open_peer(1)
    peer.machine.close_channel(1, 404, "no", 50, 10)
    assert peer.give(on(1, CLOSE)) == ""
    assert peer.take() == "1 ChannelClose 404, 1 ChannelCloseOk"
    assert peer.give(on(1, CLOSE_OK), on(1, m.ChannelOpen())) == "ChannelClosed 1, ChannelOpened 1"


def test_a_fault_found_before_the_clients_close_was_handled_is_told_first() -> None:
    peer = open_peer(1)
    assert peer.give(on(1, m.TxSelect()), on(1, CLOSE)) == "1 TxSelect, ChannelClosed 1"
    peer.machine.close_channel(1, 406, "no", 90, 10)
    peer.machine.end_channel(1)
    assert peer.take() == "1 ChannelClose 406, 1 ChannelCloseOk"
    assert peer.give(on(1, CLOSE_OK)) == ""  # its end has been reported
    assert peer.give(on(1, m.ChannelOpen())) == "ChannelOpened 1"


def test_a_client_that_closes_behind_its_own_fault_gets_both_answers() -> None:
    peer = open_peer(1)
    too_large = message(1, b"")[: -14 - 8] + frame(2, 1, header(1 << 40, NO_PROPERTIES))
    assert peer.give(too_large, on(1, CLOSE)) == "ChannelClosed 1 406"
    peer.machine.end_channel(1)
    assert peer.take() == "1 ChannelClose 406, 1 ChannelCloseOk"
    assert peer.give(on(1, CLOSE_OK), on(1, m.ChannelOpen())) == "ChannelOpened 1"


def test_what_came_of_a_message_is_dropped_with_its_channel() -> None:
    peer = open_peer(1)
    data = message(1, b"abc", pieces=[1])
    peer.give(data[:-9])
    peer.machine.close_channel(1, 404, "no", 60, 40)
    assert peer.give(data[-9:], on(1, CLOSE_OK), on(1, m.ChannelOpen())) == "ChannelClosed 1, ChannelOpened 1"
    assert peer.give(message(1, b"x")) == "1 publish x"


def test_every_open_channel_is_closed_once_when_the_connection_ends() -> None:
    ends = [
        lambda peer: peer.machine.close(320, "bye"),
        lambda peer: peer.machine.fail(320, "lost"),
        lambda peer: peer.receive(on(0, m.ConnectionClose(200, b"", 0, 0))),
        lambda peer: peer.receive(on(9, m.TxSelect())),
        lambda peer: peer.machine.on_deadline(1 << 62),
    ]
    for end in ends:
        peer = open_peer(1, 2, 3, 4)
        peer.machine.close_channel(2, 404, "no", 0, 0)
        peer.receive(on(3, CLOSE))
        peer.receive(on(4, CLOSE))
        peer.machine.end_channel(4)
        events = end(peer) + peer.receive(on(0, m.ConnectionCloseOk())) + peer.machine.fail(320, "")
        shown = show_events(events)
        assert shown.startswith("ChannelClosed 1, ChannelClosed 2, Closed "), shown
        assert len(events) == 3


def test_an_end_that_nobody_knows_of_does_nothing() -> None:
    peer = open_peer(1)
    peer.machine.end_channel(1)  # it is open
    peer.machine.end_channel(2)
    peer.machine.close_channel(2, 404, "no", 0, 0)
    assert peer.take() == ""
    assert peer.give(on(1, m.TxSelect())) == "1 TxSelect"


def test_a_closed_channel_says_why_if_the_client_broke_a_rule() -> None:
    peer = open_peer(1)
    [event] = peer.receive(frame(1, 1, b"\x00\x3c\x00\x5a" + b"\xff" * 8 + b"\x00"))
    assert isinstance(event, ChannelClosed)
    assert (event.code, event.text) == (406, f"unknown delivery tag {(1 << 64) - 1}")


def test_flow_that_stays_on_is_answered() -> None:
    peer = open_peer(1)
    assert peer.give(on(1, m.ChannelFlow(True))) == ""
    data = peer.take_bytes()
    assert m.decode_method(data, 7, len(data) - 1) == m.ChannelFlowOk(True)


def test_flow_cannot_be_stopped() -> None:
    peer = open_peer(1)
    peer.give(on(1, m.ChannelFlow(False)))
    data = peer.take_bytes()
    close = m.decode_method(data, 7, len(data) - 1)
    assert isinstance(close, m.ConnectionClose)
    assert (close.reply_code, close.reply_text) == (540, b"NOT_IMPLEMENTED - active=false")


def test_the_answer_to_our_cancel_is_swallowed() -> None:
    peer = open_peer(1)
    peer.machine.send(1, m.BasicCancel(b"t", True))
    assert peer.take() == "1 BasicCancel"
    assert peer.give(on(1, m.BasicCancelOk(b"t"))) == ""


@pytest.mark.parametrize("number", [2, 10, 65535])
def test_nothing_is_sent_on_a_channel_that_is_not_open(number: int) -> None:
    peer = open_peer(1)
    peer.machine.send(number, m.TxSelectOk())
    peer.machine.deliver(number, b"t", 1, False, b"e", b"k", NO_PROPERTIES, b"x")
    assert peer.take() == ""


# ---------------------------------------------------------------- sending


def test_a_delivery_is_method_header_and_body() -> None:
    peer = open_peer(1)
    peer.machine.deliver(1, b"tag", 9, True, b"logs", b"a.b", b"\x10\x00\x02", b"hello")
    data = peer.take_bytes()
    deliver = frame(1, 1, m.encode_method(m.BasicDeliver(b"tag", 9, True, b"logs", b"a.b")))
    assert data == deliver + frame(2, 1, header(5, b"\x10\x00\x02")) + frame(3, 1, b"hello")


def test_a_message_comes_with_a_return_or_with_the_answer_to_a_get() -> None:
    peer = open_peer(1)
    peer.machine.send_content(1, m.BasicReturn(312, b"NO_ROUTE", b"e", b"k"), NO_PROPERTIES, b"")
    peer.machine.send_content(1, m.BasicGetOk(1, False, b"e", b"k", 0), NO_PROPERTIES, b"x")
    assert peer.take() == "1 BasicReturn, 1 header 14, 1 BasicGetOk, 1 header 14, 1 body 1"


@pytest.mark.parametrize("size", [LARGE - 1, LARGE, FRAME_MAX - 8, FRAME_MAX - 7, 3 * FRAME_MAX])
def test_a_large_body_is_cut_where_the_client_wants_it(size: int) -> None:
    peer = open_peer(1, 2)
    body = bytes(range(256)) * (size // 256 + 1)
    body = body[:size]
    peer.machine.send(2, m.TxSelectOk())
    peer.machine.deliver(1, b"t", 1, False, b"e", b"k", NO_PROPERTIES, body)
    peer.machine.send(2, m.TxCommitOk())
    data = peer.take_bytes()
    other = open_peer(1)
    start = data.index(frame(2, 1, header(size, NO_PROPERTIES)))
    back = frame(1, 1, m.encode_method(m.BasicPublish(b"e", b"k", False, False)))
    found = other.receive(back + data[start : -len(on(2, m.TxCommitOk()))])
    assert show_events(found) == f"1 publish {size} bytes"
    assert getattr(found[0], "body", None) == body
