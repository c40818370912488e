"""The durable store: every fact of sessions and retained messages becomes a record of the log.

What is appended is safe when `durable()` has reached it. Nothing is read back while the broker runs: the broker's own
objects are the state, the log is how to make them again.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from millstream.model.delivery import Delivery
from millstream.model.errors import Reason
from millstream.model.message import Message
from millstream.storage.log.write_ahead_log import Log
from millstream.storage.records import session_records
from millstream.storage.store import SessionKey, Store, StoredState, StoredSubscription, StoredWill

BACKLOG_BYTES_MAX: Final = 64 * 1024 * 1024  # facts that wait for a disk that does not keep up


@final
class LogStore(Store):
    """`wall_offset_ns` is what to add to a deadline of this run's clock to get wall time."""

    def __init__(
        self, log: Log, state: StoredState, numbers: dict[tuple[str, str], int], wall_offset_ns: int
    ) -> None:
        self._log = log
        self._state: StoredState | None = state
        self._numbers = numbers  # of the sessions in the log
        self._next_number = max(numbers.values(), default=0) + 1
        self._wall_offset_ns = wall_offset_ns
        # the message written last: the deliveries of one publish share its record
        self._last_message: Message | None = None
        self._last_number: i64 = 0
        # the session asked for last, and its number: most facts are about the one of the fact before
        self._last_key: SessionKey | None = None
        self._last_session: i64 = 0

    def load(self) -> StoredState:
        state = self._state
        assert state is not None
        self._state = None  # the broker owns it from here on
        return state

    def position(self) -> i64:
        return self._log.position

    def durable(self) -> i64:
        return self._log.durable

    def refusal(self) -> Reason:
        if self.is_stuck() or self._log.unsafe_bytes() > BACKLOG_BYTES_MAX:
            return Reason.UNAVAILABLE
        return Reason.SUCCESS

    def backlog_bytes(self) -> i64:
        return self._log.unsafe_bytes()

    def is_stuck(self) -> bool:
        log = self._log
        return log.is_full or log.is_stalled or log.fault != ""

    def on_tick(self, now_ns: i64) -> None:
        self._log.on_tick(now_ns)

    def session_saved(self, key: SessionKey, principal: str, expiry_s: i64, expires_ns: i64) -> None:
        number = self._numbers.get(key.pair())
        if number is None:
            number = self._numbers[key.pair()] = self._next_number
            self._next_number += 1
        fact = session_records.SessionFact(
            number, key.account, key.client_id, principal, int(expiry_s), self._wall(expires_ns)
        )
        self._log.append(session_records.SESSION_SAVED, session_records.encode_session(fact))

    def session_removed(self, key: SessionKey) -> None:
        self._last_message = None
        self._last_key = None
        number = self._numbers.pop(key.pair(), None)
        if number is not None:
            self._log.append(session_records.SESSION_REMOVED, session_records.encode_number(number))

    def subscription_saved(self, key: SessionKey, subscription: StoredSubscription) -> None:
        body = session_records.encode_subscription(self._number(key), subscription)
        self._log.append(session_records.SUBSCRIPTION_SAVED, body)

    def subscription_removed(self, key: SessionKey, name: bytes) -> None:
        self._log.append(
            session_records.SUBSCRIPTION_REMOVED, session_records.encode_named(self._number(key), name)
        )

    def delivery_added(self, key: SessionKey, delivery: Delivery) -> None:
        message = self._store_message(delivery.message)
        body = session_records.encode_delivery(self._number(key), message, delivery)
        self._log.append(session_records.DELIVERY_ADDED, body)

    def delivery_advanced(self, key: SessionKey, delivery: Delivery) -> None:
        self._log.append(
            session_records.DELIVERY_ADVANCED, session_records.encode_advance(self._number(key), delivery)
        )

    def delivery_removed(self, key: SessionKey, delivery: Delivery) -> None:
        if delivery.message is self._last_message:
            self._last_message = None
        body = session_records.encode_pair(self._number(key), delivery.sequence)
        self._log.append(session_records.DELIVERY_REMOVED, body)

    def id_received(self, key: SessionKey, packet_id: i64) -> None:
        self._log.append(
            session_records.ID_RECEIVED, session_records.encode_id(self._number(key), int(packet_id))
        )

    def id_released(self, key: SessionKey, packet_id: i64) -> None:
        self._log.append(
            session_records.ID_RELEASED, session_records.encode_id(self._number(key), int(packet_id))
        )

    def will_saved(self, key: SessionKey, will: StoredWill) -> None:
        message = self._store_message(will.message)
        fact = session_records.WillFact(
            self._number(key), message, will.delay_s, self._wall(will.due_ns), will.lifetime_s
        )
        self._log.append(session_records.WILL_SAVED, session_records.encode_will(fact))

    def will_removed(self, key: SessionKey) -> None:
        self._last_message = None
        number = self._numbers.get(key.pair())
        if number is not None:
            self._log.append(session_records.WILL_REMOVED, session_records.encode_number(number))

    def retained_saved(self, account: str, message: Message) -> None:
        number = self._store_message(message)
        self._log.append(session_records.RETAINED_SAVED, session_records.encode_retained(account, number))

    def retained_removed(self, account: str, topic: bytes) -> None:
        self._last_message = None
        self._log.append(session_records.RETAINED_REMOVED, session_records.encode_topic(account, topic))

    def queue_fact(self, kind: i64, body: bytes) -> i64:
        return self._log.append(int(kind), body)

    def exchange_fact(self, kind: i64, body: bytes) -> i64:
        return self._log.append(int(kind), body)

    def _number(self, key: SessionKey) -> i64:
        if key is not self._last_key:
            self._last_session = self._numbers[key.pair()]
            self._last_key = key
        return self._last_session

    def _store_message(self, message: Message) -> i64:
        """The number of its record. A message whose last user may be gone is written again: what is folded
        away cannot be named any more."""
        if message is not self._last_message:
            body = session_records.encode_message(message, self._wall(message.expires_ns))
            self._last_number = self._log.append(session_records.MESSAGE, body)
            self._last_message = message
        return self._last_number

    def _wall(self, deadline_ns: i64) -> int:
        return int(deadline_ns) + self._wall_offset_ns if deadline_ns else 0
