"""The gate every new connection passes: bounds for strangers, by number, by address and by rate.

Accepting never waits for a handshake: a connection counts as a stranger from accept until its endpoint has
authenticated it, and each of those is bounded in time, bytes and number.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64, mypyc_attr

from millstream.broker.conditions import CONNECTION_RATE, CONNECTIONS_FULL, HANDSHAKES_FULL, PUBLISHERS_SLOWED
from millstream.model.limits import Limits
from millstream.protocols.endpoint import Endpoint, Link
from millstream.protocols.mqtt.context import MqttContext
from millstream.protocols.mqtt.endpoint import MqttEndpoint
from millstream.runtime.loop.clock import LoopClock
from millstream.runtime.transport.address_counts import AddressCounts
from millstream.runtime.transport.closed_peers import ClosedPeers
from millstream.runtime.transport.deadlines import Deadlines
from millstream.runtime.transport.intake import Intake
from millstream.runtime.transport.strangers import Strangers
from millstream.security.authentication import Credentials
from millstream.security.rate import BucketTable, address_key

NOTED_NS: Final[i64] = 1_000_000  # of a connection that ended; less is not worth telling
ENDED_MAX: Final[i64] = 10_000
LOG_BEHIND: Final[i64] = 4 * 1024 * 1024  # bytes that wait to be written: everybody's confirms wait as long
RESUMED_AT_ONCE: Final = 64  # publishers
TICKS_TOLD: Final = 20

if TYPE_CHECKING:
    from millstream.runtime.transport.link import TransportLink


@mypyc_attr(allow_interpreted_subclasses=True)
class Asker(ABC):
    """Runs slow verification away from the loop and brings the answer back to the endpoint."""

    @abstractmethod
    def ask(self, credentials: Credentials, connection: TransportLink) -> None: ...

    @abstractmethod
    def forget(self, connection: TransportLink) -> None:
        """It left while it waited for an answer."""

    @abstractmethod
    def later(self, delay_ns: i64, connection: TransportLink) -> None: ...


@mypyc_attr(allow_interpreted_subclasses=True)
class HandshakePlace(ABC):
    """A place among those who may have TLS state without being authenticated."""

    @abstractmethod
    def release(self) -> None: ...

    @abstractmethod
    def lend(self) -> None:
        """Its login waits to be checked: others may have the place meanwhile."""

    @abstractmethod
    def reclaim(self) -> None:
        """Its login was checked."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Reception(ABC):
    """Which protocol a listener speaks: gives each of its connections an endpoint."""

    @abstractmethod
    def make_endpoint(self, link: Link, now_ns: i64) -> Endpoint: ...


@final
class MqttReception(Reception):
    def __init__(self, context: MqttContext) -> None:
        self._context = context

    def make_endpoint(self, link: Link, now_ns: i64) -> Endpoint:
        return MqttEndpoint(self._context, link, now_ns)


