"""The facts of staged batches as bodies of log records, and what survives of the queries that write them.

A batch of a query is decided by one fact, BATCH_BEGUN: from there on it will be published, whatever happens. Each slice of
its rows is published together with a BATCH_ADVANCED that says how far it came, in one batch of the log; so a start goes on
at the row behind the last one that is safe. The last slice says that the batch is done.

A query is named by its account and the name its writer gave it; batches of a query are done in the order of their numbers.
"""

from __future__ import annotations

import struct
from typing import Final, final

from millstream.storage.records.session_records import FactFault, Reader

BATCH_BEGUN: Final = 30
BATCH_ADVANCED: Final = 31
QUERY_FORGOTTEN: Final = 32
FIRST_KIND: Final = BATCH_BEGUN
LAST_KIND: Final = QUERY_FORGOTTEN

STAGES_MAX: Final = 10_000  # of one batch
STAGE_ID_SIZE: Final = 16  # bytes; twice as many digits

_U32: Final = struct.Struct("<I")
_BEGUN: Final = struct.Struct("<QQQBI")
_ADVANCED: Final = struct.Struct("<QQB")
_QUERY: Final = struct.Struct("<QQQBB")
_BATCH: Final = struct.Struct("<QQQI")


@final
class StoredBatch:
    """A batch that is decided and not done."""

    def __init__(self, batch: int, queue: str, stages: list[str], rows: int) -> None:
        self.batch = batch
        self.queue = queue  # empty: to the topics its rows name
        self.stages = stages  # in the order in which they are published
        self.rows = rows
        self.next_row = 0  # all before are published


@final
class StoredQuery:
    def __init__(self, account: str, name: str, owner: str, is_single: bool) -> None:
        self.account = account
        self.name = name
        self.owner = owner  # the principal it belongs to: nobody else may write for it
        self.is_single = is_single  # it will have no second batch
        self.last_done = -1
        self.last_rows = 0  # of that batch
        self.used_wall_ns = 0
        self.begun: StoredBatch | None = None

    def key(self) -> tuple[str, str]:
        return (self.account, self.name)


def encode_begun(query: StoredQuery, batch: StoredBatch, wall_ns: int) -> bytes:
    head = _BEGUN.pack(batch.batch, batch.rows, wall_ns, query.is_single, len(batch.stages))
    return head + _pack_stages(batch.stages) + _pack([query.account, query.name, query.owner, batch.queue])


def encode_advanced(query: StoredQuery, next_row: int, is_done: bool, wall_ns: int) -> bytes:
    return _ADVANCED.pack(next_row, wall_ns, is_done) + _pack([query.account, query.name])


def encode_forgotten(query: StoredQuery) -> bytes:
    return _pack([query.account, query.name])


def query_key(kind: int, body: bytes) -> tuple[str, str]:
    """(account, name) of the query a fact is about."""
    at = 0
    if kind == BATCH_BEGUN:
        _check_size(body, _BEGUN.size)
        at = _BEGUN.size + STAGE_ID_SIZE * int(_BEGUN.unpack_from(body)[4])
    elif kind == BATCH_ADVANCED:
        _check_size(body, _ADVANCED.size)
        at = _ADVANCED.size
    reader = Reader(body, at)
    account, name = reader.take(), reader.take()
    return account.decode(), name.decode()


def apply_fact(found: StoredQuery | None, kind: int, body: bytes) -> StoredQuery | None:
    """What is known of the query behind this fact; None: nothing (any more)."""
    if kind == BATCH_BEGUN:
        return _apply_begun(found, body)
    if kind == QUERY_FORGOTTEN or found is None:
        return None
    _check_size(body, _ADVANCED.size)
    next_row, wall_ns, is_done = _ADVANCED.unpack_from(body)
    batch = found.begun
    found.used_wall_ns = wall_ns
    if batch is not None:
        batch.next_row = next_row
        if is_done:
            found.last_done = batch.batch
            found.last_rows = batch.rows
            found.begun = None
    return found


