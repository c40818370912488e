"""A publish to very many receivers: carried out in slices, answered behind the last of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from millstream.broker.broker import Broker
from millstream.broker.fan_out import RECEIVERS_AT_ONCE, FanOut, receivers_of, steps_of
from millstream.broker.session import Session
from millstream.model.message import Message
from millstream.protocols.mqtt.backlog import Job
from millstream.protocols.mqtt.machine.events import PublishReceived
from millstream.protocols.mqtt.outgoing import PUBACK
from millstream.routing.router import Route

if TYPE_CHECKING:
    from millstream.protocols.mqtt.endpoint import MqttEndpoint

STEPS_AT_A_TIME: Final[i64] = 250  # then it is looked whether the share is spent


def go_on(endpoint: MqttEndpoint, broker: Broker, route: Route, packet_id: i64) -> bool:
    """Something was just published there: if it goes to very many, the rest of them get it in slices, and it is answered behind
    them. False: there is no rest."""
    rest = broker.publishing.take_rest()
    if rest is not None:
        endpoint.backlog.start(FanningOut(endpoint, broker, rest, packet_id))
        return True
    steps: i64 = steps_of(route)
    if steps:
        endpoint.backlog.spend(steps)
    return False


def postpone(endpoint: MqttEndpoint, event: PublishReceived) -> bool:
    """Exactly once cannot be cut: to very many receivers it is one long piece of work, and a read begins none of them when the time
    of its turn is spent. True: it waits, and what the client sent behind it."""
    if endpoint.backlog.has_time():
        return False
    route = endpoint.find_route(event.topic)
    if route is None or receivers_of(route) <= RECEIVERS_AT_ONCE:
        return False
    endpoint.backlog.put([event])
    endpoint.backlog.spend(1)  # what is behind it is due to wait too
    return True


@final
class FanningOut(Job):
    """`packet_id`: of a publish with QoS 1, which is answered; 0: of one with QoS 0."""

    def __init__(self, endpoint: MqttEndpoint, broker: Broker, rest: FanOut, packet_id: i64) -> None:
        self._endpoint = endpoint
        self._broker = broker
        self._rest = rest
        self._packet_id: i64 = packet_id
        self._is_over = False

    def run(self) -> bool:
        backlog = self._endpoint.backlog
        while not self._is_over:
            used: i64 = self._rest.run(STEPS_AT_A_TIME)
            backlog.spend(used)
            self._is_over = used < STEPS_AT_A_TIME
            if not self._is_over and backlog.is_spent():
                return True
        if self._packet_id:
            self._endpoint.answer(PUBACK, self._packet_id, 0)
        return False

    def on_dropped(self) -> None:
        """Who has not got it yet gets it all the same."""
        if not self._is_over:
            self._broker.tasks.add(self._rest)


@final
class SettlingRun(Job):
    """Answers to deliveries of queues, none of which is answered itself. What is rejected may become a dead letter that goes to
    very many."""

    def __init__(self, endpoint: MqttEndpoint, session: Session, messages: list[Message]) -> None:
        self._endpoint = endpoint
        self._session = session
        self._messages = messages
        self._at: i64 = 0

    def run(self) -> bool:
        session = self._session
        first: i64 = self._at
        while self._at < len(self._messages):
            if self._at > first and self._endpoint.backlog.is_spent():
                return True
            message = self._messages[self._at]
            self._at += 1
            session.account.queues.settle(message.topic, message, session.key.client_id)
        return False


@final
class PublishingRun(Job):
    """Messages of a run that queues take one by one, to many receivers each."""

    def __init__(
        self, endpoint: MqttEndpoint, broker: Broker, session: Session, route: Route, messages: list[Message]
    ) -> None:
        self._endpoint = endpoint
        self._broker = broker
        self._session = session
        self._route = route
        self._messages = messages
        self._at: i64 = 0
        self._rest: FanningOut | None = None

    def run(self) -> bool:
        backlog = self._endpoint.backlog
        publishing = self._broker.publishing
        session = self._session
        while True:
            if self._rest is not None:
                if self._rest.run():
                    return True
                self._rest = None
            if self._at >= len(self._messages):
                return False
            if self._at and backlog.is_spent():
                return True
            message = self._messages[self._at]
            self._at += 1
            publishing.publish(session.account, self._route, message, session, False, True)
            rest = publishing.take_rest()
            if rest is not None:
                self._rest = FanningOut(self._endpoint, self._broker, rest, 0)
            else:
                backlog.spend(steps_of(self._route))

    def on_dropped(self) -> None:
        if self._rest is not None:
            self._rest.on_dropped()
