"""Offsets as Spark keeps them, and how a range of them becomes tasks. Pure: no clock, no network.

    {"readings": {"0": 1000}, "alarms": {"0": 7}}        next offset to read, by queue and partition

Invariants
- The same place has the same text: names are sorted. Spark compares offsets as text.
- Tasks are a function of (start, end, options) alone: a batch that runs again reads the same rows in the same tasks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql.datasource import InputPartition

from pyspark_millstream.client import QueueState
from pyspark_millstream.errors import CheckpointError
from pyspark_millstream.option_values import OFFSET_MAX, PARTITION
from pyspark_millstream.options import SourceOptions

# Beside the partition, in what is reported and never in what is kept.
LOST: Final = "lost"
HANDED: Final = "handed"

Place = dict[str, int]  # next offset, by queue
StoredPlace = dict[str, dict[str, int]]


class RecordRange(InputPartition):
    """One task: records `first` up to, not with, `end`. A range that `may_begin_later` was not whole when it began."""

    def __init__(self, queue: str, first: int, end: int, may_begin_later: bool = False) -> None:
        super().__init__((queue, first, end))
        self.queue = queue
        self.first = first
        self.end = end
        self.may_begin_later = may_begin_later

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RecordRange) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash((self.queue, self.first, self.end))


@dataclass(frozen=True)
class Backlog:
    """What waits in one queue, and about how large a record is."""

    queue: str
    first: int
    end: int
    record_bytes: float

    @property
    def rows(self) -> int:
        return max(0, self.end - self.first)


def stored(place: Mapping[str, int]) -> StoredPlace:
    return {queue: {PARTITION: place[queue]} for queue in sorted(place)}


def place_from(kept: object) -> Place:
    """What Spark brings back from its checkpoint; CheckpointError when it is not one of ours."""
    if not isinstance(kept, dict):
        raise _not_ours(f"it is {_shown(kept)}")
    place: Place = {}
    for queue, inner in kept.items():
        number = inner.get(PARTITION) if isinstance(inner, dict) and len(inner) == 1 else None
        if type(number) is not int or not 0 <= number <= OFFSET_MAX:
            raise _not_ours(f'for the queue "{queue}" it holds {_shown(inner)}')
        place[queue] = number
    return place


def ranges(start: Place, end: Place, options: SourceOptions) -> list[RecordRange]:
    """The tasks of one batch."""
    whole = spans(start, end)
    counts = _pieces([span.end - span.first for span in whole], options)
    return [piece for span, count in zip(whole, counts, strict=True) for piece in _cut(span, count)]


def spans(start: Place, end: Place) -> list[RecordRange]:
    """What is read of each queue, where there is anything to read.

    A queue that `start` does not know came later: it is read from its first record. One that ends below its start was
    made anew; it is read from its first record as well.
    """
    found: list[RecordRange] = []
    for queue in sorted(end):
        first = start.get(queue)
        if first is None or end[queue] < first:
            found.append(RecordRange(queue, 0, end[queue], True))
        else:
            found.append(RecordRange(queue, first, end[queue]))
    return [span for span in found if span.end > span.first]


def _pieces(sizes: list[int], options: SourceOptions) -> list[int]:
    counts = [-(-size // options.rows_per_partition) for size in sizes]
    total = sum(sizes)
    if total and sum(counts) < options.partitions_min:
        counts = [
            min(size, max(count, -(-size * options.partitions_min // total)))
            for size, count in zip(sizes, counts, strict=True)
        ]
    return counts


def _cut(span: RecordRange, count: int) -> list[RecordRange]:
    size = span.end - span.first
    edges = [span.first + size * number // count for number in range(count + 1)]
    return [
        RecordRange(span.queue, edges[number], edges[number + 1], span.may_begin_later)
        for number in range(count)
    ]


def backlogs(start: Place, states: Mapping[str, QueueState], ends: Place) -> list[Backlog]:
    """What could be read, by queue; `ends` may be lower than what is there."""
    found: list[Backlog] = []
    for queue in sorted(ends):
        state = states.get(queue)
        lowest = 0 if state is None else state.first
        first = start.get(queue)
        if first is None or first > ends[queue]:
            first = lowest
        size = state.size_bytes / state.records if state is not None and state.records else 1.0
        found.append(Backlog(queue, max(first, lowest), ends[queue], max(1.0, size)))
    return found


def admitted(waiting: list[Backlog], rows_max: int | None, bytes_max: int | None) -> Place:
    """How far to read now: shares in proportion to what waits, at least one record where there are any."""
    rows = [backlog.rows for backlog in waiting]
    if rows_max is not None:
        rows = shares(rows, rows_max)
    if bytes_max is not None:
        sizes = [int(count * backlog.record_bytes) for count, backlog in zip(rows, waiting, strict=True)]
        if sum(sizes) > bytes_max:
            rows = [
                min(count, max(1, int(part / backlog.record_bytes))) if count else 0
                for part, count, backlog in zip(shares(sizes, bytes_max), rows, waiting, strict=True)
            ]
    return {
        backlog.queue: min(backlog.end, backlog.first + count)
        for backlog, count in zip(waiting, rows, strict=True)
    }


def shares(sizes: list[int], limit: int) -> list[int]:
    """`limit` split in proportion to `sizes`. No share is zero while there is enough for one each."""
    total = sum(sizes)
    if total <= limit:
        return list(sizes)
    given = [max(min(1, size), size * limit // total) for size in sizes]
    by_size = sorted(range(len(sizes)), key=lambda place: (-sizes[place], place))
    for place in by_size:  # rounding down left some over: at most one for each
        if sum(given) < limit and given[place] < sizes[place]:
            given[place] += 1
    for place in by_size:  # or the ones given to the smallest were too many
        given[place] -= min(max(0, sum(given) - limit), max(0, given[place] - 1))
    for place in reversed(by_size):  # and where there is not one for each, the longest go first
        given[place] -= min(max(0, sum(given) - limit), given[place])
    return given


def _not_ours(why: str) -> CheckpointError:
    return CheckpointError(
        f"the checkpoint of this query holds an offset that millstream did not write: {why}",
        "Start the query with a new checkpointLocation, and startingOffsets where it should go on.",
    )


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
