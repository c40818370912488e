"""The bytes of the log: written here once and for all, so that a change of format is noticed."""

from __future__ import annotations

import struct

import pytest
from google_crc32c import value

from millstream.storage.log.format import (
    BATCH_HEAD_SIZE,
    BATCH_SIZE_MAX,
    FILE_HEADER_SIZE,
    MARKED_FORMAT,
    VERSION,
    append_record,
    decode_batch_head,
    decode_records,
    encode_batch_head,
    encode_file_header,
    encode_mark,
    find_file_header_fault,
)

from librt.strings import BytesWriter  # isort: skip


def make_batch(
    bodies: list[tuple[int, bytes]], number: int = 7, first: int = 100, epoch: int = 3, salt: int = 0
) -> bytes:
    writer = BytesWriter()
    for kind, body in bodies:
        append_record(writer, kind, body)
    records = writer.getvalue()
    return encode_batch_head(len(records), len(bodies), number, first, epoch, salt) + records


def test_a_header_of_a_file_is_found_right() -> None:
    header = encode_file_header(12, 5)
    assert len(header) == FILE_HEADER_SIZE
    assert find_file_header_fault(header, 12) is None
    assert find_file_header_fault(header + b"anything behind it", 12) is None


def test_a_short_header_is_a_fault() -> None:
    assert "too short" in str(find_file_header_fault(encode_file_header(1, 0)[:-1], 1))


def test_a_header_of_another_file_is_a_fault() -> None:
    assert "number 1" in str(find_file_header_fault(encode_file_header(1, 0), 2))


@pytest.mark.parametrize("at", range(FILE_HEADER_SIZE))
def test_every_bit_of_a_header_is_covered(at: int) -> None:
    for bit in range(8):
        header = bytearray(encode_file_header(1, 2))
        header[at] ^= 1 << bit
        assert find_file_header_fault(bytes(header), 1) is not None


def test_a_newer_format_is_told_by_its_number() -> None:
    head = struct.pack("<IIQQ", 0x4C57534D, VERSION + 1, 1, 0)
    fault = find_file_header_fault(head + struct.pack("<I4x", value(head + bytes(4))), 1)
    assert fault is not None
    assert f"format {VERSION + 1}" in fault


def test_a_batch_is_read_as_it_was_written() -> None:
    bodies = [(1, b"one"), (255, b""), (22, b"x" * 5000)]
    data = b"before" + make_batch(bodies)
    head = decode_batch_head(data, 6, 7)
    assert head is not None
    assert (head.count, head.number, head.first, head.epoch) == (3, 7, 100, 3)
    assert head.size == len(data) - 6 - BATCH_HEAD_SIZE
    records, bad_at = decode_records(data, 6 + BATCH_HEAD_SIZE, head)
    assert bad_at == -1
    assert [(record.sequence, record.kind, record.body) for record in records] == [
        (100, 1, b"one"),
        (101, 255, b""),
        (102, 22, b"x" * 5000),
    ]


@pytest.mark.parametrize("at", range(BATCH_HEAD_SIZE))
def test_every_bit_of_a_batch_head_is_covered(at: int) -> None:
    for bit in range(8):
        data = bytearray(make_batch([(1, b"one")]))
        data[at] ^= 1 << bit
        assert decode_batch_head(bytes(data), 0, 7) is None


def test_a_batch_of_another_file_is_not_taken() -> None:
    assert decode_batch_head(make_batch([(1, b"one")], number=6), 0, 7) is None


def test_a_batch_with_another_salt_is_not_taken() -> None:
    data = make_batch([(1, b"one")], salt=5)
    assert decode_batch_head(data, 0, 7, 5) is not None
    assert decode_batch_head(data, 0, 7, 6) is None


def test_a_size_beyond_the_bound_is_not_believed() -> None:
    head = encode_batch_head(BATCH_SIZE_MAX + 1, 1, 7, 1, 0)
    assert decode_batch_head(head, 0, 7) is None


def test_a_head_that_is_cut_is_no_head() -> None:
    data = make_batch([(1, b"one")])
    for size in range(BATCH_HEAD_SIZE):
        assert decode_batch_head(data[:size], 0, 7) is None


def test_the_records_before_a_damaged_one_are_given_and_its_place() -> None:
    data = make_batch([(1, b"one"), (2, b"two"), (3, b"three")])
    second = BATCH_HEAD_SIZE + 9 + 3
    for at in range(second, second + 9 + 3):
        for bit in range(8):
            harmed = bytearray(data)
            harmed[at] ^= 1 << bit
            head = decode_batch_head(bytes(harmed), 0, 7)
            assert head is not None
            records, bad_at = decode_records(bytes(harmed), BATCH_HEAD_SIZE, head)
            assert [record.body for record in records] == [b"one"]
            assert bad_at == second


def test_more_bytes_than_records_is_damage() -> None:
    writer = BytesWriter()
    append_record(writer, 1, b"one")
    records = writer.getvalue() + b"rest"
    data = encode_batch_head(len(records), 1, 7, 1, 0) + records
    head = decode_batch_head(data, 0, 7)
    assert head is not None
    assert decode_records(data, BATCH_HEAD_SIZE, head)[1] == len(data) - 4


def test_the_format_has_not_changed() -> None:
    """Golden bytes: when this fails, raise VERSION and go on reading these."""
    assert VERSION == 2
    assert encode_file_header(2, 9, 55).hex() == GOLDEN_HEADER
    assert make_batch([(5, b"body"), (14, b"")], number=2, first=77, epoch=9, salt=55).hex() == GOLDEN_BATCH
    assert encode_file_header(2, 9, 55, MARKED_FORMAT).hex() == GOLDEN_MARKED_HEADER
    assert encode_mark(4096, 2, 9, 55).hex() == GOLDEN_MARK


GOLDEN_HEADER = "4d53574c01000000020000000000000009000000000000005b88d46f37000000"
GOLDEN_BATCH = (
    "4d535742c385d80d160000000200000002000000000000004d000000000000000900000000000000"
    "04000000be257ef305626f6479"
    "0000000076ec05fe0e"
)
GOLDEN_MARKED_HEADER = "4d53574c020000000200000000000000090000000000000038b9e8a437000000"
GOLDEN_MARK = "4d535742bb5a63940000000000000000020000000000000000100000000000000900000000000000"
