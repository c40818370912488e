"""The manifest of a backup: which files it holds, how long each is and what its digest is.

A backup is one tar file. Its first member is the manifest, the second the digest of the manifest, then the files in the
order of the manifest. A reader so knows every name and size before it has to believe anything that follows.

Only names that a data directory can have are allowed; that leaves no way out of the directory restored into.

To change the format: raise VERSION, go on reading the old one, add a golden file of it to the tests.
"""

from __future__ import annotations

import hashlib
import json
from typing import Final, final

from millstream.storage.log.files import FOLDER as LOG_FOLDER
from millstream.storage.log.files import SUFFIX as LOG_SUFFIX
from millstream.storage.segments.format import FOLDER as QUEUE_FOLDER
from millstream.storage.segments.format import INDEX_SUFFIX, SEGMENT_SUFFIX
from millstream.storage.stages.format import find_stage_id

VERSION: Final = 1
NAME: Final = "manifest.json"
DIGEST_NAME: Final = "manifest.sha256"
TABLE_NAME: Final = "state/data.mdb"
SIZE_MAX: Final = 256 * 1024 * 1024  # of the manifest: more than a million files
FILE_SIZE_MAX: Final = 1 << 44
DIGEST_LENGTH: Final = 64
_NUMBER_MAX: Final = (1 << 63) - 1
_LOG_DIGITS: Final = 12
_OFFSET_DIGITS: Final = 20


class ManifestFault(Exception):
    """The manifest is not one of ours, or not one this release reads."""


@final
class BackupFile:
    def __init__(self, name: str, size: int, digest: str) -> None:
        self.name = name
        self.size = size
        self.digest = digest  # SHA-256, in hexadecimal


@final
class Manifest:
    def __init__(
        self, release: str, time_wall_ns: int, last_sequence: int, files: list[BackupFile], damage: list[str]
    ) -> None:
        self.release = release
        self.time_wall_ns = time_wall_ns
        self.last_sequence = last_sequence  # of the last fact in it
        self.files = files
        self.damage = damage  # what could not be trusted when it was made

    def size(self) -> int:
        return sum([file.size for file in self.files])


def encode_manifest(manifest: Manifest) -> bytes:
    fields = {
        "format": VERSION,
        "release": manifest.release,
        "time_ns": manifest.time_wall_ns,
        "last_sequence": manifest.last_sequence,
        "damage": manifest.damage,
        "files": [{"name": file.name, "size": file.size, "sha256": file.digest} for file in manifest.files],
    }
    return json.dumps(fields, indent=1).encode() + b"\n"


def encode_digest(manifest: bytes) -> bytes:
    """As `sha256sum` writes and checks it."""
    return f"{hashlib.sha256(manifest).hexdigest()}  {NAME}\n".encode()


def decode_manifest(data: bytes) -> Manifest:
    try:
        fields: object = json.loads(data)
    except (ValueError, RecursionError):
        raise ManifestFault("its manifest cannot be read") from None
    if not isinstance(fields, dict):
        raise ManifestFault("its manifest cannot be read")
    version = _number(fields.get("format"), "format")
    if version != VERSION:
        raise ManifestFault(f"it has format {version}; this release reads format {VERSION}")
    release: object = fields.get("release")
    damage: object = fields.get("damage")
    listed: object = fields.get("files")
    if not isinstance(release, str) or not isinstance(damage, list) or not isinstance(listed, list):
        raise ManifestFault("its manifest lacks a part")
    files: list[BackupFile] = []
    seen: dict[str, None] = {}
    for entry in listed:
        file = _decode_file(entry)
        if file.name in seen:
            raise ManifestFault(f"its manifest names {file.name} twice")
        seen[file.name] = None
        files.append(file)
    return Manifest(
        release,
        _number(fields.get("time_ns"), "time_ns"),
        _number(fields.get("last_sequence"), "last_sequence"),
        files,
        [str(sentence) for sentence in damage],
    )


def _decode_file(entry: object) -> BackupFile:
    if not isinstance(entry, dict):
        raise ManifestFault("its manifest names something that is no file")
    name: object = entry.get("name")
    digest: object = entry.get("sha256")
    if not isinstance(name, str) or not is_backup_name(name):
        raise ManifestFault(f"its manifest names a file that no data directory has: {name!r:.200}")
    if not isinstance(digest, str) or len(digest) != DIGEST_LENGTH or digest.strip("0123456789abcdef"):
        raise ManifestFault(f"its manifest has no digest of {name}")
    size = _number(entry.get("size"), f"size of {name}")
    if size > FILE_SIZE_MAX:
        raise ManifestFault(f"its manifest says that {name} has {size} bytes")
    return BackupFile(name, size, digest)


def _number(value: object, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _NUMBER_MAX:
        raise ManifestFault(f"its manifest has no sensible {what}")
    return value


def is_backup_name(name: str) -> bool:
    """Whether a data directory can hold a file of this name that belongs into a backup."""
    if name == TABLE_NAME or find_stage_id(name):
        return True
    parts = name.split("/")
    if len(parts) == 2 and parts[0] == LOG_FOLDER:
        return _is_number(parts[1].removesuffix(LOG_SUFFIX), _LOG_DIGITS) and parts[1].endswith(LOG_SUFFIX)
    if len(parts) != 3 or parts[0] != QUEUE_FOLDER:
        return False
    queue, file = parts[1], parts[2]
    if not _is_number(queue, 0) or len(queue) > _OFFSET_DIGITS or queue != str(int(queue)):
        return False
    stem, dot, suffix = file.partition(".")
    return _is_number(stem, _OFFSET_DIGITS) and dot + suffix in (SEGMENT_SUFFIX, INDEX_SUFFIX)


def _is_number(text: str, digits: int) -> bool:
    """Digits alone, and as many as said; 0: any count but none."""
    return text.isascii() and text.isdecimal() and (digits == 0 or len(text) == digits)
