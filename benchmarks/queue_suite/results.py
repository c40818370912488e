"""From the facts of each run to floors and verdicts. Pure: no clock, no files.

Every durable figure is divided by the floor measured right before and after it, round by round: a disk that is slower
in one minute than in the next moves both. When the two measures of a floor are far apart the disk was not steady, and
a promise that does not hold has no figure instead of a failure. Rates held back by the generator or by other programs
are lower bounds, as in `benchmarks/suite/results.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.queue_suite.scenarios import (
    AHEAD_TIMES,
    AIMED_TIMES,
    BATCH_SHARE,
    COST_TIMES_MAX,
    GROWTH_BYTES_MAX,
    PAIRS,
    READY_S_MAX,
    SINGLE_SHARE,
    SYNCED_TIMES_MAX,
    QueueScenario,
)
from benchmarks.suite.results import (
    DISTURBED,
    GENERATOR_BOUND,
    REFUSED,
    Check,
    Figure,
    Run,
    Summary,
    busy_share,
    disturbance,
    judge,
    number,
    rate_ratio,
    verdict,
)

MEBIBYTE = 1024 * 1024
FLOOR_UNSTEADY = 1.5  # one measure of a floor this many times the other
REPORTED = "not judged"  # a line that is no promise


@dataclass(frozen=True)
class Floor:
    """What the disk gave around one scenario, and what the broker made of it; medians over the rounds."""

    syncs: float  # S: batches of one, per second
    records: float  # R(b)
    promised: float  # messages per second
    share: float  # measured rate / promised rate
    times_syncs: float  # measured rate / S
    is_steady: bool
    bare: float = 0.0  # messages per second of the bare server; 0 where there was none
    bare_share: float = 0.0  # that / promised rate
    times_bare: float = 0.0  # measured rate / that
    is_bare_bound: bool = False  # the generator or other programs held it back


def merge_floors(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    """The mean of the two measures of each floor, and how far the worst pair was apart; the bare server as it was."""
    merged: dict[str, float] = {}
    spread = 1.0
    for key, first in before.items():
        if key.startswith("bare_"):
            merged[key] = first
        elif key.startswith("floor_"):
            second = after.get(key, first)
            merged[key] = (first + second) / 2
            low = min(first, second)
            spread = max(spread, max(first, second) / low if low else spread)
    return {**merged, "floor_spread": spread}


def name_bare(facts: dict[str, float]) -> dict[str, float]:
    """What is kept of a run of the bare server, under names of its own."""
    count = max(number(facts, "deliveries"), 1.0)
    is_bound = busy_share(facts, "generator") >= GENERATOR_BOUND or disturbance(facts) > DISTURBED
    return {
        "bare_rate": count / max(number(facts, "seconds"), 1e-9),
        "bare_cpu_us": number(facts, "broker_cpu_s") * 1e6 / count,
        "bare_p50_us": number(facts, "round_trip_p50_us"),
        "bare_is_bound": float(is_bound),
    }


def promised_rate(scenario: QueueScenario, facts: dict[str, float]) -> float:
    """0.8 n S, but never more than the bare loop R(n) does; or half of R(b). 0 without a promise or a floor."""
    syncs = number(facts, "floor_1")
    if scenario.singles:
        most = number(facts, f"floor_{scenario.singles}")
        return min(SINGLE_SHARE * scenario.singles * syncs, most)
    return BATCH_SHARE * number(facts, f"floor_{scenario.batch}") if scenario.batch else 0.0


def find_floor(scenario: QueueScenario, broker: str, runs: Iterable[Run]) -> Floor | None:
    """None when no round of it had a floor."""
    batch = scenario.singles or scenario.batch
    found = [
        run.facts
        for run in runs
        if run.scenario == scenario.name and run.broker == broker and promised_rate(scenario, run.facts) > 0
    ]
    if not found:
        return None
    rates = [number(facts, "deliveries") / max(number(facts, "seconds"), 1e-9) for facts in found]
    promised = [promised_rate(scenario, facts) for facts in found]
    syncs = [number(facts, "floor_1") for facts in found]
    with_bare = [index for index, facts in enumerate(found) if number(facts, "bare_rate") > 0]
    bare = [number(facts, "bare_rate") for facts in found]
    return Floor(
        syncs=median(syncs),
        records=median(number(facts, f"floor_{batch}") for facts in found),
        promised=median(promised),
        share=median(rate / target for rate, target in zip(rates, promised, strict=True)),
        times_syncs=median(rate / max(sync, 1e-9) for rate, sync in zip(rates, syncs, strict=True)),
        is_steady=median(number(facts, "floor_spread") for facts in found) <= FLOOR_UNSTEADY,
        bare=median_or_zero([bare[index] for index in with_bare]),
        bare_share=median_or_zero([bare[index] / promised[index] for index in with_bare]),
        times_bare=median_or_zero([rates[index] / bare[index] for index in with_bare]),
        is_bare_bound=median_or_zero([number(found[index], "bare_is_bound") for index in with_bare]) > 0,
    )


def median_or_zero(values: list[float]) -> float:
    return median(values) if values else 0.0


def check_queues(scenarios: Sequence[QueueScenario], summary: Summary, runs: Sequence[Run]) -> list[Check]:
    checks: list[Check] = []
    for scenario in scenarios:
        ours = summary.find(scenario.name, "millstream")
        if ours is not None:
            checks += check_floor(scenario, ours, find_floor(scenario, "millstream", runs))
        checks += check_pairs(scenario, summary)
        facts = first_facts(scenario.name, runs)
        if scenario.kind == "restart":
            checks += check_restart(scenario, runs)
        elif scenario.kind == "grow" and facts is not None:
            checks += check_memory(scenario, facts)
    return checks + check_counts(runs)


def first_facts(scenario: str, runs: Iterable[Run]) -> dict[str, float] | None:
    return next(
        (
            run.facts
            for run in runs
            if run.scenario == scenario and not run.fault and run.broker == "millstream"
        ),
        None,
    )


def check_floor(scenario: QueueScenario, ours: Figure, floor: Floor | None) -> list[Check]:
    if floor is None:
        return []
    sign = ">= " if ours.is_lower_bound else ""
    count = scenario.singles
    if count:
        target = f"{floor.promised:,.0f}/s = min({SINGLE_SHARE:g} x {count} x S, R({count}))"
    else:
        target = f"{floor.promised:,.0f}/s = {BATCH_SHARE:g} x R({scenario.batch})"
    holds = floor.share >= 1
    is_excused = ours.is_lower_bound or not floor.is_steady
    result = REFUSED if is_excused and not holds else verdict(holds)
    measured = f"{sign}{ours.rate:,.0f}/s ({floor.share:.2f} x)"
    checks = [Check(scenario.name, "confirmed after sync", measured, f">= {target}", result)]
    if count == 1:
        is_synced = floor.times_syncs <= SYNCED_TIMES_MAX
        result = REFUSED if not floor.is_steady and not is_synced else verdict(is_synced)
        checks.append(
            Check(
                scenario.name,
                "each confirm waited for the disk",
                f"{floor.times_syncs:.2f} x S",
                f"<= {SYNCED_TIMES_MAX:g} x S",
                result,
            )
        )
    if floor.bare:
        checks.append(report_bare(scenario, ours, floor))
    return checks


def report_bare(scenario: QueueScenario, ours: Figure, floor: Floor) -> Check:
    """No promise: how far the broker is from the least server, and the least server from the promise."""
    signs = {(True, False): ">= ", (False, True): "<= ", (True, True): "about "}
    sign = signs.get((ours.is_lower_bound, floor.is_bare_bound), "")
    return Check(
        scenario.name,
        "messages/s, millstream against the bare server",
        f"{sign}{floor.times_bare:.2f} x",
        f"none; the bare server itself: {bare_sign(floor)}{floor.bare_share:.2f} x promised",
        REPORTED,
    )


def bare_sign(floor: Floor) -> str:
    return ">= " if floor.is_bare_bound else ""


def check_pairs(scenario: QueueScenario, summary: Summary) -> list[Check]:
    """Ahead of each peer of the same durability, in rate and in processor time."""
    checks: list[Check] = []
    if not scenario.is_compared:
        return checks
    for own, peer in PAIRS:
        ours = summary.find(scenario.name, own)
        theirs = summary.find(scenario.name, peer)
        if ours is None or theirs is None:
            continue
        who = f"{own} against {peer}"
        if scenario.singles != 1 or own != "millstream":  # one at a time the disk decides for both
            found = rate_ratio(ours, theirs)
            sign = ">= " if ours.is_lower_bound else ""
            checks.append(
                Check(
                    scenario.name,
                    f"messages/s, {who}",
                    f"{sign}{found:.1f} x",
                    f">= {AHEAD_TIMES:g} x, aim {AIMED_TIMES:g} x",
                    judge(ours, theirs, found >= AHEAD_TIMES),
                )
            )
        if theirs.cpu_us:
            found = ours.cpu_us / theirs.cpu_us
            checks.append(
                Check(
                    scenario.name,
                    f"CPU per message, {who}",
                    f"{found:.2f} x",
                    f"<= 1 x, aim {1 / AIMED_TIMES:.2f} x",
                    verdict(found <= 1),
                )
            )
    return checks


def check_restart(scenario: QueueScenario, runs: Iterable[Run]) -> list[Check]:
    """A broker that does not come back in time has broken the promise; so a fault here is a failure."""
    checks: list[Check] = []
    for run in runs:
        if run.scenario != scenario.name:
            continue
        target = f"<= {READY_S_MAX:g} s"
        if run.fault:
            return [Check(scenario.name, "ready after kill -9", run.fault, target, verdict(False))]
        stored = int(number(run.facts, "stored"))
        ready_s = number(run.facts, "ready_s")
        claim = f"ready after kill -9 with {stored:,} x 1 KiB"
        checks.append(
            Check(scenario.name, claim, f"{ready_s:.2f} s", target, verdict(ready_s <= READY_S_MAX))
        )
    return checks


def check_memory(scenario: QueueScenario, facts: dict[str, float]) -> list[Check]:
    stored = int(number(facts, "deliveries"))
    growth = number(facts, "rss_after_bytes") - number(facts, "rss_before_bytes")
    first = number(facts, "cpu_first_us")
    times = number(facts, "cpu_last_us") / first if first else 0.0
    return [
        Check(
            scenario.name,
            f"memory growth from the first tenth to {stored:,} messages",
            f"{growth / MEBIBYTE:.1f} MiB",
            f"<= {GROWTH_BYTES_MAX / MEBIBYTE:g} MiB",
            verdict(growth <= GROWTH_BYTES_MAX),
        ),
        Check(
            scenario.name,
            "CPU per publish, last tenth against first",
            f"{times:.2f} x",
            f"<= {COST_TIMES_MAX:g} x",
            verdict(0 < times <= COST_TIMES_MAX),
        ),
    ]


def check_counts(runs: Iterable[Run]) -> list[Check]:
    """Over all scenarios of Millstream: nothing confirmed is missing, nothing settled came twice."""
    ours = [run.facts for run in runs if run.broker.startswith("millstream") and not run.fault]
    if not ours:
        return []
    lost = int(sum(number(facts, "expected_total") - number(facts, "delivered_total") for facts in ours))
    repeated = int(sum(number(facts, "repeated") for facts in ours))
    return [
        Check("all", "messages lost or never confirmed", str(lost), "0", verdict(lost == 0)),
        Check("all", "messages delivered twice", str(repeated), "0", verdict(repeated == 0)),
    ]
