"""Field tables against their vectors, and what cannot be written."""

from __future__ import annotations

import pytest
from vectors.amqp091_contents import BAD_TABLES, GOOD_TABLES, TABLE_VECTORS, nested_table
from vectors.amqp091_vector import SYNTAX, TableVector

from millstream.protocols.amqp091.wire.field_table import (
    ByteArray,
    Decimal091,
    Timestamp,
    check_table,
    decode_table,
    encode_entries,
    encode_table,
)
from millstream.protocols.amqp091.wire.violation import Violation


def name_of(vector: TableVector) -> str:
    return vector.name


def test_every_table_has_a_name_of_its_own() -> None:
    assert len({vector.name for vector in TABLE_VECTORS}) == len(TABLE_VECTORS) >= 48


@pytest.mark.parametrize("vector", GOOD_TABLES, ids=name_of)
def test_a_good_table_is_decoded_wherever_it_stands_in_the_buffer(vector: TableVector) -> None:
    buffer = b"\x55\xaa" + vector.data + b"\x55"
    table, position = decode_table(buffer, 2, len(buffer))
    assert table == vector.table
    assert repr(table) == repr(vector.table)  # True is not 1, and 1.0 is not 1
    assert position == 2 + len(vector.data) == check_table(buffer, 2, len(buffer))


@pytest.mark.parametrize("vector", GOOD_TABLES, ids=name_of)
def test_a_table_is_encoded_in_the_bytes_of_its_vector(vector: TableVector) -> None:
    assert vector.table is not None
    written = encode_table(vector.table)
    assert (written == vector.data) == vector.canonical
    assert written[4:] == encode_entries(vector.table)


@pytest.mark.parametrize("vector", BAD_TABLES, ids=name_of)
def test_a_bad_table_is_refused(vector: TableVector) -> None:
    for read in (check_table, decode_table):
        with pytest.raises(Violation) as caught:
            read(vector.data, 0, len(vector.data))
        assert caught.value.code == SYNTAX
        assert caught.value.is_hard


@pytest.mark.parametrize("vector", GOOD_TABLES, ids=name_of)
def test_a_table_cut_anywhere_is_refused(vector: TableVector) -> None:
    for length in range(0, len(vector.data), 1 + len(vector.data) // 200):
        with pytest.raises(Violation):
            decode_table(vector.data[:length], 0, length)
        with pytest.raises(Violation):
            decode_table(vector.data, 0, length)


def test_text_is_written_as_utf_8() -> None:
    written = encode_table({b"k": "ä"})
    assert decode_table(written, 0, len(written))[0] == {b"k": "ä".encode()}


@pytest.mark.parametrize(
    "value",
    [
        2**63,
        -(2**63) - 1,
        Timestamp(-1),
        Timestamp(2**64),
        Decimal091(256, 0),
        Decimal091(0, -1),
        object(),
        (1,),
    ],
)
def test_what_has_no_place_in_a_table_is_the_callers_error(value: object) -> None:
    with pytest.raises(ValueError):
        encode_table({b"k": value})


def test_a_name_of_256_bytes_is_the_callers_error() -> None:
    with pytest.raises(ValueError, match="255"):
        encode_table({b"n" * 256: None})


def test_33_tables_in_one_another_are_the_callers_error() -> None:
    with pytest.raises(ValueError, match="deeper"):
        encode_table(nested_table(33))


def test_values_are_equal_by_content_and_can_be_keys() -> None:
    assert (
        len(
            {Timestamp(1), Timestamp(1), Decimal091(0, 1), Decimal091(0, 1), ByteArray(b"1"), ByteArray(b"1")}
        )
        == 3
    )
    assert Timestamp(1) != Timestamp(2)
    assert Decimal091(1, 1) != Decimal091(0, 1)
    assert ByteArray(b"1") != b"1"
    values = [Timestamp(1), Decimal091(2, 3), ByteArray(b"x")]
    assert repr(values) == "[Timestamp(1), Decimal091(2, 3), ByteArray(b'x')]"
