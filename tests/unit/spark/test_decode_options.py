"""The options of decoding: what is taken, and the one sentence for what is not."""

from __future__ import annotations

import pytest
from decode_batches import BASE, decoder_for
from pyspark.sql.types import LongType, StringType, StructField, StructType

from pyspark_millstream.decode import make_decoder
from pyspark_millstream.decode.faults import DecodeOptionError
from pyspark_millstream.decode.settings import OPTION_NAMES
from pyspark_millstream.errors import OptionError
from pyspark_millstream.option_names import DECODE


def refusal(options: dict[str, str], base: StructType = BASE) -> str:
    with pytest.raises(OptionError) as caught:
        make_decoder(options, base)
    text = str(caught.value)
    assert "\n" not in text
    assert isinstance(caught.value, ValueError)
    return text


def test_without_a_format_payloads_stay_as_they_are() -> None:
    assert make_decoder({}, BASE) is None
    assert make_decoder({"payloadFormat": " RAW ", "uri": "http://h"}, BASE) is None


def test_names_are_found_in_any_case() -> None:
    decoder = make_decoder({"PAYLOADFORMAT": "Json", "payloadschema": "n int"}, BASE)
    assert decoder is not None
    assert decoder.schema().simpleString() == "struct<value:struct<n:int>,_error:string>"


def test_the_names_are_those_of_the_source() -> None:
    assert set(OPTION_NAMES) == set(DECODE)


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (
            {"payloadFormat": "xml"},
            'there is no payloadFormat "xml". It can be raw, json, avro, protobuf, sparkplug.',
        ),
        ({"payloadFormat": "json"}, "payloadFormat=json needs the option payloadSchema"),
        ({"payloadFormat": "avro"}, "payloadFormat=avro needs the option payloadSchema"),
        ({"payloadFormat": "protobuf"}, "payloadFormat=protobuf needs the option payloadDescriptor"),
        ({"payloadFormat": "protobuf", "payloadDescriptor": "AAAA"}, "needs the option payloadMessage"),
        ({"payloadSchema": "n int"}, "payloadSchema does nothing with payloadFormat=raw"),
        ({"deadLetterQueue": "bad"}, "deadLetterQueue does nothing with payloadFormat=raw"),
        ({"payloadFormat": "sparkplug", "payloadSchema": "n int"}, "payloadSchema does nothing"),
        (
            {"payloadFormat": "json", "payloadSchema": "n int", "payloadMessage": "M"},
            "payloadMessage does nothing",
        ),
        ({"payloadFormat": "json", "payloadSchema": "n int", "keepPayload": "no"}, "keepPayload cannot be"),
        ({"payloadFormat": "json", "payloadSchema": "n nosuch"}, "there is no type 'nosuch'"),
        (
            {
                "payloadFormat": "json",
                "payloadSchema": "n int",
                "keepPayload": "false",
                "deadLetterQueue": "bad",
            },
            "keepPayload=false drops them",
        ),
    ],
)
def test_wrong_options_are_refused_in_one_sentence(options: dict[str, str], part: str) -> None:
    assert part in refusal(options)


def test_rows_without_a_payload_or_with_the_columns_already_are_refused() -> None:
    json = {"payloadFormat": "json", "payloadSchema": "n int"}
    assert "needs the column payload" in refusal(json, StructType([StructField("offset", LongType())]))
    taken = StructType([*BASE.fields, StructField("_error", StringType())])
    assert 'a column "_error" already' in refusal(json, taken)


@pytest.mark.parametrize("count", ["0", "x", "100001", "-1"])
def test_a_sample_size_that_is_none_is_refused(count: str) -> None:
    options = {"payloadFormat": "json", "payloadSchema": "infer", "inferRecords": count}
    with pytest.raises(OptionError, match="inferRecords"):
        make_decoder(options, BASE, lambda count: [b'{"n": 1}'])


def test_the_dead_letter_queue_is_known_to_the_decoder() -> None:
    decoder = decoder_for(payloadFormat="json", payloadSchema="n int", deadLetterQueue=" bad ")
    assert decoder.dead_letter_queue == "bad"


def test_a_wrong_option_is_an_error_of_the_connector() -> None:
    assert issubclass(DecodeOptionError, OptionError)
