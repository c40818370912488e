"""What may happen to one file of a data directory: it is gone, cut, zeroed, exchanged, older, of another broker, or flipped."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

CUTS: Final = 20
FLIPS: Final = 4
PAGE: Final = 4096


class Worlds:
    """Copies of one directory: as it is, as it was before, and of another broker."""

    def __init__(self, now: Path, older: Path, other: Path) -> None:
        self.now = now
        self.older = older
        self.other = other

    def names(self) -> list[str]:
        """Of all files that a broker leaves."""
        found = [path.relative_to(self.now) for path in self.now.rglob("*") if path.is_file()]
        return sorted([str(name) for name in found])


class Case:
    def __init__(self, name: str, harm: str, number: int = 0) -> None:
        self.name = name
        self.harm = harm
        self.number = number

    def title(self) -> str:
        return f"{self.name}: {self.harm}" + (f" {self.number}" if self.number else "")


def list_cases(worlds: Worlds) -> list[Case]:
    cases: list[Case] = []
    for name in worlds.names():
        cases += [Case(name, harm) for harm in ("missing", "empty", "zeroed page", "garbage page")]
        cases += [Case(name, "cut", number) for number in range(CUTS)]
        cases += [Case(name, "flip", number) for number in range(FLIPS)]
        cases += [Case(name, "swapped")] if _kin_of(worlds, name) else []
        cases += [Case(name, "older")] if (worlds.older / name).is_file() else []
        cases += [Case(name, "other")] if (worlds.other / name).is_file() else []
    return cases


def kind_of(name: str) -> str:
    """Files of one kind have the same format."""
    folder, _, last = name.rpartition("/")
    return f"{folder.split('/')[0]}/*.{last.rpartition('.')[2]}" if folder else last


def _kin_of(worlds: Worlds, name: str) -> list[str]:
    return [other for other in worlds.names() if other != name and kind_of(other) == kind_of(name)]


def do_harm(worlds: Worlds, folder: Path, case: Case, chance: random.Random) -> bool:
    """Harm a file of a copy. False where it is afterwards what it was before."""
    path = folder / case.name
    before = path.read_bytes()
    harms: dict[str, Callable[[], None]] = {
        "missing": path.unlink,
        "empty": lambda: path.write_bytes(b"") and None,
        "zeroed page": lambda: _put_page(path, chance, bytes(PAGE)),
        "garbage page": lambda: _put_page(path, chance, chance.randbytes(PAGE)),
        "cut": lambda: _cut(path, case.number, chance),
        "flip": lambda: _flip(path, chance),
        "swapped": lambda: _swap(path, folder / chance.choice(_kin_of(worlds, case.name))),
        "older": lambda: _replace(path, worlds.older / case.name),
        "other": lambda: _replace(path, worlds.other / case.name),
    }
    harms[case.harm]()
    return not path.exists() or path.read_bytes() != before


def _replace(path: Path, source: Path) -> None:
    shutil.copyfile(source, path)


def _used_size(data: bytes) -> int:
    """Files of the log are reserved to their full size: what was never written is not worth harming."""
    return max(len(data.rstrip(b"\0")), 1) if data else 0


def _put_page(path: Path, chance: random.Random, page: bytes) -> None:
    data = bytearray(path.read_bytes())
    if data:
        start = chance.randrange(_used_size(data)) // PAGE * PAGE
        end = min(start + PAGE, len(data))
        data[start:end] = page[: end - start]
        path.write_bytes(data)


def _cut(path: Path, number: int, chance: random.Random) -> None:
    """At places spread over the file, the first and the last byte among them."""
    data = path.read_bytes()
    if len(data) < 2:
        return
    used = _used_size(data)
    if number < 2:
        place = (1, len(data) - 1)[number]
    else:
        part = used / (CUTS - 2)
        place = int(part * (number - 2) + chance.random() * part)
    path.write_bytes(data[: max(1, min(place, len(data) - 1))])


def _flip(path: Path, chance: random.Random) -> None:
    data = bytearray(path.read_bytes())
    if data:
        for _ in range(chance.choice((1, 1, 1, 8))):
            data[chance.randrange(_used_size(data))] ^= 1 << chance.randrange(8)
        path.write_bytes(data)


def _swap(path: Path, other: Path) -> None:
    own, others = path.read_bytes(), other.read_bytes()
    path.write_bytes(others)
    other.write_bytes(own)
