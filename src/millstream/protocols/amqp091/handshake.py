"""From start-ok to open-ok: who is it, may it, which account.

A virtual host is an account. `/`, and nothing at all, is the account of whoever has proven who they are; another name must be
that account's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from millstream.model.errors import Refused
from millstream.protocols.amqp091.context import (
    ANONYMOUS,
    EXTERNAL,
    PLAIN,
    SCRAM,
    AmqpContext,
)
from millstream.protocols.amqp091.machine.connection import has_capability
from millstream.protocols.amqp091.machine.events import (
    Event,
    OpenReceived,
    SecureOkReceived,
    StartOkReceived,
)
from millstream.protocols.amqp091.wire import codes
from millstream.protocols.amqp091.wire.field_table import FieldTable, decode_table
from millstream.protocols.amqp091.wire.methods import ConnectionUpdateSecret, ConnectionUpdateSecretOk
from millstream.protocols.amqp091.wire.violation import Violation
from millstream.security.authentication import Credentials, Decision, Verdict
from millstream.security.principal import KIND_ANONYMOUS, KIND_TOKEN, Principal
from millstream.security.quota import CONNECTIONS
from millstream.security.scram import ScramFault, ScramServer

if TYPE_CHECKING:
    from millstream.protocols.amqp091.endpoint import AmqpEndpoint

ROOT: Final = "/"
GUEST: Final = "guest"  # its own password, where nobody has one: what clients of RabbitMQ try first


@final
class Handshake:
    def __init__(self, context: AmqpContext, endpoint: AmqpEndpoint) -> None:
        self._context = context
        self._endpoint = endpoint
        self._mechanism = b""
        self._claimed = ""  # whom the client says it is
        self._is_guest = False
        self._scram: ScramServer | None = None
        self._is_asked = False  # the client has been told that it is to begin
        self._generation = 0  # of the users an exchange began with
        self._proven: Principal | None = None  # by an exchange whose last word is on its way
        self._is_updating = False  # a new secret is being looked at

    def on_event(self, event: Event, now_ns: i64) -> None:
        if isinstance(event, StartOkReceived):
            self.on_start_ok(event, now_ns)
        elif isinstance(event, SecureOkReceived):
            self.on_secure_ok(event, now_ns)
        elif isinstance(event, OpenReceived):
            self.on_open(event, now_ns)

    # ---------------------------------------------------------- authentication

    def on_start_ok(self, event: StartOkReceived, now_ns: i64) -> None:
        endpoint = self._endpoint
        context = self._context
        self._mechanism = event.mechanism
        endpoint.takes_cancel = has_capability(event.client_properties, b"consumer_cancel_notify")
        endpoint.takes_blocked = has_capability(event.client_properties, b"connection.blocked")
        endpoint.is_by_specification = event.client_properties.get(b"product") == b"py-amqp"
        if event.mechanism not in context.mechanisms_for(endpoint.link).split(b" "):
            shown = event.mechanism.decode(errors="replace")
            self._refuse(codes.COMMAND_INVALID, f"unknown authentication mechanism '{shown}'")
        elif event.mechanism == SCRAM:
            self._generation = context.authenticator.generation
            self._scram = ScramServer(
                context.authenticator.users, context.entropy.make_nonce(), context.scram_key
            )
            self._on_scram(event.response, now_ns)
        else:
            self._decide(event.response, now_ns)

    def _decide(self, response: bytes, now_ns: i64) -> None:
        credentials = self._read_credentials(response)
        if credentials is None:
            self._deny("the response of the client cannot be read")
            return
        self._claimed = credentials.username or credentials.certificate_name or ""
        self._is_guest = credentials.username == GUEST and credentials.password == GUEST.encode()
        wall_s = int(self._context.broker.clock.wall_s)
        decision = self._context.authenticator.decide(credentials, wall_s, int(now_ns))
        if decision.verdict is Verdict.ASK:
            self._endpoint.link.ask(credentials)
        else:
            self.on_decision(decision, now_ns)

    def _read_credentials(self, response: bytes) -> Credentials | None:
        """None: it is not what the mechanism says it should be."""
        endpoint = self._endpoint
        name: bytes | None = None
        password: bytes | None = None
        certificate: str | None = None
        if self._mechanism == EXTERNAL:
            certificate = endpoint.link.certificate_name
            name = response or None  # whom it wants to act for: only itself
        elif self._mechanism != ANONYMOUS:
            found = _split_plain(response) if self._mechanism == PLAIN else _split_amqplain(response)
            if found is None:
                return None
            name, password = found
        try:
            username = None if name is None else name.decode()
        except UnicodeDecodeError:
            return None
        return Credentials(endpoint.connection_id, username, password, certificate, endpoint.link.address)

    def on_decision(self, decision: Decision, now_ns: i64) -> None:
        if self._is_updating:
            self._on_new_secret(decision)
            return
        principal = decision.principal
        if decision.verdict is not Verdict.ALLOWED or principal is None:
            self._deny(decision.text)
        elif principal.kind == KIND_ANONYMOUS and self._mechanism != ANONYMOUS and not self._is_guest:
            self._deny("nobody has a password here: log in as guest with the password guest")
        else:
            self._accept(principal)

    def _accept(self, principal: Principal) -> None:
        endpoint = self._endpoint
        endpoint.principal = principal
        endpoint.user_name = (self._claimed or principal.name).encode()
        endpoint.machine.accept()
        self._context.add(endpoint)
        endpoint.link.on_authenticated()

    def on_secure_ok(self, event: SecureOkReceived, now_ns: i64) -> None:
        proven = self._proven
        if proven is not None:  # it has seen our own proof
            self._accept(proven)
        else:
            self._on_scram(event.response, now_ns)

    def _on_scram(self, data: bytes, now_ns: i64) -> None:
        scram = self._scram
        if scram is None:
            self._deny("an answer came that nobody asked for")
            return
        context = self._context
        authenticator = context.authenticator
        address = self._endpoint.link.address
        try:
            if not data and scram.user_name == "" and not self._is_asked:
                self._is_asked = True  # once: else an exchange would never end
                self._endpoint.machine.secure(b"")  # it lets us speak first: we have nothing to say yet
                return
            if scram.user_name == "":
                answer = scram.on_client_first(data)
                self._claimed = scram.user_name
                if authenticator.is_throttled(scram.user_name, address, int(now_ns)):
                    self._deny("too many failed attempts, wait a minute")
                    return
                self._endpoint.machine.secure(answer)
                return
            answer, name = scram.on_client_final(data)
        except ScramFault as fault:
            authenticator.count_failure(scram.user_name, address, int(now_ns))
            self._deny(fault.text)
            return
        decision = authenticator.accept_user(name)
        if decision.verdict is not Verdict.ALLOWED or decision.principal is None:
            self._deny(decision.text)
        elif self._generation != authenticator.generation:
            self._deny("the users changed during the authentication, try again")
        else:
            self._proven = decision.principal
            self._endpoint.machine.secure(answer)

    # -------------------------------------------------------------- new secret

    def on_update_secret(self, method: ConnectionUpdateSecret, now_ns: i64) -> None:
        """A token that follows the one in use. What was proven otherwise does not run out: there is nothing to renew."""
        endpoint = self._endpoint
        principal = endpoint.principal
        assert principal is not None
        if principal.kind != KIND_TOKEN:
            endpoint.machine.send(0, ConnectionUpdateSecretOk())
            return
        if self._is_updating:
            self._end_update("one secret after the other: the last one is still being looked at")
            return
        credentials = Credentials(
            endpoint.connection_id, principal.name, method.new_secret, None, endpoint.link.address
        )
        self._is_updating = True
        wall_s = int(self._context.broker.clock.wall_s)
        decision = self._context.authenticator.decide(credentials, wall_s, int(now_ns))
        if decision.verdict is Verdict.ASK:
            endpoint.link.ask(credentials)
        else:
            self._on_new_secret(decision)

    def _on_new_secret(self, decision: Decision) -> None:
        """It must be of the same principal: what the connection has made is that one's."""
        self._is_updating = False
        endpoint = self._endpoint
        if not endpoint.machine.is_open:
            return  # it ended while the secret was looked at
        old = endpoint.principal
        new = decision.principal
        if (
            old is None
            or new is None
            or (new.name, new.account, new.kind) != (old.name, old.account, old.kind)
        ):
            self._end_update(decision.text or "the new secret is somebody else's")
            return
        endpoint.principal = new
        endpoint.machine.send(0, ConnectionUpdateSecretOk())

    def _end_update(self, text: str) -> None:
        endpoint = self._endpoint
        name = codes.name_of(codes.NOT_ALLOWED)
        self._context.observer.refused(
            endpoint.connection_id, self._claimed, endpoint.link.address, name, text
        )
        told = "New secret was refused by one of the backends"
        method = ConnectionUpdateSecret
        endpoint.handle(endpoint.machine.close(codes.NOT_ALLOWED, told, method.class_id, method.method_id))

    # ---------------------------------------------------------------- account

    def on_open(self, event: OpenReceived, now_ns: i64) -> None:
        endpoint = self._endpoint
        context = self._context
        principal = endpoint.principal
        assert principal is not None
        wanted = event.virtual_host.decode(errors="replace")
        if wanted not in ("", ROOT, principal.account):
            self._refuse(codes.NOT_ALLOWED, f"vhost {wanted} not found")
            return
        host = wanted or ROOT
        try:
            account = context.broker.get_account(principal.account)
        except Refused as refused:
            self._refuse(codes.NOT_ALLOWED, refused.text)
            return
        usage = account.quotas.of(principal.name)
        try:
            account.quotas.admit(CONNECTIONS, usage)
        except Refused as refused:
            text = (
                f"access to vhost '{host}' refused for user '{principal.name}': connection limit is reached"
            )
            self._refuse(codes.NOT_ALLOWED, f"{text} ({refused.text})")
            return
        endpoint.account = account
        endpoint.usage = usage
        endpoint.has_rate = endpoint.has_rate or usage.has_rate()
        account.counters.bytes_received += endpoint.early_bytes
        endpoint.virtual_host = host
        endpoint.machine.open_ok()
        endpoint.link.on_authenticated()  # again: the heartbeat may be due before the handshake would have been
        context.register(endpoint)
        context.observer.connected(
            endpoint.connection_id, principal.name, account.name, endpoint.link.address, "amqp 0.9.1"
        )

    # ---------------------------------------------------------------- refusals

    def _deny(self, text: str) -> None:
        """What exactly was wrong is for the log, not for the one who tried it."""
        shown = self._mechanism.decode(errors="replace")
        told = (
            f"Login was refused using authentication mechanism {shown}. For details see the broker logfile."
        )
        self._refuse(codes.ACCESS_REFUSED, told, text)

    def _refuse(self, code: int, text: str, logged: str = "") -> None:
        endpoint = self._endpoint
        self._context.observer.refused(
            endpoint.connection_id,
            self._claimed,
            endpoint.link.address,
            codes.name_of(code),
            logged or text,
        )
        endpoint.handle(endpoint.machine.refuse(code, text))


def _split_plain(response: bytes) -> tuple[bytes, bytes] | None:
    """(name, password) of `[act for] NUL name NUL password` [RFC4616]."""
    parts = response.split(b"\x00")
    if len(parts) != 3 or (parts[0] and parts[0] != parts[1]):
        return None
    return parts[1], parts[2]


def _split_amqplain(response: bytes) -> tuple[bytes, bytes] | None:
    """The same of a field table without its length, with LOGIN and PASSWORD."""
    try:
        table: FieldTable = decode_table(len(response).to_bytes(4, "big") + response, 0, len(response) + 4)[0]
    except Violation:
        return None
    name = table.get(b"LOGIN")
    password = table.get(b"PASSWORD")
    if not isinstance(name, bytes) or not isinstance(password, bytes):
        return None
    return name, password
