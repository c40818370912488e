"""`python -m crash.spark_run --kills 20`: kill Spark's driver, its executors and the broker under a streaming job that copies
streams into a lake table and into a queue; then every offset must be in both, once.

Exit 1 when it is not; the seed and the folder with the data and the logs are named then.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from dataclasses import asdict
from pathlib import Path

from crash.spark_campaign import RATE, VICTIMS, Result, SparkCampaign
from crash.spark_job import HONEST
from crash.spark_sinks import FORGETFUL, SLOW
from millstream.build_kind import build_name

HEAD = (
    f"{'victim':8} {'kills':>6} {'in batch':>8} {'in task':>7} {'lake?':>6} {'queue?':>6} {'handed':>6} {'lives':>6} "
    f"{'now':>4} {'batches':>8} {'streams':>8} {'seconds':>8}  {'sink':6} "
    f"{'source':>10} {'rows':>10} {'lost':>6} {'duplicated':>11} {'changed':>8}"
)

# in batch: a query had a batch under way; in task: the executor wrote a file of the lake; lake?, queue?: that sink had the batch,
# and Spark had not noted that; handed: the tasks that write the lake fetched the records themselves; now: lives with availableNow


def make_lines(result: Result) -> list[str]:
    in_task = "-" if result.in_task is None else f"{result.in_task:,}"
    facts = (
        f"{result.name:8} {result.kills:6,} {result.in_batch:8,} {in_task:>7} {result.lake_in_doubt:6,} "
        f"{result.queue_in_doubt:6,} {result.handed_over:6,} {result.lives:6,} "
        f"{result.available_now:4,} {result.batches:8,} {result.streams:8,} {result.seconds:8,.0f}"
    )
    return [
        f"{facts}  {verdict.sink:6} {verdict.source_rows:10,} {verdict.rows:10,} {verdict.lost:6,} "
        f"{verdict.duplicated:11,} {verdict.changed:8,}"
        for verdict in result.verdicts
    ]


def make_summary(results: list[Result]) -> list[str]:
    """A table, and all kills in one line."""
    by_victim = ", ".join(f"{result.name} {result.kills}" for result in results)
    return [
        HEAD,
        *(line for result in results for line in make_lines(result)),
        f"{sum(result.kills for result in results)} kills ({by_victim}), {sum(result.in_batch for result in results)} in a batch",
    ]


def make_report(results: list[Result]) -> dict[str, object]:
    return {
        "build": build_name(),
        "results": [asdict(result) | {"folder": str(result.folder)} for result in results],
    }


def say(line: str) -> None:
    print(line, flush=True)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m crash.spark_run", description=__doc__)
    parser.add_argument("--kills", type=int, default=20, help="of each victim")
    parser.add_argument(
        "--seed", type=int, default=random.randrange(1 << 31), help="of what is left to chance"
    )
    parser.add_argument("--victim", choices=(*VICTIMS, "all"), default="all")
    parser.add_argument("--rate", type=int, default=RATE, help="messages a second")
    parser.add_argument("--forgetful", action="store_true", help="use sinks with a bug, which must be found")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result there")
    options = parser.parse_args(arguments)
    formats = (FORGETFUL,) if options.forgetful else (HONEST, SLOW)
    results: list[Result] = []
    for victim in VICTIMS if options.victim == "all" else (options.victim,):
        campaign = SparkCampaign(
            victim, [victim] * options.kills, options.seed, formats, rate=options.rate, tell=say
        )
        results.append(campaign.run())
    for line in make_summary(results):
        say(line)
    if options.json is not None:
        options.json.write_text(json.dumps(make_report(results), indent=2) + "\n", encoding="utf-8")
    broken = [result for result in results if result.faults]
    for result in broken:
        for fault in result.faults:
            print(f"BROKEN {result.name}: {fault}")
        print(f"seed {result.seed}; the data and the logs are in {result.folder}")
    if broken:
        return 1
    print(f"every offset is there once, in both sinks (seed {options.seed}, {build_name()} build)")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
