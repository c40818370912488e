"""A disk in memory that keeps what it promised and nothing more.

A write is in the page cache until its file is synced; a new, renamed or removed name until its folder is. `crash`
gives the disk as it may be found after a power cut: everything synced, and of the rest any part. Every sector of 512
bytes holds one of the versions it had since the last sync, the size of a file as well, and every change of a folder
may have happened or not. All chance comes from one seed.

A sync that fails is modelled after what kernels do: the pages count as clean from then on, so a later sync that
succeeds says nothing about them.
"""

from __future__ import annotations

import random
from enum import Enum

from millstream.storage.disk import Disk, DiskFault, DiskFile

SECTOR = 512


class PowerCut(BaseException):
    """The machine stops here. No code of ours may catch it."""


class Mood(Enum):
    """How much of what was not synced survives a crash."""

    NOTHING = 0
    SOME = 1
    EVERYTHING = 2


class _Change:
    """A write, or a new size when `data` is None, that no sync has made safe."""

    def __init__(self, offset: int, data: bytes | None) -> None:
        self.offset = offset
        self.data = data
        self.is_lost = False  # a failed sync dropped it from the cache's list of work

    def apply(self, content: bytearray) -> None:
        if self.data is None:
            del content[self.offset :]
            content.extend(bytes(self.offset - len(content)))
            return
        end = self.offset + len(self.data)
        if len(content) < end:
            content.extend(bytes(end - len(content)))
        content[self.offset : end] = self.data


class _Content:
    """What a file holds: on the platter, and in the cache."""

    def __init__(self, safe: bytes = b"") -> None:
        self.safe = bytearray(safe)
        self.cached = bytearray(safe)
        self.changes: list[_Change] = []

    def change(self, change: _Change) -> None:
        change.apply(self.cached)
        self.changes.append(change)

    def make_safe(self) -> None:
        for change in self.changes:
            if not change.is_lost:
                change.apply(self.safe)
        self.changes = [change for change in self.changes if change.is_lost]

    def lose(self) -> None:
        for change in self.changes:
            change.is_lost = True

    def after_crash(self, chance: random.Random, mood: Mood) -> bytes:
        if mood is Mood.NOTHING or not self.changes:
            return bytes(self.safe)
        if mood is Mood.EVERYTHING:
            return bytes(self.cached)
        versions = [bytes(self.safe)]
        content = bytearray(self.safe)
        for change in self.changes:
            change.apply(content)
            versions.append(bytes(content))
        size = len(chance.choice(versions))
        found = bytearray(versions[0][:size])
        found.extend(bytes(size - len(found)))
        for start in range(0, size, SECTOR):
            end = min(start + SECTOR, size)
            seen = dict.fromkeys(version[start:end].ljust(end - start, b"\0") for version in versions)
            if len(seen) > 1:
                found[start:end] = chance.choice(list(seen))
        return bytes(found)


class SimulatedFile(DiskFile):
    def __init__(self, disk: SimulatedDisk, name: str, content: _Content) -> None:
        self._disk = disk
        self._name = name
        self._content = content
        self._is_open = True

    def write_at(self, offset: int, data: bytes) -> None:
        content = self._opened()
        growth = max(0, offset + len(data) - len(content.cached))
        try:
            self._disk.step("write", self._name, growth)
        except PowerCut:
            content.change(_Change(offset, self._part(data)))
            raise
        except DiskFault as fault:
            if not fault.is_full:
                content.change(_Change(offset, self._part(data)))
            raise
        content.change(_Change(offset, bytes(data)))

    def read_at(self, offset: int, size: int) -> bytes:
        content = self._opened()
        self._disk.step("read", self._name)
        return bytes(content.cached[offset : offset + size])

    def sync(self) -> None:
        content = self._opened()
        try:
            self._disk.step("sync", self._name)
        except DiskFault:
            content.lose()
            raise
        if not self._disk.is_lying:
            content.make_safe()

    def truncate(self, size: int) -> None:
        content = self._opened()
        self._disk.step("truncate", self._name, size - len(content.cached))
        content.change(_Change(size, None))

    def size(self) -> int:
        return len(self._opened().cached)

    def close(self) -> None:
        self._opened()
        self._is_open = False

    def _opened(self) -> _Content:
        assert self._is_open, f"{self._name} is used after it was closed"
        return self._content

    def _part(self, data: bytes) -> bytes:
        """A write that is interrupted got somewhere."""
        return bytes(data[: self._disk.chance.randrange(len(data) + 1)])


