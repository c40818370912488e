"""Folds facts into state, one after the other: at start to rebuild the broker, at checkpoints to shorten the log.

Messages are counted by who still needs them and forgotten with the last one.
"""

from __future__ import annotations

from typing import Final, final

from millstream.model.message import Message
from millstream.storage.log.format import Record
from millstream.storage.records import batch_records, exchange_records, queue_records, session_records
from millstream.storage.records.batch_records import StageFold
from millstream.storage.records.exchange_records import ExchangeFold
from millstream.storage.records.received_message import LastMessage
from millstream.storage.records.stored_queue import QueueFold
from millstream.storage.store import SessionKey, StoredSession, StoredState, StoredWill

PLACEHOLDER: Final = Message(b"", b"", 0, False, b"", 0, "")


def is_known_kind(kind: int) -> bool:
    """Whether this release can fold facts of that kind."""
    return (
        session_records.SESSION_SAVED <= kind <= session_records.RETAINED_REMOVED
        or queue_records.FIRST_KIND <= kind <= queue_records.LAST_KIND
        or batch_records.FIRST_KIND <= kind <= batch_records.LAST_KIND
        or exchange_records.FIRST_KIND <= kind <= exchange_records.LAST_KIND
    )


@final
class _Kept:
    """A message and how many facts name it."""

    def __init__(self, message: Message) -> None:
        self.message = message
        self.uses = 0


