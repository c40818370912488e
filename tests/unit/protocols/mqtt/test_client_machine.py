"""The client's side of a connection, driven byte by byte with a clock of its own."""

from __future__ import annotations

import pytest
from vectors.mqtt_vector import block, frame, props, text

from millstream.model.errors import Reason, Refused
from millstream.protocols.mqtt.machine.client import Client
from millstream.protocols.mqtt.machine.client_events import (
    AuthenticationAsked,
    Connected,
    ConnectRefused,
    DisconnectedByServer,
    MessageReceived,
    PublishSettled,
    SessionLost,
    SubscribeAnswered,
)
from millstream.protocols.mqtt.machine.client_session import ClientSession
from millstream.protocols.mqtt.machine.events import Closed, Event
from millstream.protocols.mqtt.wire.decode import decode_frame
from millstream.protocols.mqtt.wire.packets import (
    Auth,
    Connect,
    Disconnect,
    Packet,
    PingReq,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    Subscribe,
    SubscribeEntry,
    Unsubscribe,
)
from millstream.protocols.mqtt.wire.properties import Properties

SECOND = 1_000_000_000
CONNACK = {3: b"\x20\x02\x00\x00", 4: b"\x20\x02\x00\x00", 5: b"\x20\x03\x00\x00\x00"}
CONNACK_PRESENT = {4: b"\x20\x02\x01\x00", 5: b"\x20\x03\x01\x00\x00"}
VERSIONS = [4, 5]


def sent(client: Client) -> list[Packet]:
    data = b"".join(client.data_to_send())
    packets: list[Packet] = []
    position = 0
    while position < len(data):
        version = 0 if data[position] == 0x10 else client.version
        packet, position = decode_frame(data, position, version, 1 << 28)
        assert packet is not None
        packets.append(packet)
    return packets


def start(version: int = 5, connack: bytes = b"", **options: object) -> Client:
    """An open connection whose handshake is read away."""
    session = options.pop("session", None) or ClientSession()
    settles_itself = bool(options.pop("settles_itself", True))
    assert isinstance(session, ClientSession)
    connect = Connect(version, "dev-1", **options)  # type: ignore[arg-type]
    client = Client(connect, session, 0, settles_itself)
    assert sent(client) == [connect]
    events = client.receive_data(connack or CONNACK[version], 0)
    assert isinstance(events[0], Connected)
    return client


def kinds_of(events: list[Event]) -> list[type[Event]]:
    return [type(event) for event in events]


def closed(events: list[Event]) -> int:
    """The reason of the Closed event, which must be the last and the only one."""
    assert [type(event) for event in events].count(Closed) == 1
    last = events[-1]
    assert isinstance(last, Closed)
    return last.reason


# ------------------------------------------------------------------ handshake


@pytest.mark.parametrize("version", [3, 4, 5])
def test_connect_is_sent_first_and_connack_opens(version: int) -> None:
    client = start(version)
    assert client.publish(Publish(b"a", b"x"), 0) == 0
    assert sent(client) == [Publish(b"a", b"x")]


def test_bytes_may_come_one_by_one() -> None:
    client = Client(Connect(5, "c"), ClientSession(), 0)
    events: list[Event] = []
    for byte in CONNACK[5] + frame(0x30, text(b"a"), b"\x00hello"):
        events += client.receive_data(bytes([byte]), 0)
    assert kinds_of(events) == [Connected, MessageReceived]


def test_nothing_can_be_asked_before_the_answer() -> None:
    client = Client(Connect(5, "c"), ClientSession(), 0)
    with pytest.raises(Refused) as caught:
        client.publish(Publish(b"a", b""), 0)
    assert caught.value.reason is Reason.UNAVAILABLE


@pytest.mark.parametrize(
    ("version", "answer", "reason"), [(4, b"\x20\x02\x00\x05", 5), (5, b"\x20\x03\x00\x87\x00", 0x87)]
)
def test_a_refusal_closes(version: int, answer: bytes, reason: int) -> None:
    client = Client(Connect(version, "c"), ClientSession(), 0)
    events = client.receive_data(answer, 0)
    assert kinds_of(events) == [ConnectRefused, Closed]
    assert closed(events) == reason
    assert client.next_deadline() is None


