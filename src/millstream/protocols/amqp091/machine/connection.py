"""Server side of one AMQP 0-9-1 connection: bytes in, events and bytes out.

Invariants
- The handshake goes header, start, (secure,) tune, open, in this order and once.
- Every ChannelOpened is followed by one ChannelClosed, and all of them by exactly one Closed.
- After connection.close is sent nothing else is; all that comes is dropped but close and close-ok.
- After Closed, input is dropped, and nothing is written but the farewell.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from millstream.model.outbox import Outbox
from millstream.protocols.amqp091.machine.channels import Channels, read_number, refuse
from millstream.protocols.amqp091.machine.events import (
    Closed,
    Event,
    MethodReceived,
    OpenReceived,
    SecureOkReceived,
    StartOkReceived,
)
from millstream.protocols.amqp091.machine.outbound import make_reply_text
from millstream.protocols.amqp091.machine.states import (
    ACCEPTED,
    IGNORED,
    STATE_NAMES,
    ConnectionState,
    judge_on_connection,
)
from millstream.protocols.amqp091.machine.terms import FRAME_MIN, Terms
from millstream.protocols.amqp091.wire.codes import (
    CONNECTION_FORCED,
    FRAME_ERROR,
    NOT_ALLOWED,
    REPLY_SUCCESS,
)
from millstream.protocols.amqp091.wire.field_table import FieldTable
from millstream.protocols.amqp091.wire.frames import (
    FRAME_OVERHEAD,
    HEARTBEAT_FRAME,
    PROTOCOL_HEADER,
)
from millstream.protocols.amqp091.wire.methods import (
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionSecure,
    ConnectionSecureOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
    Method,
    decode_method,
)
from millstream.protocols.amqp091.wire.violation import Violation

AWAIT_HEADER: Final = ConnectionState.AWAIT_HEADER
STARTING: Final = ConnectionState.STARTING
AUTHENTICATING: Final = ConnectionState.AUTHENTICATING
SECURING: Final = ConnectionState.SECURING
TUNING: Final = ConnectionState.TUNING
OPENING: Final = ConnectionState.OPENING
DECIDING: Final = ConnectionState.DECIDING
OPEN: Final = ConnectionState.OPEN
CLOSING: Final = ConnectionState.CLOSING
CLOSED: Final = ConnectionState.CLOSED

NANOSECONDS: Final[i64] = 1_000_000_000
DEAF_NS: Final[i64] = 3 * NANOSECONDS  # as RabbitMQ: to read our reason, when no answer can be understood
CLOSE_OK: Final = ConnectionCloseOk()


def has_capability(client_properties: FieldTable, name: bytes) -> bool:
    """Whether a client said in its properties that it understands one of RabbitMQ's extensions."""
    capabilities = client_properties.get(b"capabilities")
    return isinstance(capabilities, dict) and capabilities.get(name) is True


