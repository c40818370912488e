"""The reader's HTTP interface as the connector uses it: small questions, and streams of Arrow batches.

Invariants
- A connection is kept for the next call of the same process and never shared by two calls at a time.
- A call that found nobody, or a busy reader, is made again with growing pauses until `retry_s` is over. What is sent is
  harmless when it arrives twice: a reader of records changes nothing, and a group's place never moves back.
- A stream of records that breaks off goes on at the offset behind the last row it gave: no row twice, none left out.
"""

from __future__ import annotations

import base64
import http.client
import io
import json
import os
import ssl
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, urlencode

import pyarrow as pa

from pyspark_millstream.errors import MillstreamSparkError, ReaderRefused, ReaderUnreachable
from pyspark_millstream.options import Endpoint
from pyspark_millstream.rows import HEADERS, OFFSET, last_offset

CALL_TIMEOUT_S: Final = 60.0
PAUSE_FIRST_S: Final = 0.05
PAUSE_MAX_S: Final = 2.0
BATCH_BYTES_MAX: Final = 64 * 1024 * 1024
ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
IDLE_MAX: Final = 8
BUSY: Final = (429, 503)
TRIMMED: Final = 410
BEYOND_END: Final = 416

Json = dict[str, object]


@dataclass(frozen=True)
class QueueState:
    """What is in a stream queue: offsets from `first` up to, not with, `end`."""

    name: str
    first: int
    end: int
    records: int
    size_bytes: int


@dataclass(frozen=True)
class RecordsRequest:
    """Records of one queue, `first` up to, not with, `end`."""

    queue: str
    first: int
    end: int
    columns: tuple[str, ...]
    rows: int
    headers: str = "none"
    topic_filter: str = ""
    since_ns: int | None = None
    until_ns: int | None = None
    is_gap_skipped: bool = False


class _Broken(Exception):
    """The call did not come through; it can be made again. `pause_s` is what the reader asked for."""

    def __init__(self, text: str, pause_s: float = 0.0) -> None:
        super().__init__(text)
        self.pause_s = pause_s


class _Patience:
    """Growing pauses until the time is over."""

    def __init__(self, limit_s: float, clock: Callable[[], float], pause: Callable[[float], None]) -> None:
        self._limit_s = limit_s
        self._clock = clock
        self._pause = pause
        self.reset()

    def reset(self) -> None:
        self._started = self._clock()
        self._next_s = PAUSE_FIRST_S

    def wait(self, asked_s: float) -> bool:
        """False when the time is over."""
        left_s = self._limit_s - (self._clock() - self._started)
        if left_s <= 0:
            return False
        self._pause(min(max(self._next_s, asked_s), left_s))
        self._next_s = min(self._next_s * 2, PAUSE_MAX_S)
        return True


_idle: dict[tuple[int, Endpoint], list[http.client.HTTPConnection]] = {}
_idle_lock = threading.Lock()


