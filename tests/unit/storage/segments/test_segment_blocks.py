"""Compressed segments: the same records in less room, no size that is believed, and damage that costs one block."""

from __future__ import annotations

import json
import random
import struct
import tracemalloc
from itertools import pairwise

import pytest
from google_crc32c import extend, value
from segment_records import make_body, offset_of, read_all
from zstandard import ZstdCompressor

from millstream.runtime.disk.failpoints import NoFailpoints
from millstream.storage.disk import DiskFault
from millstream.storage.segments.blocks import (
    AS_IS,
    BLOCK_HEAD_SIZE,
    BLOCK_MAGIC,
    INFLATED_MAX,
    ZSTD,
    BlockFile,
    BlockHead,
    BlockPacker,
    decode_block_head,
    inflate,
)
from millstream.storage.segments.check import check_segment, rewrite_segment
from millstream.storage.segments.format import (
    HEADER_SIZE,
    OFFSET_MAX,
    PACKED_FORMAT,
    PLAIN_FORMAT,
    header_version,
    index_name,
    segment_name,
)
from millstream.storage.segments.index import load_index
from millstream.storage.segments.pieces import Damaged, SegmentPieces
from millstream.storage.segments.reader import SegmentReader
from millstream.storage.segments.writer import SegmentWriter
from simulation.disk import SimulatedDisk

GROUP = 10
SEED = 99
GOLDEN_BLOCK = (
    "4d5353420ec96d7f0400000004000000e119532f0000000020000000000000000000000000000000000000000000000074657874"
)


def fill(
    disk: SimulatedDisk,
    first: int,
    end: int,
    is_packed: bool = True,
    size: int = 200,
    segment_size: int = 1 << 20,
) -> list[bytes]:
    """Records of the queue 1, a block for every ten of them."""
    writer = SegmentWriter(disk, NoFailpoints(), segment_size, is_packed)
    bodies = [make_body(1, offset, size) for offset in range(first, end)]
    for at, body in enumerate(bodies):
        writer.append(1, body)
        if at % GROUP == GROUP - 1:
            writer.finish()
    writer.finish()
    return bodies


def blocks(disk: SimulatedDisk, first: int = 0) -> list[tuple[int, int]]:
    return load_index(disk, 1, first).blocks


def make_head(size: int, stored: bytes, kind: int) -> bytes:
    rest = struct.pack("<IIIIqqq", size, len(stored), value(stored), kind, HEADER_SIZE, 0, 0)
    return struct.pack("<II", BLOCK_MAGIC, extend(SEED, rest)) + rest + stored


def test_a_block_looks_like_this() -> None:
    """Golden bytes of format 2: when this fails, raise the version and go on reading these."""
    block = make_head(4, b"text", AS_IS)
    assert BlockPacker().pack(SEED, b"text", HEADER_SIZE, 0, 0) == block
    assert block.hex() == GOLDEN_BLOCK
    packed = BlockPacker().pack(SEED, b"text" * 100, 32, 7, 9)
    head = decode_block_head(SEED, packed, 0)
    assert head is not None
    assert (head.size, head.kind, head.position, head.first, head.latest) == (400, ZSTD, 32, 7, 9)
    assert inflate(head, packed[BLOCK_HEAD_SIZE:]) == b"text" * 100
    assert len(packed) < 100


def test_json_takes_less_than_half_the_room() -> None:
    sizes: dict[bool, int] = {}
    bodies: dict[bool, list[bytes]] = {}
    for is_packed in (False, True):
        disk = SimulatedDisk()
        writer = SegmentWriter(disk, NoFailpoints(), 1 << 20, is_packed)
        for offset in range(3000):
            reading = {
                "device": f"pump-{offset % 40}",
                "celsius": offset * 7 % 90 / 3,
                "at": 1_700_000_000 + offset,
            }
            writer.append(1, make_body(1, offset, 0) + json.dumps(reading).encode())
        writer.finish()
        sizes[is_packed] = sum(len(disk.content(name)) for name in disk.names("queues/1"))
        bodies[is_packed], damage = read_all(disk, 1)
        assert not damage
    assert bodies[True] == bodies[False]
    assert sizes[True] * 2 < sizes[False]