@pytest.mark.parametrize(
    "data",
    [
        b"\xd0\x00",
        b"\x40\x02\x00\x01",
        frame(0x30, text(b"a"), b"\x00"),
        b"\xf0\x00",
        b"\x10\x00",
        b"\x00\x00",
    ],
)
def test_anything_but_connack_first_is_a_fault(data: bytes) -> None:
    client = Client(Connect(5, "c"), ClientSession(), 0)
    sent(client)
    assert closed(client.receive_data(data, 0)) in (0x81, 0x82)
    assert sent(client) == []


def test_silence_after_connect_closes() -> None:
    client = Client(Connect(5, "c"), ClientSession(), 5 * SECOND)
    assert client.next_deadline() == 15 * SECOND
    assert client.on_deadline(14 * SECOND) == []
    assert closed(client.on_deadline(15 * SECOND)) == 0x8D


def test_a_new_session_that_is_there_already_is_a_fault() -> None:
    client = Client(Connect(5, "c", clean_start=True), ClientSession(), 0)
    assert closed(client.receive_data(CONNACK_PRESENT[5], 0)) == 0x82


def test_after_closed_input_is_dropped_and_nothing_is_written() -> None:
    client = start()
    assert closed(client.disconnect(0, None, 0)) == 0
    assert sent(client) == [Disconnect()]
    assert client.receive_data(b"\x00\x00\x00", 0) == []
    assert client.on_connection_lost("gone") == []
    assert client.disconnect(0, None, 0) == []
    client.settle(1, 0, 0)
    assert sent(client) == []


def test_a_lost_transport_is_told_once() -> None:
    client = start()
    events = client.on_connection_lost("reset by peer")
    assert closed(events) == 0x80
    assert client.on_connection_lost("again") == []


# ------------------------------------------------------- enhanced authentication


def test_an_authentication_goes_to_and_fro() -> None:
    terms = props(authentication_method=b"TEST", authentication_data=b"1")
    client = Client(Connect(5, "c", properties=terms), ClientSession(), 0)
    sent(client)
    asked = client.receive_data(frame(0xF0, b"\x18", block(b"\x15" + text(b"TEST"), b"\x16" + text(b"2"))), 0)
    assert kinds_of(asked) == [AuthenticationAsked]
    client.authenticate(b"3", 0)
    assert sent(client) == [Auth(0x18, props(authentication_method=b"TEST", authentication_data=b"3"))]
    assert kinds_of(client.receive_data(CONNACK[5], 0)) == [Connected]
    client.authenticate(b"4", 0, 0x19)
    assert sent(client) == [Auth(0x19, props(authentication_method=b"TEST", authentication_data=b"4"))]
    assert kinds_of(client.receive_data(b"\xf0\x00", 0)) == [AuthenticationAsked]


def test_an_authentication_nobody_asked_for_is_a_fault() -> None:
    assert closed(start().receive_data(b"\xf0\x00", 0)) == 0x82


# -------------------------------------------------------------------- publish


@pytest.mark.parametrize("version", VERSIONS)
def test_qos_1_is_settled_by_puback(version: int) -> None:
    client = start(version)
    packet_id = client.publish(Publish(b"a", b"x", 1), 0)
    assert sent(client) == [Publish(b"a", b"x", 1, packet_id=packet_id)]
    (settled,) = client.receive_data(b"\x40\x02\x00" + bytes([packet_id]), 0)
    assert isinstance(settled, PublishSettled)
    assert (settled.packet_id, settled.reason) == (packet_id, 0)


@pytest.mark.parametrize("version", VERSIONS)
def test_qos_2_is_released_and_settled_by_pubcomp(version: int) -> None:
    client = start(version)
    assert client.publish(Publish(b"a", b"x", 2), 0) == 1
    sent(client)
    assert client.receive_data(b"\x50\x02\x00\x01", 0) == []
    assert sent(client) == [PubRel(1)]
    (settled,) = client.receive_data(b"\x70\x02\x00\x01", 0)
    assert isinstance(settled, PublishSettled)


