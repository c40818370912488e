"""Batches become visible once: the journal of a table, kept in its folder `_millstream`.

A batch is done in steps, each of which can be repeated:
  1. `begin`   the manifest is written whole (new file, synced, renamed): from here the batch will be there;
  2. `move`    its files get their visible names;
  3. (Delta, Iceberg: their own commit, which names query and batch)
  4. `finish`  the number of the last batch of that query is kept, the manifest goes.
Whoever comes next finishes what was begun. So a process may die anywhere, and a batch that Spark runs again is known.

Invariants
- What has no visible name yet does not end in `.parquet` and lies in `.staging-…`: no reader takes it for data.
- All steps run under the lock of the table; the lock dies with its process.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import quote

from pyspark_millstream.lake.faults import LakeError, TableDamagedError
from pyspark_millstream.lake.manifest import Manifest, StagedFile, decode_manifest, encode_manifest

STATE_FOLDER: Final = "_millstream"
STAGING_PREFIX: Final = ".staging-"
STAGED_SUFFIX: Final = ".staged"
ONE_TIME: Final = "once."  # a query of this prefix is one batch write that nobody runs again
STALE_S: Final = 24 * 3600.0
LOCK_WAIT_S: Final = 300.0
LOCK_POLL_S: Final = 0.02
QUERY_LENGTH_MAX: Final = 120


class Journal:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root / STATE_FOLDER

    @contextlib.contextmanager
    def lock(self, name: str = "lock", wait_s: float = LOCK_WAIT_S) -> Iterator[None]:
        """One at a time, across processes. Another name is another lock."""
        self.folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(self.folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            _wait_lock(handle, self.root, wait_s)
            yield
        finally:
            os.close(handle)

    def last_batch(self, query: str) -> int:
        """The last batch of that query that is there whole; -1 before the first."""
        text = _read_text(self._done_file(query))
        if text is None:
            return -1
        try:
            return int(json.loads(text)["batch"])
        except (KeyError, TypeError, ValueError):
            raise TableDamagedError(
                f"{self._done_file(query)} cannot be read", "Bring it back from a copy of the table."
            ) from None

    def begun(self) -> list[Manifest]:
        """Batches that were promised and are not finished, oldest first."""
        manifests = []
        for file in sorted(self.folder.glob("batch-*.json")):
            manifest = decode_manifest(file.read_text(encoding="utf-8"), str(file))
            if manifest.batch <= self.last_batch(manifest.query):
                file.unlink(missing_ok=True)  # finished; only this file was left
            else:
                manifests.append(manifest)
        return sorted(manifests, key=lambda one: one.batch)

    def begin(self, manifest: Manifest) -> None:
        sync_folder(self.root)  # the staging folder must not be lost before the promise is
        write_whole(self._manifest_file(manifest.query, manifest.batch), encode_manifest(manifest))

    def move(self, manifest: Manifest) -> None:
        """Give the files their visible names; those that have them already are left alone."""
        folders: set[Path] = set()
        for file in manifest.files:
            folders |= self._move_file(file)
        for folder in sorted(folders):
            sync_folder(folder)

    def finish(self, manifest: Manifest, is_remembered: bool = True) -> None:
        """`is_remembered` is False for a write that nobody can run again under the same name."""
        if is_remembered:
            write_whole(self._done_file(manifest.query), json.dumps({"batch": manifest.batch}))
        self._manifest_file(manifest.query, manifest.batch).unlink(missing_ok=True)

    def staging_folder(self, query: str, batch: int) -> Path:
        return self.root / f"{STAGING_PREFIX}{_file_part(query)}-{batch}"

    def sweep(self, query: str, batch: int, now_s: float) -> None:
        """Remove what batches of the query up to this one left, and what anybody left a day ago. None is begun."""
        own = f"{STAGING_PREFIX}{_file_part(query)}-"
        for folder in self.root.glob(f"{STAGING_PREFIX}*"):
            number = folder.name.removeprefix(own)
            is_own = number != folder.name and number.isdigit() and int(number) <= batch
            if is_own or now_s - _newest_change_s(folder) > STALE_S:
                shutil.rmtree(
                    folder, ignore_errors=True
                )  # a task that still writes there keeps it; next time

    def _move_file(self, file: StagedFile) -> set[Path]:
        source, target = self.root / file.staged, self.root / file.target
        folders = _made_folders(target.parent, self.root)
        try:
            os.rename(source, target)
        except FileNotFoundError:
            if not target.exists():
                raise TableDamagedError(
                    f"the table {self.root} lost the file {file.staged} of a batch that was begun",
                    "Bring it back from a copy, or remove the batch file in _millstream and run that batch again.",
                ) from None
        return {*folders, target.parent}

    def _manifest_file(self, query: str, batch: int) -> Path:
        return self.folder / f"batch-{_file_part(query)}-{batch}.json"

    def _done_file(self, query: str) -> Path:
        return self.folder / f"done-{_file_part(query)}.json"


def _file_part(query: str) -> str:
    part = quote(query, safe="")
    if not part or len(part) > QUERY_LENGTH_MAX or part.startswith("."):
        raise LakeError(
            f"the name of a query must have 1 to {QUERY_LENGTH_MAX} plain letters, not `{query[:40]}`",
            "Choose another txnAppId.",
        )
    return part


def _wait_lock(handle: int, root: Path, wait_s: float) -> None:
    deadline = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise LakeError(
                    f"another process has held the table {root} for {wait_s:.0f} s",
                    "Wait for it, or stop it.",
                ) from None
            time.sleep(LOCK_POLL_S)


def _made_folders(folder: Path, root: Path) -> set[Path]:
    """Make the folder; the answer is every folder above it that got a new entry."""
    changed = set()
    missing = folder
    while missing != root and not missing.exists():
        changed.add(missing.parent)
        missing = missing.parent
    folder.mkdir(parents=True, exist_ok=True)
    return changed


def _newest_change_s(folder: Path) -> float:
    newest = 0.0
    for place in [folder, *folder.glob("*")]:
        try:
            newest = max(newest, place.stat().st_mtime)
        except FileNotFoundError:
            continue  # removed meanwhile: it does not keep the folder
    return newest


def _read_text(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None


def write_whole(file: Path, text: str) -> None:
    """The file is there with all of the text, or as it was; after a crash as well."""
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_name(f".{file.name}.{os.getpid()}")
    with fresh.open("w", encoding="utf-8") as handle:
        handle.write(text)
        handle.flush()
        os.fsync(handle.fileno())
    os.rename(fresh, file)
    sync_folder(file.parent)


def sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_file(file: Path) -> None:
    handle = os.open(file, os.O_RDONLY)
    try:
        os.fdatasync(handle)
    finally:
        os.close(handle)
