"""The manifest of a backup: what is written is read again, and only names a data directory has are allowed."""

from __future__ import annotations

import pytest

from millstream.maintenance.backup_manifest import (
    BackupFile,
    Manifest,
    ManifestFault,
    decode_manifest,
    encode_manifest,
    is_backup_name,
)
from millstream.storage.log.files import file_name
from millstream.storage.segments.format import index_name, segment_name

DIGEST = "0123456789abcdef" * 4


def test_a_manifest_comes_back_as_it_was_written() -> None:
    files = [BackupFile(file_name(3), 10, DIGEST), BackupFile(segment_name(7, 12), 0, DIGEST)]
    found = decode_manifest(encode_manifest(Manifest("1.2", 5, 99, files, ["a sentence"])))
    assert [(file.name, file.size, file.digest) for file in found.files] == [
        (file.name, file.size, file.digest) for file in files
    ]
    assert (found.release, found.time_wall_ns, found.last_sequence) == ("1.2", 5, 99)
    assert found.damage == ["a sentence"]
    assert found.size() == 10


def test_every_name_the_store_makes_is_allowed() -> None:
    for name in (
        file_name(1),
        file_name(999_999_999_999),
        segment_name(1, 0),
        index_name(10**12, 10**18),
        "state/data.mdb",
    ):
        assert is_backup_name(name), name


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "/", "lock", "log", "log/", "log/1.log", "log/000000000001.log/", "log/00000000000a.log", "queues/1",
     "queues/01/00000000000000000000.segment", "queues/-1/00000000000000000000.segment", "queues//x",
     "queues/1/00000000000000000000.segment.repair", "queues/1/../00000000000000000000.segment", "state/lock.mdb",
     "quarantine/000000000001.log", "./log/000000000001.log", "log/000000000001.log\n"],
)  # fmt: skip
def test_any_other_name_is_not(name: str) -> None:
    assert not is_backup_name(name)


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{", b'"x"', b"null", b"[" * 100_000, b"\xff", b'{"format": true}']
)
def test_what_is_no_manifest_is_refused(data: bytes) -> None:
    with pytest.raises(ManifestFault):
        decode_manifest(data)
