"""Writes a backup as one tar file and reads one that anybody may have made.

Reading believes nothing: the manifest comes first and says what must follow; each member must be an ordinary file with
the next name and size of the manifest, and its digest must be right. There is no code here for links, devices, long names,
sparse files or anything else a tar file can hold.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import tarfile
import zlib
from collections.abc import Callable
from io import BufferedIOBase
from pathlib import Path
from typing import Final

from millstream.maintenance.backup_manifest import (
    DIGEST_NAME,
    NAME,
    SIZE_MAX,
    BackupFile,
    Manifest,
    ManifestFault,
    decode_manifest,
    encode_digest,
    encode_manifest,
)
from millstream.maintenance.backup_plan import PlannedFile

PIECE_SIZE: Final = 1 << 20
GZIP_LEVEL: Final = 3
GZIP_MAGIC: Final = b"\x1f\x8b"
_BLOCK: Final = tarfile.BLOCKSIZE
_UNREADABLE: Final = (OSError, EOFError, zlib.error)

Progress = Callable[[int], None]  # bytes since the last call


class ArchiveFault(Exception):
    """The file is no backup that can be trusted: why."""


def find_digest(path: Path, size: int, on_progress: Progress) -> str:
    """Of the first `size` bytes; they must be there."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for piece in _Pieces(file, size):
            digest.update(piece)
            on_progress(len(piece))
    return digest.hexdigest()


def list_files(folder: Path, planned: list[PlannedFile], on_progress: Progress) -> list[BackupFile]:
    return [
        BackupFile(file.name, file.size, find_digest(folder / file.name, file.size, on_progress))
        for file in planned
    ]


def write_archive(
    target: BufferedIOBase, is_compressed: bool, manifest: Manifest, folder: Path, on_progress: Progress
) -> None:
    if not is_compressed:
        _write_members(target, manifest, folder, on_progress)
        return
    with gzip.GzipFile("", "wb", GZIP_LEVEL, target, mtime=0) as compressed:
        _write_members(compressed, manifest, folder, on_progress)


def _write_members(out: BufferedIOBase, manifest: Manifest, folder: Path, on_progress: Progress) -> None:
    encoded = encode_manifest(manifest)
    time_s = manifest.time_wall_ns // 1_000_000_000
    for name, data in ((NAME, encoded), (DIGEST_NAME, encode_digest(encoded))):
        out.write(_encode_head(name, len(data), time_s))
        out.write(data)
        out.write(_padding(len(data)))
    for file in manifest.files:
        out.write(_encode_head(file.name, file.size, time_s))
        digest = hashlib.sha256()
        with (folder / file.name).open("rb") as source:
            for piece in _Pieces(source, file.size):
                digest.update(piece)
                out.write(piece)
                on_progress(len(piece))
        if digest.hexdigest() != file.digest:
            raise ArchiveFault(f"{file.name} changed while it was copied")
        out.write(_padding(file.size))
    out.write(bytes(2 * _BLOCK))


def _encode_head(name: str, size: int, time_s: int) -> bytes:
    head = tarfile.TarInfo(name)
    head.size = size
    head.mtime = time_s
    head.mode = 0o600
    return head.tobuf(tarfile.GNU_FORMAT)


def _padding(size: int) -> bytes:
    return bytes(-size % _BLOCK)


class _Pieces:
    """The next `size` bytes of a file, in pieces."""

    def __init__(self, file: BufferedIOBase, size: int) -> None:
        self._file = file
        self._left = size

    def __iter__(self) -> _Pieces:
        return self

    def __next__(self) -> bytes:
        if self._left == 0:
            raise StopIteration
        piece = self._file.read(min(self._left, PIECE_SIZE))
        if not piece:
            raise ArchiveFault("a file ends too early")
        self._left -= len(piece)
        return piece


class ArchiveReader:
    """`read_manifest`, then `extract`."""

    def __init__(self, path: Path) -> None:
        self._raw = path.open("rb")
        is_compressed = self._raw.read(2) == GZIP_MAGIC
        self._raw.seek(0)
        self._in: BufferedIOBase = gzip.GzipFile("", "rb", fileobj=self._raw) if is_compressed else self._raw

    def close(self) -> None:
        self._in.close()
        self._raw.close()

    def read_manifest(self) -> Manifest:
        try:
            encoded = self._read_small(NAME, SIZE_MAX)
            digest = self._read_small(DIGEST_NAME, PIECE_SIZE)
            if digest != encode_digest(encoded):
                raise ArchiveFault("its manifest is damaged")
            return decode_manifest(encoded)
        except ManifestFault as fault:
            raise ArchiveFault(str(fault)) from None
        except _UNREADABLE:
            raise ArchiveFault("it cannot be read as a backup") from None

    def extract(self, manifest: Manifest, folder: Path, on_progress: Progress) -> None:
        """All files below a folder that is empty and that nobody else can write to; each is synced."""
        try:
            for file in manifest.files:
                size = self._read_head(file.name)
                if size != file.size:
                    raise ArchiveFault(f"{file.name} has {size} bytes, and its manifest says {file.size}")
                self._extract_file(file, folder, on_progress)
        except (EOFError, zlib.error, gzip.BadGzipFile):
            raise ArchiveFault("it is cut short or damaged") from None
        if self._in.read(_BLOCK).strip(b"\0"):
            raise ArchiveFault("it holds more than its manifest says")

    def _extract_file(self, file: BackupFile, folder: Path, on_progress: Progress) -> None:
        path = folder / file.name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        digest = hashlib.sha256()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(path, flags, 0o600), "wb") as out:
            for piece in _Pieces(self._in, file.size):
                digest.update(piece)
                out.write(piece)
                on_progress(len(piece))
            out.flush()
            os.fsync(out.fileno())
        if digest.hexdigest() != file.digest:
            raise ArchiveFault(f"{file.name} in it is damaged")
        self._in.read(-file.size % _BLOCK)

    def _read_small(self, name: str, size_max: int) -> bytes:
        size = self._read_head(name)
        if size > size_max:
            raise ArchiveFault(f"{name} in it is too large")
        data = b"".join(_Pieces(self._in, size))
        self._in.read(-size % _BLOCK)
        return data

    def _read_head(self, name: str) -> int:
        """The size of the next member, which must be an ordinary file of this name."""
        block = self._in.read(_BLOCK)
        try:
            head = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except tarfile.HeaderError:
            raise ArchiveFault(f"where {name} should be, it holds something else") from None
        if head.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or head.linkname:
            raise ArchiveFault(f"where {name} should be, it holds something that is no ordinary file")
        if head.name != name:
            raise ArchiveFault(f"where {name} should be, it holds {head.name!r:.200}")
        if head.size < 0:
            raise ArchiveFault(f"{name} in it has a size below nothing")
        return head.size
