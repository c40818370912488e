"""The seam: what the machine reports goes to the broker, what sessions deliver goes to the machine.

Invariants
- A publish is answered once; its answer waits until what it caused is durable.
- Rights are asked when a route is found, and again as soon as any right has changed.
- Whatever happens here ends this connection at worst, never another.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from millstream.broker.fan_out import steps_of
from millstream.broker.line import Ending
from millstream.broker.session import FITS, UNKNOWN, WRONG, Session
from millstream.model.delivery import RECEIVED, SENT
from millstream.model.errors import Reason
from millstream.model.limits import Limits
from millstream.model.message_batch import MessageBatch
from millstream.model.topic import find_topic_fault, find_utf8_fault
from millstream.protocols.endpoint import Link
from millstream.protocols.mqtt.backlog import Backlog
from millstream.protocols.mqtt.context import MqttContext
from millstream.protocols.mqtt.fanning_out import PublishingRun, SettlingRun, go_on, postpone
from millstream.protocols.mqtt.handshake import SCRAM, Handshake, window_of
from millstream.protocols.mqtt.machine.events import (
    AnswerReceived,
    AuthReceived,
    Closed,
    ConnectReceived,
    DisconnectReceived,
    Event,
    PingReceived,
    PublishBatchReceived,
    PublishReceived,
    RunReceived,
    SubscribeReceived,
    UnsubscribeReceived,
)
from millstream.protocols.mqtt.mapping import (
    ENDING_CODES,
    ENDING_TEXTS,
    REASON_CODES,
    is_repeat,
    to_message,
)
from millstream.protocols.mqtt.outgoing import PUBACK, PUBCOMP, PUBREC, PUBREL, Outgoing
from millstream.protocols.mqtt.rates import Rates
from millstream.protocols.mqtt.route_memory import RouteMemory
from millstream.protocols.mqtt.subscribing import subscribe, unsubscribe
from millstream.protocols.mqtt.wire import reason_codes as code
from millstream.protocols.mqtt.wire.frames import FrameRun
from millstream.protocols.mqtt.wire.packets import ConnAck, Connect, Disconnect
from millstream.routing.router import Route
from millstream.security.authentication import Decision

NO_RATES: Final = Rates(Limits())


@final
class MqttEndpoint(Outgoing):
    def __init__(self, context: MqttContext, link: Link, now_ns: i64) -> None:
        super().__init__(context, link, now_ns)
        self.handshake: Handshake | None = None
        self.backlog = Backlog(self, context.broker.tasks)
        self._routes = RouteMemory(context.limits, context.route_count, self.backlog)
        self.rates = NO_RATES
        self._unanswered: i64 = 0  # QoS 1 publishes whose answer has not been flushed
        self._early_bytes: i64 = 0  # received before it was known whose they are
        self._is_closing = False
        self._is_enhanced = False
        self._with_will = True

    # ------------------------------------------------------------- from below

    def receive_data(self, data: bytes, now_ns: i64) -> None:
        context = self._context
        context.broker.clock.now_ns = now_ns
        session = self.session
        if session is not None:
            session.account.counters.bytes_received += len(data)
        else:
            self._early_bytes += len(data)
        self.backlog.begin()
        self.begin_slice()
        self.handle(self.machine.receive_data(data, now_ns))
        self.end_slice()
        self.backlog.end()

    def begin_slice(self) -> None:
        self._context.broker.pressure.begin(self.session)

    def end_slice(self) -> None:
        """What was published in a read or a slice may have to be waited for."""
        if self.rates.debt_ns:
            self.link.pause_for(self.rates.debt_ns)
            self.rates.debt_ns = 0
        if self._context.broker.pressure.end(self):
            self.link.pause_reading()

    def tell_limited(self, text: str) -> None:
        session = self.session
        if session is not None:
            key, name = session.key, session.principal.name
            self._context.observer.limited(key.client_id, name, self.link.address, text)

    def handle_kept(self) -> None:
        """What came while nothing was parsed."""
        self.handle(self.machine.receive_data(b"", self._context.broker.clock.now_ns))

    def next_deadline(self) -> i64:
        return self.machine.next_deadline()

    def on_deadline(self, now_ns: i64) -> None:
        self._context.broker.clock.now_ns = now_ns
        self._end_by(self.machine.on_deadline(now_ns))

    def on_decision(self, decision: Decision, now_ns: i64) -> None:
        self._context.broker.clock.now_ns = now_ns
        handshake = self.handshake
        if handshake is not None and not self.machine.is_closed():
            handshake.on_decision(decision, now_ns)

    def on_lost(self, now_ns: i64) -> None:
        self._context.broker.clock.now_ns = now_ns
        if not self.machine.is_closed():
            events: list[Event] = []
            self.machine.fail(code.UNSPECIFIED_ERROR, "the connection was lost", events)
            if self.backlog.is_waiting():
                self.backlog.put(events)
            else:
                self.handle(events)
        if self.backlog.is_waiting():
            return  # it ends behind what it had sent
        self._is_closing = True
        self.outbox.take_all()

    def flush(self) -> None:
        sent = self.outbox.send_to(self.link)
        self._unanswered = 0
        if sent:
            session = self.session
            if session is not None:
                session.account.counters.bytes_sent += sent
            self.handed_bytes += sent
            if self.is_lagging and not self.is_blocked:
                self._check_unsent()
        if self._is_closing:
            self.link.close()
        elif self._replays is not None:
            self._context.broker.tasks.add(self._replays)  # in turn with those of others

    def _check_unsent(self) -> None:
        if self.link.unsent_bytes() >= self._context.broker.memory.unsent_high:
            self.is_blocked = True
            if self.session is not None:
                self.session.on_blocked()
                self._context.broker.pressure.forget_met()  # a flush has no source to hold

    # ----------------------------------------------------------------- events

    def handle(self, events: list[Event]) -> None:
        """Act on events in order; runs that follow each other to the same single target become one."""
        run: RunReceived | None = None
        run_route: Route | None = None
        at: i64 = 0
        for event in events:
            if self._is_closing:  # something before it ended the connection
                break
            if self.backlog.is_due():
                self.backlog.put(events[at:])
                break
            at += 1
            if isinstance(event, RunReceived):
                route = self.find_route(event.topic)
                if run is not None and run_route is not None:
                    if (
                        route is not None
                        and route.single is not None
                        and route.single is run_route.single
                        and run.end == event.start
                        and run.buffer is event.buffer
                    ):
                        run.end = event.end
                        run.count += event.count
                        continue
                    self._publish_run(run, run_route)
                    run = None
                    if self.backlog.is_due():
                        self.backlog.put(events[at - 1 :])
                        break
                run = event
                run_route = route
                if route is None:
                    self._on_no_route(event.topic, event.count)
                continue
            if run is not None and run_route is not None:
                self._publish_run(run, run_route)
                run = None
                if self.backlog.is_due():
                    self.backlog.put(events[at - 1 :])
                    break
            if isinstance(event, AnswerReceived):
                self._on_answer(event)
            elif isinstance(event, PublishReceived):
                self._on_publish(event)
            elif isinstance(event, PublishBatchReceived):
                self._on_publish_batch(event)
            else:
                self._on_control(event)
        if run is not None and run_route is not None:
            self._publish_run(run, run_route)

    def _on_control(self, event: Event) -> None:
        now_ns = self._context.broker.clock.now_ns
        if isinstance(event, PingReceived):
            self.answer_ping()
        elif isinstance(event, Closed):
            self._on_closed(event)
        elif isinstance(event, ConnectReceived):
            self.handshake = Handshake(self._context, self, event.packet)
            self.handshake.start(now_ns)
        elif isinstance(event, SubscribeReceived):
            subscribe(self, self._context, event.packet)
        elif isinstance(event, UnsubscribeReceived):
            unsubscribe(self, self._context, event.packet)
        elif isinstance(event, DisconnectReceived):
            self.on_disconnect(event.packet)
        elif isinstance(event, AuthReceived):
            self._on_auth(event, now_ns)
            if self.machine.is_open and not self.machine.is_waiting:
                self.handle_kept()  # what came behind it [MQTT-4.12.1]

    def _on_auth(self, event: AuthReceived, now_ns: i64) -> None:
        handshake = self.handshake
        packet = event.packet
        if handshake is not None:
            if packet.reason == code.CONTINUE_AUTHENTICATION:
                handshake.on_auth(packet, now_ns)
                return
        elif packet.reason == code.REAUTHENTICATE and self._is_enhanced and self.session is not None:
            again = Connect(5, self.session.key.client_id)
            self.handshake = Handshake(self._context, self, again)
            self.handshake.restart(packet, now_ns)
            return
        text = "AUTH is only for a connection that began with an authentication method"
        self.end_with(code.PROTOCOL_ERROR, text)

    # ------------------------------------------------------------- connection

    def open(
        self, session: Session, packet: Connect, connack: ConnAck, keep_alive_s: int, now_ns: i64
    ) -> None:
        """The client is accepted: CONNACK first, then what waited for it, then what it sent meanwhile."""
        limits = self._context.limits
        outbound = self.machine.outbound
        properties = packet.properties
        if properties is not None:
            self._is_enhanced = properties.authentication_method == SCRAM
            aliases: i64 = properties.topic_alias_maximum or 0
            if aliases > self._context.terms.topic_alias_out_maximum:
                aliases = self._context.terms.topic_alias_out_maximum
            outbound.allow_aliases(aliases)
        if limits.message_rate > 0 or limits.subscribe_rate > 0 or session.usage.has_rate():
            self.rates = Rates(limits, session.usage)
        self.session = session
        session.account.counters.bytes_received += self._early_bytes
        self.handshake = None
        self.carries_properties = self.machine.version == 5
        self.machine.accept(connack, keep_alive_s, session.expiry_s != 0, now_ns)
        self.link.on_authenticated()
        session.attach(self, window_of(packet, session.account))
        self.handle(self.machine.receive_data(b"", now_ns))

    def on_disconnect(self, packet: Disconnect) -> None:
        session = self.session
        self._with_will = packet.reason != code.NORMAL_DISCONNECTION  # [MQTT-3.14.4-3]
        properties = packet.properties
        if session is None or properties is None or properties.session_expiry_interval is None:
            return
        expiry = min(properties.session_expiry_interval, self._context.limits.session_expiry_s_max)
        self._context.broker.change_expiry(session, expiry)

    def _on_closed(self, event: Closed) -> None:
        context = self._context
        session = self.session
        self.handshake = None
        self.machine.send_farewell()
        if session is not None:
            if event.reason in (code.MALFORMED_PACKET, code.PROTOCOL_ERROR):
                session.account.counters.protocol_errors += 1
            context.broker.forget_line(self)
            context.broker.close_line(session, self, self._with_will)
            context.observer.disconnected(
                session.key.client_id, self.link.address, code.get_reason_name(event.reason), event.text
            )
        self._routes.clear()
        self.drop_confirms()
        self.drop_replays()
        self.backlog.clear()
        self._is_closing = True
        if not self.outbox.is_open:
            self.link.close()

    def end(self, ending: Ending) -> None:
        reason = ENDING_CODES[ending]
        reference: bytes | None = None
        self.backlog.act_on_disconnect()
        if ending is Ending.SHUTTING_DOWN:
            self._with_will = False
            if self._context.server_reference:
                reason = code.USE_ANOTHER_SERVER  # [MQTT-4.11.0-1]
                reference = self._context.server_reference
        self.end_with(reason, ENDING_TEXTS[ending], reference)

    def end_with(self, reason: int, text: str, reference: bytes | None = None) -> None:
        events = self.machine.end(reason, text, reference)
        if not events and not self._is_closing and self.session is not None:
            events = self.machine.end_sooner(reason, text, reference)
        self._end_by(events)

    def _end_by(self, events: list[Event]) -> None:
        """By the broker's will: whatever else waits does not matter any more."""
        for event in events:
            if isinstance(event, Closed):
                self._on_closed(event)

    def resume(self) -> None:
        self.link.resume_reading()

    # ---------------------------------------------------------------- publish

    def find_route(self, topic: bytes) -> Route | None:
        """Where a topic goes, or None when this client may not publish there or there is no such topic."""
        session = self.session
        assert session is not None
        route = self._routes.find(session, topic)
        if route is not None:
            self.machine.batches_publishes = route.is_stored and route.single is not None
        return route

    def _on_no_route(self, topic: bytes, count: i64) -> None:
        """Not a topic: the connection ends. Not allowed: counted and said."""
        session = self.session
        limits = self._context.limits
        if session is None:
            return
        fault = find_topic_fault(topic, limits.topic_length_max, limits.topic_levels_max)
        if fault is not None:
            malformed = find_utf8_fault(topic) is not None  # [MQTT-1.5.4-1, MQTT-1.5.4-2]
            reason = code.MALFORMED_PACKET if malformed else code.TOPIC_NAME_INVALID
            self.end_with(reason, fault)
            return
        session.account.counters.publishes_denied += count
        self._context.observer.denied(session.key.client_id, session.principal.name, "publish", topic)

    def _publish_run(self, event: RunReceived, route: Route) -> None:
        session = self.session
        if session is None:
            return
        context = self._context
        account = session.account
        account.counters.messages_received += event.count
        if self.rates.bounds_messages:
            self._charge(event.count)
        now_ns = context.broker.clock.now_ns
        run = FrameRun(event.buffer, event.start, event.end, event.count, self.machine.version, now_ns)
        if route.settles:
            self.backlog.start(SettlingRun(self, session, run.messages()))
            return
        if not route.targets and route.shares is None:
            account.counters.dropped_no_receiver += event.count
            return
        if route.is_stored and steps_of(route):
            self.backlog.start(PublishingRun(self, context.broker, session, route, run.messages()))
            return
        context.broker.publishing.publish_run(account, route, run, session)
        go_on(self, context.broker, route, 0)

    def _on_publish(self, event: PublishReceived) -> None:
        session = self.session
        if session is None or (event.qos == 2 and postpone(self, event)):
            return
        context = self._context
        qos: i64 = event.qos
        packet_id: i64 = event.packet_id
        account = session.account
        account.counters.messages_received += 1
        if self.rates.bounds_messages:
            self._charge(1)
        if qos and not self._check_numbered(event, session):
            return
        route = self.find_route(event.topic)
        if route is None:
            self._on_no_route(event.topic, 1)
            if qos and not self._is_closing:
                self.answer(PUBACK if qos == 1 else PUBREC, packet_id, code.NOT_AUTHORIZED)
            return
        message = to_message(event, session.key.client_id, context.broker.clock.now_ns)
        if route.settles:
            reason = account.queues.settle(message.topic, message, session.key.client_id)
        else:
            reason = context.broker.publishing.publish(account, route, message, session, False, True)
            if go_on(self, context.broker, route, packet_id):
                return
        if qos == 0:
            return
        answer = REASON_CODES[reason] if reason else 0
        if reason is Reason.UNAVAILABLE or (route.is_stored and answer >= 0x80):
            if self.machine.version < 5:  # it has no word for "not now", and must not be told it is safe
                self.end(Ending.UNAVAILABLE)
                return
            answer = code.QUOTA_EXCEEDED
        if qos == 1:
            self.answer(PUBACK, packet_id, answer)
            return
        if answer < 0x80:
            session.add_received_id(packet_id)
        self.answer(PUBREC, packet_id, answer)

    def _on_publish_batch(self, event: PublishBatchReceived) -> None:
        """Publishes like the one before them: into their queue as one if it takes them so, else each by itself."""
        if self.session is not None and not self._store_alike(event, self.session):
            self.handle(list(event.take_apart()))

    def _store_alike(self, event: PublishBatchReceived, session: Session) -> bool:
        context = self._context
        count: i64 = event.count
        open_ids: i64 = self._unanswered + count + session.received_id_count()
        if self.machine.version == 5 and open_ids > context.limits.receive_maximum:
            return False
        route = self.find_route(event.first.topic)
        if route is None:
            return False
        message = to_message(event.first, session.key.client_id, context.broker.clock.now_ns)
        batch = MessageBatch(message, event.buffer, event.places, count)
        if not context.broker.publishing.publish_batch(session.account, route, batch):
            return False
        session.account.counters.messages_received += count
        if self.rates.bounds_messages:
            self._charge(count)
        self._unanswered += count
        self.answer_all(event.answers, count)
        return True

    def _check_numbered(self, event: PublishReceived, session: Session) -> bool:
        """Windows, QoS limits and repeats; False when the publish has been dealt with."""
        limits = self._context.limits
        if event.qos > limits.guarantee_max or (event.qos == 2 and limits.reject_qos2_publish):
            text = "the broker does not take publishes of this QoS"  # [MQTT-3.2.2-11]
            self.end_with(code.QOS_NOT_SUPPORTED, text)
            return False
        if event.qos == 2 and is_repeat(event, session):
            self.answer(PUBREC, event.packet_id, code.SUCCESS)  # [MQTT-4.3.3-10]: not a new message
            return False
        self._unanswered += 1
        if self.machine.version == 5:
            if self._unanswered + session.received_id_count() > limits.receive_maximum:
                text = "more publishes are open than the receive maximum"  # [MQTT-3.3.4-7]
                self.end_with(code.RECEIVE_MAXIMUM_EXCEEDED, text)
                return False
            if event.qos == 2:
                self._unanswered -= 1  # counted by its id until it is released
        return True

    def _charge(self, count: i64) -> None:
        session = self.session
        assert session is not None
        self.rates.charge_messages(count, self._context.broker.clock.now_ns, session.account.counters)

    # ---------------------------------------------------------------- answers

    def _on_answer(self, event: AnswerReceived) -> None:
        session = self.session
        if session is None:
            return
        kind: i64 = event.kind
        packet_id: i64 = event.packet_id
        found: i64 = UNKNOWN
        if kind == PUBACK:
            found = session.on_settled(packet_id, SENT)
        elif kind == PUBCOMP:
            found = session.on_settled(packet_id, RECEIVED)
            if found and session.doubt is not None and session.doubt.on_completed(session, packet_id):
                found = FITS
        elif kind == PUBREC:
            found = session.on_received(packet_id, event.reason >= 0x80)
            if found == UNKNOWN and event.reason < 0x80:  # a refusal ends it [MQTT-4.3.3-4]
                self._send_answer(PUBREL, packet_id, code.PACKET_IDENTIFIER_NOT_FOUND)
        else:
            known = session.remove_received_id(packet_id)
            self.answer(PUBCOMP, packet_id, 0 if known else code.PACKET_IDENTIFIER_NOT_FOUND)
        if self._replays is not None:
            self._pump_replays()
        if found == WRONG:
            text = "the answer does not belong to the delivery with this packet identifier"
            self.end_with(code.PROTOCOL_ERROR, text)
