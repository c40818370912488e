"""One attack as the suite knows it, and the table that every module of attacks adds to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.attack_suite.target import Target

Facts = dict[str, float]
Step = Callable[[Target], None]
Run = Callable[[Target], Facts]


@dataclass(frozen=True)
class Attack:
    name: str
    title: str  # what the attackers do, for the table
    run: Run
    finding: str = ""
    prepare: Step | None = None  # what is there before; memory is measured after it
    clean: Step | None = None  # what an operator removes afterwards: queues that outlive their makers
    settings: tuple[str, ...] = ()
    wants: tuple[str, ...] = ()  # tls, users, reader
    processes: int = 1


ATTACKS: dict[str, Attack] = {}


def attack(
    name: str,
    title: str,
    *,
    finding: str = "",
    prepare: Step | None = None,
    clean: Step | None = None,
    settings: tuple[str, ...] = (),
    wants: tuple[str, ...] = (),
    processes: int = 1,
) -> Callable[[Run], Run]:
    """Enters the decorated function into the table; it runs until it is done or the target says that it is over."""

    def enter(run: Run) -> Run:
        assert name not in ATTACKS, name
        ATTACKS[name] = Attack(name, title, run, finding, prepare, clean, settings, wants, processes)
        return run

    return enter
