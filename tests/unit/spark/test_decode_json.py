"""JSON payloads to columns."""

from __future__ import annotations

import json
import pickle
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from decode_batches import batch_of, decoded, decoder_for, error_of, values_of

from pyspark_millstream.decode import Decoder
from pyspark_millstream.decode.faults import DecodeOptionError
from pyspark_millstream.decode.json_columns import JsonColumns

MANY = 200  # enough for the columnar way


def json_decoder(ddl: str, **options: str) -> Decoder:
    return decoder_for(payloadFormat="json", payloadSchema=ddl, **options)


def both_ways(ddl: str, payload: bytes) -> tuple[object, str | None]:
    """What becomes of a payload alone and among many: the same."""
    decoder = json_decoder(ddl)
    alone = decoded(decoder, [payload])[0]
    among = decoded(decoder, [b"{}"] * MANY + [payload] + [b"{}"] * MANY)[MANY]
    assert repr(alone) == repr(among)
    return alone


def test_every_type_of_the_schema_is_read() -> None:
    ddl = (
        "flag boolean, tiny tinyint, small smallint, whole int, big bigint, single float, real double, text string, "
        "day date, moment timestamp, local timestamp_ntz, amount decimal(10,2), "
        "place struct<lat: double, lon: double>, tags array<string>, points array<struct<x: int>>"
    )
    payload = json.dumps(
        {
            "flag": True,
            "tiny": -128,
            "small": 32767,
            "whole": -5,
            "big": 2**63 - 1,
            "single": 0.5,
            "real": 1e300,
            "text": "grün\u0000",
            "day": "2026-11-15",
            "moment": "2026-11-15T10:00:00.25+02:00",
            "local": "2026-11-15 10:00:00",
            "amount": 12.5,
            "place": {"lat": 1, "lon": None},
            "tags": ["a", None],
            "points": [{"x": 1}, {}, None],
        }
    ).encode()
    value, error = both_ways(ddl, payload)
    assert error is None
    assert value == {
        "flag": True,
        "tiny": -128,
        "small": 32767,
        "whole": -5,
        "big": 2**63 - 1,
        "single": 0.5,
        "real": 1e300,
        "text": "grün\u0000",
        "day": date(2026, 11, 15),
        "moment": datetime(2026, 11, 15, 8, 0, 0, 250000, tzinfo=UTC),
        "local": datetime(2026, 11, 15, 10),
        "amount": Decimal("12.50"),
        "place": {"lat": 1.0, "lon": None},
        "tags": ["a", None],
        "points": [{"x": 1}, {"x": None}, None],
    }


def test_a_field_that_is_missing_is_null_and_one_that_is_not_asked_for_is_passed_over() -> None:
    assert both_ways("a int, b string", b'{"b": "x", "c": {"a": [1, "2"]}}') == ({"a": None, "b": "x"}, None)


def test_maps_and_base64_are_read() -> None:
    decoder = json_decoder("m map<string, array<int>>, b binary")
    assert values_of(decoder, [b'{"m": {"x": [1], "y": null}, "b": "aGk="}'] * MANY)[-1] == {
        "m": [("x", [1]), ("y", None)],
        "b": b"hi",
    }
    assert error_of(decoder, b'{"b": "a"}') == 'b: "a" is no base64 text'


@pytest.mark.parametrize(
    ("payload", "text"),
    [(b"5", "5"), (b"1.50", "1.50"), (b"true", "true"), (b'{"k": [1, "x"]}', '{"k":[1,"x"]}'), (b'"q"', "q")],
)
def test_a_string_field_takes_the_text_of_anything(payload: bytes, text: str) -> None:
    assert both_ways("s string", b'{"s": ' + payload + b"}") == ({"s": text}, None)


@pytest.mark.parametrize("number", [b"21", b"21.0", b"2.1e1"])
def test_a_number_without_a_fraction_is_whole_however_it_is_written(number: bytes) -> None:
    assert both_ways("n bigint", b'{"n": ' + number + b"}") == ({"n": 21}, None)


@pytest.mark.parametrize(
    ("ddl", "payload", "reason"),
    [
        ("n int", b"", "the payload is empty"),
        ("n int", b"null", "not a JSON object but null"),
        ("n int", b"[1]", "not a JSON object but an array"),
        ("n int", b'"x"', "not a JSON object but a text"),
        ("n int", b'{"n": 1}{"n": 2}', "not JSON: Extra data at character 8"),
        ("n int", b'{"n": 1} null {"n": 2}', "not JSON: Extra data at character 9"),
        ("n int", b'{"n": ', "not JSON: Expecting value at character 6"),
        ("n int", b'{"n": "\xff"}', "not UTF-8 at byte 7"),
        ("n int", b'{"n": 1.5}', "n: 1.5 is no int"),
        ("n int", b'{"n": 3000000000}', "n: 3000000000 is no int"),
        ("n tinyint", b'{"n": 128}', "n: 128 is no tinyint"),
        ("n double", b'{"n": "hot"}', 'n: "hot" is no double'),
        ("n double", b'{"n": 1e999}', "not JSON: the number 1e999 is too big"),
        ("b boolean", b'{"b": 1}', "b: 1 is no boolean"),
        ("p struct<x: int>", b'{"p": {"x": true}}', "p.x: true is no int"),
        ("p struct<x: int>", b'{"p": []}', "p: [] is no object"),
        ("l array<int>", b'{"l": [1, "x"]}', 'l[]: "x" is no int'),
        ("d date", b'{"d": "15.11.2026"}', 'd: "15.11.2026" is no date (such as 2026-11-15)'),
        ("t timestamp", b'{"t": "0000-01-01T00:00:00Z"}', 't: "0000-01-01T00:00:00Z" is no timestamp'),
        ("a decimal(4,2)", b'{"a": 123.4}', "a: 123.4 is no decimal(4,2)"),
        ("a decimal(4,2)", b'{"a": 1.234}', "a: 1.234 is no decimal(4,2)"),
        ("s string", b'{"s": "\\ud800"}', "s: the text has half of a surrogate pair"),
    ],
)
def test_what_cannot_be_decoded_is_null_with_the_reason(ddl: str, payload: bytes, reason: str) -> None:
    value, error = both_ways(ddl, payload)
    assert value is None
    assert error is not None
    assert error.startswith(reason)


