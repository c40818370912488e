"""One costly input, and the table that every module of inputs adds to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.turns_suite.world import World

Prepare = Callable[[World], Any]
Act = Callable[[World, Any], None]


@dataclass(frozen=True)
class Case:
    name: str
    title: str
    prepare: Prepare  # what is there before; not measured
    act: Act  # what is measured, until it is answered
    settings: tuple[str, ...] = ()


CASES: dict[str, Case] = {}


def case(name: str, title: str, prepare: Prepare, settings: tuple[str, ...] = ()) -> Callable[[Act], Act]:
    def enter(act: Act) -> Act:
        assert name not in CASES, name
        CASES[name] = Case(name, title, prepare, act, settings)
        return act

    return enter
