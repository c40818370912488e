"""What the broker's log says it did about its memory: every policy that was applied, counted."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

STATES = ("memory_high", "memory_critical")
OFFENDER = "memory_offender"
FAILURE = "connection_failed"
LEFT_OUT = "left_out"  # lines of the event that were not written before this one


@dataclass
class Policies:
    began: dict[str, int] = field(default_factory=dict)
    ended: dict[str, int] = field(default_factory=dict)
    offenders: dict[str, int] = field(default_factory=dict)  # by kind
    freed_bytes: int = 0
    failures: list[str] = field(default_factory=list)

    def still_held(self) -> list[str]:
        return [name for name in STATES if self.began.get(name, 0) > self.ended.get(name, 0)]


def add(counts: dict[str, int], name: str, count: int = 1) -> None:
    counts[name] = counts.get(name, 0) + count


def count_policies(lines: Iterable[str]) -> Policies:
    found = Policies()
    for line in lines:
        try:
            fields = json.loads(line)
        except ValueError:
            if "Traceback" in line:
                found.failures.append(line)
            continue
        event = fields.get("event")
        if event == OFFENDER:
            add(found.offenders, str(fields.get("kind")), 1 + int(fields.get(LEFT_OUT, 0)))
            found.freed_bytes += int(fields.get("freed", 0))
        elif event == FAILURE:
            found.failures.append(line[:400])
        elif event == "condition_began" and fields.get("condition") in STATES:
            add(found.began, fields["condition"])
        elif event == "condition_ended" and fields.get("condition") in STATES:
            add(found.ended, fields["condition"])
    return found
