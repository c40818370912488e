"""Manifest and table belong together, and none is older than the other says: anything else is named, and nothing is changed."""

from __future__ import annotations

import pytest

from millstream.runtime.disk.failpoints import NoFailpoints
from millstream.storage.directory import Directory, open_directory
from millstream.storage.log.files import FOLDER
from millstream.storage.manifest import FOREIGN, MISSING, NAME, OLDER, TABLE_FILE, Incomplete, remove_manifest
from millstream.storage.recovery import recover
from millstream.storage.table.checkpoint import GENERATION, IDENTITY, put_last_queue, put_meta
from simulation.disk import SimulatedDisk
from simulation.table import SimulatedTable

OWN = "ab" * 16
OTHER = "cd" * 16


class Bench:
    """A directory that has been opened once."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk(1)
        self.disk.make_folder(FOLDER)
        self.table = SimulatedTable()
        directory = self.open()
        assert not directory.is_adopted
        directory.mark_table(self.disk, self.table)
        self.keeper = directory.keeper

    def open(self) -> Directory:
        return open_directory(self.disk, self.table, OWN)

    def fault(self) -> tuple[str, str]:
        before = {name: self.disk.content(name) for name in self.disk.names("")}
        with pytest.raises(Incomplete) as caught:
            self.open()
        assert {name: self.disk.content(name) for name in self.disk.names("")} == before
        return caught.value.name, caught.value.kind


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_one_that_was_opened_before_is_known(bench: Bench) -> None:
    again = open_directory(bench.disk, bench.table, OTHER)
    assert not again.is_adopted
    assert again.notices == []
    assert again.keeper.manifest.identity == OWN


def test_a_manifest_that_is_missing_is_no_new_beginning(bench: Bench) -> None:
    remove_manifest(bench.disk)
    assert bench.fault() == (NAME, MISSING)


def test_a_table_of_another_directory_is_told_by_its_identity(bench: Bench) -> None:
    bench.table.put(IDENTITY, OTHER.encode())
    assert bench.fault() == (TABLE_FILE, FOREIGN)


def test_a_table_that_lost_its_identity_is_not_taken_for_a_new_one(bench: Bench) -> None:
    bench.table.delete(IDENTITY)
    assert bench.fault() == (TABLE_FILE, FOREIGN)


def test_a_table_that_holds_less_than_was_folded_is_older(bench: Bench) -> None:
    put_meta(bench.table, 9, 1)
    bench.keeper.note_folded(1, 9)
    bench.keeper.doubt(1)  # any change
    bench.keeper.doubt(0)
    assert bench.open().notices == []
    put_meta(bench.table, 8, 1)
    assert bench.fault() == (TABLE_FILE, OLDER)


def test_a_manifest_of_fewer_generations_than_the_table_has_seen_is_older(bench: Bench) -> None:
    bench.table.put(GENERATION, bench.keeper.manifest.generation.to_bytes(8, "big"))
    assert bench.open().notices == []
    bench.table.put(GENERATION, (bench.keeper.manifest.generation + 1).to_bytes(8, "big"))
    assert bench.fault() == (NAME, OLDER)


@pytest.mark.parametrize(("in_table", "in_manifest"), [(7, 0), (0, 7), (3, 7)])
def test_numbers_of_queues_that_table_or_manifest_know_are_not_given_again(
    bench: Bench, in_table: int, in_manifest: int
) -> None:
    put_last_queue(bench.table, in_table)
    bench.keeper.note_queue(in_manifest)
    bench.keeper.doubt(1)  # any change
    bench.keeper.doubt(0)
    found = recover(bench.disk, bench.table, 0, NoFailpoints(), bench.open().keeper)
    assert found.fold.queues.last_number == 7
