"""The facts of staged batches: what is left of them, in memory and in the table of a checkpoint."""

from __future__ import annotations

import pytest
from fold_and_checkpoint import FoldAndCheckpoint

from millstream.storage.records import batch_records
from millstream.storage.records.batch_records import StoredBatch, StoredQuery
from millstream.storage.records.session_records import FactFault
from millstream.storage.table.check import check_table

STAGES = ["0123456789abcdef" * 2, "fedcba9876543210" * 2]


class Both(FoldAndCheckpoint):
    """They must agree."""

    def begin(self, query: StoredQuery, batch: int, rows: int = 1000) -> None:
        begun = StoredBatch(batch, "out", STAGES, rows)
        self.tell(batch_records.BATCH_BEGUN, batch_records.encode_begun(query, begun, 7 + batch))

    def advance(self, query: StoredQuery, next_row: int, is_done: bool = False) -> None:
        body = batch_records.encode_advanced(query, next_row, is_done, 99)
        self.tell(batch_records.BATCH_ADVANCED, body)

    def find(self, query: StoredQuery) -> StoredQuery | None:
        loaded = self.load()
        known = {key: batch_records.encode_query(one) for key, one in self.fold.stages.queries.items()}
        assert known == {key: batch_records.encode_query(one) for key, one in loaded.stages.queries.items()}
        return loaded.stages.queries.get(query.key())


@pytest.fixture
def both() -> Both:
    return Both()


@pytest.fixture
def query() -> StoredQuery:
    return StoredQuery("default", "query-ä", "spark", False)


def test_a_batch_that_was_begun_is_known_with_all_it_needs(both: Both, query: StoredQuery) -> None:
    both.begin(query, 4)
    both.advance(query, 256)
    found = both.find(query)
    assert found is not None
    assert (found.owner, found.is_single, found.last_done, found.used_wall_ns) == ("spark", False, -1, 99)
    batch = found.begun
    assert batch is not None
    assert (batch.batch, batch.queue, batch.stages, batch.rows, batch.next_row) == (
        4,
        "out",
        STAGES,
        1000,
        256,
    )
    assert dict.fromkeys(STAGES) == dict.fromkeys(both.fold.stages.begun_stages())


def test_a_batch_that_is_done_is_the_last_of_its_query(both: Both, query: StoredQuery) -> None:
    for batch in (0, 1):
        both.begin(query, batch)
        both.advance(query, 1000, is_done=True)
    found = both.find(query)
    assert found is not None
    assert (found.last_done, found.last_rows, found.begun) == (1, 1000, None)
    assert both.fold.stages.begun_stages() == {}


def test_the_first_owner_of_a_query_stays_its_owner(both: Both, query: StoredQuery) -> None:
    both.begin(query, 0)
    both.advance(query, 1000, is_done=True)
    both.begin(StoredQuery("default", query.name, "thief", True), 1)
    found = both.find(query)
    assert found is not None
    assert (found.owner, found.is_single) == ("spark", False)


def test_queries_of_the_same_name_in_two_accounts_are_two(both: Both, query: StoredQuery) -> None:
    other = StoredQuery("other", query.name, "spark", True)
    both.begin(query, 3)
    both.begin(other, 9)
    both.advance(other, 1000, is_done=True)
    first, second = both.find(query), both.find(other)
    assert first is not None
    assert second is not None
    assert first.begun is not None
    assert (second.last_done, second.is_single) == (9, True)


def test_a_query_that_is_forgotten_leaves_nothing(both: Both, query: StoredQuery) -> None:
    both.begin(query, 0)
    both.advance(query, 1000, is_done=True)
    both.tell(batch_records.QUERY_FORGOTTEN, batch_records.encode_forgotten(query))
    assert both.find(query) is None
    assert both.table.items(b"b") == []


def test_facts_about_a_query_nobody_knows_are_counted_and_not_believed(
    both: Both, query: StoredQuery
) -> None:
    both.advance(query, 10)
    both.tell(batch_records.QUERY_FORGOTTEN, batch_records.encode_forgotten(query))
    assert both.find(query) is None
    assert both.fold.stages.orphans == 2
    assert both.checkpoint.orphans == 2


def test_names_longer_than_a_key_do_not_meet(both: Both) -> None:
    long = "q" * 600
    first = StoredQuery("default", long + "1", "u", False)
    second = StoredQuery("default", long + "2", "u", False)
    both.begin(first, 1)
    both.begin(second, 2)
    found = both.find(first)
    assert found is not None
    assert found.begun is not None
    assert found.begun.batch == 1


@pytest.mark.parametrize(
    "kind", [batch_records.BATCH_BEGUN, batch_records.BATCH_ADVANCED, batch_records.QUERY_FORGOTTEN]
)
def test_a_body_that_is_cut_is_a_fault(kind: int, query: StoredQuery) -> None:
    whole = {
        batch_records.BATCH_BEGUN: batch_records.encode_begun(query, StoredBatch(1, "out", STAGES, 5), 1),
        batch_records.BATCH_ADVANCED: batch_records.encode_advanced(query, 1, False, 1),
        batch_records.QUERY_FORGOTTEN: batch_records.encode_forgotten(query),
    }[kind]
    for size in range(len(whole)):
        with pytest.raises(FactFault):
            batch_records.apply_fact(query, kind, _cut(whole, size, kind))


def _cut(whole: bytes, size: int, kind: int) -> bytes:
    batch_records.query_key(kind, whole)
    body = whole[:size]
    batch_records.query_key(kind, body)  # one of the two says so
    return body


def test_an_entry_of_the_table_in_the_place_of_another_is_found(both: Both, query: StoredQuery) -> None:
    both.begin(query, 1)
    both.checkpoint.finish(1)
    ((key, body),) = both.table.items(b"b")
    both.table.put(key + b"x", body)
    both.table.put(b"bdefault\0cut", body[:-3])
    assert sorted(entry.text for entry in check_table(both.table).bad) == [
        "a query that writes batches cannot be read",
        "a query that writes batches stands in the place of another",
    ]
