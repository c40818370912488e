"""Records of a stream as an Arrow IPC stream over HTTP: chosen columns, a range of offsets, filters.

Invariants
- A range that is not wholly there is refused before anything is sent, with the offset that would do.
- What fails later breaks the body off: rows that were received are good, and the rest can be asked for again.
- Whoever loses the right to a stream gets no more of it than was on its way, also of what was asked for before.
- The buffers of a batch go to the socket as they are.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from millstream.model.topic import find_filter_fault
from millstream.reader.arrow import (
    COLUMNS,
    HEADERS_KINDS,
    LAYOUTS,
    ROWS,
    ColumnFault,
    SegmentBatches,
    schema_of,
)
from millstream.reader.broker_link import Stream
from millstream.reader.http import Asked, Buffer, HttpFault, Request, Route, Send, StreamAnswer
from millstream.reader.services import Reading, Services, find_stream
from millstream.storage.disk import Disk, DiskFault
from millstream.storage.segments.format import OFFSET_MAX
from millstream.storage.segments.pieces import Damaged, Trimmed

FILTER_LENGTH_MAX: Final = 4096
FILTER_LEVELS_MAX: Final = 128
QUERY: Final = (
    "first",
    "end",
    "columns",
    "rows",
    "layout",
    "topic",
    "since",
    "until",
    "headers",
    "gap",
    "damage",
    "fresh",
)


@dataclass(frozen=True)
class ReadRequest:
    """What is asked for, checked; `first` and `end` lie inside the stream."""

    first: int
    end: int
    columns: tuple[str, ...]
    rows: int
    layout: str
    headers: str
    since_ns: int
    until_ns: int
    topic_filter: bytes
    skips_gaps: bool
    skips_damage: bool


class RecordRoutes:
    def __init__(self, services: Services) -> None:
        self._services = services

    def routes(self) -> list[Route]:
        return [Route("GET", "/v1/queues/*/records", self.read, query=QUERY)]

    def read(self, request: Request) -> StreamAnswer:
        caller, stream = find_stream(self._services, request, request.find_switch("fresh"))
        read_request = read_wish(request, stream, self._services.settings.rows_max)
        reading = Reading(self._services, request.credentials, caller, stream)

        def produce(send: Send) -> None:
            self._produce(reading, read_request, send)

        return StreamAnswer(produce)

    def _produce(self, reading: Reading, read_request: ReadRequest, send: Send) -> None:
        sink = _Sink()
        with pa.ipc.new_stream(
            sink, schema_of(read_request.columns, read_request.layout, read_request.headers)
        ) as writer:
            for batch in read_batches(reading, read_request):
                writer.write_batch(batch)
                send(sink.take())
        send(sink.take())


def read_batches(reading: Reading, read_request: ReadRequest) -> Iterator[pa.RecordBatch]:
    """The rows of a request. HttpFault 401, 403, 410, 500 or 503, behind the rows that are good."""
    try:
        for batch in _read_batches(reading.disk, reading.stream, read_request):
            reading.check()
            yield batch
    except Trimmed as gone:
        raise trimmed(gone.first) from None
    except Damaged as damaged:
        raise HttpFault(500, str(damaged), "millstream storage verify") from None
    except DiskFault as fault:
        raise HttpFault(503, f"the segments cannot be read: {fault.text}", retry_after_s=1) from None


def _read_batches(disk: Disk, stream: Stream, read_request: ReadRequest) -> Iterator[pa.RecordBatch]:
    first = read_request.first
    while first < read_request.end:
        batches = SegmentBatches(
            disk,
            stream.number,
            stream.name,
            first,
            read_request.end,
            columns=read_request.columns,
            rows=read_request.rows,
            layout=read_request.layout,
            headers=read_request.headers,
            since_ns=read_request.since_ns,
            until_ns=read_request.until_ns,
            topic_filter=read_request.topic_filter,
            skips_damage=read_request.skips_damage,
        )
        try:
            yield from batches
            return
        except Trimmed as gone:
            if not read_request.skips_gaps or gone.first <= first:
                raise
            first = gone.first
        finally:
            batches.close()


class _Sink(io.RawIOBase):
    """Takes what the writer of the stream gives, as it is."""

    def __init__(self) -> None:
        self._parts: list[Buffer] = []

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        view = memoryview(data)  # type: ignore[arg-type]
        self._parts.append(view)
        return view.nbytes

    def take(self) -> list[Buffer]:
        parts, self._parts = self._parts, []
        return parts


def read_wish(request: Asked, stream: Stream, rows_max: int) -> ReadRequest:
    """HttpFault 400 for what makes no sense, 410 and 416 for a range that is not there."""
    skips_gaps = request.find_choice("gap", ("error", "skip")) == "skip"
    first = request.find_whole("first", stream.first)
    end = request.find_whole("end", max(stream.end, first))
    if first < stream.first:
        if not skips_gaps:
            raise trimmed(stream.first)
        first, end = stream.first, max(end, stream.first)
    if end > stream.end:
        text = f"{stream.name!r} can be read up to offset {stream.end}, not {end}"
        raise HttpFault(416, text, "add &fresh=true", {"end": stream.end})
    if first > end:
        raise HttpFault(400, f"first is {first} and end is {end}: there is nothing between")
    columns, layout, headers = read_columns(request)
    return ReadRequest(
        first=first,
        end=end,
        columns=columns,
        rows=request.find_whole("rows", min(ROWS, rows_max), 1, rows_max),
        layout=layout,
        headers=headers,
        since_ns=request.find_whole("since", 0),
        until_ns=request.find_whole("until", OFFSET_MAX),
        topic_filter=read_filter(request.find_text("topic")),
        skips_gaps=skips_gaps,
        skips_damage=request.find_choice("damage", ("error", "skip")) == "skip",
    )


def read_columns(request: Asked) -> tuple[tuple[str, ...], str, str]:
    """Columns, layout and headers: what `schema_of` takes."""
    columns = tuple(request.find_text("columns").split(",")) if "columns" in request.query else COLUMNS
    layout = request.find_choice("layout", LAYOUTS)
    headers = request.find_choice("headers", tuple(HEADERS_KINDS))
    try:
        schema_of(columns, layout, headers)
    except ColumnFault as fault:
        raise HttpFault(400, str(fault)) from None
    return columns, layout, headers


def read_filter(text: str) -> bytes:
    if not text:
        return b""
    filter = text.encode()
    fault = find_filter_fault(filter, FILTER_LENGTH_MAX, FILTER_LEVELS_MAX)
    if fault is not None:
        raise HttpFault(400, f"topic is no filter: {fault}")
    return filter


def trimmed(first: int) -> HttpFault:
    return HttpFault(
        410, f"the records below offset {first} are no longer there", "add &gap=skip", {"first": first}
    )


def make_routes(services: Services) -> list[Route]:
    return RecordRoutes(services).routes()