def test_what_cannot_be_made_smaller_is_stored_as_it_is() -> None:
    noise = random.Random(1).randbytes(5000)
    head = decode_block_head(SEED, BlockPacker().pack(SEED, noise, 32, 0, 0), 0)
    assert head is not None
    assert (head.kind, head.stored) == (AS_IS, 5000)
    large = decode_block_head(SEED, BlockPacker().pack(SEED, bytes(INFLATED_MAX + 1), 32, 0, 0), 0)
    assert large is not None
    assert large.kind == AS_IS


def test_no_size_above_the_bound_is_believed_whoever_wrote_it() -> None:
    stored = ZstdCompressor().compress(bytes(100))
    assert decode_block_head(SEED, make_head(100, stored, ZSTD), 0) is not None
    assert decode_block_head(SEED, make_head(INFLATED_MAX + 1, stored, ZSTD), 0) is None
    assert decode_block_head(SEED, make_head(101, b"x" * 100, AS_IS), 0) is None
    assert decode_block_head(SEED, make_head(100, stored, 2), 0) is None
    assert decode_block_head(SEED + 1, make_head(100, stored, ZSTD), 0) is None


def test_a_frame_that_says_another_size_is_not_inflated() -> None:
    stored = ZstdCompressor().compress(bytes(1 << 24))
    head = BlockHead(5000, len(stored), value(stored), ZSTD, 32, 0, 0)
    tracemalloc.start()
    try:
        assert inflate(head, stored) is None
        assert tracemalloc.get_traced_memory()[1] < 1 << 20  # nothing was reserved for it
    finally:
        tracemalloc.stop()
    stored = b"no frame at all"
    assert inflate(BlockHead(5000, len(stored), value(stored), ZSTD, 32, 0, 0), stored) is None


def test_what_is_stored_is_compared_with_its_checksum_before_it_is_inflated() -> None:
    for kind, stored in ((ZSTD, ZstdCompressor().compress(b"text" * 100)), (AS_IS, b"text" * 100)):
        assert inflate(BlockHead(400, len(stored), value(stored), kind, 32, 0, 0), stored) == b"text" * 100
        assert inflate(BlockHead(400, len(stored), value(stored) ^ 1, kind, 32, 0, 0), stored) is None
        assert inflate(BlockHead(400, len(stored) + 1, value(stored), kind, 32, 0, 0), stored) is None


