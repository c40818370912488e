"""Judges copies of streams: is every record of the source there, once, and as it was? Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

Place = tuple[str, int]  # queue and offset
SHOWN_MAX: Final = 5


@dataclass
class CopyVerdict:
    """`faults` is empty when the copy is exact."""

    sink: str
    source_rows: int
    rows: int = 0
    lost: int = 0
    duplicated: int = 0
    changed: int = 0
    faults: list[str] = field(default_factory=list)

    def blame(self, places: list[Place], what: str) -> int:
        if places:
            shown = ", ".join(f"{queue} {offset}" for queue, offset in sorted(places)[:SHOWN_MAX])
            self.faults.append(f"{self.sink}: {len(places)} records {what}: {shown}")
        return len(places)


def check_copy(
    sink: str, source: Mapping[Place, bytes], found: Iterable[tuple[str, int, bytes]]
) -> CopyVerdict:
    verdict = CopyVerdict(sink, len(source))
    seen: set[Place] = set()
    twice: list[Place] = []
    changed: list[Place] = []
    for queue, offset, payload in found:
        place = (queue, offset)
        verdict.rows += 1
        if place in seen:
            twice.append(place)
        seen.add(place)
        if source.get(place) != payload:
            changed.append(place)
    verdict.lost = verdict.blame([place for place in source if place not in seen], "lost")
    verdict.duplicated = verdict.blame(twice, "more than once")
    verdict.changed = verdict.blame(changed, "that are not as in the source")
    return verdict
