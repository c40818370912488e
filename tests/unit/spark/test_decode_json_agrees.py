"""The columnar way of JSON against Python's own reader, and against each row alone."""

from __future__ import annotations

import json

import hypothesis
from decode_batches import decoded, decoder_for
from hypothesis import given
from hypothesis import strategies as st

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
WHOLE = st.integers(-(2**63), 2**63 - 1)
REAL = st.floats(allow_nan=False, allow_infinity=False)
ROWS = st.fixed_dictionaries(
    {},
    optional={
        "n": st.none() | WHOLE,
        "r": st.none() | REAL | st.integers(-(2**40), 2**40),
        "s": st.none() | TEXTS,
        "b": st.none() | st.booleans(),
        "l": st.none() | st.lists(st.none() | TEXTS, max_size=3),
        "p": st.none()
        | st.fixed_dictionaries({"x": st.none() | WHOLE}, optional={"y": st.lists(REAL, max_size=2)}),
        "more": st.none() | TEXTS | st.lists(WHOLE | TEXTS, max_size=2),
    },
)
DDL = "n bigint, r double, s string, b boolean, l array<string>, p struct<x: bigint, y: array<double>>"
FILLING = [b'{"n": 0}'] * 60  # with fewer rows all go one by one

# Pieces that are put together to things that are nearly JSON.
TOKENS = st.sampled_from(
    [
        *(
            b"{",
            b"}",
            b"[",
            b"]",
            b",",
            b":",
            b'"',
            b"\\",
            b"\n",
            b" ",
            b"\t",
            b"\x00",
            b"\xff",
            b"\xef\xbb\xbf",
        ),
        *(
            b'"n"',
            b'"s"',
            b'"r"',
            b'"t"',
            b'"d"',
            b'"a"',
            b'"zz"',
            b'{"n":',
            b'{"s":',
            b'{"r":',
            b'{"t":',
            b"}{",
        ),
        *(
            b"1",
            b"1.5",
            b"1.0",
            b"-0",
            b"1e3",
            b"1e400",
            b"9223372036854775808",
            b"1" * 400,
            b"null",
            b"true",
        ),
        *(b"NaN", b"-NaN", b"Infinity", b"-Inf", b'"x"', b'"\\ud800"', b'"\\u0000"', b'"2026-11-15"'),
        *(
            b'"2026-11-15T10:00:00.1234567Z"',
            b'"0000-01-01"',
            b'"9999-12-31T23:59:59-05"',
            b'"1.50"',
            b'"1_0"',
        ),
    ]
)
NEARLY = st.builds(
    lambda inner, is_closed: b"{" + inner + b"}" if is_closed else inner,
    st.lists(TOKENS, max_size=9).map(b"".join),
    st.booleans(),
)
MEMBERS = st.lists(
    st.tuples(
        st.sampled_from([b'"n"', b'"s"', b'"r"', b'"t"', b'"d"', b'"a"', b'"zz"', b'"\\u006e"']), TOKENS
    ),
    max_size=3,
).map(lambda members: b"{" + b",".join(name + b":" + value for name, value in members) + b"}")
NEARLY_DDL = "n int, s string, r double, t timestamp, d date, a decimal(6,2)"


def expected(row: dict[str, object]) -> dict[str, object]:
    place = row.get("p")
    if isinstance(place, dict):
        place = {"x": place.get("x"), "y": place.get("y")}
    return {**{name: row.get(name) for name in ("n", "r", "s", "b", "l")}, "p": place}


@given(st.lists(ROWS, max_size=40))
@hypothesis.settings(max_examples=60, deadline=None)
def test_what_python_reads_from_json_is_what_the_columns_hold(rows: list[dict[str, object]]) -> None:
    payloads = FILLING + [json.dumps(row, ensure_ascii=len(row) % 2 == 0).encode() for row in rows]
    found = decoded(decoder_for(payloadFormat="json", payloadSchema=DDL), payloads)
    assert [value for value, _ in found[len(FILLING) :]] == [
        expected(json.loads(json.dumps(row))) for row in rows
    ]


@given(st.lists(NEARLY | MEMBERS, min_size=1, max_size=30), st.randoms(use_true_random=False))
@hypothesis.settings(max_examples=150, deadline=None)
def test_what_a_payload_decodes_to_does_not_depend_on_its_neighbours(
    payloads: list[bytes], random: object
) -> None:
    decoder = decoder_for(payloadFormat="json", payloadSchema=NEARLY_DDL)
    many = FILLING + payloads
    random.shuffle(many)  # type: ignore[attr-defined]
    together = decoded(decoder, many)
    alone = {payload: decoded(decoder, [payload])[0] for payload in set(many)}
    for payload, found in zip(many, together, strict=True):
        assert shown(found) == shown(alone[payload]), payload


def shown(found: tuple[object, str | None]) -> str:
    """NaN is equal to itself here, and -0 written without a point to 0."""
    return repr(found).replace("-0.0", "0.0")
