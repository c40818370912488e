"""The port to a table format: what the sink, compaction and replay ask of Parquet folders, Delta and Iceberg."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from pyspark_millstream.lake.manifest import Manifest
from pyspark_millstream.lake.partitioning import PartitionField, Values


@dataclass(frozen=True)
class TableFacts:
    """The columns that rows bring (without those the folders add), and how the folders are made."""

    schema: pa.Schema
    fields: tuple[PartitionField, ...]


@dataclass(frozen=True)
class TableFile:
    """A data file readers see now. The path is absolute."""

    path: str
    size_bytes: int
    values: Values


class LakeTable(ABC):
    """One table in one folder. Whoever changes it holds the lock of its journal."""

    keeps_sources: bool  # partition columns stay in the files (else only the folder names hold them)

    def __init__(self, root: Path) -> None:
        self.root = root

    @abstractmethod
    def find_facts(self) -> TableFacts | None:
        """None: there is no table yet."""

    @abstractmethod
    def create(self, facts: TableFacts) -> None: ...

    @abstractmethod
    def add_columns(self, added: Sequence[pa.Field]) -> None: ...

    @abstractmethod
    def last_batch(self, query: str) -> int:
        """The last batch of the query the format itself knows of; -1 when none, or when it cannot know."""

    @abstractmethod
    def publish(self, manifest: Manifest) -> None:
        """Make the files, which have their names already, part of the table. Never called twice with success."""

    @abstractmethod
    def files(self) -> list[TableFile]: ...