def test_a_null_payload_is_an_error_of_its_row() -> None:
    assert error_of(json_decoder("n int"), None) == "the payload is empty"


def test_line_ends_inside_a_payload_do_not_make_two_rows_of_it() -> None:
    payloads = [b'{"n": %d}' % number for number in range(MANY)]
    payloads[7] = b'{\n"n":\r\n7\n}'
    payloads[8] = b'\n{"n": 8}\n'
    assert [value["n"] for value in values_of(json_decoder("n int"), payloads)] == list(range(MANY))


def test_rows_that_only_together_are_json_stay_apart() -> None:
    payloads = [b'{"n": 1}'] * MANY
    payloads[10:14] = [b'{"n": 5', b"}", b"", b'{"n": 6}{"n": 7}']
    found = decoded(json_decoder("n int"), payloads)
    assert [row for row, (value, _) in enumerate(found) if value is None] == [10, 11, 12, 13]


@pytest.mark.parametrize(
    "bad", [b'{"n": 1', b'{"n": 1.5}', b'{"n": "x"}', b'{"n": tru}', b"hello", b'{"n": 1}{}']
)
@pytest.mark.parametrize("every", [1, 2, 3, 50, 999])
def test_bad_rows_at_any_rate_cost_only_themselves(bad: bytes, every: int) -> None:
    payloads = [bad if row % every == 0 else b'{"n": %d}' % row for row in range(1000)]
    found = decoded(json_decoder("n bigint"), payloads)
    for row, (value, error) in enumerate(found):
        assert (value is None, error is not None) == (row % every == 0, row % every == 0)
        assert value is None or value == {"n": row}


def test_whole_numbers_that_no_double_is_exact_for_stay_exact_beside_one_with_a_fraction() -> None:
    payloads = [b'{"l": [%d]}' % (2**60 + row) for row in range(MANY)] + [b'{"l": [1, 1.5]}']
    found = decoded(json_decoder("l array<bigint>"), payloads)
    assert [value["l"] for value, _ in found[:-1]] == [[2**60 + row] for row in range(MANY)]
    assert found[-1][1] == "l[]: 1.5 is no bigint"


def test_a_batch_larger_than_a_piece_is_read_in_pieces() -> None:
    columns = JsonColumns(pa.struct([("n", pa.int32())]), piece_bytes_max=1000)
    payloads = [b'{"n": %d, "pad": "%s"}' % (row, b"x" * (5000 if row == 50 else 8)) for row in range(MANY)]
    values, faults = columns.decode(pa.array(payloads, pa.binary()))
    assert faults == []
    assert values.to_pylist() == [{"n": row} for row in range(MANY)]


def test_things_nested_by_the_ten_thousand_end_neither_the_batch_nor_the_process() -> None:
    deep = b'{"n": 1, "z": ' + b"[" * 50_000 + b"]" * 50_000 + b"}"
    assert both_ways("n int", deep) == ({"n": 1}, None)
    assert both_ways("n int", deep[:-1])[0] is None
    for depth in range(800, 1100):  # about where Python's reader gives up, and where its writer does
        nested = b'{"s": ' + b"[" * depth + b"]" * depth + b"}"
        assert len(decoded(json_decoder("s string"), [nested])) == 1


def test_an_empty_batch_gives_an_empty_batch() -> None:
    assert decoded(json_decoder("n int"), []) == []


def test_views_and_texts_are_decoded_like_binary() -> None:
    decoder = json_decoder("n int")
    for kind in (pa.binary_view(), pa.string(), pa.large_binary()):
        batch = batch_of([b'{"n": 4}']).set_column(
            1, "payload", pa.array([b'{"n": 4}'], pa.binary()).cast(kind)
        )
        assert decoder.decode(batch).column("value").to_pylist() == [{"n": 4}]


def test_a_payload_that_is_not_kept_is_gone_from_the_batch() -> None:
    batch = json_decoder("n int", keepPayload="false").decode(batch_of([b'{"n": 4}', b"x"]))
    assert batch.schema.names == ["offset", "value", "_error"]


def test_a_decoder_that_travelled_decodes_the_same() -> None:
    decoder = pickle.loads(pickle.dumps(json_decoder("n int")))
    assert values_of(decoder, [b'{"n": 4}']) == [{"n": 4}]


def test_a_reason_never_carries_more_of_a_payload_than_a_line() -> None:
    assert len(error_of(json_decoder("n int"), b'{"n": "' + b"x\\n" * 10_000 + b'"}')) <= 300


def test_a_map_with_other_keys_than_strings_is_refused() -> None:
    with pytest.raises(DecodeOptionError, match="keys are not strings"):
        json_decoder("m array<map<int, string>>")
