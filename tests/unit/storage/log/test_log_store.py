"""The durable store, beyond the contract: what it refuses, how messages are shared, and that recovery gives the same again."""

from __future__ import annotations

import pytest
from fakes import ManualWakeup, make_message

from millstream.model.delivery import Delivery
from millstream.model.errors import Reason
from millstream.model.message import Message
from millstream.storage.log.format import BatchHead, Record, decode_records
from millstream.storage.log.write_ahead_log import Batch, BatchWriter, Log
from millstream.storage.log_store import BACKLOG_BYTES_MAX, LogStore
from millstream.storage.records import session_records
from millstream.storage.store import SessionKey, StoredState, StoredWill

KEY = SessionKey("default", "c")
OTHER = SessionKey("default", "d")
OFFSET_NS = 1_000_000


class KeptBatches(BatchWriter):
    def __init__(self) -> None:
        self.batches: list[Batch] = []

    def submit(self, batch: Batch, log: Log) -> None:
        self.batches.append(batch)

    def records(self) -> list[Record]:
        found: list[Record] = []
        for batch in self.batches:
            head = BatchHead(len(batch.records), batch.count, 0, batch.first, 0)
            found += decode_records(batch.records, 0, head)[0]
        return found


class Bench:
    def __init__(self, numbers: dict[tuple[str, str], int] | None = None) -> None:
        self.writer = KeptBatches()
        self.log = Log(self.writer, ManualWakeup(), 1)
        self.store = LogStore(self.log, StoredState([], [], []), numbers or {}, OFFSET_NS)

    def flush(self) -> None:
        self.log.flush()
        if self.writer.batches and self.log.durable < self.writer.batches[-1].last():
            self.log.on_written(self.writer.batches[-1])

    def kinds(self) -> list[int]:
        self.flush()
        return [int(record.kind) for record in self.writer.records()]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def add(bench: Bench, key: SessionKey, message: Message, sequence: int) -> Delivery:
    delivery = Delivery(message, 1, False, (), b"")
    delivery.sequence = sequence
    bench.store.delivery_added(key, delivery)
    return delivery


def test_a_message_for_many_is_written_once(bench: Bench) -> None:
    message = make_message(b"t")
    bench.store.session_saved(KEY, "u", 1, 0)
    bench.store.session_saved(OTHER, "u", 1, 0)
    add(bench, KEY, message, 0)
    add(bench, OTHER, message, 0)
    bench.store.retained_saved("default", message)
    assert bench.kinds().count(session_records.MESSAGE) == 1


def test_equal_messages_are_not_the_same_message(bench: Bench) -> None:
    bench.store.session_saved(KEY, "u", 1, 0)
    add(bench, KEY, make_message(b"t"), 0)
    add(bench, KEY, make_message(b"t"), 1)
    assert bench.kinds().count(session_records.MESSAGE) == 2


@pytest.mark.parametrize("ending", ["settled", "session gone", "will gone", "retained gone"])
def test_a_message_whose_last_user_may_be_gone_is_written_again(bench: Bench, ending: str) -> None:
    message = make_message(b"t")
    for key in (KEY, OTHER):
        bench.store.session_saved(key, "u", 1, 0)
    if ending == "will gone":
        bench.store.will_saved(KEY, StoredWill(message, 0, 0))
        bench.store.will_removed(KEY)
    elif ending == "retained gone":
        bench.store.retained_saved("default", message)
        bench.store.retained_removed("default", b"t")
    else:
        delivery = add(bench, KEY, message, 0)
        if ending == "settled":
            bench.store.delivery_removed(KEY, delivery)
        else:
            bench.store.session_removed(KEY)
    add(bench, OTHER, message, 0)
    assert bench.kinds().count(session_records.MESSAGE) == 2


def test_times_are_written_as_wall_time_and_never_stays_never(bench: Bench) -> None:
    bench.store.session_saved(KEY, "u", 60, 500)
    bench.store.session_saved(OTHER, "u", 60, 0)
    bench.store.retained_saved("default", make_message(b"t", expires_ns=700))
    bench.flush()
    first, second, message = bench.writer.records()[:3]
    assert session_records.decode_session(first.body).expires_wall_ns == 500 + OFFSET_NS
    assert session_records.decode_session(second.body).expires_wall_ns == 0
    assert session_records.decode_message(message.body, 0).expires_ns == 700 + OFFSET_NS
    assert session_records.decode_message(message.body, -OFFSET_NS).expires_ns == 700


def test_what_expired_while_the_broker_was_down_has_a_deadline_that_has_passed() -> None:
    body = session_records.encode_message(make_message(b"t"), 5)
    assert session_records.decode_message(body, -1000).expires_ns == 1


def test_a_session_keeps_the_number_it_had_before_the_restart() -> None:
    bench = Bench({KEY.pair(): 7})
    bench.store.session_saved(KEY, "u", 1, 0)
    bench.store.session_saved(OTHER, "u", 1, 0)
    bench.flush()
    assert [session_records.decode_session(record.body).session for record in bench.writer.records()] == [
        7,
        8,
    ]


def test_a_client_that_comes_back_after_its_session_ended_gets_a_new_number(bench: Bench) -> None:
    for _ in range(2):
        bench.store.session_saved(KEY, "u", 1, 0)
        bench.store.session_removed(KEY)
    bench.flush()
    saved = [record for record in bench.writer.records() if record.kind == session_records.SESSION_SAVED]
    assert [session_records.decode_session(record.body).session for record in saved] == [1, 2]


def test_what_was_never_there_can_go_without_a_fact(bench: Bench) -> None:
    bench.store.session_removed(KEY)
    bench.store.will_removed(KEY)
    assert bench.kinds() == []


def test_a_disk_that_is_full_broken_or_too_slow_refuses(bench: Bench) -> None:
    assert bench.store.refusal() is Reason.SUCCESS
    bench.log.on_full()
    assert bench.store.refusal() is Reason.UNAVAILABLE
    bench.store.session_saved(KEY, "u", 1, 0)
    bench.flush()
    assert bench.store.refusal() is Reason.SUCCESS
    bench.store.retained_saved("default", make_message(b"t", bytes(BACKLOG_BYTES_MAX)))
    assert bench.store.refusal() is Reason.UNAVAILABLE
    bench.flush()
    assert bench.store.refusal() is Reason.SUCCESS
    bench.log.on_failed("broken")
    assert bench.store.refusal() is Reason.UNAVAILABLE


def test_a_delivery_may_have_many_identifiers(bench: Bench) -> None:
    """One topic of eight levels matches hundreds of filters, each with an identifier."""
    bench.store.session_saved(KEY, "u", 1, 0)
    delivery = Delivery(make_message(b"t"), 1, False, tuple(range(1, 601)), b"g")
    bench.store.delivery_added(KEY, delivery)
    bench.flush()
    found = session_records.decode_delivery(bench.writer.records()[-1].body, make_message(b"")).delivery
    assert found.identifiers == tuple(range(1, 601))
    assert found.share == b"g"


def test_a_state_is_given_away_once() -> None:
    state = StoredState([], [], [])
    log = Log(KeptBatches(), ManualWakeup(), 1)
    assert LogStore(log, state, {}, 0).load() is state