@pytest.mark.parametrize(("qos", "answer"), [(1, b"\x40\x03\x00\x01\x87"), (2, b"\x50\x03\x00\x01\x87")])
def test_a_refused_publish_is_settled_with_its_reason(qos: int, answer: bytes) -> None:
    client = start()
    client.publish(Publish(b"a", b"x", qos), 0)
    sent(client)
    (settled,) = client.receive_data(answer, 0)
    assert isinstance(settled, PublishSettled)
    assert settled.reason == 0x87
    assert sent(client) == []


def test_the_servers_receive_maximum_is_kept() -> None:
    client = start(connack=frame(0x20, b"\x00\x00", block(b"\x21\x00\x02")))
    ids = [client.publish(Publish(b"a", b"%d" % number, 1 + number % 2), 0) for number in range(5)]
    assert [packet.payload for packet in sent(client) if isinstance(packet, Publish)] == [b"0", b"1"]
    client.receive_data(b"\x50\x02\x00" + bytes([ids[1]]), 0)
    assert sent(client) == [PubRel(ids[1])]  # still open
    client.receive_data(b"\x40\x02\x00" + bytes([ids[0]]), 0)
    assert [packet.payload for packet in sent(client) if isinstance(packet, Publish)] == [b"2"]
    client.receive_data(b"\x70\x02\x00" + bytes([ids[1]]), 0)
    assert [packet.payload for packet in sent(client) if isinstance(packet, Publish)] == [b"3"]
    client.publish(Publish(b"a", b"free", 0), 0)  # QoS 0 does not count
    assert [packet.payload for packet in sent(client) if isinstance(packet, Publish)] == [b"free"]


@pytest.mark.parametrize(
    ("terms", "packet", "reason"),
    [
        (b"\x24\x00", Publish(b"a", b"", 1), Reason.GUARANTEE_NOT_SUPPORTED),
        (b"\x24\x01", Publish(b"a", b"", 2), Reason.GUARANTEE_NOT_SUPPORTED),
        (b"\x25\x00", Publish(b"a", b"", 0, True), Reason.UNSPECIFIED),
        (b"\x27\x00\x00\x00\x14", Publish(b"a", b"x" * 20), Reason.TOO_LARGE),
        (b"\x27\x00\x00\x00\x14", Publish(b"a", b"x" * 20, 2), Reason.TOO_LARGE),
        (b"\x13\x00\x00", Publish(b"t" * 65536, b""), Reason.TOO_LARGE),
    ],
)
def test_what_the_server_does_not_take_is_refused_here(terms: bytes, packet: Publish, reason: Reason) -> None:
    client = start(connack=frame(0x20, b"\x00\x00", block(terms)))
    with pytest.raises(Refused) as caught:
        client.publish(packet, 0)
    assert caught.value.reason is reason
    assert sent(client) == []
    assert client.publish(Publish(b"a", b""), 0) == 0


def test_a_311_server_gets_a_small_window() -> None:
    client = start(4)
    for _ in range(50):
        client.publish(Publish(b"a", b"x", 1), 0)
    assert len(sent(client)) == 20
    client.receive_data(b"\x40\x02\x00\x01\x40\x02\x00\x02", 0)
    assert len(sent(client)) == 2


def test_packet_ids_are_not_used_twice_at_once() -> None:
    client = start()
    ids = [client.publish(Publish(b"a", b"", 1), 0) for _ in range(65535)]
    assert len(set(ids)) == 65535
    assert min(ids) == 1
    with pytest.raises(Refused) as caught:
        client.publish(Publish(b"a", b"", 1), 0)
    assert caught.value.reason is Reason.QUOTA_EXCEEDED
    client.receive_data(b"\x40\x02\x12\x34", 0)
    assert client.publish(Publish(b"a", b"", 1), 0) == 0x1234


@pytest.mark.parametrize("data", [b"\x50\x02\x00\x01", b"\x70\x02\x00\x01"])
def test_the_wrong_answer_to_qos_1_is_a_fault(data: bytes) -> None:
    client = start()
    client.publish(Publish(b"a", b"", 1), 0)
    sent(client)
    assert closed(client.receive_data(data, 0)) == 0x82
    assert sent(client) == [Disconnect(0x82)]


@pytest.mark.parametrize("data", [b"\x40\x02\x00\x01", b"\x70\x02\x00\x01"])
def test_the_wrong_answer_to_qos_2_is_a_fault(data: bytes) -> None:
    client = start()
    client.publish(Publish(b"a", b"", 2), 0)
    assert closed(client.receive_data(data, 0)) == 0x82


