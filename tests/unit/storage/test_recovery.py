"""What a start does with a data directory: what it serves is safe, what is missing is named, what it cannot read it leaves alone."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from google_crc32c import value

from millstream.runtime.disk.data_folder import StorageFault, recover_folder
from millstream.runtime.disk.failpoints import NoFailpoints
from millstream.storage.log.files import FOLDER, LogFiles, file_name
from millstream.storage.log.format import VERSION, append_record
from millstream.storage.log.recovery import Damage, log_names
from millstream.storage.log.write_ahead_log import Batch
from millstream.storage.records import session_records
from millstream.storage.recovery import recover
from simulation.disk import Mood, PowerCut, SimulatedDisk
from simulation.failpoints import DeadlyFailpoints
from simulation.table import SimulatedTable

from librt.strings import BytesWriter  # isort: skip

FILE_SIZE = 512  # room for some four sessions


class Bench:
    """A log on a simulated disk, started again and again. Nothing is folded: the table stays empty."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk(1)
        self.disk.make_folder(FOLDER)
        self.cuts: list[Damage] = []
        self._sequence = 0
        self._next_number = 1

    def write(self, *clients: str, failpoint: str = "") -> None:
        """One batch for each session, from a new run of the broker."""
        files = LogFiles(self.disk, DeadlyFailpoints(failpoint), FILE_SIZE, self._next_number, 0, salt=77)
        for client in clients:
            self._sequence += 1
            fact = session_records.SessionFact(self._sequence, "default", client, "u", 60, 0)
            writer = BytesWriter()
            append_record(writer, session_records.SESSION_SAVED, session_records.encode_session(fact))
            files.write(Batch(self._sequence, 1, writer.getvalue()))

    def start(self) -> tuple[list[str], list[Damage]]:
        found = recover(self.disk, SimulatedTable(), 0, NoFailpoints())
        self._next_number = found.next_number
        self._sequence = int(found.fold.last_sequence)
        self.cuts = found.cuts
        return [session.key.client_id for session in found.fold.state().sessions], found.damage


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_an_empty_directory_gives_an_empty_state(bench: Bench) -> None:
    assert bench.start() == ([], [])


@pytest.mark.parametrize("failpoint", ["log.after_create", "log.after_header", "log.after_write"])
def test_what_a_start_has_served_survives_the_next_power_cut(bench: Bench, failpoint: str) -> None:
    """Killed before its sync, a batch is only in the cache; a start that believes it must make it safe."""
    bench.write("a")
    bench.start()
    with pytest.raises(PowerCut):
        bench.write("b", failpoint=failpoint)
    bench.disk = bench.disk.kill()
    served, _ = bench.start()
    bench.write("c")
    for mood in (Mood.NOTHING, Mood.SOME, Mood.SOME, Mood.SOME):
        bench.disk = bench.disk.crash(mood)
        assert bench.start() == ([*served, "c"], [])


def test_what_is_left_in_the_cache_after_a_failed_sync_is_not_served_and_forgotten(bench: Bench) -> None:
    bench.write("a")
    bench.start()
    bench.disk.fail_next("sync")
    with pytest.raises(Exception, match="Input/output error"):
        bench.write("b")
    bench.disk = bench.disk.kill()
    served, _ = bench.start()
    bench.disk = bench.disk.crash(Mood.NOTHING)
    assert bench.start() == (served, [])


def test_a_torn_end_is_cut_once(bench: Bench) -> None:
    bench.write("a", "b")
    bench.disk.cut(file_name(1), 140)
    assert bench.start() == (["a"], [])
    assert [cut.name for cut in bench.cuts] == [file_name(1)]
    bench.write("c")
    bench.disk = bench.disk.crash(Mood.NOTHING)
    assert bench.start() == (["a", "c"], [])
    assert bench.cuts == []


def test_a_missing_file_in_the_middle_is_named(bench: Bench) -> None:
    bench.write(*"abcdefghijklmnop")
    names = log_names(bench.disk)
    assert len(names) > 3
    bench.disk.remove(names[1])
    _, damage = bench.start()
    assert damage
    assert names[1] in damage[0].sentence() or names[2] in damage[0].sentence()


def test_a_last_batch_of_zeros_in_a_file_that_was_left_behind_is_named(bench: Bench) -> None:
    bench.write(*"abcdefghijklmnop")
    name = log_names(bench.disk)[0]
    data = bench.disk.content(name).rstrip(b"\0")
    last = data.rindex(b"MSWB")
    bench.disk.replace(name, data[:last].ljust(FILE_SIZE, b"\0"))
    _, damage = bench.start()
    assert damage


@pytest.mark.parametrize("rest", [b"", b"batches of another kind"])
def test_a_newer_format_is_refused_and_left_alone(bench: Bench, tmp_path: Path, rest: bytes) -> None:
    bench.write("a")
    head = struct.pack("<IIQQ", 0x4C57534D, VERSION + 1, 2, 0)
    newer = head + struct.pack("<I4x", value(head + bytes(4))) + rest
    bench.disk.replace(file_name(2), newer)
    with pytest.raises(StorageFault, match=f"format {VERSION + 1}"):
        recover_folder(bench.disk, tmp_path)
    assert bench.disk.content(file_name(2)) == newer


def test_a_damaged_file_is_kept_aside(bench: Bench) -> None:
    bench.write("a", "b", "c")
    harmed = 100
    bench.disk.flip_bit(file_name(1), harmed)
    before = bench.disk.content(file_name(1))
    clients, damage = bench.start()
    assert "a" not in clients
    assert clients[-1] == "c"
    assert damage[0].start <= harmed < damage[0].end
    assert bench.disk.content("quarantine/000000000001.log") == before


def test_a_power_cut_in_the_middle_of_a_start_harms_nothing(bench: Bench) -> None:
    bench.write("a", "b")
    bench.disk.cut(file_name(1), 140)
    for steps in range(1, 20):
        bench.disk.cut_power_at = bench.disk.steps + steps
        try:
            bench.start()
        except PowerCut:
            bench.disk = bench.disk.crash()
    bench.disk.cut_power_at = 0
    assert bench.start() == (["a"], [])


def test_the_copy_of_a_damaged_file_is_whole_even_if_the_power_went_while_it_was_made(bench: Bench) -> None:
    bench.write("a", "b", "c")
    bench.disk.flip_bit(file_name(1), 100)
    before = bench.disk.content(file_name(1))
    for steps in range(1, 25):
        bench.disk.cut_power_at = bench.disk.steps + steps
        try:
            bench.start()
        except PowerCut:
            bench.disk = bench.disk.crash(Mood.EVERYTHING if steps % 2 else Mood.SOME)
    bench.disk.cut_power_at = 0
    bench.start()
    assert bench.disk.content("quarantine/000000000001.log") == before


def test_a_copy_in_quarantine_whose_name_was_not_synced_is_made_safe_by_the_next_start(bench: Bench) -> None:
    bench.write("a")
    bench.start()
    bench.write("b")
    bench.disk.flip_bit(file_name(1), 50)
    before = bench.disk.content(file_name(1))
    with pytest.raises(PowerCut):
        recover(bench.disk, SimulatedTable(), 0, DeadlyFailpoints("quarantine.after_rename"))
    bench.disk = bench.disk.kill()  # only the process died: the name is in the cache
    bench.start()
    bench.disk = bench.disk.crash(Mood.NOTHING)
    assert bench.disk.content("quarantine/000000000001.log") == before
