"""Streaming reads: where a query begins, how far each micro-batch goes, and its place told to the broker.

Spark keeps one of these in a process on the driver for the life of a query, and asks it before every micro-batch.

Invariants
- `latestOffset` never gives less than `start` has, but where a queue was made anew and failOnDataLoss is off.
- What `partitions` gives depends on its arguments and the options only.
- `commit` never raises: the broker's view of the group may lag, the query goes on.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from pyspark_millstream.bounds import check_kept, find_states, start_place
from pyspark_millstream.client import QueueState, ReaderClient
from pyspark_millstream.decoding import PayloadDecoding
from pyspark_millstream.errors import MillstreamSparkError
from pyspark_millstream.hand_over import RangeRows
from pyspark_millstream.offsets import (
    HANDED,
    LOST,
    Place,
    RecordRange,
    StoredPlace,
    admitted,
    backlogs,
    place_from,
    ranges,
    spans,
    stored,
)
from pyspark_millstream.option_values import BoundKind
from pyspark_millstream.options import SourceOptions
from pyspark_millstream.record_read import RecordFilter, RecordReading

COMMIT_PATIENCE_S = 1.0


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One source of one streaming query."""

    def __init__(
        self,
        options: SourceOptions,
        schema: StructType,
        decoding: PayloadDecoding | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._clock = clock
        self._reading: RangeRows | RecordReading
        if options.is_handed_over:
            self._reading = RangeRows(schema)
        else:
            self._reading = RecordReading(options, schema, decoding, RecordFilter(options.topic_filter))
        self._target: Place | None = None  # how far an availableNow query goes
        self._latest: Place = {}
        self._lost: dict[str, int] = {}
        self._lost_from: Place = {}
        self._firsts: Place = {}
        self._handed: dict[str, int] = {}
        self._handed_to: Place = {}
        self._triggered_at: float | None = None
        self._committed: Place = {}
        self._has_complained = False

    # ------------------------------------------------------------------ planning

    def initialOffset(self) -> StoredPlace:
        client = self._client()
        states = find_states(client, self._options, is_fresh=True)
        start = start_place(client, self._options, states, BoundKind.LATEST)
        check_kept(self._options, start, states)
        return stored(start)

    def getDefaultReadLimit(self) -> ReadLimit:
        # There is no limit made of several: Spark carries one, and the others are looked up here again.
        options = self._options
        if options.rows_max is not None:
            return ReadMaxRows(options.rows_max)
        if options.bytes_max is not None:
            return ReadMaxBytes(options.bytes_max)
        if options.rows_min is not None:
            return ReadMinRows(options.rows_min)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        states = find_states(self._client(), self._options, is_fresh=True)
        self._target = {queue: state.end for queue, state in states.items()}

    def latestOffset(self, start: dict[str, object], limit: ReadLimit) -> StoredPlace:
        place = place_from(start)
        self._tell_group(place)
        end = self._next(place, limit)
        self._count_handed(place, end)
        return stored(end)

    def _next(self, place: Place, limit: ReadLimit) -> Place:
        options = self._options
        is_fresh = self._target is None  # what an availableNow query may read was sealed when it began
        states = find_states(self._client(), options, is_fresh)
        self._count_lost(place, check_kept(options, place, states))
        self._latest = {queue: state.end for queue, state in states.items()}
        self._firsts = {queue: state.first for queue, state in states.items()}
        ends = self._ends(place, states)
        waiting = backlogs(place, states, ends)
        if isinstance(limit, ReadAllAvailable):
            return self._joined(place, ends)
        if self._waits(sum(backlog.rows for backlog in waiting)):
            return place
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else options.rows_max
        bytes_max = limit.max_bytes if isinstance(limit, ReadMaxBytes) else options.bytes_max
        return self._joined(place, admitted(waiting, rows_max, bytes_max))

    def reportLatestOffset(self) -> dict[str, dict[str, int]] | None:
        """The ends of the queues as last seen; beside them how many records were lost, where any were, and how many were
        handed over: Spark counts the ranges instead."""
        if not self._latest:
            return None
        report = stored(self._latest)
        for queue, count in self._lost.items():
            report.setdefault(queue, {})[LOST] = count
        for queue, count in self._handed.items():
            report.setdefault(queue, {})[HANDED] = count
        return report

    def partitions(self, start: dict[str, object], end: dict[str, object]) -> list[InputPartition]:
        first, last = place_from(start), place_from(end)
        self._count_handed(first, last)  # a batch that runs again was not asked for before
        return [*ranges(first, last, self._options)]

    # ------------------------------------------------------------------- in tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RecordRange)
        return self._reading.read(partition)

    # ----------------------------------------------------------------- afterwards

    def commit(self, end: dict[str, object]) -> None:
        try:
            self._tell_group(place_from(end))
        except MillstreamSparkError as error:
            self._complain(str(error))

    def stop(self) -> None:
        """Connections end with the process."""

    # --------------------------------------------------------------------- inside

    def _client(self) -> ReaderClient:
        return ReaderClient(self._options.endpoint)

    def _ends(self, start: Place, states: Mapping[str, QueueState]) -> Place:
        if self._target is None:
            return {queue: state.end for queue, state in states.items()}
        # Queues made later are not of this query; what is behind a target already is not taken back.
        return {queue: min(end, states[queue].end) for queue, end in self._target.items() if queue in states}

    def _joined(self, start: Place, ends: Place) -> Place:
        """A queue that is gone keeps its place; one that was read beyond the target does too."""
        joined = {**start, **ends}
        if self._target is not None:
            for queue, offset in start.items():
                if queue in self._target and self._target[queue] < offset <= self._latest.get(queue, -1):
                    joined[queue] = offset
        return joined

    def _waits(self, rows: int) -> bool:
        rows_min = self._options.rows_min
        if rows_min is None or self._target is not None:
            return False
        now = self._clock()
        is_due = self._triggered_at is None or now - self._triggered_at >= self._options.delay_max_s
        if rows < rows_min and not is_due:
            return True
        self._triggered_at = now
        return False

    def _count_lost(self, start: Place, lost: Mapping[str, int]) -> None:
        for queue, count in lost.items():
            already = self._lost_from.get(queue, 0)
            gone_up_to = start[queue] + count
            fresh = gone_up_to - max(start[queue], already)
            if fresh > 0:
                self._lost_from[queue] = gone_up_to
                self._lost[queue] = self._lost.get(queue, 0) + fresh
                _say(
                    f'{fresh} records of the queue "{queue}", up to offset {gone_up_to - 1}, '
                    f"were removed by retention before they were read"
                )

    def _count_handed(self, start: Place, end: Place) -> None:
        """Each record once, however often Spark asks for its range."""
        for span in spans(start, end) if self._options.is_handed_over else ():
            known = self._handed_to.get(span.queue, 0)
            if known > span.end:
                known = 0  # made anew
            first = max(span.first, self._firsts.get(span.queue, 0), known)
            self._handed[span.queue] = self._handed.get(span.queue, 0) + max(0, span.end - first)
            self._handed_to[span.queue] = span.end

    def _tell_group(self, place: Place) -> None:
        """Everything below `place` is done: the group stands there. Best effort."""
        group = self._options.group
        if not group:
            return
        client = self._client()
        for queue, offset in place.items():
            if self._committed.get(queue) == offset:
                continue
            try:
                client.commit(queue, group, offset, COMMIT_PATIENCE_S)
            except MillstreamSparkError as error:
                self._complain(str(error))
                return
            self._committed[queue] = offset

    def _complain(self, text: str) -> None:
        if not self._has_complained:
            _say(f"the place of the group could not be told to the broker; the query goes on: {text}")
        self._has_complained = True


class RefusingStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Says what is wrong at the first question. PySpark loses an error that comes up while a stream reader is made."""

    def __init__(self, error: MillstreamSparkError) -> None:
        self._error = error

    def prepareForTriggerAvailableNow(self) -> None:
        raise self._error

    def initialOffset(self) -> StoredPlace:
        raise self._error

    def latestOffset(self, start: dict[str, object], limit: ReadLimit) -> StoredPlace:
        raise self._error

    def partitions(self, start: dict[str, object], end: dict[str, object]) -> list[InputPartition]:
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        raise self._error


def _say(text: str) -> None:
    sys.stderr.write(f"millstream: {text}\n")
