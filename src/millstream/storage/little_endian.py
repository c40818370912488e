"""Numbers out of bytes and into them, one at a time: compiled, this is many times faster than a structure."""

from __future__ import annotations

from librt.strings import BytesWriter, read_i32_le, read_i64_le, write_i16_le, write_i32_le
from mypy_extensions import i16, i32, i64


def read_u32(body: bytes, at: i64) -> i64:
    return i64(read_i32_le(body, at)) & 0xFFFF_FFFF


def read_u64(body: bytes, at: i64) -> i64:
    """Below 2**63: what counts or tells the time."""
    return read_i64_le(body, at)


def write_u16(writer: BytesWriter, value: i64) -> None:
    """Below 2**16."""
    write_i16_le(writer, i16(value if value < 0x8000 else value - 0x1_0000))


def write_u32(writer: BytesWriter, value: i64) -> None:
    """Below 2**32."""
    write_i32_le(writer, i32(value if value < 0x8000_0000 else value - 0x1_0000_0000))
