"""From CONNECT to CONNACK: who is it, may it, which session. Lives only until the question is settled.

Also carries a re-authentication on an open connection [MQTT-4.12.1].
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from millstream.broker.account import Account
from millstream.broker.will import Will
from millstream.model.errors import Reason, Refused
from millstream.model.topic import find_topic_fault
from millstream.protocols.mqtt.context import MqttContext
from millstream.protocols.mqtt.machine.events import Closed, Event
from millstream.protocols.mqtt.mapping import REASON_CODES, to_return_code, to_will
from millstream.protocols.mqtt.wire import reason_codes as code
from millstream.protocols.mqtt.wire.packets import Auth, ConnAck, Connect
from millstream.protocols.mqtt.wire.properties import Properties
from millstream.security.authentication import Credentials, Decision, Verdict
from millstream.security.principal import Principal
from millstream.security.scram import ScramFault, ScramServer

if TYPE_CHECKING:
    from millstream.protocols.mqtt.endpoint import MqttEndpoint

SCRAM: Final = b"SCRAM-SHA-256"
PACKET_SIZE_MIN: Final = 5  # a CONNACK of MQTT 5 that says nothing more
GENERIC: Final = "the credentials were not accepted"
SMALL: Final = 64  # a client that takes no packet above it is told only what it must know


@final
class Handshake:
    def __init__(self, context: MqttContext, endpoint: MqttEndpoint, packet: Connect) -> None:
        self._context = context
        self._endpoint = endpoint
        self._packet = packet
        self._assigned = ""
        self._scram: ScramServer | None = None
        self._is_asked = False  # the client has been told that it is to begin
        self._generation = 0  # of the users an exchange began with
        self._is_again = False  # a re-authentication: the session is there already

    @property
    def client_id(self) -> str:
        return self._assigned or self._packet.client_id

    def start(self, now_ns: i64) -> None:
        packet = self._packet
        fault = self._find_fault()
        if fault is not None:
            if fault.reason == code.TOPIC_NAME_INVALID and packet.version < 5:
                self._drop(fault.reason, fault.text)  # no return code says it [MQTT3-3.2.2-6]
            else:
                self._refuse(fault.reason, fault.text)
            return
        if not packet.client_id:
            self._assigned = self._context.entropy.make_client_id()
        properties = packet.properties
        if properties is not None and properties.authentication_method is not None:
            self._start_enhanced(properties, now_ns)
            return
        credentials = Credentials(
            self.client_id,
            packet.username,
            packet.password,
            self._endpoint.link.certificate_name,
            self._endpoint.link.address,
        )
        decision = self._context.authenticator.decide(
            credentials, int(self._context.broker.clock.wall_s), int(now_ns)
        )
        if decision.verdict is Verdict.ASK:
            self._endpoint.link.ask(credentials)
        else:
            self.on_decision(decision, now_ns)

    def on_decision(self, decision: Decision, now_ns: i64) -> None:
        principal = decision.principal
        if decision.verdict is not Verdict.ALLOWED or principal is None:
            # what exactly was wrong with a secret is for the log, not for the one who tried it
            shown = GENERIC if decision.reason is Reason.BAD_CREDENTIALS else decision.text
            self._refuse(REASON_CODES[decision.reason], decision.text, shown)
            return
        self._accept(principal, now_ns)

    # ------------------------------------------------- enhanced authentication

    def _start_enhanced(self, properties: Properties, now_ns: i64) -> None:
        if properties.authentication_method != SCRAM:
            self._refuse(
                code.BAD_AUTHENTICATION_METHOD, "the broker knows SCRAM-SHA-256 only"
            )  # [MQTT-4.12.0-1]
            return
        self._begin_scram()
        self._on_scram(properties.authentication_data, now_ns)

    def restart(self, packet: Auth, now_ns: i64) -> None:
        """Re-authentication: the client began anew with the method of its CONNECT [MQTT-4.12.1-1]."""
        self._is_again = True
        self._begin_scram()
        self.on_auth(packet, now_ns)

    def on_auth(self, packet: Auth, now_ns: i64) -> None:
        properties = packet.properties
        if properties is None or properties.authentication_method != SCRAM:  # [MQTT-4.12.0-5]
            self._fail(code.PROTOCOL_ERROR, "the authentication method must stay the same")
            return
        self._on_scram(properties.authentication_data, now_ns)

    def _begin_scram(self) -> None:
        context = self._context
        nonce = context.entropy.make_nonce()
        self._generation = context.authenticator.generation
        self._scram = ScramServer(context.authenticator.users, nonce, context.scram_key)

    def _on_scram(self, data: bytes | None, now_ns: i64) -> None:
        scram = self._scram
        assert scram is not None
        authenticator = self._context.authenticator
        address = self._endpoint.link.address
        try:
            if not data and scram.user_name == "" and not self._is_asked:
                self._is_asked = True  # once: else an exchange would never end
                self._endpoint.machine.ask_authentication(b"", SCRAM)
                return
            data = data or b""
            if scram.user_name == "":
                answer = scram.on_client_first(data)
                if authenticator.is_throttled(scram.user_name, address, int(now_ns)):
                    self._fail(code.CONNECTION_RATE_EXCEEDED, "too many failed attempts, wait a minute")
                    return
                self._endpoint.machine.ask_authentication(answer, SCRAM)
                return
            answer, name = scram.on_client_final(data)
        except ScramFault:
            authenticator.count_failure(scram.user_name, address, int(now_ns))
            self._fail(code.NOT_AUTHORIZED, "the authentication failed")
            return
        decision = authenticator.accept_user(name)
        if decision.verdict is not Verdict.ALLOWED or decision.principal is None:
            self._fail(code.NOT_AUTHORIZED, decision.text)
        elif self._generation != authenticator.generation:
            self._fail(code.NOT_AUTHORIZED, "the users changed during the authentication, try again")
        elif self._is_again:
            self._confirm_again(answer, decision.principal)
        else:
            self._accept(decision.principal, now_ns, answer)

    def _confirm_again(self, answer: bytes, principal: Principal) -> None:
        session = self._endpoint.session
        if session is None or session.principal.name != principal.name:
            self._fail(code.NOT_AUTHORIZED, "a session cannot change its user")
            return
        properties = Properties()
        properties.authentication_method = SCRAM
        properties.authentication_data = answer
        self._endpoint.machine.confirm_reauthentication(Auth(code.SUCCESS, properties))
        self._endpoint.handshake = None

    # ------------------------------------------------------------- the verdict

    def _find_fault(self) -> Closed | None:
        packet = self._packet
        limits = self._context.limits
        if not packet.client_id and not packet.clean_start and packet.version < 5:  # [MQTT3-3.1.3-8]
            return Closed(code.CLIENT_IDENTIFIER_NOT_VALID, "an empty client id needs a clean session")
        if not packet.client_id and packet.version == 3:
            return Closed(code.CLIENT_IDENTIFIER_NOT_VALID, "MQTT 3.1 needs a client id")
        outbound = self._endpoint.machine.outbound
        if 0 < outbound.packet_size_max < PACKET_SIZE_MIN:
            # not even a CONNACK may be sent [MQTT-3.1.2-24]
            return Closed(code.PACKET_TOO_LARGE, "the client takes no packet as small as a CONNACK")
        will = packet.will
        if will is None:
            return None
        if will.qos > limits.guarantee_max or (will.qos == 2 and limits.reject_qos2_publish):
            return Closed(code.QOS_NOT_SUPPORTED, "the will asks for a QoS the broker does not give")
        fault = find_topic_fault(will.topic, limits.topic_length_max, limits.topic_levels_max)
        if fault is not None:
            return Closed(code.TOPIC_NAME_INVALID, f"the will cannot be published: {fault}")
        if len(will.payload) > limits.message_size_max:
            return Closed(code.PACKET_TOO_LARGE, "the will is larger than the broker takes")
        return None

    def _accept(self, principal: Principal, now_ns: i64, answer: bytes | None = None) -> None:
        context = self._context
        broker = context.broker
        packet = self._packet
        will: Will | None = None
        if packet.will is not None:
            will = to_will(packet.will, self.client_id, context.limits.will_delay_s_max)
            topic = will.message.topic
            if not broker.authorizer.can_publish(principal, self.client_id, topic):
                context.observer.denied(self.client_id, principal.name, "will", topic)
                self._refuse(code.NOT_AUTHORIZED, "the will's topic is not allowed")
                return
        try:
            account = broker.get_account(principal.account)
            if will is not None:
                broker.wills.check_room(account, will)
            session, present = broker.open_session(
                account, self.client_id, principal, packet.clean_start, self._endpoint
            )
        except Refused as refused:
            self._refuse(REASON_CODES[refused.reason], refused.text)
            return
        expiry_s = self._expiry_s()
        broker.start_session(session, expiry_s, will)
        keep_alive_s = self._keep_alive_s()
        connack = ConnAck(present, code.SUCCESS, self._connack_properties(account, keep_alive_s, answer))
        self._endpoint.open(session, packet, connack, keep_alive_s, now_ns)
        context.observer.connected(
            self.client_id,
            principal.name,
            account.name,
            self._endpoint.link.address,
            f"mqtt {packet.version}",
        )

    def _expiry_s(self) -> int:
        packet = self._packet
        limits = self._context.limits
        if packet.version < 5:
            return 0 if packet.clean_start else limits.session_expiry_default_s
        properties = packet.properties
        wanted = 0 if properties is None else properties.session_expiry_interval or 0
        return min(wanted, limits.session_expiry_s_max)

    def _keep_alive_s(self) -> int:
        wanted = self._packet.keep_alive_s
        longest = self._context.limits.keep_alive_s_max
        if self._packet.version < 5:  # there is no way to tell the client: what it asked for holds
            return wanted
        if wanted == 0:
            return 0 if longest == 65_535 else longest
        return min(wanted, longest)

    def _connack_properties(
        self, account: Account, keep_alive_s: int, answer: bytes | None
    ) -> Properties | None:
        packet = self._packet
        if packet.version < 5:
            return None
        limits = self._context.limits
        asked = packet.properties or Properties()
        properties = Properties()
        if self._assigned:
            properties.assigned_client_identifier = self._assigned.encode()  # [MQTT-3.2.2-16]
        if keep_alive_s != packet.keep_alive_s:
            properties.server_keep_alive = keep_alive_s  # [MQTT-3.2.2-21]
        wanted = asked.session_expiry_interval or 0
        if min(wanted, limits.session_expiry_s_max) != wanted:
            properties.session_expiry_interval = limits.session_expiry_s_max
        properties.receive_maximum = limits.receive_maximum
        properties.maximum_packet_size = limits.packet_size_max
        properties.topic_alias_maximum = limits.topic_alias_maximum
        if limits.guarantee_max < 2 or limits.reject_qos2_publish:
            properties.maximum_qos = min(limits.guarantee_max, 1)
        if not 0 < self._endpoint.machine.outbound.packet_size_max < SMALL:
            properties.retain_available = 1  # what leaving them out means too, but not every client knows
            properties.wildcard_subscription_available = 1
            properties.subscription_identifiers_available = 1
            properties.shared_subscription_available = 1
        if asked.request_response_information == 1:
            properties.response_information = b"response/" + self.client_id.encode() + b"/"
        if answer is not None:
            properties.authentication_method = SCRAM
            properties.authentication_data = answer
        return properties

    def _fail(self, reason: int, text: str) -> None:
        if self._is_again:
            self._endpoint.end_with(reason, text)
        else:
            self._refuse(reason, text)

    def _drop(self, reason: int, text: str) -> None:
        """Close without a CONNACK."""
        self._report(reason, text)
        self._endpoint.handle(self._endpoint.machine.end(reason, text, None))

    def _report(self, reason: int, text: str) -> None:
        name = self._packet.username or ""
        address = self._endpoint.link.address
        self._context.observer.refused(self.client_id, name, address, code.get_reason_name(reason), text)

    def _refuse(self, reason: int, text: str, shown_text: str = "") -> None:
        packet = self._packet
        self._report(reason, text)
        properties: Properties | None = None
        shown = reason
        if packet.version == 5:
            properties = self._endpoint.machine.outbound.explain(shown_text or text)
            if self._context.server_reference and reason in (code.QUOTA_EXCEEDED, code.SERVER_BUSY):
                shown = code.USE_ANOTHER_SERVER  # [MQTT-4.11]
                properties.server_reference = self._context.server_reference
        else:
            shown = to_return_code(reason)
        events: list[Event] = self._endpoint.machine.refuse(reason, ConnAck(False, shown, properties), text)
        self._endpoint.handle(events)


def window_of(packet: Connect, account: Account) -> i64:
    """Deliveries that may be open: what the client asked for, within what the broker gives [MQTT-3.3.4-9]."""
    properties = packet.properties
    wanted: int | None = None if properties is None else properties.receive_maximum
    return account.window_limit(65_535 if wanted is None else wanted)
