"""The seam to payload decoding: which columns it adds, and a decoder for each task."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

import pyarrow as pa
from pyspark.sql.types import StructType

from pyspark_millstream import option_values
from pyspark_millstream.bounds import FIRST_ANSWER_S, find_states
from pyspark_millstream.client import ReaderClient, RecordsRequest
from pyspark_millstream.option_names import DECODE
from pyspark_millstream.options import SourceOptions
from pyspark_millstream.rows import BatchShape, arrow_schema, row_schema

PAYLOAD: Final = "payload"
SAMPLE_ROWS: Final = 1000


class Decoder(Protocol):
    """What `decode.make_decoder` gives."""

    def schema(self) -> StructType:
        """The columns it adds."""

    def decode(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with those columns behind its own."""


class PayloadDecoding:
    """How payloads are decoded. Holds values only, so that it can travel; the decoder is made where it works."""

    def __init__(self, raw: dict[str, str], base: StructType) -> None:
        self._raw = raw
        self._base = base  # the columns of the wire, payload among them
        keeps = option_values.boolean("keepPayload", raw.get("keepPayload", "true"))
        self._shown = [name for name in base.fieldNames() if keeps or name != PAYLOAD]

    def schema(self) -> StructType:
        """The whole row: the columns of the record, then those of the decoder."""
        fields = [self._base[name] for name in self._shown]
        return StructType(fields + list(self._make().schema().fields))

    def wire_columns(self, schema: StructType) -> list[str]:
        asked = set(schema.fieldNames())
        return [name for name in self._base.fieldNames() if name in asked or name == PAYLOAD]

    def start(self, schema: StructType) -> TaskDecoding:
        names = self.wire_columns(schema)
        return TaskDecoding(self._make(), StructType([self._base[name] for name in names]))

    def _make(self) -> Decoder:
        from pyspark_millstream import decode

        decoder: Decoder | None = decode.make_decoder(self._raw, self._base)
        assert decoder is not None  # a format other than raw was asked for
        return decoder


class TaskDecoding:
    """One task's decoder, fed with plain columns."""

    def __init__(self, decoder: Decoder, wire: StructType) -> None:
        self._decoder = decoder
        self._shape = BatchShape(arrow_schema(wire))

    def widen(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return self._decoder.decode(self._shape.fit(batch))


def find_decoding(
    options: SourceOptions, settled: dict[str, str] | None = None
) -> tuple[PayloadDecoding | None, dict[str, str]]:
    """How payloads are decoded, None when they stay as they are; and the options with nothing left to look up.

    What was settled before is not looked up again: a schema that was inferred stays as it was.
    """
    if settled is None:
        raw = dict(options.raw)
        if not any(name in raw for name in DECODE):
            return None, raw
        from pyspark_millstream import decode

        settled = decode.settle_options(raw, lambda count: sample_payloads(options, count))
    if not any(name in settled for name in DECODE):
        return None, settled
    from pyspark_millstream import decode

    if PAYLOAD in options.columns:
        columns, taken = options.columns, settled
    else:
        columns, taken = (*options.columns, PAYLOAD), {**settled, "keepPayload": "false"}
    base = row_schema(columns, options.headers_format)
    if decode.make_decoder(taken, base) is None:
        return None, settled
    return PayloadDecoding(taken, base), settled


def offered_schema(options: SourceOptions, decoding: PayloadDecoding | None) -> StructType:
    """The row of a record as Spark sees it."""
    return row_schema(options.columns, options.headers_format) if decoding is None else decoding.schema()


def sample_payloads(options: SourceOptions, count: int) -> Iterator[bytes | None]:
    """The payloads of the first so many records, over all queues in order."""
    client = ReaderClient(options.endpoint)
    for name, state in sorted(find_states(client, options, True, FIRST_ANSWER_S).items()):
        if count <= 0:
            return
        end = min(state.end, state.first + count)
        request = RecordsRequest(
            name,
            state.first,
            end,
            (PAYLOAD,),
            SAMPLE_ROWS,
            topic_filter=options.topic_filter,
            is_gap_skipped=True,
        )
        for batch in client.batches(request):
            count -= batch.num_rows
            yield from batch.column(batch.schema.get_field_index(PAYLOAD)).to_pylist()
