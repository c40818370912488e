"""What a client was sent and does not read: with too much of it the client is not read either, and told of if that lasts.

Answers cannot be dropped, and a client that asks for more of them than it reads would fill the memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from millstream.broker.conditions import CLIENT_NOT_READING

if TYPE_CHECKING:
    from millstream.protocols.amqp091.endpoint import AmqpEndpoint

TOLD_NS: Final[i64] = 1_000_000_000  # that a client may take to read what it asked for


@final
class Unread:
    def __init__(self) -> None:
        self.is_too_much = False  # until the client has read most of it
        self._since_ns: i64 = 0

    def check(self, endpoint: AmqpEndpoint) -> None:
        """More has just been handed to a transport that lags."""
        broker = endpoint.context.broker
        if not self.is_too_much and endpoint.link.unsent_bytes() >= broker.memory.unsent_max:
            self.is_too_much = True
            self._since_ns = broker.clock.now_ns
            endpoint.link.pause_reading()

    def take_caught_up(self) -> bool:
        """The client has read most of it. True: it had to wait for that."""
        was_too_much = self.is_too_much
        self.is_too_much = False
        return was_too_much

    def on_tick(self, endpoint: AmqpEndpoint, now_ns: i64) -> None:
        lasted_ns: i64 = now_ns - self._since_ns
        if not self.is_too_much or lasted_ns < TOLD_NS:
            return
        cause = (
            f"{endpoint.describe()} has not read {int(endpoint.link.unsent_bytes())} bytes "
            "it was sent, and is not read (session.max_send_queue_bytes)"
        )
        endpoint.context.broker.health.report(CLIENT_NOT_READING, cause)
