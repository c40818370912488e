"""One setting of a ready-made pipeline."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Setting:
    default: str
    help: str
    is_required: bool = False
