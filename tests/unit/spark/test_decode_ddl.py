"""Schemas in Spark's DDL, read without a JVM."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from pyspark_millstream.decode.ddl import DEPTH_MAX, format_ddl, parse_ddl
from pyspark_millstream.decode.faults import DecodeOptionError

PLAIN: list[DataType] = [
    BooleanType(),
    ByteType(),
    ShortType(),
    IntegerType(),
    LongType(),
    FloatType(),
    DoubleType(),
    StringType(),
    BinaryType(),
    DateType(),
    TimestampType(),
    TimestampNTZType(),
    DecimalType(38, 18),
    DecimalType(5, 0),
]
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)


def structs(inner: st.SearchStrategy[DataType]) -> st.SearchStrategy[DataType]:
    fields = st.dictionaries(NAMES, inner, min_size=1, max_size=3)
    return fields.map(lambda found: StructType([StructField(name, kind) for name, kind in found.items()]))


TYPES = st.recursive(
    st.sampled_from(PLAIN),
    lambda inner: st.one_of(
        inner.map(ArrayType), inner.map(lambda kind: MapType(StringType(), kind)), structs(inner)
    ),
    max_leaves=8,
)


@given(structs(TYPES))
def test_what_is_written_is_read_to_the_same_schema(schema: StructType) -> None:
    assert parse_ddl(format_ddl(schema)) == schema


def test_fields_are_written_with_or_without_a_colon_and_in_any_case() -> None:
    expected = StructType([StructField("a", LongType()), StructField("B", StringType())])
    for text in (
        "a bigint, B string",
        "a: BIGINT,B:String",
        "struct<a: long, B string>",
        " a  long ,\nB string ",
    ):
        assert parse_ddl(text) == expected


def test_every_name_of_a_type_that_spark_knows_is_known() -> None:
    text = (
        "a byte, b short, c integer, d real, e dec, f numeric(4), g varchar(10), h char(3), i timestamp_ltz"
    )
    kinds = [field.dataType for field in parse_ddl(text)]
    assert kinds == [
        *(ByteType(), ShortType(), IntegerType(), FloatType(), DecimalType(10, 0), DecimalType(4, 0)),
        *(StringType(), StringType(), TimestampType()),
    ]


def test_nested_types_close_without_spaces() -> None:
    kind = parse_ddl("m map<string,array<struct<x:int>>>")["m"].dataType
    assert kind == MapType(StringType(), ArrayType(StructType([StructField("x", IntegerType())])))


def test_names_in_backticks_may_hold_anything() -> None:
    assert parse_ddl("`a b` int, `c``d` int, `not` int, `1:<>` int").fieldNames() == [
        "a b",
        "c`d",
        "not",
        "1:<>",
    ]


def test_not_null_and_comments_are_read_and_every_field_may_be_null() -> None:
    schema = parse_ddl("a int not null comment 'it''s' , b int comment \"x, y\"".replace("''", "\\'"))
    assert [(field.name, field.nullable) for field in schema] == [("a", True), ("b", True)]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "names no field"),
        ("a", "the text ends where a type should be"),
        ("a int,", "the text ends where a field should be"),
        ("a int b int", "'b' stands where ',' should be"),
        ("a nosuch", "there is no type 'nosuch' here (character 3)"),
        ("a interval", "there is no type 'interval'"),
        ("a array<int", "the text ends where '>' should be"),
        ("a array int", "'int' stands where '<' should be"),
        ("a struct<>", "has no fields"),
        ("a map<string>", "'>' stands where ',' should be"),
        ("a int, a string", "'a' is there twice"),
        ("a decimal(39,2)", "decimal(39,2) cannot be"),
        ("a decimal(4,5)", "decimal(4,5) cannot be"),
        ("a decimal(1,2,3)", "has 3 numbers"),
        ("a decimal(x)", "takes whole numbers"),
        ("a int; b int", "';"),
        ("`` int", "is empty"),
        ("< int", "the name of a field is missing"),
        ("a int comment 5", "not in quotes"),
        ("a " + "array<" * (DEPTH_MAX + 1) + "int" + ">" * (DEPTH_MAX + 1), "nested more than"),
    ],
)
def test_a_text_that_is_no_schema_is_refused_with_the_place(text: str, part: str) -> None:
    with pytest.raises(DecodeOptionError) as caught:
        parse_ddl(text)
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)


@given(st.text(st.sampled_from("ab `<>(),:'1 intstrucarymp"), max_size=60))
def test_any_text_is_a_schema_or_one_sentence(text: str) -> None:
    try:
        schema = parse_ddl(text)
    except DecodeOptionError:
        return
    assert parse_ddl(format_ddl(schema)) == schema