def test_every_flipped_bit_of_a_head_is_noticed() -> None:
    block = BlockPacker().pack(SEED, b"text" * 100, 32, 7, 9)
    for bit in range(8 * BLOCK_HEAD_SIZE):
        flipped = bytearray(block)
        flipped[bit // 8] ^= 1 << bit % 8
        assert decode_block_head(SEED, bytes(flipped), 0) is None


@pytest.mark.parametrize("offset", [8, 12, 30, BLOCK_HEAD_SIZE + 5])
@pytest.mark.parametrize("has_index", [True, False])
def test_a_damaged_block_costs_its_own_records_and_is_named(offset: int, has_index: bool) -> None:
    disk = SimulatedDisk()
    bodies = fill(disk, 0, 50)
    place, behind = blocks(disk)[2][1], blocks(disk)[3][1]
    disk.flip_bit(segment_name(1, 0), place + offset)
    if not has_index:
        disk.remove(index_name(1, 0))
    found, damage = read_all(disk, 1)
    if has_index or offset >= BLOCK_HEAD_SIZE:
        assert found == bodies[:20] + bodies[30:]
        assert [(fault.name, fault.start, fault.end) for fault in damage] == [
            (segment_name(1, 0), place, behind)
        ]
    else:
        assert found == bodies[:20]  # nothing tells any more where the next block begins


def test_pieces_name_the_offsets_of_a_damaged_block() -> None:
    disk = SimulatedDisk()
    fill(disk, 0, 50)
    disk.flip_bit(segment_name(1, 0), blocks(disk)[2][1] + BLOCK_HEAD_SIZE + 1)
    pieces = SegmentPieces(disk, 1, 0, 50)
    first = pieces.take()
    assert first is not None
    with pytest.raises(Damaged, match="offsets 20 to 29 cannot be read") as caught:
        pieces.take()
    assert (caught.value.first, caught.value.end) == (20, 30)


def test_switching_it_on_and_off_leaves_all_readable_and_begins_new_files() -> None:
    disk = SimulatedDisk()
    bodies: list[bytes] = []
    for round_number in range(6):
        bodies += fill(disk, 30 * round_number, 30 * round_number + 30, round_number % 2 == 1)
    names = [segment_name(1, 30 * number) for number in range(6)]
    assert [name for name in disk.names("queues/1") if name.endswith(".segment")] == names
    versions = [header_version(disk.content(name)[:HEADER_SIZE]) for name in names]
    assert versions == [PLAIN_FORMAT, PACKED_FORMAT] * 3
    assert read_all(disk, 1) == (bodies, [])
    reader = SegmentReader(disk)
    assert [int(reader.find_time(1, 1000 + offset)) for offset in range(0, 180, 7)] == list(range(0, 180, 7))
    assert (reader.first_offset(1), reader.last_offset(1)) == (0, 179)
    reader.close()
    writer = SegmentWriter(disk, NoFailpoints(), 1 << 20, True)
    writer.drop_below(1, 95)
    assert read_all(disk, 1, 90) == (bodies[90:], [])


def test_the_same_file_goes_on_while_it_stays_on() -> None:
    disk = SimulatedDisk()
    bodies = fill(disk, 0, 25) + fill(disk, 25, 40)
    assert disk.names("queues/1") == [index_name(1, 0), segment_name(1, 0)]
    assert read_all(disk, 1) == (bodies, [])
    assert [position for position, _ in blocks(disk)] == load_index(disk, 1, 0).positions


def test_what_a_commit_in_the_middle_of_a_block_covers_is_kept() -> None:
    disk = SimulatedDisk()
    bodies = fill(disk, 0, 20)
    writer = SegmentWriter(disk, NoFailpoints(), 1 << 20, True)
    writer.resume({1: 13})
    again = [make_body(1, offset, 33) for offset in range(13, 16)]
    for body in again:
        writer.append(1, body)
    writer.finish()
    assert read_all(disk, 1) == (bodies[:13] + again, [])
    assert writer.damage == []


def test_an_index_forgets_the_blocks_that_are_cut_off() -> None:
    disk = SimulatedDisk()
    bodies = fill(disk, 0, 50)
    kept = blocks(disk)[:2]
    writer = SegmentWriter(disk, NoFailpoints(), 1 << 20, True)
    writer.resume({1: 2 * GROUP})
    again = [make_body(1, offset, 77) for offset in range(2 * GROUP, 2 * GROUP + 5)]
    for body in again:
        writer.append(1, body)
    writer.finish()
    assert read_all(disk, 1) == (bodies[: 2 * GROUP] + again, [])
    index = load_index(disk, 1, 0)
    assert index.blocks[:2] == kept
    assert len(index.blocks) == len(index.positions) == 3
    assert not check_segment(disk, 1, 0, False, -1).is_damaged()


def test_a_view_sees_that_its_file_was_cut_and_written_on() -> None:
    disk = SimulatedDisk()
    fill(disk, 0, 30)
    index = load_index(disk, 1, 0)
    file = BlockFile(disk.open(segment_name(1, 0)), index)
    whole = int(file.size())
    writer = SegmentWriter(disk, NoFailpoints(), 1 << 20, True)
    writer.resume({1: GROUP})
    writer.open(1)
    assert int(file.size()) == index.blocks[1][0] < whole
    again = make_body(1, GROUP, 5000)
    writer.append(1, again)
    writer.finish()
    assert int(file.size()) == index.blocks[1][0] + 8 + len(again)
    assert file.read_at(index.blocks[1][0] + 8, 9999) == again
    file.close()


def test_a_block_that_is_not_in_its_place_is_none() -> None:
    disk = SimulatedDisk()
    bodies = fill(disk, 0, 30)
    name = segment_name(1, 0)
    first, second = blocks(disk)[0][1], blocks(disk)[1][1]
    disk.replace(name, disk.content(name) + disk.content(name)[first:second])
    assert read_all(disk, 1) == (bodies, [])
    more = fill(disk, 30, 40)
    assert read_all(disk, 1) == (bodies + more, [])


def test_a_view_is_read_only_and_cut_between_blocks_only() -> None:
    disk = SimulatedDisk()
    bodies = fill(disk, 0, 30)
    index = load_index(disk, 1, 0)
    file = BlockFile(disk.open(segment_name(1, 0)), index)
    size = int(file.size())
    assert size == HEADER_SIZE + sum(8 + len(body) for body in bodies)
    assert file.read_at(size - 100, 1000) == bodies[-1][-100:]
    assert offset_of(file.read_at(index.blocks[1][0] + 8, 24)) == GROUP
    with pytest.raises(DiskFault, match="in blocks only"):
        file.write_at(0, b"x")
    with pytest.raises(DiskFault, match="in the middle of a block"):
        file.truncate(index.blocks[1][0] + 1)
    file.truncate(index.blocks[2][0])
    assert int(file.size()) == index.blocks[2][0]
    file.close()


@pytest.mark.parametrize("where", ["head", "records", "header", "end"])
def test_a_repair_keeps_all_other_blocks_and_leaves_nothing_to_mend(where: str) -> None:
    disk = SimulatedDisk()
    bodies = fill(disk, 0, 50)
    fill(disk, 50, 60, is_packed=False)
    name = segment_name(1, 0)
    place = blocks(disk)[2][1]
    if where == "end":
        disk.cut(name, blocks(disk)[4][1] + 5)
    else:
        disk.flip_bit(name, {"head": place + 9, "records": place + BLOCK_HEAD_SIZE + 3, "header": 9}[where])
    checked = check_segment(disk, 1, 0, False, -1)
    assert checked.is_damaged()
    lost = [number for gap in checked.lost for number in range(gap.first, gap.last + 1)]
    assert lost == {"header": [], "end": list(range(40, 50))}.get(where, list(range(20, 30)))
    if where in ("head", "records"):
        assert [(gap.stored_start, gap.stored_end) for gap in checked.lost] == [(place, blocks(disk)[3][1])]
    rewrite_segment(disk, checked)
    assert read_all(disk, 1, 0, 50) == ([body for body in bodies if offset_of(body) not in lost], [])
    assert not check_segment(disk, 1, 0, False, -1).is_damaged()


def test_an_index_that_is_gone_is_made_again_with_its_blocks() -> None:
    disk = SimulatedDisk()
    bodies = fill(disk, 0, 50)
    known = blocks(disk)
    fill(disk, 50, 60, is_packed=False)
    disk.remove(index_name(1, 0))
    checked = check_segment(disk, 1, 0, False, -1)
    assert checked.is_index_bad
    assert not checked.must_rewrite()
    rewrite_segment(disk, checked)
    assert blocks(disk) == known
    assert read_all(disk, 1, 0, 50) == (bodies, [])
    assert not check_segment(disk, 1, 0, False, -1).is_damaged()


def test_blocks_are_bounded_by_size_as_well() -> None:
    disk = SimulatedDisk()
    writer = SegmentWriter(disk, NoFailpoints(), 1 << 30, True)
    bodies = [make_body(1, offset, 1000) for offset in range(2500)]
    bodies.append(make_body(1, 2500, 3 << 20))
    for body in bodies:
        writer.append(1, body)
    writer.finish()
    positions = [position for position, _ in blocks(disk)]
    assert max(behind - before for before, behind in pairwise(positions)) <= 66 * 1024
    reader = SegmentReader(disk)
    found = reader.read(1, 0, OFFSET_MAX, 5000, 1 << 30)
    assert found.bodies == bodies
    reader.close()