def _apply_begun(found: StoredQuery | None, body: bytes) -> StoredQuery:
    _check_size(body, _BEGUN.size)
    number, rows, wall_ns, is_single, count = _BEGUN.unpack_from(body)
    at = _BEGUN.size + STAGE_ID_SIZE * count
    reader = Reader(body, at)
    account, name, owner, queue = reader.take(), reader.take(), reader.take(), reader.take()
    query = found
    if query is None:
        query = StoredQuery(account.decode(), name.decode(), owner.decode(), bool(is_single))
    query.used_wall_ns = wall_ns
    query.begun = StoredBatch(number, queue.decode(), _unpack_stages(body, _BEGUN.size, count), rows)
    return query


# ------------------------------------------------------------------- the table


def encode_query(query: StoredQuery) -> bytes:
    """Everything that is known of it, for the table of a checkpoint."""
    batch = query.begun
    head = _QUERY.pack(
        query.last_done + 1, query.last_rows, query.used_wall_ns, query.is_single, batch is not None
    )
    names = _pack([query.account, query.name, query.owner])
    if batch is None:
        return head + names
    begun = _BATCH.pack(batch.batch, batch.rows, batch.next_row, len(batch.stages))
    return head + names + _pack([batch.queue]) + begun + _pack_stages(batch.stages)


def decode_query(body: bytes) -> StoredQuery:
    _check_size(body, _QUERY.size)
    after_last, last_rows, used_wall_ns, is_single, has_begun = _QUERY.unpack_from(body)
    reader = Reader(body, _QUERY.size)
    account, name, owner = reader.take(), reader.take(), reader.take()
    query = StoredQuery(account.decode(), name.decode(), owner.decode(), bool(is_single))
    query.last_done = after_last - 1
    query.last_rows = last_rows
    query.used_wall_ns = used_wall_ns
    if has_begun:
        queue = reader.take()
        at = _QUERY.size + 16 + len(account) + len(name) + len(owner) + len(queue)
        _check_size(body, at + _BATCH.size)
        number, rows, next_row, count = _BATCH.unpack_from(body, at)
        stages = _unpack_stages(body, at + _BATCH.size, count)
        query.begun = StoredBatch(number, queue.decode(), stages, rows)
        query.begun.next_row = next_row
    return query


def _pack(texts: list[str]) -> bytes:
    out: list[bytes] = []
    for text in texts:
        part = text.encode()
        out.append(_U32.pack(len(part)))
        out.append(part)
    return b"".join(out)


def _pack_stages(stages: list[str]) -> bytes:
    return b"".join([bytes.fromhex(stage) for stage in stages])


def _unpack_stages(body: bytes, at: int, count: int) -> list[str]:
    end = at + STAGE_ID_SIZE * count
    _check_size(body, end)
    return [body[place : place + STAGE_ID_SIZE].hex() for place in range(at, end, STAGE_ID_SIZE)]


def _check_size(body: bytes, size: int) -> None:
    if len(body) < size:
        raise FactFault("a fact about a staged batch is too short")


@final
class StageFold:
    """Folds the facts of staged batches, one after the other."""

    def __init__(self) -> None:
        self.queries: dict[tuple[str, str], StoredQuery] = {}
        self.orphans = 0  # facts about a query nobody knows: only after damage

    def apply(self, kind: int, body: bytes) -> None:
        key = query_key(kind, body)
        before = self.queries.get(key)
        if before is None and kind != BATCH_BEGUN:
            self.orphans += 1
            return
        query = apply_fact(before, kind, body)
        if query is None:
            del self.queries[key]
        else:
            self.queries[key] = query

    def begun_stages(self) -> dict[str, StoredQuery]:
        """The stages that batches still need, each with the query it belongs to."""
        found: dict[str, StoredQuery] = {}
        for query in self.queries.values():
            if query.begun is not None:
                for stage in query.begun.stages:
                    found[stage] = query
        return found
