"""The manifest of a data directory: whose it is, and which files it must hold.

Without it a file that is missing looks like one that never was. It names the files of the log with the salt of each, how
far the log was folded into the table, and the highest numbers that were ever given to files of the log and to queues. The table
carries the same identity, and the segments of every queue stand in the table (segments/inventory.py), with which they change.

    body    JSON (mark_file.py has what is around it)

Invariants
- It is written before what it must name is used: a file of the log before its first batch, the end of one before the first
  batch of the next. A crash between two steps leaves a file more than it names, and never one less.
- A file goes when the table says that it is folded; the manifest may name it for a while longer. So what must be there is
  what the manifest names behind the last file that is folded.
- One that is torn, of another kind or of another version is damage, never a new beginning.
- A directory without a manifest is new, or of a release that wrote none: then its table has no identity either.

To change the format: raise VERSION, go on reading the old one.
"""

from __future__ import annotations

import json
from typing import Final, final

from millstream.storage.disk import Disk, DiskFault
from millstream.storage.log.files import LogRegister
from millstream.storage.marks.doubt_mark import NO_SESSION
from millstream.storage.marks.mark_file import MarkFile, UnclearMark

NAME: Final = "manifest"
TABLE_FILE: Final = "state/data.mdb"  # the other one that carries the identity
VERSION: Final = 1
MAGIC: Final = 0x464D534D  # MSMF
BODY_MAX: Final = 64 * 1024 * 1024
IDENTITY_LENGTH: Final = 32
RUNNING: Final = -1  # where the sequence of a clean stop would stand
NOT_ENDED: Final = -1  # where the last sequence of a file of the log would stand
MISSING: Final = "missing"
DAMAGED: Final = "damaged"
FOREIGN: Final = "foreign"
OLDER: Final = "older"
NEWER: Final = "newer"  # a later release has written it
UNREADABLE: Final = "unreadable"  # the disk does not give it
FILE: Final = MarkFile(NAME, MAGIC, VERSION, BODY_MAX)


@final
class LoggedFile:
    """A file of the log: it has at least `size` bytes, and ends with the fact `last` if it will not be written again."""

    def __init__(self, number: int, salt: int, size: int, last: int = NOT_ENDED) -> None:
        self.number = number
        self.salt = salt
        self.size = size
        self.last = last


@final
class Manifest:
    def __init__(self, identity: str) -> None:
        self.identity = identity
        self.generation = 0  # how often it was written
        self.is_table_marked = False  # the table has the identity for certain
        self.folded_file = 0  # at least so much is folded into the table
        self.folded_sequence = 0
        self.last_log = 0  # highest number of a file of the log, ever
        self.last_queue = 0  # and of a queue
        self.stopped_at = RUNNING  # the last fact there was when the broker stopped cleanly
        self.doubted = NO_SESSION  # as in the mark of doubt (doubt_mark.py)
        self.logs: dict[int, LoggedFile] = {}

    def copy(self) -> Manifest:
        return decode_manifest(encode_manifest(self))


class ManifestFault(Exception):
    """There is one, and nobody knows what it says."""


