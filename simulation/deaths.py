"""The places where a life can end, and the ends that lead to those of them that only a later life can reach.

Most of a recovery has something to do only after a crash of a certain kind: a batch to cut needs one that was torn, a
file to remove needs a checkpoint or a new file that was left half done.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from millstream.storage.disk import Disk
from millstream.storage.log.files import FOLDER, PREPARED, file_name, file_number
from millstream.storage.log.recovery import log_names, read_file
from millstream.storage.manifest import find_manifest
from millstream.storage.segments.writer import FAILPOINTS as SEGMENT_FAILPOINTS
from simulation.disk import Mood, SimulatedDisk
from simulation.failpoints import DeadlyFailpoints

LOG_FAILPOINTS = (
    "log.before_create",
    "log.after_create",
    "log.after_header",
    "log.after_header_sync",
    "log.after_folder_sync",
    "log.after_register",
    "log.before_write",
    "log.after_write",
    "log.after_sync",
)
CHECKPOINT_FAILPOINTS = (
    "checkpoint.before_commit",
    "checkpoint.after_commit",
    "checkpoint.after_drop",
    "checkpoint.after_remove",
    "checkpoint.after_folder_sync",
)
REMOVE_UNUSED = "recover.after_remove_unused"
RECOVERY_FAILPOINTS = (
    "recover.after_remove_folded",
    REMOVE_UNUSED,
    "recover.before_cut",
    "recover.after_cut",
    "recover.after_rewrite",
    "recover.after_sync",
    "recover.after_folder_sync",
)
QUARANTINE_FAILPOINTS = ("quarantine.before_rename", "quarantine.after_rename")
FAILPOINTS = (
    LOG_FAILPOINTS + CHECKPOINT_FAILPOINTS + SEGMENT_FAILPOINTS + RECOVERY_FAILPOINTS + QUARANTINE_FAILPOINTS
)
ANY_MOOD = tuple(Mood)
GARBAGE = 64  # bytes behind the last batch of a file that is spoiled


class Death:
    """A place, how often it is passed before, and how much of what was not synced survives.

    `is_torn`: the power goes in the middle of what follows that place.
    """

    def __init__(
        self,
        place: str,
        moods: Sequence[Mood] = ANY_MOOD,
        is_torn: bool = False,
        counts: Sequence[int] = (1, 2, 4, 10, 25),
    ) -> None:
        self.place = place
        self.moods = moods
        self.is_torn = is_torn
        self._counts = counts

    def arm(self, chance: random.Random, disk: SimulatedDisk) -> DeadlyFailpoints:
        return DeadlyFailpoints(self.place, chance.choice(self._counts), disk if self.is_torn else None)

    def ending(self) -> str:
        return f"in the middle of what follows {self.place}" if self.is_torn else self.place


NOT_NOTHING = (Mood.SOME, Mood.EVERYTHING)
TO_A_CUT = (
    Death("log.before_write", NOT_NOTHING, is_torn=True),
    Death("log.before_write", NOT_NOTHING, is_torn=True),
    Death("log.after_write", (Mood.SOME,)),
)
TO_A_CUT_SEGMENT = (
    Death("segment.before_sync", NOT_NOTHING),
    Death("segment.before_write", NOT_NOTHING, is_torn=True),
    Death("segment.after_finish"),
)
WAYS: dict[str, tuple[Death, ...]] = {
    "recover.before_cut": TO_A_CUT,
    "recover.after_cut": TO_A_CUT,
    "recover.after_remove_folded": (
        Death("checkpoint.after_commit", counts=(1, 2)),
        Death("checkpoint.after_drop", counts=(1, 2)),
        Death("checkpoint.after_remove", (Mood.NOTHING, Mood.SOME), counts=(1, 2)),
    ),
    # and where a file was being made, it is given its name when the power is back
    REMOVE_UNUSED: (
        Death("log.after_create", (Mood.EVERYTHING,), counts=(1, 2, 4)),
        Death("log.after_create", NOT_NOTHING, is_torn=True, counts=(1, 2, 4)),
        Death("log.after_header", (Mood.SOME,), counts=(1, 2, 4)),
    ),
    "segment.before_cut": TO_A_CUT_SEGMENT,
    "segment.after_cut": TO_A_CUT_SEGMENT,
    "segment.after_cut_sync": TO_A_CUT_SEGMENT,
    # garbage is put behind the end of a file when the power is back, if there is another file behind that one
    "quarantine.before_rename": (Death("log.after_write"), Death("checkpoint.before_commit")),
    "quarantine.after_rename": (Death("log.after_write"), Death("checkpoint.before_commit")),
}
DEFAULT_WAY = (Death("segment.before_sync"),)


def choose_death(chance: random.Random, place: str) -> Death:
    """At that place, or where a later life can get there from."""
    ways = WAYS.get(place, DEFAULT_WAY)
    if chance.random() < (0.5 if place in WAYS else 0.3):
        return chance.choice(ways)
    if place in RECOVERY_FAILPOINTS or place in QUARANTINE_FAILPOINTS:
        return Death(place, counts=(1, 1, 1, 2))  # a start passes there once or twice
    return Death(place)


def find_spoilable(disk: Disk, folded: int) -> str:
    """A file of the log that is to be read again and has another one behind it; empty: there is none."""
    for name in log_names(disk)[:-1]:
        if file_number(name) > folded:
            return name
    return ""


def spoil(disk: SimulatedDisk, name: str, chance: random.Random) -> bytes:
    """Damage that takes nothing away: garbage where nothing was written. Gives what the file holds now."""
    end = read_file(disk, name, False).end
    file = disk.open(name)
    file.write_at(end, chance.randbytes(GARBAGE))
    file.sync()
    file.close()
    return disk.content(name)


def name_unfinished(disk: Disk) -> str:
    """Give the next file its name although it was not made to its end, as releases did that made it in its place. Only where
    the one before it has ended. Its name, empty: there is none."""
    manifest = find_manifest(disk)
    if manifest is None or PREPARED not in disk.names(FOLDER):
        return ""
    name = file_name(manifest.last_log + 1)
    disk.rename(PREPARED, name)
    disk.sync_folder(FOLDER)
    return name


def quarantine_name(name: str) -> str:
    return f"quarantine{name[len(FOLDER) :]}"
