"""One channel of a connection: its state, and the message that is coming in on it frame by frame.

Invariants
- The body's size is compared with its limit before the first byte of it is kept.
- What is kept for a body is never much more than what came of it, however small its frames are.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from millstream.protocols.amqp091.machine.events import PublishReceived
from millstream.protocols.amqp091.machine.states import ChannelState
from millstream.protocols.amqp091.wire.codes import (
    BASIC,
    FRAME_ERROR,
    PRECONDITION_FAILED,
    UNEXPECTED_FRAME,
)
from millstream.protocols.amqp091.wire.frames import HEADER_SIZE, decode_header
from millstream.protocols.amqp091.wire.methods import BasicPublish, Method
from millstream.protocols.amqp091.wire.properties import check_properties
from millstream.protocols.amqp091.wire.violation import Violation

IDLE: Final[i64] = 0
AWAIT_HEADER: Final[i64] = 1
AWAIT_BODY: Final[i64] = 2

PIECES_MAX: Final = 1024  # then they are joined: a body in tiny frames must not cost an object for each
PUBLISH: Final = BasicPublish.method_id
NO_PUBLISH: Final = BasicPublish(b"", b"", False, False)


@final
class Channel:
    def __init__(self, number: i64) -> None:
        self.number: i64 = number
        self.state = ChannelState.OPEN
        self.is_reported = False  # ChannelClosed has been given
        self.owes_close_ok = False  # the peer's channel.close is not answered
        self.farewell: Method | None = None  # our channel.close, once earlier answers are out
        self.awaits: i64 = IDLE
        self._publish = NO_PUBLISH
        self._properties = b""
        self._left: i64 = 0  # of the body
        self._size: i64 = 0
        self._pieces: list[bytes] | None = None
        self._joined: list[bytes] | None = None

    def begin(self, publish: BasicPublish) -> None:
        self._publish = publish
        self.awaits = AWAIT_HEADER

    def gathered(self) -> i64:
        return self._size - self._left if self.awaits == AWAIT_BODY else 0

    def drop_content(self) -> None:
        """What came of an unfinished message is forgotten."""
        self.awaits = IDLE
        self._publish = NO_PUBLISH
        self._properties = b""
        self._pieces = None
        self._joined = None

    def refuse_method(self) -> Violation:
        """A method where content must come [AMQP091 4.2.6]; RabbitMQ ends the connection."""
        if self.awaits == AWAIT_BODY:
            text = "expected content body, got non content body frame instead"
        else:
            text = f"expected content header for class {BASIC}, got non content header frame instead"
        return Violation(UNEXPECTED_FRAME, text, BASIC, PUBLISH)

    def on_header(
        self, data: bytes, start: i64, end: i64, body_size_max: i64, properties_size_max: i64
    ) -> PublishReceived | None:
        """A header frame's payload; gives the message when it has no body."""
        if self.awaits != AWAIT_HEADER:
            raise self._refuse_content()
        class_id, size = decode_header(data, start, end)
        if class_id != BASIC:
            text = f"expected content header for class {BASIC}, got one for class {int(class_id)} instead"
            raise Violation(UNEXPECTED_FRAME, text, BASIC, PUBLISH)
        if size > body_size_max:
            text = f"message size {int(size)} is larger than configured max size {int(body_size_max)} (amqp.max_message_size)"
            raise Violation(PRECONDITION_FAILED, text, BASIC, PUBLISH, is_hard=False)
        properties = data[start + HEADER_SIZE : end]
        if len(properties) > properties_size_max:
            limit = f"{int(properties_size_max)} (amqp.max_properties_size)"
            text = f"properties of {len(properties)} bytes are larger than {limit}"
            raise Violation(PRECONDITION_FAILED, text, BASIC, PUBLISH, is_hard=False)
        check_properties(properties)
        self._properties = properties
        if size == 0:
            return self._finish(b"")
        self._left = self._size = size
        self.awaits = AWAIT_BODY
        return None

    def on_body(self, data: bytes, start: i64, end: i64) -> PublishReceived | None:
        """A body frame's payload; gives the message when it is whole."""
        if self.awaits != AWAIT_BODY:
            raise self._refuse_content()
        size: i64 = end - start
        if size > self._left:
            text = f"the body is larger than the {int(self._size)} bytes its header announced"
            raise Violation(FRAME_ERROR, text, BASIC, PUBLISH)
        if size == 0:
            return None
        self._left -= size
        piece = data[start:end]
        pieces = self._pieces
        if pieces is None:
            if self._left == 0:
                return self._finish(piece)
            pieces = self._pieces = []
        pieces.append(piece)
        joined = self._joined
        if self._left == 0:
            return self._finish(b"".join(pieces if joined is None else joined + pieces))
        if len(pieces) == PIECES_MAX:
            if joined is None:
                joined = self._joined = []
            joined.append(b"".join(pieces))
            self._pieces = []
        return None

    def _refuse_content(self) -> Violation:
        if self.awaits == IDLE:
            text = "expected method frame, got non method frame instead"
            return Violation(UNEXPECTED_FRAME, text)
        return self.refuse_method()

    def _finish(self, body: bytes) -> PublishReceived:
        publish = self._publish
        event = PublishReceived(
            self.number,
            publish.exchange,
            publish.routing_key,
            publish.mandatory,
            publish.immediate,
            self._properties,
            body,
        )
        self.drop_content()
        return event


NO_CHANNEL: Final = Channel(0)  # stands where no channel is known
NO_CHANNEL.state = ChannelState.ABSENT
