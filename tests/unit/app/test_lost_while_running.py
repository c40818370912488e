"""A file of the log that goes bad under a running broker: what was given in it is not given again after the next start."""

from __future__ import annotations

from pathlib import Path

import pytest
from data_directory import STREAM, WORK, DataDirectory, copy_directory, make_directory

from millstream.storage.disk import DiskFault

COUNT = 50


@pytest.fixture
def made(tmp_path: Path) -> DataDirectory:
    """It runs: its last file of the log is sealed, and holds the last record of the work queue and then three of the stream."""
    made = make_directory(tmp_path / "data")
    made.start()
    made.fold_sealed()
    made.append(WORK, 1)
    made.append(STREAM, 3)
    made.seal()
    return made


def sealed_file(made: DataDirectory) -> Path:
    return sorted((made.folder / "log").glob("*.log"))[-2]


def harm(made: DataDirectory, payload: bytes) -> None:
    path = sealed_file(made)
    data = bytearray(path.read_bytes())
    data[data.index(payload)] ^= 0xFF
    path.write_bytes(data)


def next_at_start(made: DataDirectory) -> tuple[int, int]:
    made.start()
    found = made.next_offset(STREAM), made.next_offset(WORK)
    made.stop(is_clean=False)
    return found


def test_a_queue_that_appends_nothing_more_goes_on_behind_a_record_that_was_damaged(
    made: DataDirectory,
) -> None:
    harm(made, b"%d of %d" % (COUNT, WORK))
    made.fold_sealed()
    made.stop()
    assert next_at_start(made) == (COUNT + 3, COUNT + 1)


def test_a_queue_goes_on_behind_the_lost_end_of_a_file(made: DataDirectory) -> None:
    for offset in range(COUNT, COUNT + 3):
        harm(made, b"%d of %d" % (offset, STREAM))
    made.fold_sealed()
    made.stop(is_clean=False)
    assert next_at_start(made)[0] == COUNT + 3


def test_a_queue_goes_on_behind_a_file_that_was_removed(made: DataDirectory) -> None:
    sealed_file(made).unlink()
    made.fold_sealed()
    made.stop(is_clean=False)
    stream, work = next_at_start(made)
    assert stream >= COUNT + 3
    assert work >= COUNT + 1


@pytest.mark.parametrize("is_empty", [True, False])
def test_nothing_is_lost_with_a_folder_of_the_log_that_comes_back(
    made: DataDirectory, is_empty: bool
) -> None:
    """A file system that was not mounted for a moment, or a folder that was taken away and put back."""
    log, taken = made.folder / "log", made.folder / "taken"
    log.rename(taken)
    if is_empty:
        log.mkdir()
    with pytest.raises(DiskFault, match="log"):
        made.fold_sealed()
    if is_empty:
        log.rmdir()
    taken.rename(log)
    made.stop(is_clean=False)
    made.start()
    assert made.damaged() == []
    assert len(made.records(STREAM)) == COUNT + 3
    assert len(made.records(WORK)) == COUNT + 1


def test_a_file_of_another_broker_is_not_believed(made: DataDirectory, tmp_path: Path) -> None:
    other = make_directory(tmp_path / "other", salt=1000)
    other.start()
    other.fold_sealed()
    other.append(STREAM, 4)
    other.seal()
    sealed_file(made).write_bytes(sealed_file(other).read_bytes())
    damage = made.fold_sealed()
    assert any("another data directory" in found.text for found in damage)
    made.stop(is_clean=False)
    stream, work = next_at_start(made)
    assert stream >= COUNT + 3
    assert work >= COUNT + 1
    assert max(made.records(STREAM)) == COUNT - 1
    assert list((made.folder / "quarantine").iterdir())


def test_a_queue_that_appends_behind_the_loss_keeps_its_offsets(made: DataDirectory) -> None:
    harm(made, b"%d of %d" % (COUNT, WORK))
    made.fold_sealed()
    made.append(WORK, 2)
    made.append(STREAM, 1)
    made.seal()
    made.fold_sealed()
    made.stop()
    assert next_at_start(made) == (COUNT + 4, COUNT + 3)
    assert sorted(made.records(WORK)) == [*range(COUNT), COUNT + 1, COUNT + 2]


def test_a_loss_is_skipped_once(made: DataDirectory) -> None:
    sealed_file(made).unlink()
    made.fold_sealed()
    made.stop(is_clean=False)
    first = next_at_start(made)
    assert next_at_start(made) == first
    made.start()
    made.append(WORK, 1)
    made.seal()
    made.fold_sealed()
    made.stop()
    assert next_at_start(made) == (first[0], first[1] + 1)
    assert made.damaged() == []


def test_a_loss_that_a_start_has_skipped_is_not_skipped_again_by_the_next(made: DataDirectory) -> None:
    harm(made, b"%d of %d" % (COUNT, WORK))
    made.stop()
    first = next_at_start(made)
    assert first[1] == COUNT + 1
    assert next_at_start(made) == first
    made.start()
    made.fold_sealed()
    made.stop()
    assert next_at_start(made) == first


def test_a_loss_under_a_running_broker_counts_in_a_repair_too(made: DataDirectory, tmp_path: Path) -> None:
    sealed_file(made).unlink()
    made.fold_sealed()
    made.append(STREAM, 1)
    made.stop()  # so that a repair knows how little it has lost
    plain = next_at_start(copy_directory(made, tmp_path / "copy"))
    sorted((made.folder / "log").glob("*.log"))[-1].unlink()
    made.repair()
    stream, work = next_at_start(made)
    assert stream >= plain[0]
    assert work >= plain[1]
