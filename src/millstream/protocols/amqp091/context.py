"""What all AMQP endpoints of a broker share, and who of them is connected."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from millstream.broker.broker import Broker
from millstream.broker.line import Ending
from millstream.broker.observer import Observer
from millstream.model.errors import Reason, Refused
from millstream.model.outbox import OutboxPool
from millstream.protocols.amqp091.channel import Channel
from millstream.protocols.amqp091.machine.terms import Terms
from millstream.protocols.amqp091.policies import Policies
from millstream.protocols.amqp091.reply_to import ReplyAddresses
from millstream.protocols.amqp091.rights import enforce
from millstream.protocols.amqp091.wire.codes import CHANNEL, RESOURCE_ERROR
from millstream.protocols.amqp091.wire.field_table import FieldTable
from millstream.protocols.amqp091.wire.methods import ChannelOpen
from millstream.protocols.endpoint import Entropy, Link
from millstream.security.authentication import Authenticator
from millstream.security.quota import CONNECTIONS
from millstream.version import VERSION

if TYPE_CHECKING:
    from millstream.protocols.amqp091.endpoint import AmqpEndpoint

MILLISECONDS: Final[i64] = 1_000_000
CHANNEL_BYTES: Final[i64] = 2048  # of memory that one takes, about
CHANNELS_PER_TICK: Final[i64] = (
    20_000  # that are looked at for deliveries open for too long; the others a second later
)

PLAIN: Final = b"PLAIN"
AMQPLAIN: Final = b"AMQPLAIN"
SCRAM: Final = b"SCRAM-SHA-256"
EXTERNAL: Final = b"EXTERNAL"
ANONYMOUS: Final = b"ANONYMOUS"

CAPABILITIES: Final = (
    b"publisher_confirms",
    b"exchange_exchange_bindings",
    b"basic.nack",
    b"consumer_cancel_notify",
    b"connection.blocked",
    b"consumer_priorities",
    b"authentication_failure_close",
    b"per_consumer_qos",
    b"direct_reply_to",
)
BLOCKED_TEXT: Final = b"the disk takes nothing"
BLOCKED_BY_STORE: Final[i64] = 1


@final
class AmqpContext:
    def __init__(
        self,
        broker: Broker,
        authenticator: Authenticator,
        pool: OutboxPool,
        observer: Observer,
        entropy: Entropy,
        scram_key: bytes,
        allow_anonymous: bool,
        certificates_as_users: bool,
        policies: Policies,
    ) -> None:
        self.broker = broker
        self.limits = broker.limits
        self.authenticator = authenticator
        self.pool = pool
        self.observer = observer
        self.entropy = entropy
        self.scram_key = scram_key
        self.policies = policies
        self.reply_addresses = ReplyAddresses()
        self.is_blocked = False  # the store takes nothing: clients are told
        self.channels: i64 = 0  # of all connections
        self._allow_anonymous = allow_anonymous
        self._certificates_as_users = certificates_as_users
        self._lines: dict[AmqpEndpoint, None] = {}
        self._to_look: list[AmqpEndpoint] = []  # whose channels have their turn
        self._terms: dict[bytes, Terms] = {}  # by mechanisms
        self._generation = 0  # of the users that `_has_scram` was found for
        self._has_scram = False

    # ---------------------------------------------------------------- offering

    def find_terms(self, link: Link) -> Terms:
        """What is offered to whom comes over this link."""
        mechanisms = self.mechanisms_for(link)
        terms = self._terms.get(mechanisms)
        if terms is None:
            limits = self.limits
            terms = Terms(
                limits.amqp_frame_max,
                limits.amqp_channel_max,
                limits.amqp_heartbeat_s,
                limits.amqp_body_size_max,
                limits.amqp_properties_size_max,
                limits.handshake_timeout_ms * MILLISECONDS,
                limits.connect_packet_size_max,
                mechanisms,
                describe_server(),
            )
            self._terms[mechanisms] = terms
        return terms

    def mechanisms_for(self, link: Link) -> bytes:
        """Ways to prove who one is, the usual first; each is offered only where it can work."""
        offered = [PLAIN, AMQPLAIN]
        if self._knows_scram():
            offered.append(SCRAM)
        if self._certificates_as_users and link.certificate_name is not None:
            offered.append(EXTERNAL)
        if self._allow_anonymous:
            offered.append(ANONYMOUS)
        return b" ".join(offered)

    def _knows_scram(self) -> bool:
        authenticator = self.authenticator
        if self._generation != authenticator.generation:
            self._generation = authenticator.generation
            self._has_scram = any([user.scram is not None for user in authenticator.users.users()])
        return self._has_scram

    # -------------------------------------------------------------- connections

    def add(self, endpoint: AmqpEndpoint) -> None:
        """It has proven who it is; until `unregister` it is ticked and ended with all others."""
        self._lines[endpoint] = None

    def register(self, endpoint: AmqpEndpoint) -> None:
        """It has opened its account."""
        account = endpoint.account
        usage = endpoint.usage
        assert account is not None and usage is not None and endpoint in self._lines
        account.connected += 1
        usage.add(CONNECTIONS, 1)
        account.counters.connections_total += 1
        if self.is_blocked:
            endpoint.set_blocked(BLOCKED_BY_STORE, True, BLOCKED_TEXT)

    def unregister(self, endpoint: AmqpEndpoint) -> None:
        """It is gone, however far it came."""
        if endpoint not in self._lines:
            return
        del self._lines[endpoint]
        account = endpoint.account
        usage = endpoint.usage
        if account is not None and usage is not None:
            account.connected -= 1
            usage.add(CONNECTIONS, -1)

    def endpoints(self) -> list[AmqpEndpoint]:
        return list(self._lines)

    def open_channel(self, endpoint: AmqpEndpoint, number: i64) -> None:
        """They are many and cost the client nothing: where memory is used up, and channels have a good part of it, the
        connection ends that asks for another."""
        account = endpoint.account
        assert account is not None
        held: i64 = self.channels * CHANNEL_BYTES
        try:
            account.quotas.check_memory(f"{int(self.channels)} channels", CHANNEL_BYTES, held)
        except Refused as refused:
            endpoint.handle(
                endpoint.machine.close(RESOURCE_ERROR, refused.text, CHANNEL, ChannelOpen.method_id)
            )
            return
        self.channels += 1
        endpoint.channels[int(number)] = Channel(endpoint, number, account)

    def on_tick(self, now_ns: i64) -> None:
        """About once a second."""
        is_blocked = self.broker.store.refusal() is not Reason.SUCCESS
        has_changed = is_blocked != self.is_blocked
        self.is_blocked = is_blocked
        for endpoint in self.endpoints():
            try:
                endpoint.on_tick(now_ns)
                if has_changed:
                    endpoint.set_blocked(BLOCKED_BY_STORE, is_blocked, BLOCKED_TEXT)
            except Exception as fault:  # noqa: BLE001 our bug ends this connection, not the broker
                endpoint.link.on_fault(fault)
        self._end_overdue(now_ns)

    def _end_overdue(self, now_ns: i64) -> None:
        """Very many channels have their turn one part after the other."""
        if not self._to_look and self.limits.amqp_consumer_timeout_ms:
            self._to_look = self.endpoints()
        left: i64 = CHANNELS_PER_TICK
        while self._to_look and left > 0:
            endpoint = self._to_look.pop()
            left -= len(endpoint.channels)
            try:
                for channel in list(endpoint.channels.values()):
                    if channel.is_overdue(now_ns):
                        endpoint.refuse(channel, channel.time_out(), 0, 0)
            except Exception as fault:  # noqa: BLE001 our bug ends this connection, not the broker
                endpoint.link.on_fault(fault)

    def on_rights_changed(self) -> None:
        """Consumers of queues that are no longer theirs to read get nothing more."""
        for endpoint in self.endpoints():
            try:
                enforce(endpoint)
            except Exception as fault:  # noqa: BLE001 who cannot be checked does not keep what it had
                endpoint.link.on_fault(fault)

    def end_invalid(self, now_s: int) -> None:
        """Those whose user is gone, or whose time is over."""
        for endpoint in self.endpoints():
            principal = endpoint.principal
            if principal is not None and not self.authenticator.is_still_valid(principal, now_s):
                endpoint.end(Ending.NOT_AUTHORIZED)

    def end_all(self, ending: Ending) -> None:
        for endpoint in self.endpoints():
            try:
                endpoint.end(ending)
            except Exception as fault:  # noqa: BLE001 the others are to be told too
                endpoint.link.on_fault(fault)


def describe_server() -> FieldTable:
    """What connection.start tells about us; clients look at the capabilities."""
    capabilities: FieldTable = dict.fromkeys(CAPABILITIES, True)
    return {
        b"product": b"Millstream",
        b"version": VERSION.encode(),
        b"platform": b"Python",
        b"information": b"AMQP 0-9-1",
        b"capabilities": capabilities,
    }
