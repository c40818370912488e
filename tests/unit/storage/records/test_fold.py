"""Folding facts: what is left of them, message by message, in memory and in the table of a checkpoint."""

from __future__ import annotations

import pytest
from fakes import make_message

from millstream.model.delivery import Delivery
from millstream.storage.log.format import Record
from millstream.storage.records import session_records
from millstream.storage.records.fold import Fold
from millstream.storage.segments.writer import SegmentWriter
from millstream.storage.store import StoredSubscription
from millstream.storage.table.checkpoint import KEY_SIZE_MAX, Checkpoint, load_table, read_meta
from simulation.disk import SimulatedDisk
from simulation.failpoints import DeadlyFailpoints
from simulation.table import SimulatedTable
from simulation.workload import describe

SEGMENT_SIZE = 1 << 20


def make_checkpoint(table: SimulatedTable) -> Checkpoint:
    return Checkpoint(table, SegmentWriter(SimulatedDisk(0), DeadlyFailpoints(), SEGMENT_SIZE))


class Both:
    """The same facts for a fold and for a checkpoint; they must agree."""

    def __init__(self) -> None:
        self.fold = Fold(0)
        self.table = SimulatedTable()
        self.checkpoint = make_checkpoint(self.table)
        self._sequence = 0

    def tell(self, kind: int, body: bytes) -> int:
        self._sequence += 1
        self.fold.apply(Record(self._sequence, kind, body))
        self.checkpoint.apply(Record(self._sequence, kind, body))
        return self._sequence

    def session(self, number: int, client_id: str = "c") -> None:
        fact = session_records.SessionFact(number, "default", client_id, "u", 60, 0)
        self.tell(session_records.SESSION_SAVED, session_records.encode_session(fact))

    def message(self, topic: bytes = b"t") -> int:
        return self.tell(session_records.MESSAGE, session_records.encode_message(make_message(topic), 0))

    def deliver(self, session: int, message: int, sequence: int) -> None:
        delivery = Delivery(make_message(b""), 1, False, (), b"")
        delivery.sequence = sequence
        self.tell(session_records.DELIVERY_ADDED, session_records.encode_delivery(session, message, delivery))

    def settle(self, session: int, sequence: int) -> None:
        self.tell(session_records.DELIVERY_REMOVED, session_records.encode_pair(session, sequence))

    def messages(self) -> int:
        """How many messages are kept."""
        self.checkpoint.finish(1)
        loaded = Fold(0)
        load_table(self.table, loaded)
        assert describe(loaded.state()) == describe(self.fold.state())
        assert loaded.orphans == 0
        return len(self.table.items(b"m"))


@pytest.fixture
def both() -> Both:
    return Both()


def test_a_message_is_kept_as_long_as_somebody_needs_it(both: Both) -> None:
    both.session(1)
    both.session(2, "d")
    message = both.message()
    both.deliver(1, message, 0)
    both.deliver(2, message, 0)
    both.tell(session_records.RETAINED_SAVED, session_records.encode_retained("default", message))
    both.tell(
        session_records.WILL_SAVED, session_records.encode_will(session_records.WillFact(1, message, 0, 0, 0))
    )
    both.settle(1, 0)
    assert both.messages() == 1
    both.tell(session_records.SESSION_REMOVED, session_records.encode_number(2))
    both.tell(session_records.WILL_REMOVED, session_records.encode_number(1))
    assert both.messages() == 1
    both.tell(session_records.RETAINED_REMOVED, session_records.encode_topic("default", b"t"))
    assert both.messages() == 0


def test_a_message_nobody_names_is_forgotten(both: Both) -> None:
    both.message()
    assert both.messages() == 0


def test_what_is_replaced_frees_its_message(both: Both) -> None:
    both.session(1)
    for _ in range(3):
        message = both.message()
        both.tell(session_records.RETAINED_SAVED, session_records.encode_retained("default", message))
        will = both.message(b"w")
        both.tell(
            session_records.WILL_SAVED,
            session_records.encode_will(session_records.WillFact(1, will, 0, 0, 0)),
        )
    assert both.messages() == 2


def test_the_same_message_may_replace_itself(both: Both) -> None:
    both.session(1)
    message = both.message()
    for _ in range(3):
        both.tell(session_records.RETAINED_SAVED, session_records.encode_retained("default", message))
        both.tell(
            session_records.WILL_SAVED,
            session_records.encode_will(session_records.WillFact(1, message, 0, 0, 0)),
        )
    assert both.messages() == 1
    assert len(both.fold.state().retained) == 1


