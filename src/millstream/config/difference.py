"""What changes between two configurations, and which of the changes need a restart."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.config.keys import KeyPath, all_keys, to_known
from millstream.config.schema import Config


@dataclass(frozen=True)
class Change:
    """One key with its value before and after; None also stands for a key that is not there."""

    key: str
    old: object
    new: object
    needs_restart: bool


def difference(old: Config, new: Config) -> list[Change]:
    before, after = flatten(old), flatten(new)
    changes: list[Change] = []
    for path in [*before, *(path for path in after if path not in before)]:
        if before.get(path) != after.get(path):
            is_live = to_known(path) in _live_paths()
            changes.append(
                Change(".".join(path), before.get(path), after.get(path), needs_restart=not is_live)
            )
    return changes


def flatten(config: Config) -> dict[KeyPath, object]:
    """Every key that holds a value, in the order of the schema; values as JSON can write them."""
    return _flatten(config.model_dump(mode="json"), ())


def _flatten(values: dict[str, object], path: KeyPath) -> dict[KeyPath, object]:
    flat: dict[KeyPath, object] = {}
    for name, value in values.items():
        inner = (*path, name)
        if isinstance(value, dict):
            flat.update(_flatten(value, inner))
        else:
            flat[inner] = value
    return flat


def _live_paths() -> set[KeyPath]:
    return {key.path for key in all_keys() if key.facts.get("live")}
