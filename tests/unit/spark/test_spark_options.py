"""Options of the Spark source: what is taken, and the one sentence for what is not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pyspark_millstream.errors import OptionError
from pyspark_millstream.option_names import NAMES, SPARK, known_options
from pyspark_millstream.option_values import Bound, BoundKind
from pyspark_millstream.options import check_batch, check_stream, endpoint_from, read_options
from pyspark_millstream.rows import COLUMN_NAMES

LEAST = {"uri": "http://127.0.0.1:8090", "queues": "readings"}


def refusal(**options: str) -> str:
    with pytest.raises(OptionError) as caught:
        read_options({**LEAST, **options})
    text = str(caught.value)
    assert "\n" not in text
    assert text.endswith((".", ")"))
    return text


def test_the_least_that_must_be_said_gives_the_defaults() -> None:
    options = read_options(LEAST)
    assert (options.endpoint.host, options.endpoint.port, options.endpoint.user) == ("127.0.0.1", 8090, "")
    assert (options.queues, options.pattern) == (("readings",), "")
    assert (options.start, options.end) == (None, None)
    assert options.fails_on_loss
    assert options.columns == COLUMN_NAMES
    assert (options.rows_max, options.bytes_max, options.rows_min, options.partitions_min) == (
        None,
        None,
        None,
        1,
    )


def test_names_are_found_in_any_case() -> None:
    options = read_options({"URI": "http://h", "QUEUES": "b, a", "maxoffsetspertrigger": "5"})
    assert (options.queues, options.rows_max) == (("a", "b"), 5)
    assert known_options({"startingoffsets": "earliest"}) == {"startingOffsets": "earliest"}


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_option_is_recognised_as_spark_spells_it(name: str) -> None:
    assert known_options({name.lower(): "x"}) == {name: "x"}


@pytest.mark.parametrize(
    ("unknown", "meant"),
    [
        ("startingOffset", "startingOffsets"),
        ("maxOffsetPerTriger", "maxOffsetsPerTrigger"),
        ("subscribe", "queues"),
        ("kafka.bootstrap.servers", "uri"),
        ("path", "queues"),
        ("topicfilters", "topicFilter"),
    ],
)
def test_an_unknown_option_is_refused_with_the_nearest_one(unknown: str, meant: str) -> None:
    with pytest.raises(OptionError) as caught:
        read_options({**LEAST, unknown: "x"})
    assert f'there is no option "{unknown}"' in str(caught.value)
    assert f'Did you mean "{meant}"?' in str(caught.value)


def test_an_option_near_to_nothing_is_refused_too() -> None:
    with pytest.raises(OptionError, match='there is no option "zzzz"'):
        read_options({**LEAST, "zzzz": "x"})


def test_user_and_password_come_from_the_uri_or_from_options() -> None:
    inside = endpoint_from({"uri": "http://ann:s%2Fec@[::1]:1"})
    assert (inside.user, inside.password, inside.host, inside.port) == ("ann", "s/ec", "::1", 1)
    assert inside.address == "http://[::1]:1"
    beside = endpoint_from({"uri": "https://h:2", "user": "bob", "password": "p", "caFile": "ca.pem"})
    assert (beside.user, beside.password, beside.is_tls, beside.ca_file) == ("bob", "p", True, "ca.pem")
    assert endpoint_from({"uri": "http://h", "token": "t"}).token == "t"


def test_a_password_is_never_shown() -> None:
    endpoint = endpoint_from({"uri": "http://ann:secret@h:1"})
    assert "secret" not in repr(endpoint) + endpoint.address
    assert "secret" not in refusal(uri="http://ann:secret@h:1/path")
    assert "secret" not in refusal(uri="ftp://ann:secret@h:1")


@pytest.mark.parametrize(
    "uri", ["", "127.0.0.1:8090", "ftp://h:1", "http://", "http://h:99999", "http://h/x"]
)
def test_a_uri_that_is_none_is_refused(uri: str) -> None:
    assert "uri" in refusal(uri=uri)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"token": "t", "user": "u"}, "both a token and a user"),
        ({"password": "p"}, "a password and no user"),
        ({"caFile": "f"}, "caFile is for https"),
        ({"retrySeconds": "soon"}, "retrySeconds"),
        ({"queue": "x"}, "queues and queue are given together"),
        ({"queuePattern": "x"}, "queues and queuePattern"),
        ({"queues": "a,,b"}, "queues"),
        ({"queues": "a,a"}, "a name twice"),
        ({"queues": "[1]"}, "JSON list"),
        ({"queues": "["}, "JSON list"),
        ({"startingOffsets": "first"}, "earliest or latest"),
        ({"startingOffsets": "{"}, "startingOffsets"),
        ({"startingOffsets": '{"a": -3}'}, "startingOffsets"),
        ({"startingOffsets": '{"a": true}'}, "startingOffsets"),
        ({"startingOffsets": '{"a": {"1": 5}}'}, "the one partition 0"),
        ({"startingOffsets": "[" * 100_000}, "startingOffsets"),
        ({"endingOffsets": "earliest"}, "endingOffsets"),
        ({"endingOffsets": '{"a": -2}'}, "endingOffsets"),
        ({"startingTimestamp": "yesterday"}, "startingTimestamp"),
        ({"startingTimestamp": "1", "startingOffsets": "latest"}, "given together"),
        ({"startingOffsetsByTimestampStrategy": "first"}, "error or latest"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger"),
        ({"maxOffsetsPerTrigger": "1", "minOffsetsPerTrigger": "2"}, "greater than"),
        ({"maxBytesPerTrigger": "much"}, "64m"),
        ({"maxTriggerDelay": "5 fortnights"}, "15m"),
        ({"minPartitions": "-1"}, "minPartitions"),
        ({"failOnDataLoss": "yes"}, "true or false"),
        ({"headersFormat": "list"}, "map or array"),
        ({"columns": "payload,colour"}, 'no column "colour"'),
        ({"rowsPerBatch": "2000000"}, "rowsPerBatch"),
    ],
)
def test_a_wrong_value_is_refused_with_its_option(options: dict[str, str], said: str) -> None:
    assert said in refusal(**options)


def test_no_queue_and_no_pattern_are_refused() -> None:
    with pytest.raises(OptionError, match="no queue is named"):
        read_options({"uri": "http://h"})
    with pytest.raises(OptionError, match="not a regular expression"):
        read_options({"uri": "http://h", "queuePattern": "("})


def test_bounds_are_read_as_sparks_kafka_source_writes_them() -> None:
    def start(value: str) -> Bound | None:
        return read_options({**LEAST, "startingOffsets": value}).start

    assert start("Earliest") == Bound(BoundKind.EARLIEST, "startingOffsets")
    assert start("latest") == Bound(BoundKind.LATEST, "startingOffsets")
    nested = start('{"b": {"0": 23}, "a": {"0": -2}}')
    assert nested == start('{"a": -2, "b": 23}')
    assert nested is not None
    assert (nested.number_of("a"), nested.number_of("b"), nested.number_of("c")) == (-2, 23, None)
    by_time = read_options({**LEAST, "startingTimestamp": "1760000000000"}).start
    assert by_time is not None
    assert by_time.number_of("whichever") == 1_760_000_000_000


def test_sizes_and_times_take_units() -> None:
    options = read_options({**LEAST, "maxBytesPerTrigger": "64m", "maxTriggerDelay": "90s"})
    assert (options.bytes_max, options.delay_max_s) == (64 << 20, 90.0)
    assert read_options({**LEAST, "maxBytesPerTrigger": "1GiB"}).bytes_max == 1 << 30
    assert read_options({**LEAST, "maxTriggerDelay": "1500"}).delay_max_s == 1.5


def test_headers_come_when_asked_for() -> None:
    assert read_options({**LEAST, "includeHeaders": "true"}).columns == (*COLUMN_NAMES, "headers")
    chosen = read_options({**LEAST, "columns": "payload, offset", "includeHeaders": "true"})
    assert chosen.columns == ("payload", "offset", "headers")
    assert read_options({**LEAST, "columns": "headers"}).columns == ("headers",)


def test_a_pattern_must_fit_the_whole_name() -> None:
    options = read_options({"uri": "http://h", "queuePattern": "plant-[0-9]+"})
    assert options.matches("plant-12")
    assert not options.matches("plant-12b")
    assert not options.matches("a plant-12")


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    value = "latest" if name == "endingOffsets" else "1"
    options = read_options({**LEAST, name: value})
    check_batch(options)
    with pytest.raises(OptionError, match=f"{name} is for batch reads"):
        check_stream(options)


@pytest.mark.parametrize("name", ["maxOffsetsPerTrigger", "maxTriggerDelay", "consumerGroup"])
def test_a_batch_has_no_triggers(name: str) -> None:
    options = read_options({**LEAST, name: "10"})
    check_stream(options)
    with pytest.raises(OptionError, match=f"{name} is for streaming reads"):
        check_batch(options)


def test_a_batch_that_starts_at_the_end_is_refused() -> None:
    with pytest.raises(OptionError, match="nothing to read"):
        check_batch(read_options({**LEAST, "startingOffsets": "latest"}))


def test_the_page_on_spark_has_every_option_with_the_same_words() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "spark.md").read_text(encoding="utf-8")
    table = page.partition("## Options")[2].partition("\n## ")[0]
    told = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", table, re.MULTILINE))
    assert told == {name: text for name, text in NAMES.items() if name not in SPARK}
