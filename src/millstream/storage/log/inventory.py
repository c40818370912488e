"""Compares the files of the log with the manifest: what is missing, cut short, older than it must be, or of another directory.

Damage inside a file that leaves the end of the log known is left out and named, as damage always is. Where the end itself is in
question nothing may be appended: offsets and numbers that were given would be given again. A start refuses then.

A file that the manifest does not name is ours where it continues the log without a gap: the manifest is an older copy, or a
release without manifests ran in between. That is told. Any other one is not ours. Facts that cannot be read are no gap where the
head of their batch says which they were.
"""

from __future__ import annotations

from typing import Final, final

from millstream.storage.disk import Disk, DiskFault
from millstream.storage.log.files import file_name, file_number
from millstream.storage.log.recovery import UNKNOWN_SALT, Damage, RecoveredFile, log_names, read_file
from millstream.storage.manifest import (
    FOREIGN,
    MISSING,
    NEWER,
    NOT_ENDED,
    OLDER,
    RUNNING,
    TABLE_FILE,
    UNREADABLE,
    Incomplete,
    LoggedFile,
    Manifest,
)
from millstream.storage.manifest import NAME as MANIFEST_NAME
from millstream.storage.records.fold import is_known_kind

ANOTHERS: Final = "belongs to another data directory"


@final
class LogContent:
    """What the files behind the last checkpoint hold."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.files: list[RecoveredFile] = []
        self.folded: list[str] = []  # that a checkpoint did not come to remove
        self.faults: list[Incomplete] = []  # each alone is reason enough not to start
        self.notices: list[Incomplete] = []  # what is wrong and costs nothing
        self.last_number = 0

    def is_unread(self) -> bool:
        """The disk does not give all of it: where the log ends, and what follows what, is not known."""
        return any([found.read_fault != "" for found in self.files])

    def last_sequence(self, folded: int) -> int:
        for found in reversed(self.files):
            if found.records:
                return max(folded, int(found.records[-1].sequence))
        return folded


def read_log(disk: Disk, folded: int, folded_sequence: int, manifest: Manifest | None) -> LogContent:
    """Read everything behind the last file and fact that are folded; change nothing."""
    content = LogContent()
    last = told = folded_sequence
    names = log_names(disk)
    for name in names:
        number = file_number(name)
        content.last_number = max(content.last_number, number)
        if number <= folded:
            content.folded.append(name)
            continue
        listed = None if manifest is None else manifest.logs.get(number)
        salt = UNKNOWN_SALT if listed is None else listed.salt
        found = _read_if_given(disk, name, name == names[-1], salt)
        content.names.append(name)
        content.files.append(found)
        if found.read_fault:
            content.faults.append(Incomplete(name, found.read_fault, UNREADABLE))
        elif manifest is not None:
            _compare(content, found, listed, name == names[-1], last < found.told_first <= told + 1)
        if not _is_foreign(content, name):
            _check_kinds(content, found)
            told = max(told, found.told_last, NOT_ENDED if listed is None else listed.last)
            if found.records:
                last = max(last, int(found.records[-1].sequence))
    if manifest is not None:
        for number in manifest.logs:
            if number > folded and file_name(number) not in content.names:
                content.faults.append(Incomplete(file_name(number), "is missing", MISSING))
    return content


def _check_kinds(content: LogContent, found: RecoveredFile) -> None:
    """What a later release has told, this one cannot do without: it would go on as if it had never been."""
    for record in found.records:
        if not is_known_kind(int(record.kind)):
            text = f"was written by a newer release: it holds facts of kind {int(record.kind)}"
            content.faults.append(Incomplete(found.name, text, NEWER))
            return


def _read_if_given(disk: Disk, name: str, is_last: bool, salt: int) -> RecoveredFile:
    try:
        return read_file(disk, name, is_last, salt)
    except DiskFault as fault:
        found = RecoveredFile(name, file_number(name))
        found.read_fault = f"cannot be read ({fault.text})"
        return found


def read_own_file(disk: Disk, name: str, manifest: Manifest | None) -> RecoveredFile:
    """One that was ended, while its broker runs. Of a file that is another's by now nothing is believed."""
    listed = None if manifest is None else manifest.logs.get(file_number(name))
    found = read_file(disk, name, False, UNKNOWN_SALT if listed is None else listed.salt)
    if listed is not None and _is_anothers(found, listed):
        found.records.clear()
        found.damage = [Damage(name, 0, found.size, ANOTHERS)]
    return found


def _is_anothers(found: RecoveredFile, listed: LoggedFile) -> bool:
    return not found.header_fault and found.salt != listed.salt


