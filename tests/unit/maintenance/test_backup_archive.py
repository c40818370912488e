"""Reading a backup believes nothing: hostile and damaged archives are refused, and nothing appears outside the folder."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from millstream.maintenance.archive import ArchiveFault, ArchiveReader, list_files, write_archive
from millstream.maintenance.backup_manifest import DIGEST_NAME, NAME, BackupFile, Manifest, encode_digest
from millstream.maintenance.backup_plan import PlannedFile

LOG = "log/000000000001.log"
SEGMENT = "queues/7/00000000000000000000.segment"
CONTENT = {LOG: b"facts" * 1000, SEGMENT: b"records" * 77}


def ignore(count: int) -> None:
    pass


def make_archive(tmp_path: Path, is_compressed: bool = False) -> Path:
    folder = tmp_path / "source"
    for name, data in CONTENT.items():
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_bytes(data + b"and what came later")
    planned = [PlannedFile(name, len(data)) for name, data in CONTENT.items()]
    manifest = Manifest("1.0", 1_700_000_000_000_000_000, 42, list_files(folder, planned, ignore), [])
    path = tmp_path / "backup.tar"
    with path.open("wb") as out:
        write_archive(out, is_compressed, manifest, folder, ignore)
    return path


def extract(path: Path, target: Path) -> Manifest:
    target.mkdir()
    reader = ArchiveReader(path)
    try:
        manifest = reader.read_manifest()
        reader.extract(manifest, target, ignore)
    finally:
        reader.close()
    return manifest


@pytest.mark.parametrize("is_compressed", [False, True])
def test_what_was_written_comes_back_up_to_the_planned_size(tmp_path: Path, is_compressed: bool) -> None:
    manifest = extract(make_archive(tmp_path, is_compressed), tmp_path / "target")
    assert manifest.last_sequence == 42
    for name, data in CONTENT.items():
        assert (tmp_path / "target" / name).read_bytes() == data


def test_any_tar_program_can_read_it(tmp_path: Path) -> None:
    with tarfile.open(make_archive(tmp_path)) as archive:
        assert archive.getnames() == [NAME, DIGEST_NAME, LOG, SEGMENT]
        member = archive.extractfile(LOG)
        assert member is not None
        assert member.read() == CONTENT[LOG]


def test_a_file_that_changes_between_the_digest_and_the_copy_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / LOG).write_bytes(b"changed")
    manifest = Manifest("1.0", 0, 1, [BackupFile(LOG, 7, hashlib.sha256(b"as it was").hexdigest())], [])
    with pytest.raises(ArchiveFault, match="changed"):
        write_archive(io.BytesIO(), False, manifest, tmp_path, ignore)


@pytest.mark.parametrize("is_compressed", [False, True])
def test_a_flipped_bit_anywhere_in_the_data_is_refused(tmp_path: Path, is_compressed: bool) -> None:
    path = make_archive(tmp_path, is_compressed)
    data = path.read_bytes()
    refused = 0
    positions = range(10, len(data) - 8, max(1, len(data) // 150))
    for position in positions:
        path.write_bytes(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])
        target = tmp_path / f"target{position}"
        try:
            extract(path, target)
        except ArchiveFault:
            refused += 1
        else:
            for name, content in CONTENT.items():
                assert (target / name).read_bytes() == content
    assert refused > len(positions) // 3  # the others hit padding


def test_an_archive_cut_short_is_refused_wherever_it_was_cut(tmp_path: Path) -> None:
    path = make_archive(tmp_path)
    data = path.read_bytes()
    end = len(data.rstrip(b"\0"))
    for position in range(0, end, 97):
        path.write_bytes(data[:position])
        with pytest.raises(ArchiveFault):
            extract(path, tmp_path / f"target{position}")


# ------------------------------------------------------------------ hostile


class Forge:
    """Builds an archive with right digests around whatever a test puts in."""

    def __init__(self) -> None:
        self.files: list[dict[str, object]] = []
        self.members: list[tuple[tarfile.TarInfo, bytes]] = []
        self.fields: dict[str, object] = {
            "format": 1,
            "release": "x",
            "time_ns": 1,
            "last_sequence": 1,
            "damage": [],
        }

    def list(self, name: str, data: bytes, size: int | None = None) -> Forge:
        digest = hashlib.sha256(data).hexdigest()
        self.files.append({"name": name, "size": len(data) if size is None else size, "sha256": digest})
        return self

    def add(self, name: str, data: bytes = b"", kind: bytes = tarfile.REGTYPE, link: str = "") -> Forge:
        member = tarfile.TarInfo(name)
        member.size = len(data)
        member.type = kind
        member.linkname = link
        self.members.append((member, data))
        return self

    def write(self, path: Path) -> None:
        manifest = json.dumps(self.fields | {"files": self.files}).encode()
        with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as archive:
            for name, data in ((NAME, manifest), (DIGEST_NAME, encode_digest(manifest))):
                head = tarfile.TarInfo(name)
                head.size = len(data)
                archive.addfile(head, io.BytesIO(data))
            for member, data in self.members:
                archive.addfile(member, io.BytesIO(data))


def lying_size(forge: Forge) -> None:
    forge.list(LOG, b"x" * 10, 1 << 40).add(LOG, b"x" * 10)


def sparse_file(forge: Forge) -> None:
    forge.list(LOG, b"x").add(LOG, b"x", tarfile.GNUTYPE_SPARSE)


def long_name(forge: Forge) -> None:
    forge.list(LOG, b"x").add("../" * 60 + "etc/cron.d/evil", b"x")


def extended_header(forge: Forge) -> None:
    forge.list(LOG, b"x").add(LOG, b"30 path=../../../etc/passwd\n", tarfile.XHDTYPE)


HOSTILE: dict[str, Callable[[Forge], object]] = {
    "a name that climbs out": lambda f: f.list("../outside.log", b"x").add("../outside.log", b"x"),
    "a name that climbs out from inside": lambda f: f.list("log/../../outside", b"x").add(
        "log/../../outside", b"x"
    ),
    "an absolute name": lambda f: f.list("/outside", b"x").add("/outside", b"x"),
    "a climbing member behind an honest manifest": lambda f: f.list(LOG, b"x").add("../outside", b"x"),
    "a climbing queue": lambda f: f.list("queues/../x.segment", b"x").add("queues/../x.segment", b"x"),
    "a backslash": lambda f: f.list("log\\..\\x", b"x").add("log\\..\\x", b"x"),
    "a zero byte": lambda f: f.list("log/000000000001.log\0/../../x", b"x").add(LOG, b"x"),
    "digits of another script": lambda f: f.list("log/" + "\u0660" * 12 + ".log", b"x").add(LOG, b"x"),
    "a symbolic link": lambda f: f.list(LOG, b"").add(LOG, b"", tarfile.SYMTYPE, "/etc/passwd"),
    "a link for the folder": lambda f: (
        f.list(LOG, b"x").add("log", b"", tarfile.SYMTYPE, "..").add(LOG, b"x")
    ),
    "a hard link": lambda f: f.list(LOG, b"").add(LOG, b"", tarfile.LNKTYPE, "/etc/passwd"),
    "a device": lambda f: f.list(LOG, b"").add(LOG, b"", tarfile.CHRTYPE),
    "a pipe": lambda f: f.list(LOG, b"").add(LOG, b"", tarfile.FIFOTYPE),
    "a folder": lambda f: f.list(LOG, b"").add(LOG, b"", tarfile.DIRTYPE),
    "a sparse file": sparse_file,
    "a long name": long_name,
    "an extended header": extended_header,
    "a size that lies": lying_size,
    "a digest that lies": lambda f: f.list(LOG, b"x").add(LOG, b"y"),
    "a file twice in the manifest": lambda f: f.list(LOG, b"x").list(LOG, b"x").add(LOG, b"x").add(LOG, b"x"),
    "a file the manifest does not name": lambda f: f.list(LOG, b"x").add(LOG, b"x").add(SEGMENT, b"x"),
    "a file that is missing": lambda f: f.list(LOG, b"x").list(SEGMENT, b"x").add(LOG, b"x"),
    "a file of another name": lambda f: f.list(LOG, b"x").add(SEGMENT, b"x"),
    "a size below nothing": lambda f: f.list(LOG, b"x", -1).add(LOG, b"x"),
    "a lock file": lambda f: f.list("lock", b"x").add("lock", b"x"),
    "a newer format": lambda f: f.fields.update(format=2),
    "a format that is no number": lambda f: f.fields.update(format="1"),
    "damage that is no list": lambda f: f.fields.update(damage={"a": 1}),
}


@pytest.mark.parametrize("hostile", HOSTILE)
def test_a_hostile_archive_is_refused_and_leaves_nothing_outside(tmp_path: Path, hostile: str) -> None:
    forge = Forge()
    HOSTILE[hostile](forge)
    path = tmp_path / "hostile.tar"
    forge.write(path)
    inside = tmp_path / "inside"
    inside.mkdir()
    with pytest.raises(ArchiveFault):
        extract(path, inside / "target")
    assert sorted(found.name for found in tmp_path.iterdir()) == ["hostile.tar", "inside"]
    assert [found.name for found in inside.iterdir()] == ["target"]
    for found in (inside / "target").rglob("*"):
        assert not found.is_symlink()
        assert found.is_dir() or found.relative_to(inside / "target").as_posix() == LOG


def test_the_manifest_must_come_first_and_be_whole(tmp_path: Path) -> None:
    path = tmp_path / "other.tar"
    for data in (b"", b"no archive", bytes(10_240), gzip.compress(b"no archive"), b"\x1f\x8b"):
        path.write_bytes(data)
        reader = ArchiveReader(path)
        with pytest.raises(ArchiveFault):
            reader.read_manifest()
        reader.close()


def test_a_manifest_that_says_it_is_huge_is_not_read(tmp_path: Path) -> None:
    head = tarfile.TarInfo(NAME)
    head.size = 1 << 40
    path = tmp_path / "huge.tar"
    path.write_bytes(head.tobuf(tarfile.GNU_FORMAT))
    reader = ArchiveReader(path)
    with pytest.raises(ArchiveFault, match="too large"):
        reader.read_manifest()
    reader.close()
