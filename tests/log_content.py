"""Batches for a log, and what a log holds."""

from __future__ import annotations

from librt.strings import BytesWriter

from millstream.storage.log.format import append_record
from millstream.storage.log.recovery import log_names, read_file
from millstream.storage.log.write_ahead_log import Batch
from simulation.disk import SimulatedDisk


def make_batch(first: int, *bodies: bytes) -> Batch:
    writer = BytesWriter()
    for body in bodies:
        append_record(writer, 1, body)
    return Batch(first, len(bodies), writer.getvalue())


def read_bodies(disk: SimulatedDisk) -> list[bytes]:
    """Of the whole log; only its last file may end in the middle of a batch."""
    found: list[bytes] = []
    names = log_names(disk)
    for name in names:
        recovered = read_file(disk, name, name == names[-1])
        assert not recovered.damage
        found += [record.body for record in recovered.records]
    return found
