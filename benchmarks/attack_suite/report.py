"""The attacks as a table: on the terminal, as JSON beside the other results, and as a page of docs/."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict

from rich.console import Console

from benchmarks.attack_suite.attack import Attack
from benchmarks.attack_suite.runner import Observation
from benchmarks.suite.merged_rows import Row
from benchmarks.suite.report import CHECK_HEADER, DOCS, RESULTS, check_cells, markdown_table, print_table
from benchmarks.suite.results import FAILED, PASSED, REFUSED, Check

PAGE = "attacks.md"
RESULTS_FILE = RESULTS / "attacks.json"
INTRODUCTION = """\
# Attacks

Written by `./dev bench attack`; do not edit. Every figure below comes from one machine.

- The broker has its default limits unless a row says otherwise. It runs on one core inside 1 GiB ({confined}); the
  attackers and the witness share the other core, the witness first.
- *Alive*: the broker was not killed, did not end and reported no failure of its own.
- *Others*: p99 of the slowest of four measures of other clients during the attack: a round trip with QoS 0 and with
  QoS 1 on a live connection, an MQTT newcomer that connects and subscribes, an AMQP newcomer that connects, declares,
  publishes and gets. In parentheses the same measure while nothing else happened. At most 250 ms.
- *Memory*: resident before the attack, at its peak, and after it; back within 64 MiB or 20 % in at most 60 s.
- *Named*: the log names an attacker by address or client identifier, and a counter below `$SYS` tells of it.
"""


def print_observation(console: Console, checks: Sequence[Check], found: Observation) -> None:
    for check in checks:
        colour = {PASSED: "green", REFUSED: "yellow"}.get(check.verdict, "red")
        console.print(f"  [{colour}]{check.verdict:9}[/] {check.claim}: {check.measured}", highlight=False)
    for fault in found.faults[:2]:
        console.print(f"            attacker: {fault}", highlight=False, markup=False)


def print_summary(console: Console, checks: Sequence[Check]) -> None:
    print_table(console, "Attacks", CHECK_HEADER, [check_cells(check) for check in checks])
    count = {word: sum(check.verdict == word for check in checks) for word in (PASSED, FAILED, REFUSED)}
    console.print(
        f"{count[PASSED]} hold, {count[FAILED]} do not, {count[REFUSED]} have no figure.", highlight=False
    )


def make_row(
    name: str, version: str, seconds: float, checks: Sequence[Check], found: Observation | None
) -> Row:
    """What one attack leaves in the results."""
    return {
        "name": name,
        "version": version,
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "took_s": round(seconds, 1),
        "checks": [asdict(check) for check in checks],
        "observation": asdict(found) if found is not None else None,
    }


def write_results(
    machine: dict[str, object], rows: list[Row], attacks: dict[str, Attack], is_whole: bool
) -> list[str]:
    """The page of docs/ only when no attack is missing."""
    RESULTS.mkdir(exist_ok=True)
    document = {"machine": machine, "is_whole": is_whole, "attacks": rows}
    unfinished = RESULTS_FILE.with_suffix(".part")
    unfinished.write_text(json.dumps(document, indent=1) + "\n")
    unfinished.replace(RESULTS_FILE)  # a run that is ended in between keeps what it had
    written = [f"benchmarks/results/{RESULTS_FILE.name}"]
    if is_whole:
        (DOCS / PAGE).write_text(make_page(machine, rows, attacks))
        written.append(f"docs/{PAGE}")
    return written


def make_page(machine: dict[str, object], rows: list[Row], attacks: dict[str, Attack]) -> str:
    lines = []
    confined = ""
    for row in rows:
        attack = attacks.get(row["name"])
        if attack is None:
            continue
        observation = row["observation"] or {}
        confined = confined or str(observation.get("confined_by", ""))
        title = attack.title + (f" ({attack.finding})" if attack.finding else "")
        cells = [mark(Check(**check)) for check in row["checks"]]
        lines.append([f"`{attack.name}`", title, *cells])
    versions = ", ".join(dict.fromkeys(str(row["version"]) for row in rows))
    cores = machine["cores"]
    return "\n".join(
        [
            INTRODUCTION.format(confined=confined),
            f"{cores} cores, {machine['processor']}, {machine['system']}, Python {machine['python']}; {versions}.\n",
            markdown_table(("Attack", "What attackers do", "Alive", "Others", "Memory", "Named"), lines),
            "",
            "## Repeat it\n",
            (
                "```\n./dev bench attack                      # all of them\n./dev bench attack --list\n"
                "./dev bench attack --only amqp-empty-flood --seconds 20\n"
                "./dev bench attack --missing            # go on with a run that was ended\n```\n"
            ),
        ]
    )


def mark(check: Check) -> str:
    return check.measured if check.verdict == PASSED else f"**{check.verdict}**: {check.measured}"