def encode_manifest(manifest: Manifest) -> bytes:
    fields = {
        "identity": manifest.identity,
        "generation": manifest.generation,
        "is_table_marked": manifest.is_table_marked,
        "folded_file": manifest.folded_file,
        "folded_sequence": manifest.folded_sequence,
        "last_log": manifest.last_log,
        "last_queue": manifest.last_queue,
        "stopped_at": manifest.stopped_at,
        "doubted": manifest.doubted,
        "logs": [[file.number, file.salt, file.size, file.last] for file in manifest.logs.values()],
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_manifest(body: bytes) -> Manifest:
    """The checksum around it was right: what cannot be read was never written."""
    fields = json.loads(body)
    manifest = Manifest(fields["identity"])
    manifest.generation = fields["generation"]
    manifest.is_table_marked = fields["is_table_marked"]
    manifest.folded_file = fields["folded_file"]
    manifest.folded_sequence = fields["folded_sequence"]
    manifest.last_log = fields["last_log"]
    manifest.last_queue = fields["last_queue"]
    manifest.stopped_at = fields["stopped_at"]
    manifest.doubted = fields["doubted"]
    for number, salt, size, last in fields["logs"]:
        manifest.logs[number] = LoggedFile(number, salt, size, last)
    return manifest


def find_manifest(disk: Disk) -> Manifest | None:
    """None where there is none. ManifestFault where it cannot be read."""
    try:
        body = FILE.find(disk)
    except UnclearMark:
        raise ManifestFault from None
    if body is None:
        return None
    try:
        return decode_manifest(body)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ManifestFault from None


@final
class ManifestKeeper(LogRegister):
    """Writes the manifest when files of the log come, and at starts and stops. One thread at a time."""

    def __init__(self, disk: Disk, manifest: Manifest) -> None:
        self._disk = disk
        self.manifest = manifest
        self._folded = (manifest.folded_file, manifest.folded_sequence)
        self._last_queue = manifest.last_queue

    def note_folded(self, file: int, sequence: int) -> None:
        """As the table has committed it. Goes with the next that is written: until then the files it speaks of are still named."""
        self._folded = max(self._folded, (file, sequence))

    def note_queue(self, number: int) -> None:
        """The highest so far; goes with the next that is written."""
        self._last_queue = max(self._last_queue, number)

    def begin_log(self, number: int, salt: int, size: int, ended: int, last: int) -> None:
        new = self.manifest.copy()
        if ended in new.logs:
            new.logs[ended].last = last
        new.logs[number] = LoggedFile(number, salt, size)
        new.last_log = max(new.last_log, number)
        new.stopped_at = RUNNING
        self.write(new)

    def open(self) -> None:
        """The broker runs from here on: it has not stopped. Where there is no room to say so the worst that comes of it is
        that the next start misses the mark of this stop."""
        if self.manifest.stopped_at == RUNNING:
            return
        new = self.manifest.copy()
        new.stopped_at = RUNNING
        try:
            self.write(new)
        except DiskFault as fault:
            if not fault.is_full:
                raise

    def stop(self, last_sequence: int, last_in_file: int) -> None:
        """All is safe, and nothing will be written any more. `last_in_file`: the last fact in the newest file; 0: this run
        has written none to it."""
        new = self.manifest.copy()
        new.stopped_at = last_sequence
        newest = new.logs.get(new.last_log)
        if newest is not None and last_in_file:
            newest.last = last_in_file
        self.write(new)

    def doubt(self, last_session: int) -> None:
        """As the mark of doubt says: after that was written, before it is removed."""
        if self.manifest.doubted != last_session:
            new = self.manifest.copy()
            new.doubted = last_session
            self.write(new)

    def end_doubt(self) -> bool:
        """Nobody is in doubt any more. False where there is no room to say so: then the mark has to stay, and the next start
        finds the same."""
        try:
            self.doubt(NO_SESSION)
        except DiskFault as fault:
            if not fault.is_full:
                raise
            return False
        return True

    def change_to(self, new: Manifest) -> None:
        """Written now only if it names other files; else with the next change, so that a full disk stops no start."""
        self._complete(new)
        if self.manifest.generation == 0 or list(new.logs) != list(self._complete(self.manifest).logs):
            self.write(new)
        else:
            self.manifest = new

    def write(self, new: Manifest) -> None:
        """In place of the one before, or not at all: a DiskFault leaves that one in force."""
        self._complete(new)
        new.generation = self.manifest.generation + 1
        FILE.write(self._disk, encode_manifest(new))
        self.manifest = new

    def _complete(self, new: Manifest) -> Manifest:
        new.folded_file, new.folded_sequence = self._folded
        new.last_queue = max(new.last_queue, self._last_queue)
        for number in [number for number in new.logs if number <= new.folded_file]:
            del new.logs[number]
        return new


def remove_manifest(disk: Disk) -> None:
    FILE.remove(disk)


class Incomplete(DiskFault):
    """What must be there is missing, cut short, older than the rest, or of another directory. Nothing was changed."""

    def __init__(self, name: str, text: str, kind: str = DAMAGED) -> None:
        super().__init__(f"{name} {text}")
        self.name = name
        self.what = text
        self.kind = kind