def test_answers_to_unknown_ids_are_passed_over_or_cleaned_up() -> None:
    client = start()
    assert client.receive_data(b"\x40\x02\x00\x09\x70\x02\x00\x09\x90\x04\x00\x09\x00\x00", 0) == []
    assert sent(client) == []
    client.receive_data(b"\x50\x02\x00\x09", 0)
    client.receive_data(b"\x62\x02\x00\x09", 0)
    assert sent(client) == [PubRel(9, 0x92), PubComp(9, 0x92)]


# ------------------------------------------------------------ session and resend


@pytest.mark.parametrize("version", VERSIONS)
def test_what_was_not_settled_is_sent_again_in_order_when_the_session_goes_on(version: int) -> None:
    session = ClientSession()
    first = start(version, clean_start=False, session=session)
    for payload, qos in ((b"0", 1), (b"1", 2), (b"2", 2), (b"3", 1)):
        first.publish(Publish(b"a", payload, qos), 0)
    first.receive_data(b"\x50\x02\x00\x02", 0)
    first.on_connection_lost("reset")
    second = start(version, CONNACK_PRESENT[version], clean_start=False, session=session)
    packets = sent(second)
    assert packets[0] == PubRel(2)
    again = [packet for packet in packets[1:] if isinstance(packet, Publish)]
    assert [(packet.packet_id, packet.payload, packet.dup) for packet in again] == [
        (1, b"0", True),
        (3, b"2", True),
        (4, b"3", True),
    ]


def test_what_waited_behind_the_window_is_not_a_duplicate_when_it_is_first_sent() -> None:
    session = ClientSession()
    first = start(
        connack=frame(0x20, b"\x00\x00", block(b"\x21\x00\x01")), clean_start=False, session=session
    )
    first.publish(Publish(b"a", b"0", 1), 0)
    first.publish(Publish(b"a", b"1", 1), 0)
    first.on_connection_lost("reset")
    second = start(5, CONNACK_PRESENT[5], clean_start=False, session=session)
    assert sent(second) == [Publish(b"a", b"0", 1, False, True, 1), Publish(b"a", b"1", 1, False, False, 2)]


def test_a_session_the_server_lost_is_told_with_what_was_open() -> None:
    session = ClientSession()
    first = start(clean_start=False, session=session)
    first.publish(Publish(b"a", b"0", 1), 0)
    first.publish(Publish(b"a", b"1", 2), 0)
    first.receive_data(b"\x50\x02\x00\x02", 0)
    first.on_connection_lost("reset")
    second = Client(Connect(5, "dev-1", False), session, 0)
    sent(second)
    connected, settled, lost = second.receive_data(CONNACK[5], 0)
    assert isinstance(connected, Connected)
    assert isinstance(settled, PublishSettled)
    assert (settled.packet_id, settled.reason) == (2, 0)
    assert isinstance(lost, SessionLost)
    assert [packet.payload for packet in lost.publishes] == [b"0"]
    assert sent(second) == []


def test_a_qos_2_message_sent_again_after_a_reconnect_is_handed_on_once() -> None:
    session = ClientSession()
    first = start(clean_start=False, session=session)
    message = frame(0x34, text(b"a"), b"\x00\x07\x00x")
    assert kinds_of(first.receive_data(message, 0)) == [MessageReceived]
    first.on_connection_lost("reset")
    second = start(5, CONNACK_PRESENT[5], clean_start=False, session=session)
    assert second.receive_data(frame(0x3C, text(b"a"), b"\x00\x07\x00x"), 0) == []
    assert second.receive_data(b"\x62\x02\x00\x07", 0) == []
    assert sent(second) == [PubRec(7), PubComp(7)]
    assert kinds_of(second.receive_data(message, 0)) == [MessageReceived]


# -------------------------------------------------------------------- receive


