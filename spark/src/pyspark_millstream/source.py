"""`format("millstream")`: what Spark asks of a data source, handed to the parts that do it.

Options are checked, and the queues looked for, when the data frame is made: what is wrong is said there, before any job.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from pyspark_millstream.batch_reader import BatchReader, PushdownBatchReader
from pyspark_millstream.bounds import FIRST_ANSWER_S, find_states
from pyspark_millstream.checkpoint_guard import guard_checkpoint_text
from pyspark_millstream.client import ReaderClient
from pyspark_millstream.decoding import PayloadDecoding, find_decoding, offered_schema
from pyspark_millstream.errors import MillstreamSparkError, let_the_sentence_lead
from pyspark_millstream.hand_over import range_schema
from pyspark_millstream.option_names import known_options
from pyspark_millstream.options import SourceOptions, check_batch, check_stream, read_options
from pyspark_millstream.rows import check_asked_schema
from pyspark_millstream.stream_reader import RefusingStreamReader, StreamReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter


class MillstreamSource(DataSource):
    """Stream queues of a millstream broker."""

    _settled: dict[str, str] | None = None

    @classmethod
    def name(cls) -> str:
        return "millstream"

    def schema(self) -> StructType:
        options = read_options(self.options)
        client = ReaderClient(options.endpoint)
        find_states(client, options, is_fresh=False, patience_s=FIRST_ANSWER_S)
        decoding = self._decoding(options)
        if options.is_handed_over:
            assert self._settled is not None  # by looking for the decoding
            return range_schema(options, self._settled)
        return offered_schema(options, decoding)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = read_options(self.options)
        check_batch(options)
        decoding = self._decoding(options)
        self._check_asked(schema, options, decoding)
        if not options.has_pushdown:
            return BatchReader(options, schema, decoding)
        let_the_sentence_lead()  # Spark says which setting is missing, if it is
        return PushdownBatchReader(options, schema, decoding)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        guard_checkpoint_text()
        try:
            options = read_options(self.options)
            check_stream(options)
            decoding = self._decoding(options)
            self._check_asked(schema, options, decoding)
            return StreamReader(options, schema, decoding)
        except MillstreamSparkError as error:
            return RefusingStreamReader(error)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from pyspark_millstream import writer

        return writer.make_writer(known_options(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from pyspark_millstream import writer

        return writer.make_stream_writer(known_options(self.options), schema, overwrite)

    def _decoding(self, options: SourceOptions) -> PayloadDecoding | None:
        # Spark sends this object on after it asked for the schema: what was found then holds for the whole read.
        decoding, self._settled = find_decoding(options, self._settled)
        return decoding

    def _check_asked(
        self, schema: StructType, options: SourceOptions, decoding: PayloadDecoding | None
    ) -> None:
        if not options.is_handed_over:  # else the ranges are as they are
            check_asked_schema(schema, offered_schema(options, decoding))


def register(spark: SparkSession) -> None:
    """Make the formats known to this session, where Spark's own search does not find them."""
    from pyspark_millstream.lake.source import LakeSource

    spark.dataSource.register(MillstreamSource)
    spark.dataSource.register(LakeSource)
