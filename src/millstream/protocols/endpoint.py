"""What any transport may ask of any protocol, and what any protocol may ask of its transport."""

from __future__ import annotations

from abc import ABC, abstractmethod

from mypy_extensions import i64, mypyc_attr

from millstream.broker.line import Line
from millstream.model.outbox import Sink
from millstream.security.authentication import Credentials, Decision


@mypyc_attr(allow_interpreted_subclasses=True)
class Link(Sink):
    """One transport connection, as its endpoint sees it."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.certificate_name: str | None = None
        self.spent_ns: i64 = 0  # on acting on what it sent

    @abstractmethod
    def unsent_bytes(self) -> i64: ...

    @abstractmethod
    def pause_reading(self) -> None: ...

    @abstractmethod
    def resume_reading(self) -> None: ...

    @abstractmethod
    def pause_for(self, duration_ns: i64) -> None:
        """Stop reading for a while: the peer sends faster than it may."""

    @abstractmethod
    def wait_for_store(self, waits: bool) -> None:
        """Stop reading while too many confirms wait for the disk."""

    @abstractmethod
    def wait_for_turn(self, waits: bool) -> None:
        """Stop reading while what was read has not been acted on."""

    @abstractmethod
    def close(self) -> None:
        """Close once everything sent so far has left."""

    @abstractmethod
    def ask(self, credentials: Credentials) -> None:
        """Find out who this is without blocking; the answer comes to `Endpoint.on_decision`."""

    def charge(self, spent_ns: i64) -> None:
        """So much more time went into what it has sent, or left behind."""
        self.spent_ns += spent_ns

    def count_filters(self, count: i64) -> None:
        """The client asks for, or gives up, so many subscriptions at once."""

    @abstractmethod
    def on_fault(self, fault: Exception) -> None:
        """Our own bug, met while serving this connection: it ends the connection and nothing else."""

    @abstractmethod
    def on_authenticated(self) -> None:
        """The bounds for strangers no longer apply."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Endpoint(Line):
    """`is_full` asks the transport to stop reading until `Link.resume_reading`."""

    @abstractmethod
    def receive_data(self, data: bytes, now_ns: i64) -> None: ...

    @abstractmethod
    def next_deadline(self) -> i64: ...

    @abstractmethod
    def on_deadline(self, now_ns: i64) -> None: ...

    @abstractmethod
    def on_decision(self, decision: Decision, now_ns: i64) -> None: ...

    @abstractmethod
    def on_lagging(self) -> None:
        """Unsent bytes pile up in the transport."""

    @abstractmethod
    def on_caught_up(self) -> None: ...

    def touch(self, now_ns: i64) -> None:
        """The peer was not read: its silence is ours."""

    def on_memory_short(self, is_short: bool) -> None:
        """The connection is not read because memory is short, or is read again."""

    @abstractmethod
    def on_lost(self, now_ns: i64) -> None:
        """The transport is gone."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Entropy(ABC):
    """The port to chance: the core has none of its own."""

    @abstractmethod
    def make_client_id(self) -> str: ...

    @abstractmethod
    def make_nonce(self) -> str: ...

    @abstractmethod
    def make_name(self) -> str:
        """22 characters that nobody can guess: letters, digits, - and _."""