@pytest.mark.parametrize("version", VERSIONS)
def test_messages_are_answered_by_their_qos(version: int) -> None:
    client = start(version)
    empty = b"\x00" if version == 5 else b""
    data = (
        frame(0x31, text(b"a"), empty, b"0")
        + frame(0x32, text(b"a"), b"\x00\x01", empty, b"1")
        + frame(0x34, text(b"a"), b"\x00\x02", empty, b"2")
        + b"\x62\x02\x00\x02"
    )
    messages = [event.packet for event in client.receive_data(data, 0) if isinstance(event, MessageReceived)]
    assert [(message.payload, message.qos, message.retain) for message in messages] == [
        (b"0", 0, True),
        (b"1", 1, False),
        (b"2", 2, False),
    ]
    assert sent(client) == [PubAck(1), PubRec(2), PubComp(2)]


def test_an_owner_that_settles_decides_when_and_how() -> None:
    client = start(settles_itself=False)
    client.receive_data(frame(0x32, text(b"a"), b"\x00\x01\x00"), 0)
    client.receive_data(frame(0x34, text(b"a"), b"\x00\x02\x00"), 0)
    client.receive_data(frame(0x34, text(b"a"), b"\x00\x03\x00"), 0)
    assert client.receive_data(frame(0x3C, text(b"a"), b"\x00\x02\x00"), 0) == []
    assert sent(client) == []
    client.settle(2, 0, 0)
    client.settle(1, 0x87, 0)
    client.settle(3, 0x97, 0)
    client.settle(1, 0, 0)
    assert sent(client) == [PubRec(2), PubAck(1, 0x87), PubRec(3, 0x97)]
    assert kinds_of(client.receive_data(frame(0x34, text(b"a"), b"\x00\x03\x00"), 0)) == [MessageReceived]


def test_a_server_beyond_our_receive_maximum_is_at_fault() -> None:
    client = start(properties=props(receive_maximum=2), settles_itself=False)
    for packet_id in (b"\x01", b"\x02"):
        client.receive_data(frame(0x32, text(b"a"), b"\x00" + packet_id + b"\x00"), 0)
    client.settle(1, 0, 0)
    assert kinds_of(client.receive_data(frame(0x34, text(b"a"), b"\x00\x03\x00"), 0)) == [MessageReceived]
    client.settle(3, 0, 0)  # PUBREC: still open
    assert closed(client.receive_data(frame(0x32, text(b"a"), b"\x00\x04\x00"), 0)) == 0x93


def test_topic_aliases_are_resolved() -> None:
    client = start(properties=props(topic_alias_maximum=2))
    data = frame(0x30, text(b"a/b"), block(b"\x23\x00\x02"), b"0") + frame(
        0x30, b"\x00\x00", block(b"\x23\x00\x02")
    )
    messages = [
        event.packet.topic for event in client.receive_data(data, 0) if isinstance(event, MessageReceived)
    ]
    assert messages == [b"a/b", b"a/b"]


@pytest.mark.parametrize(("alias", "reason"), [(b"\x00\x01", 0x82), (b"\x00\x03", 0x94)])
def test_a_bad_topic_alias_is_a_fault(alias: bytes, reason: int) -> None:
    client = start(properties=props(topic_alias_maximum=2))
    assert closed(client.receive_data(frame(0x30, b"\x00\x00", block(b"\x23" + alias)), 0)) == reason
    assert sent(client) == [Disconnect(reason)]


@pytest.mark.parametrize(
    "data",
    [
        b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x00\x00\x00",
        b"\x20\x02\x00\x00",
        b"\x82\x06\x00\x01\x00\x01a\x00",
        b"\xa2\x05\x00\x01\x00\x01a",
        b"\xc0\x00",
        b"\xe0\x00",
    ],
    ids=["CONNECT", "CONNACK", "SUBSCRIBE", "UNSUBSCRIBE", "PINGREQ", "DISCONNECT"],
)
def test_a_311_server_must_not_send_what_only_clients_send(data: bytes) -> None:
    client = start(4)
    assert closed(client.receive_data(data, 0)) == 0x82
    assert sent(client) == []


def test_a_packet_over_the_limit_is_refused_by_its_header() -> None:
    client = Client(Connect(4, "c"), ClientSession(), 0, True, 100)
    client.receive_data(CONNACK[4], 0)
    assert closed(client.receive_data(b"\x30\x64", 0)) == 0x95


