"""`python -m crash.run --kills 200`: kill the broker under load, again and again, and see whether it kept its word.

Exit 1 when a promise was broken; the seed and the data directory are named then.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from pathlib import Path

from crash.broker import Broker
from crash.campaign import Campaign, Result
from crash.journal import PATHS
from crash.power import PowerCutBroker, find_obstacle, find_window_s
from millstream.build_kind import build_name

COLUMNS = ("confirmed", "delivered", "lost", "duplicated", "reordered", "redelivered")
WINDOW_COLUMNS = ("at_risk", "taken")


def make_table(result: Result) -> list[str]:
    lines = [f"{'path':8} {'kills':>7} " + " ".join(f"{name:>11}" for name in COLUMNS)]
    for path, verdict in result.verdicts.items():
        numbers = " ".join(f"{getattr(verdict, name):11,}" for name in COLUMNS)
        lines.append(f"{path:8} {result.kills:7,} {numbers}")
    return lines


def make_report(result: Result) -> dict[str, object]:
    starts = sorted(result.start_s)
    return {
        "build": build_name(),
        "seed": result.seed,
        "kills": result.kills,
        "cut_clients": result.cuts,
        "refused_publishes": result.refused,
        "start_s_median": round(starts[len(starts) // 2], 3) if starts else None,
        "start_s_max": round(starts[-1], 3) if starts else None,
        "paths": {
            path: {name: getattr(verdict, name) for name in COLUMNS + WINDOW_COLUMNS}
            for path, verdict in result.verdicts.items()
        },
        "faults": result.faults,
    }


def to_paths(text: str) -> tuple[str, ...]:
    paths = tuple(text.split(","))
    for path in paths:
        if path not in PATHS:
            raise argparse.ArgumentTypeError(f"{path!r} is none of {', '.join(PATHS)}")
    return paths


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m crash.run", description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument(
        "--seed", type=int, default=random.randrange(1 << 31), help="of what is left to chance"
    )
    parser.add_argument("--paths", type=to_paths, help=f"some of {','.join(PATHS)}")
    parser.add_argument("--module", default="millstream", help="the broker to start; crash.hasty has a bug")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="setting of the broker"
    )
    parser.add_argument(
        "--pull-the-plug",
        action="store_true",
        help="lose what was not synced too; needs root to mount an image. With --set storage.durability=os the last "
        "second may be lost, from the newest back, and nothing else",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result there")
    options = parser.parse_args(arguments)
    if options.pull_the_plug and find_obstacle():
        print(f"the plug cannot be pulled here: {find_obstacle()}")
        return 2
    window_s = find_window_s(tuple(options.set)) if options.pull_the_plug else 0.0
    result = Campaign(
        options.paths or PATHS,
        options.kills,
        options.seed,
        options.module,
        tuple(options.set),
        kind=PowerCutBroker if options.pull_the_plug else Broker,
        window_s=window_s,
    ).run()
    for line in make_table(result):
        print(line)
    at_risk = sum(verdict.at_risk for verdict in result.verdicts.values())
    if at_risk:
        taken = sum(verdict.taken for verdict in result.verdicts.values())
        print(f"{at_risk:,} were confirmed within the last second before a cut; {taken:,} of them are gone")
    if options.json is not None:
        options.json.write_text(json.dumps(make_report(result), indent=2) + "\n", encoding="utf-8")
    for fault in result.faults:
        print(f"BROKEN {fault}")
    if result.faults:
        print(f"seed {result.seed}; the data directory and the logs are in {result.folder}")
        return 1
    print(f"every promise was kept (seed {result.seed}, {build_name()} build)")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