@final
class Connection(Channels):
    def __init__(self, terms: Terms, outbox: Outbox, now_ns: i64) -> None:
        super().__init__(terms, outbox)
        self.state = AWAIT_HEADER
        self.mechanisms = terms.mechanisms
        self.heartbeat_s: i64 = 0
        self._step_ns: i64 = now_ns  # the handshake's last step; then the last look at what was sent
        self._heard_ns: i64 = now_ns
        self._closing_ns: i64 = 0  # since when the answer to connection.close is awaited; 0: not known yet
        self._wants_refusal = False  # the client understands connection.close for a login that failed
        self._deaf_ns: i64 = 0  # since when frames cannot be told apart any more; 0: they can
        self._farewell: Method | None = None
        self._code = REPLY_SUCCESS  # of our connection.close
        self._text = ""

    # ------------------------------------------------------------------ input

    def receive_data(self, data: bytes, now_ns: i64) -> list[Event]:
        events: list[Event] = []
        if self.state is CLOSED:
            return events
        if data:
            self._heard_ns = now_ns
        if self._deaf_ns:
            return events
        try:
            self._receive(data, now_ns, events)
        except Violation as violation:  # not inside a frame: there is no way to find the next one
            self._deaf_ns = now_ns
            self._kept = None
            self._on_violation(violation, events)
            self.outbox.open()  # the transport is told of the nearer deadline
        if self.state is CLOSING and self._closing_ns == 0:
            self._closing_ns = now_ns
        return events

    def is_closed(self) -> bool:
        return self.state is CLOSED

    # ------------------------------------------------------------------- time

    def next_deadline(self) -> i64:
        """When `on_deadline` must be called; 0: not at all."""
        state = self.state
        if state is CLOSED:
            return 0
        if state is CLOSING:
            if self._closing_ns == 0:
                return self._heard_ns
            due_ns: i64 = self._closing_ns + self.terms.handshake_timeout_ns
            return min(due_ns, self._deaf_ns + DEAF_NS) if self._deaf_ns else due_ns
        if state is not OPEN:
            return self._step_ns + self.terms.handshake_timeout_ns
        beat_ns: i64 = self.heartbeat_s * NANOSECONDS
        if beat_ns == 0:
            return 0
        return min(self._step_ns + beat_ns // 2, self._heard_ns + 2 * beat_ns)

    def on_deadline(self, now_ns: i64) -> list[Event]:
        events: list[Event] = []
        due: i64 = self.next_deadline()
        if due == 0 or now_ns < due:
            return events
        if self.state is CLOSING:
            if self._closing_ns == 0:
                self._closing_ns = now_ns
            else:
                self._close(self._code, self._text, events)
        elif self.state is not OPEN:
            self._close(CONNECTION_FORCED, "the handshake took too long", events)
        else:
            self._on_beat(now_ns, events)
        return events

    def touch(self, now_ns: i64) -> None:
        """The silence is ours: the transport was not read."""
        self._heard_ns = now_ns

    def _on_beat(self, now_ns: i64, events: list[Event]) -> None:
        beat_ns: i64 = self.heartbeat_s * NANOSECONDS
        if now_ns >= self._heard_ns + 2 * beat_ns:
            text = f"missed heartbeats from client, timeout: {int(self.heartbeat_s)}s"
            self._close(CONNECTION_FORCED, text, events)
        elif now_ns >= self._step_ns + beat_ns // 2:
            self._step_ns = now_ns
            if not self._has_sent:
                self.outbox.write(HEARTBEAT_FRAME)
            self._has_sent = False

    # -------------------------------------------------------------- handshake

    def secure(self, challenge: bytes) -> None:
        """The server's turn in an authentication of several steps."""
        if self.state is AUTHENTICATING:
            self.state = SECURING
            self.is_waiting = False
            self._write(0, ConnectionSecure(challenge))

    def accept(self) -> None:
        """The client is who it says: offer our terms."""
        if self.state is AUTHENTICATING:
            self.state = TUNING
            self.is_waiting = False
            self._is_known = True
            terms = self.terms
            self._size_max = terms.frame_max + FRAME_OVERHEAD
            self._write(
                0, ConnectionTune(int(terms.channel_max), int(terms.frame_max), int(terms.heartbeat_s))
            )

    def open_ok(self) -> None:
        """The virtual host is there and the client may use it; go on with what it sent behind its request."""
        if self.state is DECIDING:
            self.state = OPEN
            self.is_open = True
            self.is_waiting = False
            self._write(0, ConnectionOpenOk())

    def refuse(self, code: int, text: str) -> list[Event]:
        """The login or the virtual host is refused."""
        events: list[Event] = []
        if self.state is DECIDING or (self.state is AUTHENTICATING and self._wants_refusal):
            class_id, method_id = (10, 40) if self.state is DECIDING else (0, 0)
            self._begin_close(code, text, class_id, method_id, events)
        elif self.state is not CLOSED:
            self._close(code, text, events)
        return events

    def _on_header(self, is_right: bool, events: list[Event]) -> None:
        if not is_right:
            self.outbox.write(PROTOCOL_HEADER)  # [AMQP091 4.2.2] what we would have understood
            self._close(FRAME_ERROR, "the connection does not begin with the header of AMQP 0-9-1", events)
            return
        self.state = STARTING
        self._write(0, ConnectionStart(0, 9, self.terms.server_properties, self.mechanisms, b"en_US"))

    def _on_handshake(self, method: Method, now_ns: i64, events: list[Event]) -> None:
        if isinstance(method, ConnectionStartOk):
            self._wants_refusal = has_capability(method.client_properties, b"authentication_failure_close")
            self._wait(AUTHENTICATING)
            events.append(
                StartOkReceived(method.mechanism, method.response, method.client_properties, method.locale)
            )
        elif isinstance(method, ConnectionSecureOk):
            self._wait(AUTHENTICATING)
            events.append(SecureOkReceived(method.response))
            return  # challenges share one time
        elif isinstance(method, ConnectionTuneOk):
            self._agree(method)
        elif isinstance(method, ConnectionOpen):
            self._wait(DECIDING)
            events.append(OpenReceived(method.virtual_host))
        self._step_ns = now_ns

    def _wait(self, state: ConnectionState) -> None:
        self.state = state
        self.is_waiting = True

    def _agree(self, method: ConnectionTuneOk) -> None:
        """0 leaves a size to us. The heartbeat is the client's to choose, as in RabbitMQ."""
        frame_max: i64 = method.frame_max or self.terms.frame_max
        channel_max: i64 = method.channel_max or self.channel_max
        self._check_agreed("frame_max", frame_max, FRAME_MIN, self.terms.frame_max)
        self._check_agreed("channel_max", channel_max, 1, self.channel_max)
        self.frame_max = frame_max
        self._size_max = frame_max + FRAME_OVERHEAD  # RabbitMQ lets the payload alone fill it
        self.channel_max = channel_max
        self.heartbeat_s = method.heartbeat
        self.state = OPENING

    def _check_agreed(self, name: str, value: i64, least: i64, most: i64) -> None:
        if value < least:
            limit = f"lower than the minimum allowed value ({int(least)})"
        elif value > most:
            limit = f"higher than the maximum allowed value ({int(most)})"
        else:
            return
        raise Violation(NOT_ALLOWED, f"negotiated {name} = {int(value)} is {limit}", 10, 31)

    # ---------------------------------------------------------------- closing

    def close(self, code: int, text: str, class_id: int = 0, method_id: int = 0) -> list[Event]:
        """The server ends it: connection.close, and Closed when it is answered."""
        events: list[Event] = []
        if self._is_ending():
            return events
        if self._is_known:
            self._begin_close(code, text, class_id, method_id, events)
        else:
            self._close(code, text, events)
        return events

    def fail(self, code: int, text: str) -> list[Event]:
        """The transport is gone, or has to go: nothing more is said."""
        events: list[Event] = []
        if self.state is not CLOSED:
            self._close(code, text, events)
        return events

    def send_farewell(self) -> bool:
        """connection.close-ok, once everything that came before the end has been answered. True when the client has asked
        for the end: it goes when it has read this, and may have sent more before."""
        if self.state is not CLOSED:
            return False
        farewell = self._farewell
        self._can_answer = False
        self._forget_channels()
        if farewell is not None:
            self._farewell = None
            self._write(0, farewell)
        return farewell is not None

    def _is_ending(self) -> bool:
        return self.state is CLOSING or self.state is CLOSED

    def _on_violation(self, violation: Violation, events: list[Event]) -> None:
        code = violation.code
        if not self._is_known:  # a stranger is told nothing, as by RabbitMQ
            self._close(code, violation.text, events)
        elif not self._is_ending():
            self._begin_close(code, violation.text, violation.class_id, violation.method_id, events)

    def _begin_close(self, code: int, text: str, class_id: int, method_id: int, events: list[Event]) -> None:
        self._end_channels(events)
        self._forget_channels()
        self.state = CLOSING
        self.is_open = False
        self.is_waiting = False
        self._code = code
        self._text = text
        self._write(0, ConnectionClose(code, make_reply_text(code, text), class_id, method_id))

    def _close(self, code: int, text: str, events: list[Event]) -> None:
        self._end_channels(events)
        if not self._can_answer:
            self._forget_channels()
        self.state = CLOSED
        self.is_open = False
        self.is_waiting = True  # stops a scan that is under way
        self._kept = None
        events.append(Closed(code, text))

    def _on_connection_method(
        self, data: bytes, start: i64, end: i64, now_ns: i64, events: list[Event]
    ) -> None:
        number = read_number(data, start)
        verdict = judge_on_connection(self.state, number)
        if verdict == IGNORED:
            return
        if verdict != ACCEPTED:
            text = f"unexpected method in connection state {STATE_NAMES[self.state]}"
            raise refuse(int(verdict), text, number)
        method = decode_method(data, start, end)
        if isinstance(method, ConnectionCloseOk):
            self._close(self._code, self._text, events)
        elif not isinstance(method, ConnectionClose):
            if self.state is OPEN:
                events.append(MethodReceived(0, method))
            else:
                self._on_handshake(method, now_ns, events)
        elif self.state is CLOSING:
            self._write(0, CLOSE_OK)  # both closed at once; the answer to ours is still to come
        else:
            self._farewell = CLOSE_OK
            self._can_answer = True
            text = method.reply_text.decode(errors="replace")
            self._close(method.reply_code, text or "the client closed the connection", events)