def test_the_servers_goodbye_is_told() -> None:
    client = start()
    events = client.receive_data(b"\xe0\x01\x8b", 0)
    assert kinds_of(events) == [DisconnectedByServer, Closed]
    assert closed(events) == 0x8B


# ------------------------------------------------------------------ subscribe


def test_subscribe_and_unsubscribe_are_answered_by_filter() -> None:
    client = start()
    entries = [SubscribeEntry(b"a", 1), SubscribeEntry(b"b", 2)]
    assert client.subscribe(entries, None, 0) == 1
    assert client.unsubscribe([b"c"], None, 0) == 2
    assert sent(client) == [Subscribe(1, entries), Unsubscribe(2, [b"c"])]
    first, second = client.receive_data(b"\x90\x05\x00\x01\x00\x01\x87\xb0\x04\x00\x02\x00\x11", 0)
    assert isinstance(first, SubscribeAnswered)
    assert isinstance(second, SubscribeAnswered)
    assert (first.packet_id, first.reasons) == (1, [1, 0x87])
    assert (second.packet_id, second.reasons) == (2, [0x11])


def test_an_unsuback_before_mqtt_5_has_no_reasons() -> None:
    client = start(4)
    client.unsubscribe([b"a", b"b"], None, 0)
    (answered,) = client.receive_data(b"\xb0\x02\x00\x01", 0)
    assert isinstance(answered, SubscribeAnswered)
    assert answered.reasons == []


def test_a_suback_for_another_number_of_filters_is_a_fault() -> None:
    client = start(4)
    client.subscribe([SubscribeEntry(b"a"), SubscribeEntry(b"b")], None, 0)
    assert closed(client.receive_data(b"\x90\x03\x00\x01\x00", 0)) == 0x82


# ----------------------------------------------------------------- keep alive


def test_a_quiet_connection_is_pinged_within_the_keep_alive() -> None:
    client = start(keep_alive_s=60)
    assert client.next_deadline() == 45 * SECOND
    assert client.on_deadline(44 * SECOND) == []
    assert sent(client) == []
    client.on_deadline(45 * SECOND)
    assert sent(client) == [PingReq()]
    assert client.receive_data(b"\xd0\x00", 46 * SECOND) == []
    assert client.next_deadline() == 90 * SECOND


def test_sending_alone_does_not_hide_a_dead_server() -> None:
    client = start(keep_alive_s=60)
    client.publish(Publish(b"a", b""), 40 * SECOND)
    sent(client)
    client.on_deadline(45 * SECOND)
    assert sent(client) == [PingReq()]
    assert client.next_deadline() == 55 * SECOND
    assert closed(client.on_deadline(55 * SECOND)) == 0x8D
    assert sent(client) == [Disconnect(0x8D)]


def test_bytes_that_keep_coming_are_as_good_as_a_pingresp() -> None:
    client = start(keep_alive_s=60)
    client.on_deadline(45 * SECOND)
    client.receive_data(b"\x30", 54 * SECOND)
    assert client.next_deadline() == 64 * SECOND
    assert client.on_deadline(55 * SECOND) == []


def test_without_keep_alive_there_is_no_deadline() -> None:
    assert start(keep_alive_s=0).next_deadline() is None


def test_the_servers_keep_alive_wins() -> None:
    client = start(connack=frame(0x20, b"\x00\x00", block(b"\x13\x00\x04")), keep_alive_s=60)
    assert client.next_deadline() == 3 * SECOND


def test_a_paused_owner_pings_and_is_not_cut_for_the_answers_it_does_not_read() -> None:
    client = start(keep_alive_s=60)
    client.pause()
    for time_s in (45, 90, 135):
        assert client.next_deadline() == time_s * SECOND
        assert client.on_deadline(time_s * SECOND) == []
        assert sent(client) == [PingReq()]
    client.resume(140 * SECOND)
    assert client.next_deadline() == 150 * SECOND
    client.receive_data(b"\xd0\x00" * 3, 141 * SECOND)
    assert client.next_deadline() == (135 + 45) * SECOND


def test_the_servers_terms_can_be_read() -> None:
    client = start(connack=frame(0x20, b"\x00\x00", block(b"\x12" + text(b"auto-7"))))
    assert client.server.assigned_client_identifier == b"auto-7"
    assert isinstance(client.server, Properties)
