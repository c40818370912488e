"""`./dev bench router`: time per match from 1,000 to 1,000,000 subscriptions, and memory per subscription.

Every size runs in a process of its own, so that memory is its own. Every topic asked for matches one or two
subscriptions at every size: only the number of the others grows.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from time import perf_counter_ns

PROJECT = Path(__file__).resolve().parent.parent
sys.path[0] = str(PROJECT)  # the project, so that `benchmarks` is a package

from rich.table import Table  # noqa: E402

from benchmarks.load.usage import read_rss_bytes  # noqa: E402
from benchmarks.suite.brokers import find_python_path  # noqa: E402
from benchmarks.suite.command import open_console  # noqa: E402
from benchmarks.suite.report import RESULTS  # noqa: E402

SIZES = (1_000, 10_000, 100_000, 1_000_000)
TOPICS = 20_000
REPEATS = 7
FACTOR_MAX = 3.0
SUBSCRIPTIONS_PER_OUTLET = 10
SITES = 1000


def make_filter(device: int) -> bytes:
    """Mostly exact filters, one in ten with `+`, one in fifty with `+` and `#`."""
    site = device % SITES
    if device % 50 == 0:
        return f"site/+/device/{device}/#".encode()
    if device % 10 == 0:
        return f"site/{site}/device/{device}/+".encode()
    return f"site/{site}/device/{device}/command".encode()


def make_topic(device: int) -> bytes:
    return f"site/{device % SITES}/device/{device}/command".encode()


def measure(size: int) -> dict[str, float]:
    """In this process: build the tree, then match topics chosen evenly over all subscriptions."""
    from benchmarks.suite.silent_outlet import SilentOutlet
    from millstream.routing import tree as tree_module
    from millstream.routing.router import Router
    from millstream.routing.subscription import Subscription

    gc.disable()
    outlets = [SilentOutlet() for _ in range(max(1, size // SUBSCRIPTIONS_PER_OUTLET))]
    router = Router(2 * TOPICS)
    chance = random.Random(size)
    topics = [make_topic(chance.randrange(size)) for _ in range(TOPICS)]
    own = [os.getpid()]
    before = read_rss_bytes(own)
    started = perf_counter_ns()
    for device in range(size):
        outlet = outlets[device % len(outlets)]
        router.tree.add(Subscription(outlet, make_filter(device), b"", 0, False, False, 0))
    added_ns = perf_counter_ns() - started
    memory = read_rss_bytes(own) - before
    match = router.tree.match
    for topic in topics:
        found = len(match(topic).subscriptions)
        if not 1 <= found <= 2:
            raise SystemExit(f"{topic!r} matched {found} subscriptions")
    match_ns = best_time(match, topics)
    route_ns = best_time(router.find_route, topics)
    return {
        "size": size,
        "match_ns": match_ns,
        "cached_route_ns": route_ns,
        "add_ns": added_ns / size,
        "bytes_per_subscription": memory / size,
        "is_compiled": float(not str(tree_module.__file__).endswith(".py")),
    }


def best_time(call: object, topics: list[bytes]) -> float:
    """Nanoseconds per call, the best of several passes; the loop around the call is taken off."""
    assert callable(call)
    best = float("inf")
    for _ in range(REPEATS):
        started = perf_counter_ns()
        for _topic in topics:
            pass
        empty_ns = perf_counter_ns() - started
        started = perf_counter_ns()
        for topic in topics:
            call(topic)
        best = min(best, perf_counter_ns() - started - empty_ns)
    return best / len(topics)


def measure_apart(size: int) -> dict[str, float]:
    environment = {**os.environ, "PYTHONPATH": find_python_path()}
    finished = subprocess.run(
        [sys.executable, str(Path(__file__).resolve()), "--size", str(size)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    if finished.returncode != 0:
        last = finished.stderr.strip().splitlines()[-1:] or ["no output"]
        raise SystemExit(f"measuring {size:,} subscriptions failed: {last[0]}")
    answer: dict[str, float] = json.loads(finished.stdout)
    return answer


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev bench router", description=__doc__)
    parser.add_argument("--size", type=int, help="measure one size and print JSON")
    parser.add_argument("--check", action="store_true", help="end with code 1 when a promise does not hold")
    parsed = parser.parse_args()
    if parsed.size:
        print(json.dumps(measure(parsed.size)))
        return 0
    console = open_console(120)
    rows = [measure_apart(size) for size in SIZES]
    table = Table(title="Cost of routing by number of subscriptions", title_justify="left")
    for column in ("Subscriptions", "Match, ns", "Cached route, ns", "Add, ns", "Bytes each"):
        table.add_column(column, justify="right")
    for row in rows:
        figures = (row["match_ns"], row["cached_route_ns"], row["add_ns"], row["bytes_per_subscription"])
        table.add_row(f"{row['size']:,.0f}", *(f"{figure:,.0f}" for figure in figures))
    console.print(table)
    times = [row["match_ns"] for row in rows]
    factor = max(times) / min(times)
    holds = factor <= FACTOR_MAX
    colour, word = ("green", "pass") if holds else ("red", "fail")
    console.print(
        f"Slowest to fastest match: {factor:.2f} x, target <= {FACTOR_MAX:g} x: [{colour}]{word}[/{colour}]"
    )
    if not all(row["is_compiled"] for row in rows):
        console.print(
            "[yellow]The router ran interpreted: build it with ./dev build before judging.[/yellow]"
        )
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "router.json").write_text(json.dumps({"rows": rows, "factor": factor}, indent=1) + "\n")
    console.print("written: benchmarks/results/router.json", highlight=False)
    return 1 if parsed.check and not holds else 0


if __name__ == "__main__":
    sys.exit(main())
