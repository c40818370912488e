"""What the files of a checkpoint say about the queries, from outside."""

from __future__ import annotations

from pathlib import Path

from crash.spark_process import Checkpoints
from crash.spark_streams import find_last_batch


def note(folder: Path, log: str, *batches: int) -> None:
    (folder / log).mkdir(parents=True, exist_ok=True)
    for batch in batches:
        (folder / log / str(batch)).touch()
        (folder / log / f".{batch}.crc").touch()


def test_nothing_is_done_and_nothing_under_way_before_the_first_batch(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    assert (checkpoints.done(), checkpoints.is_in_batch()) == (0, False)


def test_a_batch_that_is_planned_and_not_finished_is_under_way(tmp_path: Path) -> None:
    note(tmp_path / "lake", "offsets", 0, 1, 2)
    note(tmp_path / "lake", "commits", 0, 1, 2)
    note(tmp_path / "queue", "offsets", 9, 10)
    note(tmp_path / "queue", "commits", 9)
    checkpoints = Checkpoints(tmp_path)
    assert (checkpoints.done(), checkpoints.last_done("queue")) == (3 + 10, 9)
    assert checkpoints.is_in_batch()
    note(tmp_path / "queue", "commits", 10)
    assert not checkpoints.is_in_batch()


def test_the_lake_says_which_batch_it_has(tmp_path: Path) -> None:
    assert find_last_batch(tmp_path) == -1
    (tmp_path / "_millstream").mkdir()
    (tmp_path / "_millstream" / "done-query.json").write_text('{"batch": 7}')
    assert find_last_batch(tmp_path) == 7
