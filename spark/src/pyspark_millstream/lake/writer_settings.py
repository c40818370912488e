"""How files are written: sizes and compression. Apart from the writer, because the driver needs these and not the writer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

ROW_GROUP_ROWS: Final = 1_000_000
ROW_GROUP_BYTES: Final = 64 << 20
BUFFER_BYTES_MAX: Final = 192 << 20
FILES_OPEN_MAX: Final = 64
FILE_BYTES_MAX: Final = 512 << 20


@dataclass(frozen=True)
class WriterSettings:
    """The same for a batch and for compaction."""

    compression: str = "zstd"
    row_group_rows: int = ROW_GROUP_ROWS
    row_group_bytes: int = ROW_GROUP_BYTES
    buffer_bytes_max: int = BUFFER_BYTES_MAX
    files_open_max: int = FILES_OPEN_MAX
    file_bytes_max: int = FILE_BYTES_MAX
