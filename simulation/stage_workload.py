"""Random facts of staged batches, a model of what they mean, and whether a start has found all of it.

The model is simpler than what it judges: of each query the last batch done, and of one that is begun how far it is.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from millstream.storage.records import batch_records
from millstream.storage.records.batch_records import StageFold, StoredBatch, StoredQuery
from simulation.workload import Fact

QUERIES = 4
ROWS_MAX = 40
FORGET = 0.05
BEGUN, ADVANCED, DONE, FORGOTTEN = "stage begun", "stage advanced", "stage done", "stage forgotten"
KINDS = (BEGUN, ADVANCED, DONE, FORGOTTEN)

Known = tuple[int, int, int, int]  # last batch done, batch begun (-1: none), its rows, the next row


def describe_stages(fold: StageFold) -> dict[object, object]:
    found: dict[object, object] = {}
    for query in fold.queries.values():
        batch = query.begun
        known = (-1, 0, 0) if batch is None else (batch.batch, batch.rows, batch.next_row)
        found[query.name] = (query.last_done, *known)
        found[query.name, "stages"] = [] if batch is None else batch.stages
    return found


def stages_after(told: Sequence[Fact]) -> dict[object, object]:
    """What must be there after these facts."""
    model: dict[int, Known] = {}
    for fact in told:
        tell(model, fact)
    found: dict[object, object] = {}
    for query, known in model.items():
        found[query_name(query)] = known
        found[query_name(query), "stages"] = [] if known[1] < 0 else make_stages(query, known[1])
    return found


def tell(model: dict[int, Known], fact: Fact) -> None:
    done, batch, rows, _ = model.get(fact.client, (-1, -1, 0, 0))
    if fact.kind == BEGUN:
        model[fact.client] = (done, fact.number, fact.value, 0)
    elif fact.kind == ADVANCED:
        model[fact.client] = (done, batch, rows, fact.value)
    elif fact.kind == DONE:
        model[fact.client] = (batch, -1, 0, 0)
    elif fact.kind == FORGOTTEN:
        del model[fact.client]


def query_name(query: int) -> str:
    return f"query-{query}" * (100 if query == 3 else 1)  # one is longer than a key of a table may be


def make_stages(query: int, batch: int) -> list[str]:
    return [f"{query:016x}{batch:015x}{part}" for part in range(1 + batch % 3)]


def encode(fact: Fact) -> tuple[int, bytes]:
    """(kind, body) as the log has it."""
    query = StoredQuery("default", query_name(fact.client), "spark", fact.client == 2)
    if fact.kind == BEGUN:
        batch = StoredBatch(fact.number, "out", make_stages(fact.client, fact.number), fact.value)
        return batch_records.BATCH_BEGUN, batch_records.encode_begun(query, batch, fact.number)
    if fact.kind == FORGOTTEN:
        return batch_records.QUERY_FORGOTTEN, batch_records.encode_forgotten(query)
    body = batch_records.encode_advanced(query, fact.value, fact.kind == DONE, fact.number)
    return batch_records.BATCH_ADVANCED, body


class StageWorkload:
    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._model: dict[int, Known] = {}

    def remember(self, told: Sequence[Fact]) -> None:
        """Stand where these facts lead."""
        self._model = {}
        for fact in told:
            tell(self._model, fact)

    def next_atom(self) -> list[Fact]:
        fact = self._choose(self._chance.randrange(QUERIES))
        tell(self._model, fact)
        return [fact]

    def _choose(self, query: int) -> Fact:
        chance = self._chance
        done, batch, rows, next_row = self._model.get(query, (-1, -1, 0, 0))
        if batch >= 0:
            next_row += chance.randrange(1, 20)
            return (
                Fact(DONE, query, batch, rows) if next_row >= rows else Fact(ADVANCED, query, batch, next_row)
            )
        if query in self._model and chance.random() < FORGET:
            return Fact(FORGOTTEN, query)
        return Fact(BEGUN, query, done + 1 + chance.randrange(2), chance.randrange(ROWS_MAX))
