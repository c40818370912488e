"""The port to everything that must survive a restart: one method per fact, in the order facts happen.

Appending never blocks and never fails the caller; whether a fact is safe is asked by position:
a confirm may be given once `durable()` has reached what `position()` was after the facts it rests on.
All facts between two calls of `position()` made by one publish belong together (one atom in the log).
Times are deadlines on the monotonic clock; a store on disk turns them into wall time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, final

from mypy_extensions import i64, mypyc_attr

from millstream.model.delivery import Delivery
from millstream.model.errors import Reason
from millstream.model.message import Message

if TYPE_CHECKING:
    from millstream.storage.records.exchange_records import StoredBinding, StoredExchange
    from millstream.storage.records.stored_queue import StoredQueue


@final
class SessionKey:
    """Who a session belongs to: client ids are only unique within an account."""

    def __init__(self, account: str, client_id: str) -> None:
        self.account = account
        self.client_id = client_id

    def pair(self) -> tuple[str, str]:
        return (self.account, self.client_id)


@final
class StoredSession:
    """The facts of one session apart from its lists; `expires_ns` 0 while connected or never."""

    def __init__(self, key: SessionKey, principal: str, expiry_s: int, expires_ns: int) -> None:
        self.key = key
        self.principal = principal
        self.expiry_s = expiry_s
        self.expires_ns = expires_ns
        self.subscriptions: dict[bytes, StoredSubscription] = {}
        self.deliveries: dict[int, Delivery] = {}  # by sequence, in order
        self.received_ids: dict[int, None] = {}
        self.received_digests: dict[int, int] = {}  # of what came with them, as far as known
        self.will: StoredWill | None = None
        self.may_lack_end = False  # its client may have been told more than this


@final
class StoredSubscription:
    def __init__(
        self,
        name: bytes,
        guarantee: int,
        no_local: bool,
        retain_as_published: bool,
        identifier: int,
        group: bytes = b"",
        terms: int = 0,
    ) -> None:
        self.name = name  # as the client wrote it, share prefix included
        self.guarantee = guarantee
        self.no_local = no_local
        self.retain_as_published = retain_as_published
        self.identifier = identifier
        self.group = group  # of consumers, where the name itself does not say it
        self.terms = terms  # how a consumer of a queue settles


@final
class StoredWill:
    """`due_ns` 0 means: its owner is connected, or was when the broker died."""

    def __init__(self, message: Message, delay_s: int, due_ns: int, lifetime_s: int = 0) -> None:
        self.message = message
        self.delay_s = delay_s
        self.due_ns = due_ns
        self.lifetime_s = lifetime_s  # the message expiry, which starts to run when the will is sent


@final
class StoredState:
    """What a broker starts from."""

    def __init__(
        self,
        sessions: list[StoredSession],
        retained: list[tuple[str, Message]],
        queues: list[StoredQueue],
        last_queue: int = 0,
    ) -> None:
        self.last_queue = last_queue  # the highest number a queue ever had
        self.sessions = sessions
        self.retained = retained
        self.queues = queues
        self.exchanges: list[StoredExchange] = []
        self.bindings: list[StoredBinding] = []


@mypyc_attr(allow_interpreted_subclasses=True)
class Store(ABC):
    @abstractmethod
    def load(self) -> StoredState: ...

    @abstractmethod
    def position(self) -> i64: ...

    @abstractmethod
    def durable(self) -> i64: ...

    def refusal(self) -> Reason:
        """SUCCESS, or why nothing can be made durable now: a publish that needs it must be refused."""
        return Reason.SUCCESS

    def backlog_bytes(self) -> i64:
        """Of facts that wait to be written."""
        return 0

    def is_stuck(self) -> bool:
        """Whether the disk takes nothing at all: full, broken or silent. Being behind is not being stuck."""
        return False

    @abstractmethod
    def on_tick(self, now_ns: i64) -> None:
        """Time has passed: a store may notice that its disk does not answer."""

    @abstractmethod
    def session_saved(self, key: SessionKey, principal: str, expiry_s: i64, expires_ns: i64) -> None: ...

    @abstractmethod
    def session_removed(self, key: SessionKey) -> None: ...

    @abstractmethod
    def subscription_saved(self, key: SessionKey, subscription: StoredSubscription) -> None: ...

    @abstractmethod
    def subscription_removed(self, key: SessionKey, name: bytes) -> None: ...

    @abstractmethod
    def delivery_added(self, key: SessionKey, delivery: Delivery) -> None: ...

    @abstractmethod
    def delivery_advanced(self, key: SessionKey, delivery: Delivery) -> None:
        """Its packet id or phase changed."""

    @abstractmethod
    def delivery_removed(self, key: SessionKey, delivery: Delivery) -> None: ...

    @abstractmethod
    def id_received(self, key: SessionKey, packet_id: i64) -> None:
        """An exactly-once publish with this id was taken over."""

    @abstractmethod
    def id_released(self, key: SessionKey, packet_id: i64) -> None: ...

    @abstractmethod
    def will_saved(self, key: SessionKey, will: StoredWill) -> None: ...

    @abstractmethod
    def will_removed(self, key: SessionKey) -> None: ...

    @abstractmethod
    def retained_saved(self, account: str, message: Message) -> None: ...

    @abstractmethod
    def retained_removed(self, account: str, topic: bytes) -> None: ...

    @abstractmethod
    def queue_fact(self, kind: i64, body: bytes) -> i64:
        """A fact about queues in the form of `queue_records`; gives its position."""

    @abstractmethod
    def exchange_fact(self, kind: i64, body: bytes) -> i64:
        """A fact about exchanges in the form of `exchange_records`; gives its position."""