@final
class Fold:
    """`wall_offset_ns`: deadline of this run's clock + it = wall time."""

    def __init__(self, wall_offset_ns: int) -> None:
        self._to_deadline = -wall_offset_ns
        self._messages: dict[int, _Kept] = {}
        self._sessions: dict[int, StoredSession] = {}
        self._retained: dict[tuple[str, bytes], int] = {}
        self._wills: dict[int, int] = {}  # session: message
        self._delivered: dict[int, dict[int, int]] = {}  # session: sequence of a delivery: message
        self.queues = QueueFold()
        self.stages = StageFold()
        self.exchanges = ExchangeFold()
        self.last_sequence = 0
        self._last_message = LastMessage()
        self.orphans = 0  # facts about something the log no longer holds: only after damage

    def apply(self, record: Record) -> None:
        self.last_sequence = int(record.sequence)
        kind = int(record.kind)
        body = record.body
        if kind == session_records.MESSAGE:
            message = session_records.decode_message(body, self._to_deadline)
            self._last_message.note(kind, body)
            self._messages[int(record.sequence)] = _Kept(message)
        elif queue_records.FIRST_KIND <= kind <= queue_records.LAST_KIND:
            queue = self.queues.apply(kind, body)
            if kind == queue_records.RECORD_APPENDED:
                self._last_message.note(kind, body)
                if queue is not None:
                    queue.tail.append((self.last_sequence, body))
        elif batch_records.FIRST_KIND <= kind <= batch_records.LAST_KIND:
            self.stages.apply(kind, body)
        elif exchange_records.FIRST_KIND <= kind <= exchange_records.LAST_KIND:
            self.exchanges.apply(kind, body)
        elif kind in (
            session_records.DELIVERY_ADDED,
            session_records.DELIVERY_ADVANCED,
            session_records.DELIVERY_REMOVED,
        ):
            self._apply_delivery(kind, body)
        elif kind in (session_records.RETAINED_SAVED, session_records.RETAINED_REMOVED):
            self._apply_retained(kind, body)
        elif kind in (session_records.WILL_SAVED, session_records.WILL_REMOVED):
            self._apply_will(kind, body)
        else:
            self._apply_session(kind, body)

    def state(self) -> StoredState:
        retained = [
            (account, self._messages[number].message)
            for (account, _), number in self._retained.items()
            if number in self._messages
        ]
        queues = self.queues
        sessions = list(self._sessions.values())
        state = StoredState(sessions, retained, list(queues.queues.values()), queues.last_number)
        state.exchanges = list(self.exchanges.exchanges.values())
        state.bindings = self.exchanges.decode_bindings()
        return state

    def numbers(self) -> dict[tuple[str, str], int]:
        return {session.key.pair(): number for number, session in self._sessions.items()}

    # --------------------------------------------------------------- by kind

    def _apply_session(self, kind: int, body: bytes) -> None:
        if kind == session_records.SESSION_SAVED:
            fact = session_records.decode_session(body)
            expires_ns = self._deadline(fact.expires_wall_ns)
            session = self._sessions.get(fact.session)
            if session is None:
                key = SessionKey(fact.account, fact.client_id)
                self._sessions[fact.session] = StoredSession(key, fact.principal, fact.expiry_s, expires_ns)
            else:
                session.principal = fact.principal
                session.expiry_s = fact.expiry_s
                session.expires_ns = expires_ns
        elif kind == session_records.SESSION_REMOVED:
            self._remove_session(session_records.decode_number(body))
        elif kind == session_records.SUBSCRIPTION_SAVED:
            number, subscription = session_records.decode_subscription(body)
            session = self._find(number)
            if session is not None:
                session.subscriptions[subscription.name] = subscription
        elif kind == session_records.SUBSCRIPTION_REMOVED:
            number, name = session_records.decode_named(body)
            session = self._find(number)
            if session is not None:
                session.subscriptions.pop(name, None)
        elif kind in (session_records.ID_RECEIVED, session_records.ID_RELEASED):
            number, packet_id = session_records.decode_id(body)
            session = self._find(number)
            if session is None:
                return
            if kind == session_records.ID_RECEIVED:
                session.received_ids[packet_id] = None
                in_log = self.last_sequence != 0  # and not from a table, where nothing stands in order
                digest = self._last_message.digest() if in_log else session_records.find_digest(body)
                session.received_digests[packet_id] = digest
            else:
                session.received_ids.pop(packet_id, None)
                session.received_digests.pop(packet_id, None)
        else:
            raise session_records.FactFault(f"this release knows no facts of kind {kind}")

    def _apply_delivery(self, kind: int, body: bytes) -> None:
        if kind == session_records.DELIVERY_ADDED:
            fact = session_records.decode_delivery(body, PLACEHOLDER)
            session = self._find(fact.session)
            kept = self._messages.get(fact.message)
            if session is None or kept is None:
                self.orphans += 1
                return
            kept.uses += 1
            fact.delivery.message = kept.message
            sequence = int(fact.delivery.sequence)
            session.deliveries[sequence] = fact.delivery
            self._delivered.setdefault(fact.session, {})[sequence] = fact.message
        elif kind == session_records.DELIVERY_ADVANCED:
            number, sequence, phase, packet_id = session_records.decode_advance(body)
            session = self._find(number)
            delivery = None if session is None else session.deliveries.get(sequence)
            if delivery is not None:
                delivery.phase = phase
                delivery.packet_id = packet_id
        else:
            number, sequence = session_records.decode_pair(body)
            session = self._find(number)
            delivery = None if session is None else session.deliveries.pop(sequence, None)
            if delivery is not None:
                self._release(self._delivered[number].pop(sequence))

    def _apply_retained(self, kind: int, body: bytes) -> None:
        if kind == session_records.RETAINED_SAVED:
            account, number = session_records.decode_retained(body)
            kept = self._messages.get(number)
            if kept is None:
                self.orphans += 1
                return
            kept.uses += 1
            old = self._retained.get((account, kept.message.topic))
            self._retained[(account, kept.message.topic)] = number
        else:
            account, topic = session_records.decode_topic(body)
            old = self._retained.pop((account, topic), None)
        if old is not None:
            self._release(old)

    def _apply_will(self, kind: int, body: bytes) -> None:
        if kind == session_records.WILL_SAVED:
            fact = session_records.decode_will(body)
            session = self._find(fact.session)
            kept = self._messages.get(fact.message)
            if session is None or kept is None:
                self.orphans += 1
                return
            kept.uses += 1
            self._drop_will(fact.session)
            due_ns = self._deadline(fact.due_wall_ns)
            session.will = StoredWill(kept.message, fact.delay_s, due_ns, fact.lifetime_s)
            self._wills[fact.session] = fact.message
        else:
            number = session_records.decode_number(body)
            session = self._sessions.get(number)
            if session is not None:
                session.will = None
            self._drop_will(number)

    def _drop_will(self, session: int) -> None:
        message = self._wills.pop(session, None)
        if message is not None:
            self._release(message)

    def _remove_session(self, number: int) -> None:
        session = self._sessions.pop(number, None)
        if session is None:
            return
        for message in self._delivered.pop(number, {}).values():
            self._release(message)
        self._drop_will(number)

    def _find(self, number: int) -> StoredSession | None:
        session = self._sessions.get(number)
        if session is None:
            self.orphans += 1
        return session

    def _release(self, message: int) -> None:
        kept = self._messages.get(message)
        if kept is not None:
            kept.uses -= 1
            if kept.uses <= 0:
                del self._messages[message]

    def _deadline(self, wall_ns: int) -> int:
        return max(1, wall_ns + self._to_deadline) if wall_ns else 0
