"""Client side of one MQTT connection: bytes in, events and bytes out.

Used by the command line, by bridges and by simulated clients. The session outlives the machine: hand the same
one to the next machine and what was not settled is sent again, in order, when the server still has it.

Invariants
- CONNECT is the first packet sent; before CONNACK only AUTH follows it.
- No more QoS 1 and 2 publishes are open than the server's receive maximum; the rest waits in order.
- A QoS 2 message is handed on once.
- Exactly one Closed event; after it, input is dropped and nothing is written.
"""

from __future__ import annotations

from collections import deque
from enum import IntEnum
from typing import Final

from millstream.model.errors import Reason, Refused
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
from millstream.protocols.mqtt.machine.client_session import QUEUED, RELEASED, SENT, ClientSession, Outgoing
from millstream.protocols.mqtt.machine.events import Closed, Event
from millstream.protocols.mqtt.wire.decode import decode_frame, find_frame_size
from millstream.protocols.mqtt.wire.encode import PINGREQ_FRAME, encode_connect, encode_packet
from millstream.protocols.mqtt.wire.packets import (
    Answer,
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    Packet,
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
from millstream.protocols.mqtt.wire.reason_codes import (
    CONTINUE_AUTHENTICATION,
    KEEP_ALIVE_TIMEOUT,
    NORMAL_DISCONNECTION,
    PACKET_IDENTIFIER_NOT_FOUND,
    PROTOCOL_ERROR,
    RECEIVE_MAXIMUM_EXCEEDED,
    SUCCESS,
    TOPIC_ALIAS_INVALID,
    UNSPECIFIED_ERROR,
    get_reason_name,
)
from millstream.protocols.mqtt.wire.violation import Violation

PACKET_SIZE_MAX: Final = 16 * 1024 * 1024
WINDOW_MAX: Final = 65_535  # what a side that names no receive maximum allows
WINDOW_BEFORE_5: Final = 20  # 3.1.1 servers cannot say theirs; more than the usual one gets a client cut off
SECOND_NS: Final = 1_000_000_000


_HANDSHAKE_BYTES: Final = b"\x20\xf0"  # CONNACK or AUTH: tells another protocol apart at its first byte


class State(IntEnum):
    CONNECTING = 0
    OPEN = 1
    CLOSED = 2


CONNECTING: Final = State.CONNECTING
OPEN: Final = State.OPEN
CLOSED: Final = State.CLOSED


class Client:
    """`settles_itself` answers QoS 1 and 2 messages as they come; otherwise the owner calls `settle`."""

    def __init__(
        self,
        connect: Connect,
        session: ClientSession,
        now_ns: int,
        settles_itself: bool = True,
        packet_size_max: int = PACKET_SIZE_MAX,
        answer_timeout_ns: int = 10 * SECOND_NS,
    ) -> None:
        self.state = CONNECTING
        self.version = connect.version
        self.server = Properties()  # the server's terms, from CONNACK
        self._session = session
        self._settles_itself = settles_itself
        self._packet_size_max = packet_size_max
        self._answer_timeout_ns = answer_timeout_ns
        self._keep_alive_ns = connect.keep_alive_s * SECOND_NS
        self._out: list[bytes] = []
        self._unread: list[bytes] = []
        self._unread_size = 0
        self._wanted_size = 0  # bytes that must be there before decoding makes sense
        self._sent_ns = now_ns
        self._heard_ns = now_ns
        self._ping_ns = 0  # when the unanswered PINGREQ was sent; 0: none
        self._is_paused = False
        self._open_count = 0  # our publishes the server counts against its receive maximum
        self._window = WINDOW_MAX if connect.version >= 5 else WINDOW_BEFORE_5
        self._waiting: deque[int] = deque()  # packet ids beyond the window, oldest first
        self._unsettled: dict[int, int] = {}  # packet id -> QoS of messages the owner has not settled
        self._counted: dict[int, bool] = {}  # packet ids that count against our receive maximum
        self._aliases: dict[int, bytes] = {}
        own = connect.properties
        self._alias_max = (own.topic_alias_maximum or 0) if own is not None else 0
        self._receive_maximum = (own.receive_maximum or WINDOW_MAX) if own is not None else WINDOW_MAX
        self._method = own.authentication_method if own is not None else None
        self._clean_start = connect.clean_start
        self._lost: list[Outgoing] = session.clear() if connect.clean_start else []
        session.start_connection()
        self._out.append(encode_connect(connect))

    # ------------------------------------------------------------------ bytes

    def receive_data(self, data: bytes, now_ns: int) -> list[Event]:
        events: list[Event] = []
        if self.is_closed():
            return events
        self._heard_ns = now_ns
        self._unread.append(data)
        self._unread_size += len(data)
        if self._unread_size < self._wanted_size:
            return events
        buffer = b"".join(self._unread)
        position = 0
        try:
            if self.state is CONNECTING and buffer and buffer[0] not in _HANDSHAKE_BYTES:
                raise Violation(PROTOCOL_ERROR, "the server does not speak MQTT")
            while not self.is_closed():
                packet, position = decode_frame(buffer, position, self.version, self._packet_size_max)
                if packet is None:
                    break
                self._on_packet(packet, now_ns, events)
        except Violation as violation:  # the peer's fault; answered here, never raised
            self._fail(violation.reason, violation.text, events)
        self._keep(buffer[position:])
        return events

    def _keep(self, rest: bytes) -> None:
        if self.is_closed():
            rest = b""
        self._unread = [rest] if rest else []
        self._unread_size = len(rest)
        self._wanted_size = find_frame_size(rest, 0)  # so that a large packet is joined once, not per read

    def is_closed(self) -> bool:
        return self.state is CLOSED

    def data_to_send(self) -> list[bytes]:
        out = self._out
        self._out = []
        return out

    def on_connection_lost(self, text: str) -> list[Event]:
        """The transport is gone; nothing more can be said."""
        events: list[Event] = []
        self._close(UNSPECIFIED_ERROR, text, events)
        return events

    # ------------------------------------------------------------------- time

    def next_deadline(self) -> int | None:
        if self.state is CLOSED:
            return None
        if self.state is CONNECTING:
            return self._sent_ns + self._answer_timeout_ns
        if self._keep_alive_ns == 0:
            return None
        if self._ping_ns and not self._is_paused:
            return max(self._ping_ns, self._heard_ns) + self._answer_timeout_ns
        return self._next_ping_ns()

    def _next_ping_ns(self) -> int:
        """Three quarters into the keep-alive: the PINGREQ must arrive within it [MQTT-3.1.2-20]."""
        quiet_since_ns = self._sent_ns if self._is_paused else min(self._sent_ns, self._heard_ns)
        return quiet_since_ns + self._keep_alive_ns * 3 // 4

    def on_deadline(self, now_ns: int) -> list[Event]:
        events: list[Event] = []
        due_ns = self.next_deadline()
        if due_ns is None or now_ns < due_ns:
            return events
        if self.state is CONNECTING:
            self._close(KEEP_ALIVE_TIMEOUT, "the server did not answer the CONNECT in time", events)
        elif self._ping_ns and not self._is_paused:
            self._fail(KEEP_ALIVE_TIMEOUT, "the server did not answer a PINGREQ in time", events)
        else:
            self._ping_ns = now_ns
            self._write(PINGREQ_FRAME, now_ns)
        return events

    def pause(self) -> None:
        """The owner stops reading: the server's silence is our own doing and no reason to close."""
        self._is_paused = True

    def resume(self, now_ns: int) -> None:
        self._is_paused = False
        self._heard_ns = now_ns
        if self._ping_ns:
            self._ping_ns = now_ns

    # --------------------------------------------------------------- requests

    def publish(self, packet: Publish, now_ns: int) -> int:
        """The packet id PublishSettled will carry, 0 for QoS 0. Raises Refused when the server cannot take it."""
        self._require_open()
        if packet.qos > (
            2 if self.server.maximum_qos is None else self.server.maximum_qos
        ):  # [MQTT-3.2.2-11]
            raise Refused(Reason.GUARANTEE_NOT_SUPPORTED, f"the server does not take QoS {packet.qos}")
        if packet.retain and self.server.retain_available == 0:  # [MQTT-3.2.2-14]
            raise Refused(Reason.UNSPECIFIED, "the server does not take retained messages")
        packet.dup = False
        if packet.qos == 0:
            packet.packet_id = 0
            self._write(self._encode_within_limit(packet), now_ns)
            return 0
        packet.packet_id = self._session.take_packet_id()
        data = self._encode_within_limit(packet)
        outgoing = Outgoing(packet)
        self._session.outgoing[packet.packet_id] = outgoing
        if self._open_count < self._window:
            self._send_outgoing(outgoing, data, now_ns)
        else:
            self._waiting.append(packet.packet_id)
        return packet.packet_id

    def subscribe(self, entries: list[SubscribeEntry], properties: Properties | None, now_ns: int) -> int:
        self._require_open()
        packet_id = self._session.take_packet_id()
        data = self._encode_within_limit(Subscribe(packet_id, entries, properties))
        self._session.requests[packet_id] = len(entries)
        self._write(data, now_ns)
        return packet_id

    def unsubscribe(self, filters: list[bytes], properties: Properties | None, now_ns: int) -> int:
        self._require_open()
        packet_id = self._session.take_packet_id()
        data = self._encode_within_limit(Unsubscribe(packet_id, filters, properties))
        self._session.requests[packet_id] = len(filters)
        self._write(data, now_ns)
        return packet_id

    def settle(self, packet_id: int, reason: int, now_ns: int) -> None:
        """The owner's answer to a message it was handed; forgotten ids are passed over."""
        qos = self._unsettled.pop(packet_id, 0)
        if self.state is not OPEN or qos == 0:
            return
        if qos == 1:
            self._counted.pop(packet_id, False)
            self._send(PubAck(packet_id, reason), now_ns)
            return
        if reason < UNSPECIFIED_ERROR or self.version < 5:
            self._session.received[packet_id] = True
        else:
            self._counted.pop(packet_id, False)
        self._send(PubRec(packet_id, reason), now_ns)

    def authenticate(self, data: bytes | None, now_ns: int, reason: int = CONTINUE_AUTHENTICATION) -> None:
        """Our turn of an enhanced authentication; with REAUTHENTICATE, the begin of another one."""
        properties = Properties()
        properties.authentication_method = self._method
        properties.authentication_data = data
        if self.state is not CLOSED:
            self._send(Auth(reason, properties), now_ns)

    def disconnect(self, reason: int, properties: Properties | None, now_ns: int) -> list[Event]:
        events: list[Event] = []
        if self.state is OPEN:
            self._send(Disconnect(reason, properties), now_ns)
        self._close(NORMAL_DISCONNECTION, "disconnected", events)
        return events

    # ---------------------------------------------------------------- packets

    def _on_packet(self, packet: Packet, now_ns: int, events: list[Event]) -> None:
        if self.state is CONNECTING:
            self._on_handshake(packet, now_ns, events)
        elif isinstance(packet, Publish):
            self._on_publish(packet, now_ns, events)
        elif isinstance(packet, Answer):
            self._on_answer(packet, now_ns, events)
        elif isinstance(packet, SubAck):
            self._on_request_answered(packet.packet_id, packet.reasons, True, events)
        elif isinstance(packet, UnsubAck):
            self._on_request_answered(packet.packet_id, packet.reasons, self.version >= 5, events)
        elif isinstance(packet, PingResp):
            self._ping_ns = 0
        elif isinstance(packet, Auth) and self._method is not None:
            events.append(AuthenticationAsked(packet))
        elif isinstance(packet, Disconnect) and self.version >= 5:
            events.append(DisconnectedByServer(packet))
            self._close(packet.reason, "the server disconnected: " + get_reason_name(packet.reason), events)
        else:
            raise Violation(PROTOCOL_ERROR, f"a server must not send {type(packet).__name__}")

    def _on_handshake(self, packet: Packet, now_ns: int, events: list[Event]) -> None:
        if isinstance(packet, Auth) and self._method is not None:
            events.append(AuthenticationAsked(packet))
            return
        if not isinstance(packet, ConnAck):
            raise Violation(PROTOCOL_ERROR, "the server must answer CONNECT with CONNACK first")
        if packet.reason != SUCCESS:
            events.append(ConnectRefused(packet))
            name = get_reason_name(packet.reason, self.version)
            self._close(packet.reason, "the server refused the connection: " + name, events)
            return
        if packet.session_present and self._clean_start:  # [MQTT-3.2.2-2]
            raise Violation(PROTOCOL_ERROR, "the server kept a session that was to be new")
        self.state = OPEN
        if packet.properties is not None:
            self.server = packet.properties
        if self.server.server_keep_alive is not None:  # [MQTT-3.2.2-21]
            self._keep_alive_ns = self.server.server_keep_alive * SECOND_NS
        if self.server.receive_maximum is not None:
            self._window = self.server.receive_maximum
        events.append(Connected(packet))
        if not packet.session_present:
            self._lost.extend(self._session.clear())
            self._report_lost(events)
        for outgoing in self._session.outgoing.values():
            if outgoing.phase is RELEASED:
                self._open_count += 1
                self._send(PubRel(outgoing.packet.packet_id), now_ns)
            else:
                self._waiting.append(outgoing.packet.packet_id)
        self._send_waiting(now_ns)

    def _report_lost(self, events: list[Event]) -> None:
        """What the server had taken before it lost the session is settled; the rest is for the owner."""
        publishes: list[Publish] = []
        for outgoing in self._lost:
            if outgoing.phase is RELEASED:
                events.append(PublishSettled(outgoing.packet.packet_id, SUCCESS))
            else:
                publishes.append(outgoing.packet)
        self._lost = []
        if publishes:
            events.append(SessionLost(publishes))

    def _on_publish(self, packet: Publish, now_ns: int, events: list[Event]) -> None:
        self._resolve_alias(packet)
        packet_id = packet.packet_id
        if packet.qos == 0:
            events.append(MessageReceived(packet))
            return
        if packet_id in self._unsettled:
            return
        if packet.qos == 2 and packet_id in self._session.received:
            self._send(PubRec(packet_id), now_ns)
            return
        if len(self._counted) >= self._receive_maximum:  # [MQTT-3.3.4-9]
            raise Violation(RECEIVE_MAXIMUM_EXCEEDED, "the server sent more than the receive maximum")
        self._counted[packet_id] = True
        self._unsettled[packet_id] = packet.qos
        events.append(MessageReceived(packet))
        if self._settles_itself:
            self.settle(packet_id, SUCCESS, now_ns)

    def _resolve_alias(self, packet: Publish) -> None:
        alias = packet.properties.topic_alias if packet.properties is not None else None
        if alias is None:
            return
        if alias > self._alias_max:  # [MQTT-3.1.2-26]
            raise Violation(TOPIC_ALIAS_INVALID, "the server used a topic alias beyond the maximum")
        if packet.topic:
            self._aliases[alias] = packet.topic
        elif alias in self._aliases:
            packet.topic = self._aliases[alias]
        else:
            raise Violation(PROTOCOL_ERROR, "the server used a topic alias it never set")

    def _on_answer(self, packet: Answer, now_ns: int, events: list[Event]) -> None:
        packet_id = packet.packet_id
        if isinstance(packet, PubRel):
            known = self._session.received.pop(packet_id, False)
            self._counted.pop(packet_id, False)
            self._send(PubComp(packet_id, SUCCESS if known else PACKET_IDENTIFIER_NOT_FOUND), now_ns)
            return
        outgoing = self._session.outgoing.get(packet_id)
        if outgoing is None or outgoing.phase is QUEUED:
            if isinstance(packet, PubRec):  # settled long ago, or never ours: let the server forget it
                self._send(PubRel(packet_id, PACKET_IDENTIFIER_NOT_FOUND), now_ns)
            return
        if isinstance(packet, PubAck) and outgoing.packet.qos == 1:
            self._finish(packet_id, packet.reason, now_ns, events)
        elif isinstance(packet, PubRec) and outgoing.packet.qos == 2:
            if packet.reason >= UNSPECIFIED_ERROR and outgoing.phase is SENT:
                self._finish(packet_id, packet.reason, now_ns, events)
                return
            outgoing.phase = RELEASED
            outgoing.packet.payload = b""  # the server has it now
            self._send(PubRel(packet_id), now_ns)
        elif isinstance(packet, PubComp) and outgoing.phase is RELEASED:
            self._finish(packet_id, packet.reason, now_ns, events)
        else:
            raise Violation(PROTOCOL_ERROR, f"{type(packet).__name__} does not answer that publish")

    def _on_request_answered(
        self, packet_id: int, reasons: list[int], has_reasons: bool, events: list[Event]
    ) -> None:
        count = self._session.requests.pop(packet_id, 0)
        if count == 0:
            return
        if has_reasons and len(reasons) != count:  # [MQTT-3.8.4-6, MQTT-3.11.3-1]
            raise Violation(PROTOCOL_ERROR, "the server answered another number of filters")
        events.append(SubscribeAnswered(packet_id, reasons))

    def _finish(self, packet_id: int, reason: int, now_ns: int, events: list[Event]) -> None:
        del self._session.outgoing[packet_id]
        self._open_count -= 1
        events.append(PublishSettled(packet_id, reason))
        self._send_waiting(now_ns)

    # ----------------------------------------------------------------- output

    def _send_waiting(self, now_ns: int) -> None:
        """Fill the server's window from what waits, oldest first [MQTT-3.3.4-7]."""
        while self._waiting and self._open_count < self._window:
            outgoing = self._session.outgoing.get(self._waiting.popleft())
            if outgoing is not None:
                outgoing.packet.dup = outgoing.was_sent  # [MQTT-3.3.1-1]
                self._send_outgoing(outgoing, encode_packet(outgoing.packet, self.version), now_ns)

    def _send_outgoing(self, outgoing: Outgoing, data: bytes, now_ns: int) -> None:
        outgoing.phase = SENT
        outgoing.was_sent = True
        self._open_count += 1
        self._write(data, now_ns)

    def _encode_within_limit(self, packet: Packet) -> bytes:
        try:
            data = encode_packet(packet, self.version)
        except ValueError as error:
            raise Refused(Reason.TOO_LARGE, str(error)) from error
        limit = self.server.maximum_packet_size
        if limit is not None and len(data) > limit:  # [MQTT-3.2.2-15]
            raise Refused(Reason.TOO_LARGE, f"the server takes packets of {limit} bytes at most")
        return data

    def _require_open(self) -> None:
        if self.state is not OPEN:
            raise Refused(Reason.UNAVAILABLE, "the connection is not open")

    def _send(self, packet: Packet, now_ns: int) -> None:
        self._write(encode_packet(packet, self.version), now_ns)

    def _write(self, data: bytes, now_ns: int) -> None:
        self._sent_ns = now_ns
        self._out.append(data)

    def _fail(self, reason: int, text: str, events: list[Event]) -> None:
        if self.state is OPEN and self.version >= 5:
            self._out.append(encode_packet(Disconnect(reason), self.version))
        self._close(reason, text, events)

    def _close(self, reason: int, text: str, events: list[Event]) -> None:
        if not self.is_closed():
            self.state = CLOSED
            events.append(Closed(reason, text))
