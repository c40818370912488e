"""One bit of the table is flipped, in the file itself: `verify` names it, and a repair costs the entry it lies in and no other."""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import pytest
from data_directory import STREAM, WORK, DataDirectory, copy_directory, make_directory
from full_disk import no_room

from crash.table_layout import TableLayout
from millstream.storage.disk import DiskFault
from millstream.storage.manifest import TABLE_FILE
from simulation.disk import PowerCut
from simulation.failpoints import DeadlyFailpoints

COUNT = 50
SESSIONS = [f"client-{number}" for number in range(1, 6)]
HARMED = 3
SESSION = b"s" + struct.pack(">Q", HARMED)
NODE_HEAD = 8


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> DataDirectory:
    return make_directory(tmp_path_factory.mktemp("made") / "data")


@pytest.fixture
def made(template: DataDirectory, tmp_path: Path) -> DataDirectory:
    return copy_directory(template, tmp_path / "data")


def flip(made: DataDirectory, key: bytes, bit: int, part: int) -> None:
    """`part`: -1 of the value, -2 of its node: the size of the value, then the key."""
    path = made.folder / TABLE_FILE
    data = bytearray(path.read_bytes())
    start = TableLayout(bytes(data)).needs[key][part][0]
    data[start + bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def check_others(made: DataDirectory) -> None:
    assert made.damaged() == []
    for number in (STREAM, WORK):
        assert made.records(number) == {offset: b"%d of %d" % (offset, number) for offset in range(COUNT)}
    left = [session.key.client_id for session in made.read().state().sessions]
    assert [name for name in left if name != SESSIONS[HARMED - 1]] == [
        name for name in SESSIONS if name != SESSIONS[HARMED - 1]
    ]


@pytest.mark.parametrize(
    "bit", [0, 1, 2, 5, 8, 11, 15, 8 * NODE_HEAD + 3, 8 * (NODE_HEAD + 8), 8 * (NODE_HEAD + 8) + 2]
)
def test_a_flipped_bit_in_the_size_or_the_key_of_an_entry_costs_that_entry(
    made: DataDirectory, bit: int
) -> None:
    flip(made, SESSION, bit, -2)
    assert made.damaged()
    made.repair()
    check_others(made)


def test_what_a_repair_leaves_out_is_in_quarantine(made: DataDirectory) -> None:
    flip(made, SESSION, 100, -1)
    made.repair()
    check_others(made)
    (kept,) = (made.folder / "quarantine").glob(f"state-{SESSION.hex()}")
    assert kept.read_bytes()


@pytest.mark.parametrize(
    "place", ["repair.before_rename_table", "repair.after_rename_table", "repair.after_entries"]
)
def test_a_repair_that_is_killed_beside_the_new_table_is_finished_by_the_next_one(
    made: DataDirectory, place: str
) -> None:
    flip(made, SESSION, 100, -1)
    with pytest.raises(PowerCut):
        made.repair(DeadlyFailpoints(place))
    made.repair()
    check_others(made)


@pytest.mark.parametrize("number", [STREAM, WORK])
def test_a_queue_whose_entry_cannot_be_read_is_named_and_the_other_one_stays(
    made: DataDirectory, number: int
) -> None:
    flip(made, b"q" + struct.pack(">Q", number), 0, -1)
    assert "state" in [finding.file for finding in made.damaged()]
    made.repair()
    assert made.damaged() == []
    other = STREAM + WORK - number
    assert sorted(made.records(other)) == list(range(COUNT))
    moved = [path.name for path in (made.folder / "quarantine").glob(f"queues-{number}*")]
    assert moved == [f"queues-{number}"]


def test_a_table_that_nobody_could_look_at_is_not_damaged(made: DataDirectory) -> None:
    """No room for its lock: a repair would replace what is good."""
    (made.folder / "state" / "lock.mdb").unlink(missing_ok=True)
    with no_room(), pytest.raises(DiskFault, match=r"lock\.mdb"):
        made.survey()
    assert made.damaged() == []


@pytest.mark.parametrize("name", ["KILL", "TERM"])
def test_a_table_whose_reader_was_killed_is_not_damaged(
    made: DataDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """As by a system that is short of memory."""
    killed = tmp_path / "killed"
    killed.write_text(f"#!/bin/sh\nkill -{name} $$\n")
    killed.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(killed))
    with pytest.raises(DiskFault, match=f"SIG{name}"):
        made.survey()


def test_a_table_that_ends_its_reader_is_damaged(
    made: DataDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = tmp_path / "killed"
    killed.write_text("#!/bin/sh\nkill -SEGV $$\n")
    killed.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(killed))
    assert "ends the process" in made.survey().table_fault