class SimulatedDisk(Disk):
    """`steps` counts operations; `cut_power_at` stops the machine in the middle of that one."""

    def __init__(self, seed: int | random.Random = 0) -> None:
        self.chance = seed if isinstance(seed, random.Random) else random.Random(seed)
        self.steps = 0
        self.cut_power_at = 0
        self.is_lying = False  # it says a sync is done and does nothing
        self.trace: list[str] = []
        self._free: int | None = None
        self._failing: dict[str, DiskFault] = {}  # by operation
        self._folders: dict[str, None] = {}
        self._safe_names: dict[str, _Content] = {}
        self._names: dict[str, _Content] = {}
        self._moves: list[tuple[str, str, _Content | None]] = []  # (old, new, what a new name holds)

    # ----------------------------------------------------------------- the port

    def create(self, name: str, size: int) -> DiskFile:
        self._check_folder(name)
        if name in self._names:
            raise DiskFault(f"{name}: File exists")
        self.step("create", name, size)
        content = _Content()
        if size:
            content.change(_Change(size, None))
        self._move("", name, content)
        return SimulatedFile(self, name, content)

    def open(self, name: str) -> DiskFile:
        content = self._find(name)
        self.step("open", name)
        return SimulatedFile(self, name, content)

    def names(self, folder: str) -> list[str]:
        return sorted(name for name in self._names if name.rpartition("/")[0] == folder)

    def make_folder(self, folder: str) -> None:
        self.step("make_folder", folder)
        parts = folder.split("/")
        for count in range(1, len(parts) + 1):
            self._folders["/".join(parts[:count])] = None

    def rename(self, old: str, new: str) -> None:
        content = self._find(old)
        self._check_folder(new)
        self.step("rename", old)
        self._move(old, new, content)

    def remove(self, name: str) -> None:
        self.step("remove", name, -len(self._names[name].cached) if name in self._names else 0)
        if name in self._names:
            self._move(name, "", None)

    def sync_folder(self, folder: str) -> None:
        if folder != "." and folder not in self._folders:
            raise DiskFault(f"{folder}: No such file or directory")
        self.step("sync_folder", folder)
        if self.is_lying:
            return
        kept: list[tuple[str, str, _Content | None]] = []
        for move in self._moves:
            if folder in (_folder_of(move[0]), _folder_of(move[1])):
                _apply_move(self._safe_names, move)
            else:
                kept.append(move)
        self._moves = kept

    def remove_folder(self, folder: str) -> bool:
        self.step("remove_folder", folder)
        if folder not in self._folders or self.names(folder):
            return False
        del self._folders[folder]
        return True

    # ------------------------------------------------------------------- faults

    def crash(self, mood: Mood | None = None) -> SimulatedDisk:
        """The disk as it may be found when the power is back."""
        found = self._successor()
        chosen = mood if mood is not None else self.chance.choice(list(Mood))
        names = dict(self._safe_names)
        for move in self._moves:
            survives = self.chance.random() < 0.5 if chosen is Mood.SOME else chosen is Mood.EVERYTHING
            if survives and (not move[0] or move[0] in names):
                _apply_move(names, move)
        for name, content in names.items():
            found._folders[_folder_of(name)] = None
            found._put(name, content.after_crash(self.chance, chosen))
        return found

    def kill(self) -> SimulatedDisk:
        """The disk as the next process finds it: the machine went on, the cache is whole."""
        found = self._successor()
        found._safe_names, found._names, found._moves = self._safe_names, self._names, self._moves
        return found

    def fill(self, free_bytes: int | None) -> None:
        """Leave so much room; None: enough again."""
        self._free = free_bytes

    def fail_next(self, operation: str, is_full: bool = False) -> None:
        """`operation` is the name of a method of the port, with `write` and `read` for a file's."""
        text = "No space left on device" if is_full else "Input/output error"
        self._failing[operation] = DiskFault(text, is_full)

    def flip_bit(self, name: str, offset: int, bit: int = 0) -> None:
        content = self._find(name)
        content.safe[offset] ^= 1 << bit
        content.cached[offset] ^= 1 << bit

    def cut(self, name: str, offset: int) -> None:
        content = self._find(name)
        del content.safe[offset:]
        del content.cached[offset:]

    def content(self, name: str) -> bytes:
        return bytes(self._find(name).cached)

    def replace(self, name: str, data: bytes) -> None:
        """Put these bytes on the platter, as a tool that edits the disk would."""
        self._check_folder(name)
        self._put(name, data)

    # --------------------------------------------------------------- by the files

    def step(self, operation: str, name: str, growth: int = 0) -> None:
        """One operation begins: it may be the last, it may fail, it may find no room."""
        self.steps += 1
        self.trace.append(f"{operation} {name}")
        if self.steps == self.cut_power_at:
            raise PowerCut(f"{operation} {name}")
        fault = self._failing.pop(operation, None)
        if fault is not None:
            raise DiskFault(f"{name}: {fault.text}", fault.is_full, operation in ("sync", "sync_folder"))
        if self._free is not None:
            if growth > self._free:
                raise DiskFault(f"{name}: No space left on device", True)
            self._free -= growth

    def _successor(self) -> SimulatedDisk:
        found = SimulatedDisk(self.chance)
        found._folders = dict(self._folders)
        found.is_lying = self.is_lying
        return found

    def _move(self, old: str, new: str, content: _Content | None) -> None:
        move = (old, new, content)
        self._moves.append(move)
        _apply_move(self._names, move)

    def _put(self, name: str, data: bytes) -> None:
        content = _Content(data)
        self._names[name] = content
        self._safe_names[name] = content

    def _find(self, name: str) -> _Content:
        content = self._names.get(name)
        if content is None:
            raise DiskFault(f"{name}: No such file or directory", is_missing=True)
        return content

    def _check_folder(self, name: str) -> None:
        folder = _folder_of(name)
        if folder != "." and folder not in self._folders:
            raise DiskFault(f"{name}: No such file or directory")


def _folder_of(name: str) -> str:
    return name.rpartition("/")[0] or "."


def _apply_move(names: dict[str, _Content], move: tuple[str, str, _Content | None]) -> None:
    old, new, content = move
    if old:
        names.pop(old, None)
    if new:
        assert content is not None
        names[new] = content
