"""Every option of `format("millstream")`, once: its name as people write it, what it is for, its default.

Spark hands options over in lower case; here they are found in any case. The page docs/spark.md has the same table,
and a test compares the two.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Final

from pyspark_millstream.errors import OptionError

CONNECTION: Final = {
    "uri": "http://host:port or http://user:password@host:port of the broker's reader; https for TLS",
    "user": "who reads or writes, where it is not in the uri",
    "password": "the password of `user`",
    "token": "a JWT, instead of user and password",
    "caFile": "certificates that may sign the reader's, for https; on every machine that runs tasks",
    "retrySeconds": "how long to try again when the broker is away or busy (60)",
}
SOURCE: Final = {
    "queues": "names of stream queues, split by commas, or a JSON list",
    "queue": "one name (in a write: the queue to write to)",
    "queuePattern": "a regular expression; every queue whose whole name fits is read, also one made later",
    "startingOffsets": "earliest, latest or JSON; default earliest (batch), latest (streaming)",
    "startingTimestamp": "milliseconds since 1970: start at the first record at or after it",
    "startingOffsetsByTimestamp": "JSON: the same for each queue",
    "startingOffsetsByTimestampStrategy": "error (default) or latest: when nothing is that new",
    "endingOffsets": "latest (default) or JSON; batch only",
    "endingTimestamp": "milliseconds since 1970: stop before the first record at or after it; batch only",
    "endingOffsetsByTimestamp": "JSON: the same for each queue; batch only",
    "maxOffsetsPerTrigger": "most records in a micro-batch",
    "maxBytesPerTrigger": "about the most bytes in a micro-batch; 64m and 1g are understood",
    "minOffsetsPerTrigger": "wait until so many records are there",
    "maxTriggerDelay": "but no longer than this: 90s, 15m (default), 1h",
    "minPartitions": "at least so many tasks",
    "rowsPerPartition": "records a task is given at most (500000)",
    "failOnDataLoss": "true (default): stop when records are gone that should be read; false: go on and count them",
    "includeHeaders": "true adds the column `headers` (false)",
    "headersFormat": "map (default; of a repeated name the last) or array (all, in order)",
    "columns": "only these columns, split by commas; Spark itself leaves none out",
    "topicFilter": "only records whose topic fits this MQTT filter",
    "rowsPerBatch": "rows of an Arrow batch on the wire (10000)",
    "consumerGroup": "the group whose place in each queue follows the query",
    "pushdown": "true lets Spark hand filters to the reader; needs spark.sql.python.filterPushdown.enabled (false)",
    "handOver": "true gives ranges of offsets instead of records, for a lake that fetches them itself (false)",
}
DECODE: Final = {
    "payloadFormat": "raw (default), json, avro, protobuf or sparkplug",
    "payloadSchema": "the schema of the payload: DDL for json (or infer), a JSON schema or its file for avro",
    "payloadDescriptor": "protobuf: a file, or base64, of a FileDescriptorSet",
    "payloadMessage": "protobuf: the full name of the message",
    "keepPayload": "false leaves out the column `payload` once it is decoded (true)",
    "inferRecords": "how many records to look at for payloadSchema=infer",
    "deadLetterQueue": "where rows go that cannot be decoded",
}
SINK: Final = {
    "topic": "write: the topic of every row",
    "topicColumn": "write: the column that holds the topic of each row",
    "payloadColumn": "write: the column that holds the payload (payload)",
    "qos": "write: 0, 1 or 2",
    "retain": "write: true makes the rows retained messages",
    "contentType": "write: the content type of every row",
    "queryId": "batch write: with batchId a name for the write; written again under it, it adds nothing",
    "batchId": "batch write: a number that grows with every write of the same queryId",
}
SPARK: Final = {  # what Spark itself puts among the options of a streaming write
    "checkpointLocation": "Spark's own",
    "queryName": "Spark's own",
    "asyncProgressTrackingEnabled": "Spark's own",
    "asyncProgressTrackingCheckpointIntervalMs": "Spark's own",
}
NAMES: Final = {**CONNECTION, **SOURCE, **DECODE, **SINK, **SPARK}
_BY_LOWER: Final = {name.lower(): name for name in NAMES}

# Names people bring from Spark's Kafka source, and what they are called here.
ELSEWHERE: Final = {
    "subscribe": "queues",
    "subscribepattern": "queuePattern",
    "assign": "queues",
    "kafka.bootstrap.servers": "uri",
    "kafka.group.id": "consumerGroup",
    "groupidprefix": "consumerGroup",
    "path": "queues",
    "username": "user",
    "url": "uri",
    "host": "uri",
    "consumername": "consumerGroup",
}


def known_options(given: Mapping[str, str]) -> dict[str, str]:
    """The options under the names of this file; OptionError names the first that is none."""
    known: dict[str, str] = {}
    for key, value in given.items():
        name = _BY_LOWER.get(key.lower())
        if name is None:
            raise OptionError(f'there is no option "{key}"', _suggestion(key))
        known[name] = value
    return known


def _suggestion(key: str) -> str:
    nearest = ELSEWHERE.get(key.lower())
    if nearest is None:
        found = difflib.get_close_matches(key.lower(), _BY_LOWER, n=1, cutoff=0.6)
        nearest = _BY_LOWER[found[0]] if found else None
    if nearest is None:
        return "Take it out; docs/spark.md lists all options."
    return f'Did you mean "{nearest}"? ({NAMES[nearest]})'