def test_a_session_takes_everything_of_its_own_with_it(both: Both) -> None:
    both.session(1)
    both.session(2, "d")
    for session in (1, 2):
        both.deliver(session, both.message(), 0)
        both.tell(session_records.ID_RECEIVED, session_records.encode_id(session, 5))
        subscription = StoredSubscription(b"t", 1, False, False, 0)
        both.tell(
            session_records.SUBSCRIPTION_SAVED, session_records.encode_subscription(session, subscription)
        )
        both.tell(
            session_records.WILL_SAVED,
            session_records.encode_will(session_records.WillFact(session, both.message(), 0, 0, 0)),
        )
    both.tell(session_records.SESSION_REMOVED, session_records.encode_number(1))
    assert both.messages() == 2
    assert [session.key.client_id for session in both.fold.state().sessions] == ["d"]
    both.tell(session_records.SESSION_REMOVED, session_records.encode_number(2))
    assert both.messages() == 0
    assert [key for key in both.table.content() if not key.startswith(b"\0")] == []


def test_names_too_long_for_a_key_stay_apart(both: Both) -> None:
    both.session(1)
    names = [b"x" * KEY_SIZE_MAX + ending for ending in (b"", b"a", b"b", b"c" * 60000)]
    for name in names:
        subscription = StoredSubscription(name, 1, False, False, 0)
        both.tell(session_records.SUBSCRIPTION_SAVED, session_records.encode_subscription(1, subscription))
        both.tell(
            session_records.RETAINED_SAVED, session_records.encode_retained("default", both.message(name))
        )
    assert both.messages() == 4
    for name in names[1:]:
        both.tell(session_records.SUBSCRIPTION_REMOVED, session_records.encode_named(1, name))
        both.tell(session_records.RETAINED_REMOVED, session_records.encode_topic("default", name))
    assert both.messages() == 1
    assert all(len(key) < 500 for key in both.table.content())


def test_retained_messages_of_accounts_stay_apart(both: Both) -> None:
    for account in ("a", "b"):
        both.tell(session_records.RETAINED_SAVED, session_records.encode_retained(account, both.message()))
    both.tell(session_records.RETAINED_REMOVED, session_records.encode_topic("a", b"t"))
    assert both.messages() == 1
    assert [account for account, _ in both.fold.state().retained] == ["b"]


def test_facts_that_were_folded_are_not_folded_again(both: Both) -> None:
    both.session(1)
    message = both.message()
    both.deliver(1, message, 0)
    assert both.messages() == 1
    again = make_checkpoint(both.table)
    assert (again.last_sequence, again.file) == read_meta(both.table) == (3, 1)
    again.apply(Record(2, session_records.MESSAGE, session_records.encode_message(make_message(b"other"), 0)))
    again.finish(2)
    assert both.messages() == 1


def test_a_fact_about_what_is_not_there_is_counted_and_not_believed(both: Both) -> None:
    """After damage: the table must not keep for a number what the next session with that number would inherit."""
    message = both.message()
    both.deliver(9, message, 0)
    both.tell(session_records.ID_RECEIVED, session_records.encode_id(9, 5))
    both.tell(
        session_records.WILL_SAVED, session_records.encode_will(session_records.WillFact(9, message, 0, 0, 0))
    )
    subscription = StoredSubscription(b"t", 1, False, False, 0)
    both.tell(session_records.SUBSCRIPTION_SAVED, session_records.encode_subscription(9, subscription))
    both.tell(session_records.RETAINED_SAVED, session_records.encode_retained("default", 12345))
    assert both.fold.orphans >= 5
    both.session(9, "somebody else")
    assert both.messages() == 0
    (session,) = both.fold.state().sessions
    assert (session.subscriptions, session.deliveries, session.received_ids, session.will) == (
        {},
        {},
        {},
        None,
    )


def test_an_unknown_kind_is_a_fault_that_says_so(both: Both) -> None:
    with pytest.raises(session_records.FactFault, match="kind 99"):
        both.fold.apply(Record(1, 99, bytes(8)))
    with pytest.raises(session_records.FactFault, match="kind 99"):
        both.checkpoint.apply(Record(1, 99, bytes(8)))
