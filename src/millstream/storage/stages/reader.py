"""Reads stages from a disk: one from its beginning to its end, or those of a batch one behind the other.

Blocks, so it runs where that is allowed: in a thread, a process of its own, or a test.
"""

from __future__ import annotations

from typing import final

from millstream.storage.disk import Disk, DiskFault, DiskFile
from millstream.storage.stages.format import (
    BLOCK_HEAD_SIZE,
    FOLDER,
    FOOTER_SIZE,
    START_SIZE,
    StageFault,
    check_block,
    decode_block_head,
    decode_footer,
    decode_header,
    decode_header_size,
    stage_name,
)


@final
class Block:
    """Rows to be published at once; `first` counts over all stages of the batch."""

    def __init__(self, first: int, count: int, rows: bytes) -> None:
        self.first = first
        self.count = count
        self.rows = rows

    def end(self) -> int:
        return self.first + self.count


@final
class StageReader:
    """StageFault where the file is not what it should be."""

    def __init__(self, disk: Disk, stage: str) -> None:
        name = stage_name(stage)
        if name not in disk.names(FOLDER):
            raise StageFault("the file is missing")
        self._file: DiskFile = disk.open(name)
        try:
            self.size = int(self._file.size())
            end = decode_header_size(self._file.read_at(0, START_SIZE))
            self.header = decode_header(self._file.read_at(0, end))
            if self.size < end + FOOTER_SIZE:
                raise StageFault("the file ends before its footer")
            self.footer = decode_footer(self._file.read_at(self.size - FOOTER_SIZE, FOOTER_SIZE))
        except (StageFault, DiskFault):
            self._file.close()
            raise
        self._position = end
        self._row = 0

    def read(self, first: int) -> Block | None:
        """The next block, its rows counted from `first`; None at the end."""
        if self._position >= self.size - FOOTER_SIZE:
            if self._row != self.footer.rows:
                raise StageFault(f"it holds {self._row} rows where its footer says {self.footer.rows}")
            return None
        head = decode_block_head(self._file.read_at(self._position, BLOCK_HEAD_SIZE), 0)
        rows = self._file.read_at(self._position + BLOCK_HEAD_SIZE, head.size)
        check_block(head, rows)
        block = Block(first + self._row, head.count, rows)
        self._position += BLOCK_HEAD_SIZE + head.size
        self._row += head.count
        return block

    def check(self) -> None:
        """Read all of it. StageFault: it cannot be trusted."""
        while self.read(0) is not None:
            pass

    def close(self) -> None:
        self._file.close()


@final
class BatchReader:
    """The blocks of several stages, one behind the other, from the block that holds the row `next_row`."""

    def __init__(self, disk: Disk, stages: list[str], next_row: int) -> None:
        self._disk = disk
        self._stages = list(stages)
        self._next_row = next_row
        self._first = 0  # row of the batch with which the stage under way begins
        self._reader: StageReader | None = None
        self._fault = ""

    def read(self, bytes_max: int) -> list[Block]:
        """About so many bytes of blocks; none at the end. StageFault names the stage it comes from, once all that stands
        before it has been given."""
        if self._fault:
            raise StageFault(self._fault)
        found: list[Block] = []
        size = 0
        while size < bytes_max:
            try:
                block = self._read_one()
            except StageFault as fault:
                if not found:
                    raise
                self._fault = str(fault)
                break
            if block is None:
                break
            if block.end() > self._next_row:
                found.append(block)
                size += len(block.rows)
        return found

    def _read_one(self) -> Block | None:
        while self._reader is not None or self._stages:
            stage = self._stages[0]
            try:
                if self._reader is None:
                    self._reader = StageReader(self._disk, stage)
                block = self._reader.read(self._first)
            except StageFault as fault:
                raise StageFault(f"{stage_name(stage)}: {fault}") from None
            if block is not None:
                return block
            self._first += self._reader.footer.rows
            self._reader.close()
            self._reader = None
            del self._stages[0]
        return None

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None
