"""The manifest comes back as it was written, or as damage; it names what must be there and nothing that may be gone."""

from __future__ import annotations

import pytest

from millstream.storage.manifest import (
    NAME,
    NOT_ENDED,
    RUNNING,
    Manifest,
    ManifestFault,
    ManifestKeeper,
    find_manifest,
)
from simulation.disk import SimulatedDisk


def make_keeper() -> tuple[SimulatedDisk, ManifestKeeper]:
    disk = SimulatedDisk(1)
    return disk, ManifestKeeper(disk, Manifest("ab" * 16))


def read(disk: SimulatedDisk) -> Manifest:
    found = find_manifest(disk)
    assert found is not None
    return found


def test_there_is_none_before_the_first_is_written() -> None:
    disk, _ = make_keeper()
    assert find_manifest(disk) is None


def test_it_names_files_of_the_log_with_their_salts_and_ends() -> None:
    disk, keeper = make_keeper()
    keeper.begin_log(1, 77, 4096, 0, 0)
    keeper.begin_log(2, 78, 4096, 1, 10)
    found = read(disk)
    assert [(file.number, file.salt, file.size, file.last) for file in found.logs.values()] == [
        (1, 77, 4096, 10),
        (2, 78, 4096, NOT_ENDED),
    ]
    assert (found.generation, found.last_log, found.stopped_at) == (2, 2, RUNNING)


def test_what_is_folded_goes_with_the_next_that_is_written() -> None:
    disk, keeper = make_keeper()
    keeper.begin_log(1, 77, 4096, 0, 0)
    keeper.begin_log(2, 78, 4096, 1, 10)
    keeper.note_folded(1, 10)
    assert list(read(disk).logs) == [1, 2]
    keeper.begin_log(3, 79, 4096, 2, 20)
    assert list(read(disk).logs) == [2, 3]
    assert (read(disk).folded_file, read(disk).folded_sequence) == (1, 10)


@pytest.mark.parametrize("folded", [0, 7, 10])
def test_a_stop_claims_no_facts_for_a_file_that_got_none(folded: int) -> None:
    """However much of the file before it could be folded: it may be damaged."""
    disk, keeper = make_keeper()
    keeper.begin_log(1, 77, 4096, 0, 0)
    keeper.begin_log(2, 78, 4096, 1, 10)  # all that was told is in the first
    if folded:
        keeper.note_folded(1, folded)
    keeper.stop(10, 0)
    assert read(disk).logs[2].last == NOT_ENDED
    assert read(disk).stopped_at == 10


def test_a_stop_says_where_the_last_file_ends() -> None:
    disk, keeper = make_keeper()
    keeper.begin_log(1, 77, 4096, 0, 0)
    keeper.stop(4, 4)
    assert read(disk).logs[1].last == 4


def test_a_flipped_bit_or_a_cut_is_a_fault_and_no_other_manifest() -> None:
    disk, keeper = make_keeper()
    keeper.begin_log(1, 77, 4096, 0, 0)
    data = disk.content(NAME)
    for offset in range(len(data)):
        disk.flip_bit(NAME, offset, offset % 8)
        with pytest.raises(ManifestFault):
            find_manifest(disk)
        disk.replace(NAME, data[:offset])
        with pytest.raises(ManifestFault):
            find_manifest(disk)
        disk.replace(NAME, data)
