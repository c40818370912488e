"""The gate every new connection passes: bounds for strangers, by number, by address and by rate.

Accepting never waits for a handshake: a connection counts as a stranger from accept until its endpoint has
authenticated it, and each of those is bounded in time, bytes and number.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64, mypyc_attr

from millstream.broker.conditions import CONNECTION_RATE, CONNECTIONS_FULL, HANDSHAKES_FULL
from millstream.model.limits import Limits
from millstream.protocols.endpoint import Endpoint, Link
from millstream.protocols.mqtt.context import MqttContext
from millstream.protocols.mqtt.endpoint import MqttEndpoint
from millstream.runtime.address_counts import AddressCounts
from millstream.runtime.deadlines import Deadlines
from millstream.runtime.intake import Intake
from millstream.runtime.loop_clock import LoopClock
from millstream.security.authentication import Credentials
from millstream.security.rate import BucketTable, address_key

NOTED_NS: Final[i64] = 1_000_000  # of a connection that ended; less is not worth telling
ENDED_MAX: Final[i64] = 10_000

if TYPE_CHECKING:
    from millstream.runtime.transport import TransportLink


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
        self.strangers: i64 = 0
        self.refused_rate: i64 = 0
        self.refused_full: i64 = 0
        self.memory = context.broker.memory
        self.links: dict[TransportLink, None] = {}  # all connections
        self.memory_waiters: dict[TransportLink, None] = {}  # publishers that are not read: memory is short
        self.strange: dict[TransportLink, None] = {}  # connections that are not authenticated yet
        self._by_address: dict[str, int] = {}
        self._rates = BucketTable(limits.connection_rate, limits.connection_burst)
        self.opened = AddressCounts()  # connections, refused ones included
        self.abandoned = AddressCounts()  # those that ended before anybody had logged in
        self.filters = AddressCounts()  # asked for in SUBSCRIBE and UNSUBSCRIBE
        self.ended: dict[TransportLink, None] = {}  # lost, and took time since the last look
        self.is_open = True

    def admit(self, address: str, now_ns: i64) -> bool:
        """Whether one more stranger from this address may stay; counts it if so."""
        limits = self.limits
        self.opened.add(address)
        key = address_key(address)
        if not self.is_open or self.connections >= self.connections_max:
            self.refused_full += 1
            if self.is_open:
                self._tell_full(address)
            return False
        strangers = self._by_address.get(key, 0)
        if (
            self.strangers >= limits.unauthenticated_max
            or strangers >= limits.unauthenticated_per_address_max
        ):
            self.refused_full += 1
            self._tell_strangers(address, strangers)
            return False
        if not self._rates.take(key, 1, int(now_ns)):
            self.refused_rate += 1
            cause = f"{address} connects more often than ratelimit.connection.rate = {limits.connection_rate:g} a second"
            self.health.report(CONNECTION_RATE, cause)
            return False
        self._by_address[key] = strangers + 1
        self.strangers += 1
        self.connections += 1
        return True

    def _tell_full(self, address: str) -> None:
        cause = (
            f"{self.connections:,} connections (mqtt.max_connections); the first refused came from {address}"
        )
        advice = ""
        if self.descriptors:
            cause = (
                f"{self.connections:,} connections, as many as {self.descriptors:,} file descriptors leave room for; "
                f"the first refused came from {address}"
            )
            advice = "raise LimitNOFILE (ulimit -n) above mqtt.max_connections and restart"
        self.health.report(CONNECTIONS_FULL, cause, 1, advice)

    def _tell_strangers(self, address: str, strangers: i64) -> None:
        limits = self.limits
        cause = f"{self.strangers:,} have not logged in (mqtt.max_unauthenticated); the first refused came from {address}"
        if strangers >= limits.unauthenticated_per_address_max:
            cause = f"{strangers:,} from {address} have not logged in (mqtt.max_unauthenticated_per_address)"
        self.health.report(HANDSHAKES_FULL, cause)

    def on_known(self, address: str) -> None:
        """A stranger has become a client, or left."""
        key = address_key(address)
        self.strangers -= 1
        left = self._by_address.get(key, 1) - 1
        if left > 0:
            self._by_address[key] = left
        else:
            self._by_address.pop(key, None)

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
