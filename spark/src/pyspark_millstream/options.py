"""What a read was asked to do: the options of the source, checked once, as one frozen value."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote, urlsplit

from pyspark_millstream import option_values
from pyspark_millstream.errors import OptionError
from pyspark_millstream.option_names import known_options
from pyspark_millstream.option_values import EARLIEST_MARK, LATEST_MARK, Bound, BoundKind
from pyspark_millstream.rows import COLUMN_NAMES, HEADERS

READER_PORT: Final = 8090
RETRY_S: Final = 60
ROWS_PER_BATCH: Final = 10_000
ROWS_PER_BATCH_MAX: Final = 100_000  # what a reader gives by default
ROWS_PER_PARTITION: Final = 500_000
PARTITIONS_MAX: Final = 100_000
TRIGGER_DELAY_S: Final = 900.0
PATTERN_LENGTH_MAX: Final = 1000

_STARTS: Final = ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp")
_ENDS: Final = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_BATCH_ONLY: Final = _ENDS
_STREAM_ONLY: Final = (
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
)


@dataclass(frozen=True)
class Endpoint:
    """Where the reader is and who asks. Its `repr` hides what must not be seen."""

    host: str
    port: int
    is_tls: bool = False
    ca_file: str = ""
    user: str = ""
    password: str = ""
    token: str = ""
    retry_s: float = RETRY_S

    def __repr__(self) -> str:
        return f"Endpoint({self.address})"

    @property
    def address(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.is_tls else 'http'}://{host}:{self.port}"


@dataclass(frozen=True)
class SourceOptions:
    """The options of one read, batch or streaming."""

    endpoint: Endpoint
    queues: tuple[str, ...]
    pattern: str
    start: Bound | None
    end: Bound | None
    is_late_start_allowed: bool
    rows_max: int | None
    bytes_max: int | None
    rows_min: int | None
    delay_max_s: float
    partitions_min: int
    rows_per_partition: int
    fails_on_loss: bool
    columns: tuple[str, ...]
    headers_format: str
    topic_filter: str
    rows_per_batch: int
    group: str
    has_pushdown: bool
    is_handed_over: bool
    raw: tuple[tuple[str, str], ...]

    def option(self, name: str) -> str | None:
        return dict(self.raw).get(name)

    def matches(self, queue: str) -> bool:
        return re.fullmatch(self.pattern, queue) is not None if self.pattern else queue in self.queues


def endpoint_from(options: Mapping[str, str]) -> Endpoint:
    """`options` under their known names. The sink uses it too."""
    uri = options.get("uri", "").strip()
    if not uri:
        raise OptionError(
            "the option uri is missing",
            f'Say where the reader is: .option("uri", "http://127.0.0.1:{READER_PORT}").',
        )
    expected = f'http://host:port, such as http://127.0.0.1:{READER_PORT}; "millstream serve" prints it'
    try:
        parts = urlsplit(uri)
        port = parts.port or READER_PORT
    except ValueError:
        raise OptionError("the option uri has no valid address in it", f"It takes {expected}.") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise OptionError("the option uri has no valid address in it", f"It takes {expected}.")
    if parts.path.strip("/") or parts.query or parts.fragment:
        raise OptionError("the option uri has more than an address in it", f"It takes {expected}.")
    user = options.get("user", unquote(parts.username or ""))
    password = options.get("password", unquote(parts.password or ""))
    token = options.get("token", "")
    if token and user:
        raise OptionError("there are both a token and a user", "Give one of the two.")
    if password and not user:
        raise OptionError("there is a password and no user", 'Add .option("user", …).')
    ca_file = options.get("caFile", "")
    if ca_file and parts.scheme != "https":
        raise OptionError("caFile is for https and the uri is http", "Change one of the two.")
    retry_s = option_values.number("retrySeconds", options.get("retrySeconds", str(RETRY_S)), 0, 86_400)
    return Endpoint(parts.hostname, port, parts.scheme == "https", ca_file, user, password, token, retry_s)


def read_options(given: Mapping[str, str]) -> SourceOptions:
    """Every option checked; OptionError names the first that is wrong."""
    options = known_options(given)
    queues, pattern = _queues_from(options)
    rows_max, bytes_max, rows_min = _limits_from(options)
    headers_format = option_values.choice(
        "headersFormat", options.get("headersFormat", "map"), ("map", "array")
    )
    return SourceOptions(
        endpoint=endpoint_from(options),
        queues=queues,
        pattern=pattern,
        start=_start_from(options),
        end=_end_from(options),
        is_late_start_allowed=_strategy_from(options) == "latest",
        rows_max=rows_max,
        bytes_max=bytes_max,
        rows_min=rows_min,
        delay_max_s=_delay_from(options),
        partitions_min=_number(options, "minPartitions", 1, PARTITIONS_MAX),
        rows_per_partition=_number(options, "rowsPerPartition", ROWS_PER_PARTITION),
        fails_on_loss=option_values.boolean("failOnDataLoss", options.get("failOnDataLoss", "true")),
        columns=_columns_from(options),
        headers_format=headers_format,
        topic_filter=options.get("topicFilter", ""),
        rows_per_batch=_number(options, "rowsPerBatch", ROWS_PER_BATCH, ROWS_PER_BATCH_MAX),
        group=options.get("consumerGroup", ""),
        has_pushdown=option_values.boolean("pushdown", options.get("pushdown", "false")),
        is_handed_over=_hand_over_from(options),
        raw=tuple(sorted(options.items())),
    )


def check_batch(options: SourceOptions) -> None:
    """What only a streaming read can do is refused in a batch."""
    for name in _STREAM_ONLY:
        if options.option(name) is not None:
            raise OptionError(
                f"the option {name} is for streaming reads", "Take it out, or use spark.readStream."
            )
    if options.start is not None and options.start.kind is BoundKind.LATEST:
        raise OptionError("startingOffsets cannot be latest in a batch: there would be nothing to read")
    if options.group:
        raise OptionError(
            "the option consumerGroup is for streaming reads", "Take it out, or use spark.readStream."
        )


def check_stream(options: SourceOptions) -> None:
    """What only a batch can do is refused in a streaming read."""
    for name in _BATCH_ONLY:
        if options.option(name) is not None:
            raise OptionError(f"the option {name} is for batch reads", "Take it out, or use spark.read.")
    if options.has_pushdown:
        raise OptionError(
            "the option pushdown is for batch reads", "Use topicFilter and columns in a stream."
        )


def _queues_from(options: Mapping[str, str]) -> tuple[tuple[str, ...], str]:
    given = [name for name in ("queues", "queue", "queuePattern") if name in options]
    if not given:
        raise OptionError(
            "no queue is named", 'Add .option("queues", "readings") or .option("queuePattern", …).'
        )
    if len(given) > 1:
        raise OptionError(f"{' and '.join(given)} are given together", "Give exactly one of them.")
    if given[0] == "queue":
        if not options["queue"].strip():
            raise OptionError("the option queue is empty", 'Name one: .option("queue", "readings").')
        return (options["queue"].strip(),), ""
    if given[0] == "queues":
        return tuple(sorted(option_values.names("queues", options["queues"]))), ""
    pattern = options["queuePattern"]
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise OptionError(f"queuePattern is not a regular expression: {error}", "Correct it.") from None
    if not 1 <= len(pattern) <= PATTERN_LENGTH_MAX:
        raise OptionError(f"queuePattern must have 1 to {PATTERN_LENGTH_MAX} characters", "Shorten it.")
    return (), pattern


def _start_from(options: Mapping[str, str]) -> Bound | None:
    given = _one_of(options, _STARTS)
    if given is None:
        return None
    if given == "startingOffsets":
        return option_values.offsets_bound(given, options[given], ("earliest", "latest"), EARLIEST_MARK)
    if given == "startingTimestamp":
        return option_values.timestamp_bound(given, options[given])
    return option_values.timestamps_bound(given, options[given])


def _end_from(options: Mapping[str, str]) -> Bound | None:
    given = _one_of(options, _ENDS)
    if given is None:
        return None
    if given == "endingOffsets":
        return option_values.offsets_bound(given, options[given], ("latest",), LATEST_MARK)
    if given == "endingTimestamp":
        return option_values.timestamp_bound(given, options[given])
    return option_values.timestamps_bound(given, options[given])


def _one_of(options: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    given = [name for name in names if name in options]
    if len(given) > 1:
        raise OptionError(f"{' and '.join(given)} are given together", "Give at most one of them.")
    return given[0] if given else None


def _strategy_from(options: Mapping[str, str]) -> str:
    name = "startingOffsetsByTimestampStrategy"
    return option_values.choice(name, options.get(name, "error"), ("error", "latest"))


def _limits_from(options: Mapping[str, str]) -> tuple[int | None, int | None, int | None]:
    rows_max = rows_min = bytes_max = None
    if "maxOffsetsPerTrigger" in options:
        rows_max = option_values.number("maxOffsetsPerTrigger", options["maxOffsetsPerTrigger"])
    if "minOffsetsPerTrigger" in options:
        rows_min = option_values.number("minOffsetsPerTrigger", options["minOffsetsPerTrigger"])
    if "maxBytesPerTrigger" in options:
        bytes_max = option_values.size_bytes("maxBytesPerTrigger", options["maxBytesPerTrigger"])
    if rows_max is not None and rows_min is not None and rows_min > rows_max:
        raise OptionError("minOffsetsPerTrigger is greater than maxOffsetsPerTrigger", "Swap them.")
    return rows_max, bytes_max, rows_min


def _delay_from(options: Mapping[str, str]) -> float:
    value = options.get("maxTriggerDelay")
    return TRIGGER_DELAY_S if value is None else option_values.duration_s("maxTriggerDelay", value)


def _number(options: Mapping[str, str], name: str, default: int, most: int = 1 << 40) -> int:
    value = options.get(name)
    return default if value is None else option_values.number(name, value, 1, most)


def _hand_over_from(options: Mapping[str, str]) -> bool:
    is_handed_over = option_values.boolean("handOver", options.get("handOver", "false"))
    for name in ("pushdown", "deadLetterQueue") if is_handed_over else ():
        if options.get(name, "false").strip().lower() not in ("", "false"):
            raise OptionError(
                f"the option {name} needs records, and with handOver=true Spark sees none",
                "Take one of the two out.",
            )
    return is_handed_over


def _columns_from(options: Mapping[str, str]) -> tuple[str, ...]:
    has_headers = option_values.boolean("includeHeaders", options.get("includeHeaders", "false"))
    if "columns" not in options:
        is_raw = options.get("payloadFormat", "raw").strip().lower() == "raw"
        keeps = option_values.boolean("keepPayload", options.get("keepPayload", "true"))
        every = tuple(name for name in COLUMN_NAMES if keeps or not is_raw or name != "payload")
        return (*every, HEADERS) if has_headers else every
    chosen = option_values.names("columns", options["columns"])
    for name in chosen:
        if name not in COLUMN_NAMES and name != HEADERS:
            raise OptionError(
                f'there is no column "{name}"', f"There are {', '.join((*COLUMN_NAMES, HEADERS))}."
            )
    return (*chosen, HEADERS) if has_headers and HEADERS not in chosen else chosen
