"""Stages as files: which belong to a batch, whether they are whole, which nobody wants. Blocks: for threads."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from millstream.storage.disk import Disk, DiskFault
from millstream.storage.records.batch_records import StoredQuery
from millstream.storage.stages.format import (
    FOLDER,
    StageFault,
    StageHeader,
    decode_rows,
    find_stage_id,
    stage_name,
)
from millstream.storage.stages.reader import StageReader

Key = tuple[str, str]  # account and name of a query


class CommitRefused(Exception):
    """Nothing was changed, or (202) it is under way: a status of HTTP, a clause, a command to type."""

    def __init__(self, status: int, text: str, hint: str = "", retry_after_s: int = 0, rows: int = 0) -> None:
        super().__init__(text)
        self.status = status
        self.text = text
        self.hint = hint
        self.retry_after_s = retry_after_s
        self.rows = rows  # published so far


class Commit:
    """What a writer asks for. `queue` is empty where the rows name their topics."""

    def __init__(
        self,
        account: str,
        owner: str,
        query: str,
        batch: int,
        stages: list[str],
        queue: str,
        is_single: bool = False,
    ) -> None:
        self.account = account
        self.owner = owner
        self.query = query
        self.batch = batch
        self.stages = stages
        self.queue = queue
        self.is_single = is_single

    def key(self) -> Key:
        return (self.account, self.query)


def check_stages(disk: Disk, commit: Commit) -> tuple[int, int]:
    """(rows, bytes of the largest) of stages that are whole and belong to the batch."""
    rows, largest = 0, 0
    for stage in commit.stages:
        try:
            reader = StageReader(disk, stage)
            try:
                header = reader.header
                if (header.account, header.owner) != (commit.account, commit.owner):
                    raise CommitRefused(403, f"the stage {stage} belongs to another user")
                if (header.query, header.batch) != (commit.query, commit.batch):
                    raise CommitRefused(409, f"the stage {stage} belongs to another batch")
                if header.queue != commit.queue:
                    target = f"the queue {header.queue!r}" if header.queue else "topics"
                    raise CommitRefused(409, f"the stage {stage} was made for {target}")
                reader.check()
                rows += reader.footer.rows
                largest = max(largest, reader.footer.largest)
            finally:
                reader.close()
        except (StageFault, DiskFault) as fault:
            raise CommitRefused(409, f"the stage {stage} cannot be used: {fault}") from None
    return rows, largest


def find_topics(disk: Disk, stage: str) -> list[bytes]:
    """To which its rows are published, each once."""
    topics: dict[bytes, None] = {}
    try:
        reader = StageReader(disk, stage)
        try:
            at = 0
            while (block := reader.read(at)) is not None:
                topics.update(dict.fromkeys(row.topic for row in decode_rows(block.rows, block.count)))
                at = block.end()
        finally:
            reader.close()
    except (StageFault, DiskFault) as fault:
        raise CommitRefused(409, f"the stage {stage} cannot be used: {fault}") from None
    return list(topics)


def find_stages(disk: Disk, commit: Commit) -> list[str]:
    """Those of the batch, or of them the ones that are named."""
    wanted = dict.fromkeys(commit.stages)
    return [
        stage
        for stage, header in _headers(disk, wanted)
        if (header.account, header.owner, header.query, header.batch)
        == (commit.account, commit.owner, commit.query, commit.batch)
    ]


def find_superseded(disk: Disk, query: StoredQuery) -> list[str]:
    """What is left of attempts at batches that are done: of tasks that were killed, or ran twice."""
    return [
        stage
        for stage, header in _headers(disk, {})
        if (header.account, header.owner, header.query) == (query.account, query.owner, query.name)
        and header.batch <= query.last_done
    ]


def _headers(disk: Disk, wanted: Collection[str]) -> Iterator[tuple[str, StageHeader]]:
    """Of all stages, or of those wanted if there are any."""
    for name in disk.names(FOLDER):
        stage = find_stage_id(name)
        if not stage or (wanted and stage not in wanted):
            continue
        try:
            reader = StageReader(disk, stage)
        except (StageFault, DiskFault):
            continue  # gone meanwhile, or damaged: the sweep takes it
        reader.close()
        yield stage, reader.header


def remove_stages(disk: Disk, stages: list[str]) -> None:
    for stage in stages:
        disk.remove(stage_name(stage))


def find_stale(folder: Path, before_s: float) -> list[str]:
    """Ids of stages that were written before; unfinished ones as old go at once."""
    found: list[str] = []
    if not folder.is_dir():
        return found
    for path in sorted(folder.iterdir()):
        try:
            if path.stat().st_mtime >= before_s:
                continue
            stage = find_stage_id(f"{FOLDER}/{path.name}")
            if stage:
                found.append(stage)
            else:
                path.unlink()
        except FileNotFoundError:
            continue
    return found
