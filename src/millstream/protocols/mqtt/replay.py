"""Retained messages on their way to one new subscription, a few at a time."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from millstream.broker.line import Line
from millstream.broker.session import Session
from millstream.model.delivery import Delivery
from millstream.model.message import Message
from millstream.routing.subscription import Subscription


@final
class Replay:
    def __init__(self, messages: list[Message], subscription: Subscription) -> None:
        messages.reverse()
        self._messages = messages  # the next one is last
        self._subscription = subscription

    def send_next(self, session: Session, line: Line, now_ns: i64) -> bool:
        """Send one; False when none is left."""
        if not self._messages:
            return False
        message = self._messages.pop()
        subscription = self._subscription
        account = session.account
        if message.is_expired(now_ns):
            account.counters.dropped_expired += 1
            return True
        if not account.authorizer.can_receive(session.principal, session.key.client_id, message.topic):
            account.counters.deliveries_denied += 1
            return True
        identifiers = (int(subscription.identifier),) if subscription.identifier else ()
        guarantee: i64 = message.guarantee
        if subscription.guarantee < guarantee:
            guarantee = subscription.guarantee
        if guarantee == 0:
            line.transmit_plain(message, True, identifiers)  # [MQTT-3.3.1-8]
        else:
            session.take(Delivery(message, guarantee, True, identifiers, b""))
        return True
