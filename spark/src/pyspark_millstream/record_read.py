"""Reading one range of records in a task: wire batches in, batches of the row out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql.types import StructType

from pyspark_millstream.bounds import trimmed
from pyspark_millstream.client import BEYOND_END, TRIMMED, ReaderClient, RecordsRequest
from pyspark_millstream.decoding import PayloadDecoding
from pyspark_millstream.errors import DataLost, ReaderRefused
from pyspark_millstream.offsets import RecordRange
from pyspark_millstream.options import SourceOptions
from pyspark_millstream.rows import HEADERS, PARTITION, QUEUE, BatchShape, arrow_schema, last_offset


@dataclass(frozen=True)
class RecordFilter:
    """What the reader leaves out before it sends anything."""

    topic_filter: str = ""
    since_ns: int | None = None
    until_ns: int | None = None


class RecordReading:
    """What a task needs to read its range. Travels to the tasks, so it holds values only."""

    def __init__(
        self, options: SourceOptions, schema: StructType, decoding: PayloadDecoding | None, kept: RecordFilter
    ) -> None:
        self._options = options
        self._schema = schema
        self._decoding = decoding
        self._filter = kept

    def read(self, part: RecordRange) -> Iterator[pa.RecordBatch]:
        decode = None if self._decoding is None else self._decoding.start(self._schema)
        shape = BatchShape(arrow_schema(self._schema), {QUEUE: part.queue, PARTITION: 0})
        client = ReaderClient(self._options.endpoint)
        request = self._request(part)
        while True:
            try:
                for batch in client.batches(request):
                    request = replace(request, first=last_offset(batch) + 1)
                    yield shape.fit(batch if decode is None else decode.widen(batch))
                return
            except ReaderRefused as refusal:
                request = self._go_on(request, part, refusal)

    def _request(self, part: RecordRange) -> RecordsRequest:
        options = self._options
        if self._decoding is None:  # what is the same in every row of a range need not be sent
            wanted = [name for name in self._schema.fieldNames() if name not in (QUEUE, PARTITION)]
        else:
            wanted = self._decoding.wire_columns(self._schema)
        return RecordsRequest(
            queue=part.queue,
            first=part.first,
            end=part.end,
            columns=tuple(wanted),
            rows=options.rows_per_batch,
            headers=options.headers_format if HEADERS in wanted else "none",
            topic_filter=self._filter.topic_filter,
            since_ns=self._filter.since_ns,
            until_ns=self._filter.until_ns,
            is_gap_skipped=part.may_begin_later or not options.fails_on_loss,
        )

    def _go_on(self, request: RecordsRequest, part: RecordRange, refusal: ReaderRefused) -> RecordsRequest:
        """Retention took records while the job ran, or the queue was made anew: an error, or what is left."""
        if refusal.status == TRIMMED:
            raise trimmed(part.queue, request.first, refusal.facts.get("first", part.end)) from None
        if refusal.status != BEYOND_END:
            raise refusal
        end = refusal.facts.get("end", request.first)
        if self._options.fails_on_loss:
            raise DataLost(
                f'the queue "{part.queue}" ends at offset {end} and records up to {part.end} were to be read: '
                f"it was made anew or restored from a backup",
                'To go on with what is there: .option("failOnDataLoss", "false").',
            ) from None
        return replace(request, end=min(end, request.end - 1))
