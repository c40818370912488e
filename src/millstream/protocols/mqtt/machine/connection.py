"""Server side of one MQTT connection: bytes in, events and bytes out.

Invariants
- CONNECT comes first and only once [MQTT-3.1.0-1, MQTT-3.1.0-2].
- Between CONNECT and its answer only AUTH and DISCONNECT may come, and only in an enhanced authentication.
- Exactly one Closed event; after it, input is dropped and nothing is written.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, final

from mypy_extensions import i64

from millstream.model.outbox import Outbox
from millstream.protocols.mqtt.machine.events import (
    AuthReceived,
    Closed,
    ConnectReceived,
    DisconnectReceived,
    Event,
    SubscribeReceived,
    UnsubscribeReceived,
)
from millstream.protocols.mqtt.machine.inbound import PADDED, Inbound
from millstream.protocols.mqtt.machine.outbound import Outbound
from millstream.protocols.mqtt.machine.terms import Terms
from millstream.protocols.mqtt.wire import kinds, reason_codes
from millstream.protocols.mqtt.wire.packets import (
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    Subscribe,
    Unsubscribe,
)
from millstream.protocols.mqtt.wire.properties import Properties
from millstream.protocols.mqtt.wire.reason_codes import (
    KEEP_ALIVE_TIMEOUT,
    MALFORMED_PACKET,
    PROTOCOL_ERROR,
    UNSUPPORTED_PROTOCOL_VERSION,
)
from millstream.protocols.mqtt.wire.violation import Violation


class State(IntEnum):
    AWAIT_CONNECT = 0
    CONNECTING = 1  # CONNECT is being decided on; nothing is read
    AUTHENTICATING = 2  # an enhanced authentication goes to and fro
    OPEN = 3
    CLOSED = 4


AWAIT_CONNECT: Final = State.AWAIT_CONNECT
CONNECTING: Final = State.CONNECTING
AUTHENTICATING: Final = State.AUTHENTICATING
OPEN: Final = State.OPEN
CLOSED: Final = State.CLOSED

PINGRESP: Final = b"\xd0\x00"
UNSUPPORTED: Final = b"\x20\x02\x00\x01"  # [MQTT3-3.1.2-2]
UNSUPPORTED_5: Final = b"\x20\x03\x00\x84\x00"  # [MQTT-3.1.2-2]


@final
class Connection(Inbound):
    def __init__(self, terms: Terms, outbox: Outbox, now_ns: i64) -> None:
        super().__init__(terms)
        self.state = AWAIT_CONNECT
        self.outbound = Outbound(outbox)
        self._alive_ns: i64 = now_ns
        self._grace_ns: i64 = terms.handshake_ns
        self._farewell: Packet | None = None
        self._is_lasting = False  # the session outlives this connection

    # ------------------------------------------------------------------ input

    def receive_data(self, data: bytes, now_ns: i64) -> list[Event]:
        events: list[Event] = []
        if self.state is CLOSED:
            return events
        if self.is_open:
            self._alive_ns = now_ns
        try:
            self._receive(data, now_ns, events)
        except Violation as violation:  # the peer's fault; answered here, never raised
            if violation.form and self.state is AWAIT_CONNECT:
                self.version = self.outbound.version = violation.form
            self.fail(violation.reason, violation.text, events)
        return events

    def is_closed(self) -> bool:
        return self.state is CLOSED

    def next_deadline(self) -> i64:
        """When `on_deadline` must be called; 0: not at all."""
        if self.state is CLOSED or self._grace_ns == 0:
            return 0
        return self._alive_ns + self._grace_ns

    def touch(self, now_ns: i64) -> None:
        """The silence is ours: the transport was not read."""
        if self.is_open:
            self._alive_ns = now_ns

    def on_deadline(self, now_ns: i64) -> list[Event]:
        events: list[Event] = []
        due = self.next_deadline()
        if due and now_ns >= due:
            if self.state is OPEN:
                self.fail(KEEP_ALIVE_TIMEOUT, "nothing was heard for one and a half keep-alives", events)
            else:
                self._close(KEEP_ALIVE_TIMEOUT, "the handshake took too long", events)
        return events

    # -------------------------------------------------------------- handshake

    def ask_authentication(self, data: bytes, method: bytes) -> None:
        """The server's turn in an enhanced authentication."""
        if self.state is CONNECTING:
            self.state = AUTHENTICATING
        self.is_waiting = False
        properties = Properties()
        properties.authentication_method = method
        properties.authentication_data = data
        self.outbound.send_packet(Auth(reason_codes.CONTINUE_AUTHENTICATION, properties))

    def accept(self, packet: ConnAck, keep_alive_s: i64, is_lasting: bool, now_ns: i64) -> None:
        """Send CONNACK and go on with what the client sent behind its CONNECT."""
        self._is_lasting = is_lasting
        self.state = OPEN
        self.is_open = True
        self.is_waiting = False
        self._size_max = self.terms.packet_size_max
        self._alive_ns = now_ns
        self._grace_ns = keep_alive_s * 1_500_000_000  # [MQTT-3.1.2-22]
        self.outbound.send_packet(packet)

    def refuse(self, reason: int, packet: ConnAck, text: str) -> list[Event]:
        events: list[Event] = []
        if self.state is not CLOSED:
            self.outbound.send_packet(packet)
            self._close(reason, text, events)
        return events

    def confirm_reauthentication(self, packet: Auth) -> None:
        self.is_waiting = False
        self.outbound.send_packet(packet)

    # ---------------------------------------------------------------- closing

    def end(self, reason: int, text: str, server_reference: bytes | None) -> list[Event]:
        """The server ends it: DISCONNECT with a reason where the version has one."""
        events: list[Event] = []
        self.fail(reason, text, events, server_reference)
        return events

    def end_sooner(self, reason: int, text: str, server_reference: bytes | None) -> list[Event]:
        """It is closed by what came behind, in the same read, and that has not been told: this is why it ends."""
        if self.version == 5:
            properties = self.outbound.explain(text)
            properties.server_reference = server_reference
            self._farewell = Disconnect(reason, properties)
        return [Closed(reason, text)]

    def fail(
        self, reason: int, text: str, events: list[Event], server_reference: bytes | None = None
    ) -> None:
        if self.state is CLOSED:
            return
        if self.version == 5 and (self.state is OPEN):
            properties = self.outbound.explain(text)
            properties.server_reference = server_reference
            self._farewell = Disconnect(reason, properties)
        elif self.state is not OPEN:
            self._refuse_connect(reason, text)
        self._close(reason, text, events)

    def send_farewell(self) -> None:
        """The last packet, once everything that came before the end has been answered."""
        farewell = self._farewell
        if farewell is not None:
            self._farewell = None
            self.outbound.send_packet(farewell)

    def _refuse_connect(self, reason: int, text: str) -> None:
        if reason == UNSUPPORTED_PROTOCOL_VERSION:  # the code alone: it may read nothing else
            self.outbound.send_bytes(UNSUPPORTED_5 if self.version == 5 else UNSUPPORTED)
        elif self.version == 5:
            if reason not in reason_codes.ALLOWED_REASONS[kinds.CONNACK]:  # [MQTT-3.2.2-8]
                reason = reason_codes.SERVER_UNAVAILABLE
            self.outbound.send_packet(ConnAck(False, reason, self.outbound.explain(text)))

    def _close(self, reason: int, text: str, events: list[Event]) -> None:
        self.state = CLOSED
        self.is_open = False
        self.is_waiting = True  # stops a scan that is under way
        self._kept = None
        self._aliases = None
        events.append(Closed(reason, text))

    # ---------------------------------------------------------------- packets

    def _on_control(self, packet: Packet, now_ns: i64, events: list[Event]) -> None:
        state = self.state
        if state is AWAIT_CONNECT:
            if not isinstance(packet, Connect):
                raise Violation(PROTOCOL_ERROR, "CONNECT must come first")
            if self.pads and packet.version == 5:  # [MQTT-1.5.5-1]
                raise Violation(MALFORMED_PACKET, PADDED)
            self.version = packet.version
            self.outbound.version = packet.version
            self.state = CONNECTING
            self.is_waiting = True
            self._alive_ns = now_ns
            self._grace_ns = self.terms.authentication_ns
            if packet.properties is not None:
                self.outbound.packet_size_max = packet.properties.maximum_packet_size or 0
                self.outbound.with_problem_information = packet.properties.request_problem_information != 0
            events.append(ConnectReceived(packet))
        elif isinstance(packet, Disconnect):
            properties = packet.properties
            if not self._is_lasting and properties is not None and properties.session_expiry_interval:
                text = "a session that ends with its connection cannot be given more time"
                raise Violation(PROTOCOL_ERROR, text)  # [MQTT-3.14.2-2]
            self._close(packet.reason, "the client disconnected", events)
            events.insert(len(events) - 1, DisconnectReceived(packet))
        elif isinstance(packet, Auth):
            self.is_waiting = True
            events.append(AuthReceived(packet))
        elif state is AUTHENTICATING:
            raise Violation(PROTOCOL_ERROR, "only AUTH may come during an authentication")
        elif isinstance(packet, Subscribe):
            events.append(SubscribeReceived(packet))
        elif isinstance(packet, Unsubscribe):
            events.append(UnsubscribeReceived(packet))
        elif isinstance(packet, Connect):
            raise Violation(PROTOCOL_ERROR, "CONNECT must come only once")  # [MQTT-3.1.0-2]
        else:
            raise Violation(PROTOCOL_ERROR, "a client must not send this packet")
