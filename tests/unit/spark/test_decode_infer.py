"""The schema of JSON payloads, from a sample."""

from __future__ import annotations

import json

import pytest
from decode_batches import decoder_for, values_of
from hypothesis import given
from hypothesis import strategies as st

from pyspark_millstream.decode import infer_ddl, make_decoder, settle_options
from pyspark_millstream.decode.faults import DecodeOptionError


def inferred(*rows: object) -> str:
    return infer_ddl([json.dumps(row).encode() for row in rows])


def test_fields_come_in_the_order_of_their_names_with_the_type_of_their_values() -> None:
    assert (
        inferred({"t": 21.5, "n": 3, "ok": True, "device": "a"})
        == "device string, n bigint, ok boolean, t double"
    )


def test_whole_numbers_and_others_together_are_double() -> None:
    assert inferred({"t": 21}, {"t": 21.5}, {"t": None}) == "t double"
    assert inferred({"t": 2**63}) == "t double"


def test_what_is_not_one_thing_is_string_and_so_is_what_was_never_more_than_null() -> None:
    assert (
        inferred({"a": 1, "b": None, "c": [], "d": {}}, {"a": "x"})
        == "a string, b string, c array<string>, d string"
    )


def test_objects_and_arrays_are_merged_inside() -> None:
    assert inferred({"p": {"x": 1}, "l": [{"a": 1}, {"b": "x"}]}, {"p": {"y": True}}) == (
        "l array<struct<a: bigint, b: string>>, p struct<x: bigint, y: boolean>"
    )


def test_names_that_are_no_words_are_quoted() -> None:
    assert inferred({"a b": 1, "c`d": 2}) == "`a b` bigint, `c``d` bigint"


def test_payloads_that_are_no_objects_are_passed_over() -> None:
    assert infer_ddl([b"no json", None, b"[1]", b'{"a": 1}', b"\xff"]) == "a bigint"


@pytest.mark.parametrize(
    ("payloads", "part"),
    [
        ([], "has no record yet"),
        ([b"x", b"{}"], "none of the 2 sampled payloads is a JSON object with fields"),
        ([json.dumps({f"f{n}": n for n in range(1001)}).encode()], "more than 1000 fields"),
    ],
)
def test_a_sample_without_a_schema_is_one_sentence(payloads: list[bytes], part: str) -> None:
    with pytest.raises(DecodeOptionError, match=part):
        infer_ddl(payloads)


def test_the_source_samples_as_many_records_as_it_is_told_and_only_once() -> None:
    asked: list[int] = []

    def sample(count: int) -> list[bytes | None]:
        asked.append(count)
        return [b'{"n": 1}']

    options = {"payloadformat": "json", "payloadschema": "infer", "inferrecords": "7", "uri": "http://h"}
    settled = settle_options(options, sample)
    assert asked == [7]
    assert settled == {"payloadformat": "json", "payloadschema": "n bigint", "uri": "http://h"}
    assert settle_options(settled, sample) == settled
    assert asked == [7]


def test_infer_without_records_to_look_at_is_refused() -> None:
    from decode_batches import BASE

    with pytest.raises(DecodeOptionError, match="needs records to look at"):
        make_decoder({"payloadFormat": "json", "payloadSchema": "infer"}, BASE)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc d"), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@given(st.lists(st.dictionaries(st.sampled_from("abcde"), VALUES, max_size=4), min_size=1, max_size=5))
def test_every_sampled_payload_decodes_with_the_schema_inferred_from_it(
    rows: list[dict[str, object]],
) -> None:
    payloads: list[bytes | None] = [json.dumps(row).encode() for row in rows]
    if not any(rows):
        return
    values_of(decoder_for(payloadFormat="json", payloadSchema=infer_ddl(payloads)), payloads)