class ReaderClient:
    """Speaks to one reader. Cheap to make: connections are kept per process, not here."""

    def __init__(
        self,
        endpoint: Endpoint,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.endpoint = endpoint
        self._clock = clock
        self._pause = pause

    # ---------------------------------------------------------------- questions

    def queues(self, is_fresh: bool, patience_s: float | None = None) -> list[QueueState]:
        """Every stream queue this user may read, by name."""
        query = {"fresh": "true"} if is_fresh else {}
        answer = self.call("GET", "/v1/queues", query, patience_s=patience_s)
        found = answer.get("queues")
        if not isinstance(found, list):
            raise self._strange()
        return sorted((self._state(item) for item in found), key=lambda state: state.name)

    def queue(self, name: str, is_fresh: bool, patience_s: float | None = None) -> QueueState:
        query = {"fresh": "true"} if is_fresh else {}
        return self._state(self.call("GET", queue_path(name), query, patience_s=patience_s))

    def offset_at(self, name: str, timestamp_ns: int) -> int:
        """The first record at or after that time; the end of the queue when there is none."""
        answer = self.call("GET", queue_path(name) + "/offset", {"timestamp": str(timestamp_ns)})
        return self._integer(answer, "offset")

    def commit(self, name: str, group: str, offset: int, patience_s: float | None = None) -> int:
        path = f"{queue_path(name)}/groups/{quote(group, safe='')}"
        answer = self.call("POST", path, {}, {"offset": offset}, patience_s)
        return self._integer(answer, "committed")

    def call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        fields: Json | None = None,
        patience_s: float | None = None,
        content: bytes | None = None,
    ) -> Json:
        """One question and its answer, both JSON. ReaderRefused when it says no, ReaderUnreachable when nobody does.
        `content` is an Arrow stream to be sent instead of `fields`."""
        body = content if fields is None else json.dumps(fields).encode()
        kind = "application/json" if content is None else "application/vnd.apache.arrow.stream"
        headers = {} if body is None else {"Content-Type": kind}
        patience = self._patience(patience_s)
        while True:
            try:
                connection, response = self._exchange(method, _target(path, query), body, headers)
                answer = self._answer(connection, response)
            except _Broken as broken:
                if not patience.wait(broken.pause_s):
                    raise self._unreachable(str(broken)) from None
                continue
            return answer

    # ------------------------------------------------------------------ records

    def batches(self, request: RecordsRequest) -> Generator[pa.RecordBatch, None, None]:
        """The records as batches of the wire, none of them empty, with their offsets whether asked for or not."""
        position = request.first
        patience = self._patience(None)
        while position < request.end:
            connection = None
            try:
                target = _target(queue_path(request.queue) + "/records", _records_query(request, position))
                connection, response = self._exchange("GET", target, None, {})
                if response.status != http.client.OK:
                    self._answer(connection, response)
                    raise self._strange()
                for batch in _arrow_batches(response):
                    position = last_offset(batch) + 1
                    yield batch
                    patience.reset()
                self._keep(connection, response)
                connection = None
                return
            except _Broken as broken:
                if not patience.wait(broken.pause_s):
                    raise self._unreachable(str(broken)) from None
            finally:
                if connection is not None:
                    connection.close()

    # ------------------------------------------------------------------- inside

    def _patience(self, limit_s: float | None) -> _Patience:
        limit_s = self.endpoint.retry_s if limit_s is None else min(limit_s, self.endpoint.retry_s)
        return _Patience(limit_s, self._clock, self._pause)

    def _exchange(
        self, method: str, target: str, body: bytes | None, headers: dict[str, str]
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        headers = {**headers, **self._credentials()}
        while True:
            kept = self._take_kept()
            connection = kept or self._connect()
            try:
                connection.request(method, target, body, headers)
                return connection, connection.getresponse()
            except ssl.SSLCertVerificationError as error:
                connection.close()
                raise MillstreamSparkError(
                    f"the certificate of {self.endpoint.address} is not trusted: {error.verify_message}",
                    "Name the file of the authority that signed it with the option caFile.",
                ) from None
            except http.client.BadStatusLine as error:
                connection.close()
                if kept is None and not isinstance(error, http.client.RemoteDisconnected):
                    raise self._strange() from None
                if kept is None:
                    raise _Broken("it hung up") from None
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                if kept is None:
                    raise _Broken(_reason(error)) from None
            # A kept connection may have been closed by the other side meanwhile: that says nothing.

    def _connect(self) -> http.client.HTTPConnection:
        endpoint = self.endpoint
        if not endpoint.is_tls:
            return http.client.HTTPConnection(endpoint.host, endpoint.port, timeout=CALL_TIMEOUT_S)
        try:
            context = ssl.create_default_context(cafile=endpoint.ca_file or None)
        except (OSError, ssl.SSLError):
            raise MillstreamSparkError(
                f"the file {endpoint.ca_file} holds no certificates that can be read",
                "Check the option caFile; the file must be on every machine that runs tasks.",
            ) from None
        return http.client.HTTPSConnection(
            endpoint.host, endpoint.port, timeout=CALL_TIMEOUT_S, context=context
        )

    def _credentials(self) -> dict[str, str]:
        endpoint = self.endpoint
        if endpoint.token:
            return {"Authorization": f"Bearer {endpoint.token}"}
        if endpoint.user:
            pair = f"{endpoint.user}:{endpoint.password}".encode()
            return {"Authorization": "Basic " + base64.b64encode(pair).decode("ascii")}
        return {}

    def _answer(self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse) -> Json:
        try:
            text = response.read(ANSWER_BYTES_MAX)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise _Broken(_reason(error)) from None
        self._keep(connection, response)
        try:
            answer = json.loads(text)
        except (ValueError, RecursionError):
            answer = None
        if response.status in BUSY:
            raise _Broken(_clause(answer) or "it is busy", _retry_after(response))
        if not isinstance(answer, dict):
            raise self._strange()
        if response.status != http.client.OK:
            raise self._refusal(response.status, answer)
        return answer

    def _take_kept(self) -> http.client.HTTPConnection | None:
        with _idle_lock:
            kept = _idle.get((os.getpid(), self.endpoint))
            return kept.pop() if kept else None

    def _keep(self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse) -> None:
        if response.will_close or not response.isclosed():
            connection.close()
            return
        with _idle_lock:
            kept = _idle.setdefault((os.getpid(), self.endpoint), [])
            if len(kept) < IDLE_MAX:
                kept.append(connection)
                return
        connection.close()

    # ------------------------------------------------------------------- errors

    def _state(self, item: object) -> QueueState:
        if not isinstance(item, dict) or not isinstance(item.get("name"), str):
            raise self._strange()
        return QueueState(
            item["name"],
            self._integer(item, "first"),
            self._integer(item, "end"),
            self._integer(item, "records"),
            self._integer(item, "bytes"),
        )

    def _integer(self, answer: Json, name: str) -> int:
        value = answer.get(name)
        if type(value) is not int:
            raise self._strange()
        return value

    def _strange(self) -> MillstreamSparkError:
        return MillstreamSparkError(
            f"what answers at {self.endpoint.address} is not a reader of millstream",
            'Check host, port and http or https; "millstream serve" prints the address of its reader.',
        )

    def _unreachable(self, reason: str) -> ReaderUnreachable:
        return ReaderUnreachable(
            f"no reader answers at {self.endpoint.address}: {reason}",
            'Start the broker with "millstream serve --set reader.enabled=true", or check the option uri.',
        )

    def _refusal(self, status: int, answer: Json) -> ReaderRefused:
        clause = _clause(answer) or f"it answered with the status {status}"
        hint = str(answer.get("hint") or "")
        facts = {name: value for name, value in answer.items() if type(value) is int}
        address = self.endpoint.address
        if status == http.client.UNAUTHORIZED:
            who = (
                f'the user "{self.endpoint.user}"'
                if self.endpoint.user
                else "a caller without these credentials"
            )
            return ReaderRefused(
                f"the reader at {address} does not let {who} in: {clause}",
                f"Try: {hint}" if hint else "Check the options user and password, or token.",
                status,
                facts,
            )
        return ReaderRefused(
            f"the reader at {address} refuses: {clause}", f"Try: {hint}" if hint else "", status, facts
        )


def queue_path(name: str) -> str:
    return f"/v1/queues/{quote(name, safe='')}"


def _target(path: str, query: Mapping[str, str] | None) -> str:
    return f"{path}?{urlencode(query)}" if query else path


def _records_query(request: RecordsRequest, first: int) -> dict[str, str]:
    columns = [name for name in request.columns if name != HEADERS]  # asked for in a word of their own
    if OFFSET not in columns:
        columns.insert(0, OFFSET)
    query = {
        "first": str(first),
        "end": str(request.end),
        "columns": ",".join(columns),
        "rows": str(request.rows),
        "layout": "view",  # the reader copies nothing; Arrow makes plain columns of it here
        "headers": request.headers,
    }
    if request.topic_filter:
        query["topic"] = request.topic_filter
    if request.since_ns is not None:
        query["since"] = str(request.since_ns)
    if request.until_ns is not None:
        query["until"] = str(request.until_ns)
    if request.is_gap_skipped:
        query["gap"] = "skip"
    return query


class AnswerBody:
    """The body of an answer as a file of Arrow's: batches are received where they stay, in memory Arrow takes again."""

    closed = False

    def __init__(self, response: io.BufferedIOBase) -> None:
        self._response = response

    def read(self, size: int = -1) -> bytes:
        return self._response.read(size)

    def read_buffer(self, size: int) -> pa.Buffer:
        if size > BATCH_BYTES_MAX:  # no batch of a reader: take what comes, not what it says
            return pa.py_buffer(self._response.read(size))
        room = pa.allocate_buffer(size)
        view = memoryview(room)
        filled = 0
        while filled < size:
            count = self._response.readinto(view[filled:])
            if not count:
                break
            filled += count
        return room if filled == size else room.slice(0, filled)


def _arrow_batches(response: http.client.HTTPResponse) -> Iterator[pa.RecordBatch]:
    """Batches as they arrive; _Broken where the stream breaks off."""
    try:
        stream = pa.ipc.open_stream(pa.PythonFile(AnswerBody(response), mode="r"))
    except (OSError, http.client.HTTPException, pa.ArrowInvalid) as error:
        raise _Broken(_reason(error)) from None
    while True:
        try:
            batch = stream.read_next_batch()
        except StopIteration:
            break
        except (OSError, http.client.HTTPException, pa.ArrowInvalid) as error:
            raise _Broken(_reason(error)) from None
        if batch.num_rows:
            yield batch
    try:
        response.read()  # the end of the body: without it the stream was cut at the edge of a batch
    except (OSError, http.client.HTTPException) as error:
        raise _Broken(_reason(error)) from None


def _reason(error: BaseException) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "the connection is refused"
    if isinstance(error, TimeoutError):
        return "it does not answer in time"
    if isinstance(error, http.client.IncompleteRead | pa.ArrowInvalid):
        return "what it sends breaks off"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror[:1].lower() + error.strerror[1:]
    return str(error) or type(error).__name__


def _clause(answer: object) -> str:
    text = answer.get("error") if isinstance(answer, dict) else None
    return text.rstrip(".") if isinstance(text, str) else ""


def _retry_after(response: http.client.HTTPResponse) -> float:
    text = response.getheader("Retry-After", "")
    return float(text) if text.isdigit() and len(text) < 4 else 0.0
