"""The lake sink, in a build that dies: after a chosen step of a commit, or in a task, its process ends at once.

The deaths to come stand in a file, one to a line: `begin 1` is after the first call of `Journal.begin`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from pyspark_millstream.lake.journal import Journal
from pyspark_millstream.lake.options import parse_lake_options
from pyspark_millstream.lake.source import FilesWritten, LakeSource, LakeStreamWriter
from pyspark_millstream.lake.store import Lake, open_lake

EXIT_CODE = 137


def take_death(file: Path, place: str) -> str | None:
    """The next death, if it is for this place; it comes once."""
    lines = file.read_text(encoding="utf-8").splitlines()
    if not lines or lines[0].split()[0].startswith("task") != (place == "task"):
        return None
    file.write_text("\n".join(lines[1:]), encoding="utf-8")
    return lines[0]


def die_after(owner: type[Any], name: str, calls: int) -> None:
    step: Callable[..., Any] = getattr(owner, name)
    done = 0

    def last(*arguments: Any, **named: Any) -> Any:
        nonlocal done
        result = step(*arguments, **named)
        done += 1
        if done == calls:
            os._exit(EXIT_CODE)
        return result

    setattr(owner, name, last)


class DyingLake(LakeSource):
    @classmethod
    def name(cls) -> str:
        return "dying_lake"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DyingWriter:
        options = {name: value for name, value in self.options.items() if name.lower() != "deaths"}
        return DyingWriter(options, schema, Path(self.options["deaths"]))


class DyingWriter(LakeStreamWriter):
    def __init__(self, options: dict[str, str], schema: StructType, deaths: Path) -> None:
        super().__init__(parse_lake_options(options), schema)
        self._deaths = deaths
        self._path = options["path"]

    def write(self, iterator: Iterator[pa.RecordBatch]) -> FilesWritten:
        written = super().write(iterator)
        if written.files and take_death(self._deaths, "task"):
            os._exit(EXIT_CODE)  # its files stay, and nobody hears of them
        return written

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        death = take_death(self._deaths, "driver")
        if death is not None:
            step, calls = death.split()
            owner: type[Any] = Journal
            if step in ("fit_columns", "recover"):
                owner = Lake
            elif step == "publish":
                owner = type(open_lake(self._path, self._plan.options.table_format).table)
            die_after(owner, step, int(calls))
        super().commit(messages, batchId)