def has_own_log(disk: Disk, manifest: Manifest) -> bool:
    """Whether a file of the log is one that the manifest names."""
    for name in log_names(disk):
        listed = manifest.logs.get(file_number(name))
        if listed is None:
            continue
        found = _read_if_given(disk, name, True, UNKNOWN_SALT)
        if found.read_fault:
            return True  # nobody can say that it is not
        if not found.header_fault and found.salt == listed.salt:
            return True
    return False


def _is_foreign(content: LogContent, name: str) -> bool:
    return any(fault.name == name and fault.kind == FOREIGN for fault in content.faults)


def _compare(
    content: LogContent, found: RecoveredFile, listed: LoggedFile | None, is_last: bool, continues: bool
) -> None:
    """`continues`: its facts begin behind those before it."""
    if listed is None:
        if continues:
            text = f"does not name {found.name}, which continues the log and is used: it is an older copy, or an older release ran"
            content.notices.append(Incomplete(MANIFEST_NAME, text, OLDER))
        elif (found.records or found.damage) and not content.is_unread():
            text = "belongs to another data directory, or was put back: the manifest does not name it"
            content.faults.append(Incomplete(found.name, text, FOREIGN))
        return
    if found.size == 0:
        content.faults.append(Incomplete(found.name, "is empty"))
    elif _is_anothers(found, listed):
        content.faults.append(Incomplete(found.name, ANOTHERS, FOREIGN))
    elif found.size < listed.size:
        text = f"is cut short: it ends at byte {found.size} of {listed.size}"
        content.faults.append(Incomplete(found.name, text))
    elif found.is_unused or (found.header_fault and not found.records):
        content.faults.append(Incomplete(found.name, f"cannot be read: {found.header_fault}"))
    elif found.header_fault and not found.damage:
        found.damage.append(Damage(found.name, 0, 32, found.header_fault))
    if listed.last != NOT_ENDED and not found.damage and not found.is_unused:
        text = _find_missing_end(found, listed.last)
        if text and is_last:
            content.faults.append(Incomplete(found.name, f"lacks its end: {text}"))
        elif text:
            found.damage.append(Damage(found.name, found.end, found.size, text))


def _find_missing_end(found: RecoveredFile, last: int) -> str:
    """Of a file with another one behind it, or of one that was closed: all that was in it was safe."""
    end = int(found.records[-1].sequence) if found.records else 0
    if end >= last:
        return ""
    first = f"from {end + 1}" if end else "up"
    return f"the facts {first} to {last} are missing; the file is damaged, or an older copy of it"


def check_bounds(manifest: Manifest, content: LogContent, folded_file: int, folded_sequence: int) -> None:
    """The log begins where the table ends, and that of a broker that stopped cleanly ends where it said."""
    _check_beginning(content, folded_file, folded_sequence)
    if manifest.stopped_at == RUNNING or content.is_unread():
        return
    last = content.last_sequence(folded_sequence)
    if last < manifest.stopped_at:
        name = content.names[-1] if content.names else "log"
        text = f"ends at fact {last}, and the broker stopped at {manifest.stopped_at}: the facts between are missing"
        content.faults.append(Incomplete(name, text))


def _check_beginning(content: LogContent, folded_file: int, folded_sequence: int) -> None:
    """A file goes when it is folded. Where one is gone and its facts are not in the table, that is not the table they went to."""
    for found in content.files:
        if not found.records:
            continue
        first = int(found.records[0].sequence)
        if found.number > folded_file + 1 and first > folded_sequence + 1 and not content.faults:
            text = f"is older than the log: it holds the facts up to {folded_sequence}, and the log begins with {first}"
            content.faults.append(Incomplete(TABLE_FILE, text, OLDER))
        return


def list_kept(content: LogContent, manifest: Manifest) -> None:
    """Name in the manifest what a start is going to keep, and no end that is not known to be safe yet. A file that got its name and
    nothing else, because the disk was full then, is kept unnamed: a start on a full disk must not need room for that."""
    listed = manifest.logs
    manifest.logs = {}
    for found in content.files:
        known = listed.get(found.number)
        if found.is_unused or (known is None and not found.records and not found.damage):
            continue
        if known is None:
            known = LoggedFile(found.number, found.salt, int(found.end))
        elif found.damage:
            known.last = NOT_ENDED  # it has been told, and is folded as it is
        manifest.logs[found.number] = known
    manifest.last_log = max(manifest.last_log, content.last_number)


def note_ends(content: LogContent, manifest: Manifest) -> None:
    """All that is kept has been made safe, and none of it will be written again."""
    for found in content.files:
        listed = manifest.logs.get(found.number)
        if listed is not None and found.records and not found.damage:
            listed.last = int(found.records[-1].sequence)
