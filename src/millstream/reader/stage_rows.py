"""From Arrow batches to the rows of a stage: the schema is checked before anything else, then every value.

    payload        binary or string, required        topic or key   string
    content_type   string                            headers        map<string, string>, or a list of {key, value}
    qos            whole number                      retain         boolean
    expiry_s       whole number, seconds             event_time     timestamp, kept as the user property `event-time`

What a row does not say, or says as null, is taken from `RowDefaults`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from millstream.model.queue_topic import SETTLING, find_spelling_fault, queue_prefix, split_queue_topic
from millstream.model.topic import find_topic_fault, find_utf8_fault
from millstream.queues.publish_options import encode_user_property
from millstream.reader.http import HttpFault
from millstream.storage.stages.format import StageWriter

TEXTS: Final = ("string", "large_string", "string_view")
BINARIES: Final = ("binary", "large_binary", "binary_view")
EVENT_TIME: Final = b"event-time"
CONTENT_TYPE: Final = b"\x03"
STRING_MAX: Final = 65_535
EXPIRY_MAX: Final = 0xFFFF_FFFF
TOPICS_KEPT: Final = 100_000  # topics remembered as good while a stage is written
HINT: Final = "see docs/spark.md for the columns of the sink"

Admit = Callable[[Sequence[str]], object]


@dataclass(frozen=True)
class RowLimits:
    message_size_max: int
    topic_length_max: int
    topic_levels_max: int
    user_properties_max: int
    guarantee_max: int


@dataclass(frozen=True)
class RowDefaults:
    """`queue` is empty where every row names its topic; `topic` is that of rows without one."""

    queue: str
    topic: str
    qos: int
    retain: bool
    content_type: str


def refuse(text: str) -> HttpFault:
    return HttpFault(400, text, HINT)


# ------------------------------------------------------------------------ schema


def _is_text(kind: pa.DataType) -> bool:
    return str(kind) in TEXTS


def _is_payload(kind: pa.DataType) -> bool:
    return str(kind) in TEXTS or str(kind) in BINARIES


def _is_headers(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind):
        return _is_text(kind.key_type) and _is_text(kind.item_type)
    if not pa.types.is_list(kind) and not pa.types.is_large_list(kind):
        return False
    pair = kind.value_type
    names = [pair.field(at).name for at in range(pair.num_fields)] if pa.types.is_struct(pair) else []
    return names == ["key", "value"] and all(_is_text(pair.field(at).type) for at in range(2))


COLUMNS: Final[dict[str, tuple[Callable[[pa.DataType], bool], str]]] = {
    "payload": (_is_payload, "binary or string"),
    "topic": (_is_text, "string"),
    "key": (_is_text, "string"),
    "content_type": (_is_text, "string"),
    "headers": (_is_headers, "map<string, string> or an array of {key, value}"),
    "qos": (pa.types.is_integer, "a whole number"),
    "retain": (pa.types.is_boolean, "boolean"),
    "expiry_s": (pa.types.is_integer, "a whole number of seconds"),
    "event_time": (pa.types.is_timestamp, "a timestamp"),
}


def check_schema(schema: pa.Schema, defaults: RowDefaults) -> None:
    """HttpFault 400 names the column and what is wrong with it."""
    for field in schema:
        known = COLUMNS.get(field.name)
        if known is None:
            raise refuse(f"the column {field.name!r} is not one of {', '.join(COLUMNS)}")
        if not known[0](field.type):
            raise refuse(f"the column {field.name!r} is {field.type}, not {known[1]}")
        if schema.names.count(field.name) > 1:
            raise refuse(f"the column {field.name!r} is there twice")
    if "payload" not in schema.names:
        raise refuse("the column 'payload' is missing")
    if "topic" in schema.names and "key" in schema.names:
        raise refuse("there is a column 'topic' and a column 'key'; one of them names where a row goes")
    if not defaults.queue:
        if "key" in schema.names:
            raise refuse("the column 'key' is for rows to a queue; rows to topics have a column 'topic'")
        if "topic" not in schema.names and not defaults.topic:
            raise refuse("the column 'topic' is missing, and no fixed topic is given")


# -------------------------------------------------------------------------- rows


class RowMaker:
    """Adds batches of one schema to a stage. `admit` raises HttpFault for topics that may not be written."""

    def __init__(
        self, schema: pa.Schema, defaults: RowDefaults, limits: RowLimits, writer: StageWriter, admit: Admit
    ) -> None:
        check_schema(schema, defaults)
        self._defaults = defaults
        self._limits = limits
        self._writer = writer
        self._admit = admit
        self._topics: dict[bytes | None, bytes] = {}  # as it stands in a row: where that goes
        queue = defaults.queue
        self._prefix = queue_prefix(queue) if queue else b""

    def add(self, batch: pa.RecordBatch) -> None:
        try:
            batch.validate(full=True)  # it came from outside: its offsets are not to be trusted
        except pa.ArrowInvalid as error:
            raise HttpFault(400, f"a batch of the Arrow stream is damaged: {error}") from None
        count = batch.num_rows
        if not count:
            return
        columns = {name: batch.column(at) for at, name in enumerate(batch.schema.names)}
        first = int(self._writer.rows)
        payloads = self._payloads(columns["payload"], first)
        topics = self._find_topics(columns.get("topic", columns.get("key")), count, first)
        highest = self._limits.guarantee_max
        self._writer.add_rows(
            topics,
            self._properties(columns, count, first),
            payloads,
            _numbers(columns.get("qos"), "qos", self._defaults.qos, highest, count, first),
            _switches(columns.get("retain"), self._defaults.retain, count),
            _numbers(columns.get("expiry_s"), "expiry_s", 0, EXPIRY_MAX, count, first),
        )

    def _payloads(self, column: pa.Array, first: int) -> list[bytes]:
        if column.null_count:
            raise refuse(f"row {first + _find_null(column)}: payload is null")
        payloads = to_bytes(column)
        size_max = self._limits.message_size_max
        if max(map(len, payloads)) > size_max:
            at = next(at for at, payload in enumerate(payloads) if len(payload) > size_max)
            raise HttpFault(413, f"row {first + at}: a payload must not have more than {size_max} bytes")
        return payloads

    def _find_topics(self, column: pa.Array | None, count: int, first: int) -> list[bytes]:
        known = self._topics
        names: list[bytes | None] = [None] * count if column is None else to_bytes(column)
        if len(known) > TOPICS_KEPT:
            known.clear()
        new: dict[bytes | None, int] = {}
        for at, name in enumerate(names):
            if name not in known and name not in new:
                new[name] = at
        if new:
            found = {name: self._make_topic(name, first + at) for name, at in new.items()}
            self._admit([topic.decode() for topic in found.values()])
            known.update(found)
        return [known[name] for name in names]

    def _make_topic(self, name: bytes | None, row: int) -> bytes:
        if self._prefix:
            key = name or b""
            place = split_queue_topic(key)
            if place is not None:
                key = place[1]  # it comes from a queue: what counts is its key there
            topic = self._prefix + b"/" + key if key else self._prefix
        else:
            topic = self._defaults.topic.encode() if name is None else name
            if not topic:
                raise refuse(f"row {row}: topic is null, and no fixed topic is given")
        limits = self._limits
        fault = find_topic_fault(topic, limits.topic_length_max, limits.topic_levels_max)
        fault = fault or find_spelling_fault(topic)
        if fault is None and split_queue_topic(topic) is not None and topic.endswith(SETTLING):
            fault = "it is the word for an answer to a delivery"
        if fault is not None:
            raise refuse(
                f"row {row}: the topic {topic.decode(errors='replace')[:100]!r} cannot be used: {fault}"
            )
        return topic

    # ------------------------------------------------------------ properties

    def _properties(self, columns: dict[str, pa.Array], count: int, first: int) -> list[bytes]:
        own = (
            encode_content_type(self._defaults.content_type.encode()) if self._defaults.content_type else b""
        )
        kinds, headers, times = (columns.get(name) for name in ("content_type", "headers", "event_time"))
        if kinds is None and headers is None and times is None:
            return [own] * count
        blocks: list[list[bytes]] = [[own] for _ in range(count)]
        if kinds is not None:
            for at, kind in enumerate(to_bytes(kinds)):
                if kind is not None:
                    _check_string(kind, "content_type", first + at)
                    blocks[at] = [encode_content_type(kind)]
        if headers is not None:
            self._add_headers(headers, blocks, first)
        if times is not None:
            for at, moment in enumerate(
                pc.cast(times, pa.timestamp("ms", times.type.tz), safe=False).cast("int64").to_pylist()
            ):
                if moment is not None:
                    blocks[at].append(encode_user_property(EVENT_TIME, b"%d" % moment))
        return [b"".join(block) for block in blocks]

    def _add_headers(self, column: pa.Array, blocks: list[list[bytes]], first: int) -> None:
        is_map = pa.types.is_map(column.type)
        for at, pairs in enumerate(column.to_pylist()):
            if pairs is None:
                continue
            if len(pairs) > self._limits.user_properties_max:
                most = self._limits.user_properties_max
                raise refuse(f"row {first + at}: a message has at most {most} headers, not {len(pairs)}")
            for pair in pairs:
                key, value = (
                    pair if is_map else (pair["key"], pair["value"]) if pair is not None else (None, None)
                )
                if key is None or value is None:
                    raise refuse(f"row {first + at}: a header has no key or no value")
                name, text = key.encode(), value.encode()
                _check_string(name, "headers", first + at)
                _check_string(text, "headers", first + at)
                blocks[at].append(encode_user_property(name, text))


def encode_content_type(value: bytes) -> bytes:
    return CONTENT_TYPE + len(value).to_bytes(2, "big") + value


def to_bytes(column: pa.Array) -> list[Any]:
    """Of binary or text; null is None."""
    found: list[Any] = column.cast(pa.large_binary()).to_numpy(zero_copy_only=False).tolist()
    return found


def _find_null(column: pa.Array) -> int:
    return int(pc.index(column.is_null(), True).as_py())


def _check_string(value: bytes, name: str, row: int) -> None:
    if len(value) > STRING_MAX:
        raise refuse(f"row {row}: {name} has more than {STRING_MAX} bytes")
    fault = find_utf8_fault(value)
    if fault is not None:
        raise refuse(f"row {row}: {name}: {fault}")


def _numbers(
    column: pa.Array | None, name: str, default: int, high: int, count: int, first: int
) -> list[int]:
    if column is None:
        return [default] * count
    found = [default if value is None else value for value in column.to_pylist()]
    for at, value in enumerate(found):
        if not 0 <= value <= high:
            raise refuse(f"row {first + at}: {name} must be from 0 to {high}, not {value}")
    return found


def _switches(column: pa.Array | None, default: bool, count: int) -> list[bool]:
    if column is None:
        return [default] * count
    return [default if value is None else value for value in column.to_pylist()]
