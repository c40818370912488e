"""A stage is read back as it was written, from any row on, and not at all where it is damaged."""

from __future__ import annotations

import pytest

from millstream.storage.stages.format import (
    BLOCK_ROWS_MAX,
    FOLDER,
    StagedRow,
    StageFault,
    StageHeader,
    StageWriter,
    decode_header,
    decode_rows,
    find_stage_id,
    is_stage_id,
    stage_name,
)
from millstream.storage.stages.reader import BatchReader, StageReader
from simulation.disk import SimulatedDisk

FIRST = "0" * 32
SECOND = "f" * 32


def write_stage(disk: SimulatedDisk, stage: str, rows: list[tuple[bytes, bytes, bytes]]) -> bytes:
    writer = StageWriter(StageHeader("default", "spark", "query", "out", 3, 1, 7))
    for topic, properties, payload in rows:
        writer.add(topic, properties, payload, 1, False, 0)
    data = b"".join(writer.finish())
    disk.make_folder(FOLDER)
    disk.remove(stage_name(stage))
    file = disk.create(stage_name(stage), 0)
    file.write_at(0, data)
    file.close()
    return data


def make_rows(first: int, count: int, size: int = 10) -> list[tuple[bytes, bytes, bytes]]:
    return [(b"t/%d" % at, b"", b"%d;" % at * size) for at in range(first, first + count)]


def read_all(disk: SimulatedDisk, stages: list[str], next_row: int, bytes_max: int = 1) -> list[StagedRow]:
    reader = BatchReader(disk, stages, next_row)
    found: list[StagedRow] = []
    at = -1
    while blocks := reader.read(bytes_max):
        for block in blocks:
            rows = decode_rows(block.rows, block.count)
            if at < 0:
                assert block.first <= next_row < block.end()
                rows = rows[next_row - block.first :]
            else:
                assert block.first == at
            at = block.end()
            found += rows
    reader.close()
    return found


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk(0)


def test_every_field_of_a_row_comes_back() -> None:
    writer = StageWriter(StageHeader("a", "o", "q", "", 0, 0, 0))
    writer.take()
    writer.add(b"topic", b"\x03\x00\x01x", b"payload", 2, True, 60)
    writer.add(b"", b"", b"", 0, False, 0)
    blocks = writer.finish()
    first, second = decode_rows(blocks[1], 2)
    assert (first.topic, first.properties, first.payload) == (b"topic", b"\x03\x00\x01x", b"payload")
    assert (first.guarantee, first.retain, first.expiry_s) == (2, True, 60)
    assert (second.topic, second.payload, second.guarantee, second.retain) == (b"", b"", 0, False)


def test_the_header_says_whose_rows_they_are(disk: SimulatedDisk) -> None:
    write_stage(disk, FIRST, make_rows(0, 1))
    header = StageReader(disk, FIRST).header
    assert (header.account, header.owner, header.query, header.queue) == ("default", "spark", "query", "out")
    assert (header.batch, header.partition, header.attempt) == (3, 1, 7)


@pytest.mark.parametrize("count", [0, 1, BLOCK_ROWS_MAX, BLOCK_ROWS_MAX + 1, 1000])
def test_stages_of_a_batch_are_read_one_behind_the_other(disk: SimulatedDisk, count: int) -> None:
    write_stage(disk, FIRST, make_rows(0, count))
    write_stage(disk, SECOND, make_rows(count, 300))
    found = read_all(disk, [FIRST, SECOND], 0)
    assert [row.topic for row in found] == [b"t/%d" % at for at in range(count + 300)]


@pytest.mark.parametrize("next_row", [1, 255, 256, 257, 599, 600, 601, 899])
def test_reading_goes_on_at_any_row(disk: SimulatedDisk, next_row: int) -> None:
    write_stage(disk, FIRST, make_rows(0, 600))
    write_stage(disk, SECOND, make_rows(600, 300))
    found = read_all(disk, [FIRST, SECOND], next_row, bytes_max=100_000)
    assert [row.topic for row in found] == [b"t/%d" % at for at in range(next_row, 900)]


def test_a_row_larger_than_a_block_has_one_of_its_own(disk: SimulatedDisk) -> None:
    rows = [*make_rows(0, 2), (b"large", b"", bytes(1_000_000)), *make_rows(3, 2)]
    write_stage(disk, FIRST, rows)
    reader = StageReader(disk, FIRST)
    counts = []
    while block := reader.read(0):
        counts.append(block.count)
    assert counts == [2, 1, 2]
    assert reader.footer.largest == 1_000_005


def test_no_single_bit_can_be_wrong_without_being_noticed(disk: SimulatedDisk) -> None:
    data = write_stage(disk, FIRST, make_rows(0, 3, size=1))
    for at in range(len(data)):
        file = disk.open(stage_name(FIRST))
        file.write_at(at, bytes([data[at] ^ 4]))
        with pytest.raises(StageFault):
            StageReader(disk, FIRST).check()
        file.write_at(at, data[at : at + 1])
        file.close()
    StageReader(disk, FIRST).check()


def test_a_stage_that_was_cut_anywhere_is_no_stage(disk: SimulatedDisk) -> None:
    data = write_stage(disk, FIRST, make_rows(0, 600))
    for size in range(0, len(data), 97):
        file = disk.open(stage_name(FIRST))
        file.truncate(size)
        file.close()
        with pytest.raises(StageFault):
            StageReader(disk, FIRST).check()
        write_stage(disk, FIRST, make_rows(0, 600))


def test_a_block_that_is_missing_in_the_middle_is_noticed(disk: SimulatedDisk) -> None:
    writer = StageWriter(StageHeader("default", "spark", "query", "out", 3, 1, 7))
    for topic, properties, payload in make_rows(0, 600):
        writer.add(topic, properties, payload, 1, False, 0)
    parts = writer.finish()
    disk.make_folder(FOLDER)
    file = disk.create(stage_name(FIRST), 0)
    file.write_at(0, b"".join(parts[:3] + parts[5:]))
    with pytest.raises(StageFault, match="344 rows where its footer says 600"):
        StageReader(disk, FIRST).check()


def test_a_fault_names_the_stage_it_is_in(disk: SimulatedDisk) -> None:
    write_stage(disk, FIRST, make_rows(0, 10))
    with pytest.raises(StageFault, match=f"{stage_name(SECOND)}: the file is missing"):
        read_all(disk, [FIRST, SECOND], 0)


def test_a_newer_format_is_refused_by_name() -> None:
    header = bytearray(StageWriter(StageHeader("a", "o", "q", "", 0, 0, 0)).take()[0])
    header[4] = 9
    with pytest.raises(StageFault, match="format 9; this release reads up to 1"):
        decode_header(bytes(header))


@pytest.mark.parametrize(
    "name",
    ["", "stages/", f"stages/{FIRST}", f"stages/{FIRST}.part", f"{FIRST}.stage", f"stages/../{FIRST}.stage",
     f"stages/{'g' * 32}.stage", f"stages/{'0' * 31}.stage", f"stages/{FIRST}.stage\n", f"log/{FIRST}.stage"],
)  # fmt: skip
def test_only_names_that_a_stage_can_have_are_taken(name: str) -> None:
    assert find_stage_id(name) == ""


def test_the_id_of_a_stage_stands_in_its_name() -> None:
    assert find_stage_id(stage_name(FIRST)) == FIRST
    assert is_stage_id(SECOND)
    assert not is_stage_id("../" + FIRST[3:])
