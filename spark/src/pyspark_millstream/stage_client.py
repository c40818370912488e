"""The sink's side of the reader's HTTP interface: leave rows with the broker, commit them, drop them.

Everything here may be sent twice. A stage that was left twice is committed once; a batch that was committed is not committed
again; what nobody commits the broker removes after a day.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from pyspark_millstream.client import Json, ReaderClient
from pyspark_millstream.errors import MillstreamSparkError, ReaderRefused, ReaderUnreachable

UNDER_WAY: Final = 202
PROGRESS_S: Final = 300.0  # a commit that gets no further for so long is given up by us; the broker goes on
DROP_S: Final = 5.0
PAUSE_S: Final = 0.2


@dataclass(frozen=True)
class BatchName:
    """Which batch of which query. `is_single`: there will be no second one."""

    query: str
    batch: int
    is_single: bool = False


class StageClient:
    """`target` is where rows go and what is true of all of them, in the words of the reader."""

    def __init__(
        self,
        client: ReaderClient,
        target: Mapping[str, str],
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._client = client
        self._target = dict(target)
        self._clock = clock
        self._pause = pause

    def check(self, schema: pa.Schema, patience_s: float) -> None:
        """Whether rows of this kind would be taken: the address, who asks, the target, the columns."""
        query = {"query": "check", "batch": "0", "check": "true", **self._target}
        self._client.call("POST", "/v1/stages", query, None, patience_s, encode(schema, ()))

    def stage(self, name: BatchName, partition: int, attempt: int, batches: Sequence[pa.RecordBatch]) -> str:
        """Leave these rows; gives the id under which they wait."""
        query = {
            "query": name.query,
            "batch": str(name.batch),
            "partition": str(partition),
            "attempt": str(attempt),
            **self._target,
        }
        content = encode(batches[0].schema, batches)
        stage = self._client.call("POST", "/v1/stages", query, content=content).get("stage")
        if not isinstance(stage, str):
            raise MillstreamSparkError("the reader did not say under which name it keeps the rows")
        return stage

    def commit(self, name: BatchName, stages: Sequence[str]) -> bool:
        """Make all of them visible; False when the batch was committed before. Waits as long as it goes on."""
        fields: Json = {
            "query": name.query,
            "batch": name.batch,
            "stages": list(stages),
            "single": name.is_single,
        }
        if "queue" in self._target:
            fields["queue"] = self._target["queue"]
        else:
            fields["topics"] = True
        rows = -1
        moved_s = self._clock()
        while True:
            try:
                return self._client.call("POST", "/v1/commits", None, fields).get("was_committed") is not True
            except ReaderRefused as refused:
                if refused.status != UNDER_WAY:
                    raise
                so_far = refused.facts.get("rows", 0)
                if so_far > rows:
                    rows, moved_s = so_far, self._clock()
                elif self._clock() - moved_s > PROGRESS_S:
                    raise MillstreamSparkError(
                        f"the broker publishes the batch {name.batch} and gets no further: {refused.text}",
                        "It is not lost; the broker's log says what it waits for. Then start the query again.",
                    ) from None
                self._pause(PAUSE_S)

    def drop(self, name: BatchName, stages: Sequence[str] = ()) -> None:
        """Best effort: what stays is removed by the broker."""
        query = {"query": name.query, "batch": str(name.batch)}
        try:
            if not stages:
                self._client.call("DELETE", "/v1/stages", query, patience_s=DROP_S)
            for stage in stages:
                self._client.call("DELETE", "/v1/stages", {**query, "stage": stage}, patience_s=DROP_S)
        except (ReaderRefused, ReaderUnreachable):
            return  # the write has failed already, and that is what the user must hear of


def encode(schema: pa.Schema, batches: Sequence[pa.RecordBatch]) -> bytes:
    """As an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as stream:
        for batch in batches:
            stream.write_batch(batch)
    content: bytes = sink.getvalue().to_pybytes()
    return content