@final
class Gate:
    def __init__(
        self,
        context: MqttContext,
        deadlines: Deadlines,
        asker: Asker,
        limits: Limits,
        clock: LoopClock,
        intake: Intake | None = None,
    ) -> None:
        self.observer = context.observer
        self.mqtt = MqttReception(context)
        self.clock = clock
        self.intake = intake or Intake()
        self.deadlines = deadlines
        self.asker = asker
        self.limits = limits
        self.health = context.broker.health
        self.connections_max: i64 = limits.connections_max
        self.descriptors: i64 = (
            0  # how many the process may have, when they bound connections before the key does
        )
        self.connections: i64 = 0
        self._strangers = Strangers()
        self.refused_rate: i64 = 0
        self.refused_full: i64 = 0
        self.memory = context.broker.memory
        self.store = context.broker.store
        self.links: dict[TransportLink, None] = {}  # all connections
        self.memory_waiters: dict[TransportLink, None] = {}  # publishers that are not read: memory is short
        self.log_waiters: dict[TransportLink, None] = {}  # publishers that are not read: the log is behind
        self._log_ticks: i64 = 0  # that found somebody waiting for it, less those that did not
        self.strange: dict[TransportLink, None] = {}  # connections that are not authenticated yet
        self._rates = BucketTable(limits.connection_rate, limits.connection_burst)
        self.opened = AddressCounts()  # connections, refused ones included
        self.abandoned = AddressCounts()  # those that ended before anybody had logged in
        self.filters = AddressCounts()  # asked for in SUBSCRIBE and UNSUBSCRIBE
        self.ended: dict[TransportLink, None] = {}  # lost, and took time since the last look
        self.closed_peers = ClosedPeers(self)
        self.is_open = True

    @property
    def strangers(self) -> i64:
        return self._strangers.count

    def admit(
        self,
        address: str,
        now_ns: i64,
        stranger: object | None = None,
        give_way: Callable[[], None] | None = None,
    ) -> bool:
        """Whether one more stranger from this address may stay; counts it if so. While it cannot be told from a flood, it gives
        way to those of addresses that have fewer."""
        limits = self.limits
        self.opened.add(address)
        key = address_key(address)
        strangers = self._strangers
        if not self.is_open:
            self.refused_full += 1
            return False
        if strangers.of(key) >= limits.unauthenticated_per_address_max:
            self.refused_full += 1
            self._tell_strangers(address, strangers.of(key))
            return False
        make_room: Callable[[], None] | None = None
        if not self._has_room(address):
            make_room = strangers.find_oldest_beside(key)
            if make_room is None:
                self.refused_full += 1
                return False
        if not self._rates.take(key, 1, int(now_ns)):
            self.refused_rate += 1
            cause = f"{address} connects more often than ratelimit.connection.rate = {limits.connection_rate:g} a second"
            self.health.report(CONNECTION_RATE, cause)
            return False
        if make_room is not None:
            make_room()
        strangers.add(key, stranger, give_way)
        self.connections += 1
        return True

    def _has_room(self, address: str) -> bool:
        """Said if not: who comes is refused, or another gives way."""
        if self.connections >= self.connections_max:
            self._tell_full(address)
            return False
        if self._strangers.count >= self.limits.unauthenticated_max:
            self._tell_strangers(address, 0)
            return False
        return True

    def _tell_full(self, address: str) -> None:
        cause = (
            f"{self.connections:,} connections (mqtt.max_connections); the first too many came from {address}"
        )
        advice = ""
        if self.descriptors:
            cause = (
                f"{self.connections:,} connections, as many as {self.descriptors:,} file descriptors leave room for; "
                f"the first too many came from {address}"
            )
            advice = "raise LimitNOFILE (ulimit -n) above mqtt.max_connections and restart"
        self.health.report(CONNECTIONS_FULL, cause, 1, advice)

    def _tell_strangers(self, address: str, strangers: i64) -> None:
        limits = self.limits
        cause = f"{self.strangers:,} have not logged in (mqtt.max_unauthenticated); the first too many came from {address}"
        if strangers >= limits.unauthenticated_per_address_max:
            cause = f"{strangers:,} from {address} have not logged in (mqtt.max_unauthenticated_per_address)"
        self.health.report(HANDSHAKES_FULL, cause)

    def on_known(self, address: str, stranger: object | None = None) -> None:
        """A stranger has become a client, or left."""
        self._strangers.remove(address_key(address), stranger)

    def on_progress(self, address: str, stranger: object) -> None:
        """A stranger has one of the few places of those who are in the middle of a handshake."""
        self._strangers.keep(address_key(address), stranger)

    def note_ended(self, link: TransportLink) -> None:
        """Its time still counts for its address. Whoever looks takes them all."""
        if link.spent_ns >= NOTED_NS and len(self.ended) < ENDED_MAX:
            self.ended[link] = None

    def take_ended(self) -> list[TransportLink]:
        ended = list(self.ended)
        self.ended = {}
        return ended

    def on_gone(self) -> None:
        self.connections -= 1

    def resume_publishers(self, count_max: i64) -> None:
        """There is memory again: those who waited longest go on, not all of them at once."""
        for link in list(self.memory_waiters)[:count_max]:
            del self.memory_waiters[link]
            link.resume_for_memory()

    def is_log_behind(self) -> bool:
        """Whether who stores much has to wait. Not for a disk that takes nothing: then publishes are refused."""
        return self.store.backlog_bytes() > LOG_BEHIND and not self.store.is_stuck()

    def on_tick(self) -> None:
        """An operator is told of publishers that wait for the log most of the time."""
        if self.log_waiters:
            self._log_ticks += 1
            if self._log_ticks >= TICKS_TOLD:
                self._log_ticks = 0
                link = next(iter(self.log_waiters))
                name = "" if link.endpoint is None else link.endpoint.describe()
                others = f", and {len(self.log_waiters) - 1} others wait" if len(self.log_waiters) > 1 else ""
                self.health.report(PUBLISHERS_SLOWED, f"{name} from {link.address} waits for the log{others}")
        elif self._log_ticks > 0:
            self._log_ticks -= 1
        self.closed_peers.on_tick()
        self.on_durable()

    def on_durable(self) -> None:
        """The log has made progress, or none can be expected."""
        if self.log_waiters and not self.is_log_behind():
            for link in list(self.log_waiters)[:RESUMED_AT_ONCE]:
                del self.log_waiters[link]
                link.resume_for_log()
