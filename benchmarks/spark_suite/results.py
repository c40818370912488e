"""From the facts of each window to figures, ratios and verdicts. Pure: no clock, no files.

A ratio is that of two windows of the same round, one right after the other; the median of the rounds counts. Where other
programs used more than a tenth of the processors in one of them the figure is *disturbed*: ours may then prove a
promise and never break one, and theirs proves nothing. Processor time by row suffers less and is judged all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.spark_suite import scenarios as bars
from benchmarks.spark_suite.scenarios import OURS, SparkScenario
from benchmarks.suite.results import REFUSED, Check, Run, number, verdict

DISTURBED = 0.10

Facts = dict[str, float]
Measure = Callable[[Facts], float]


@dataclass(frozen=True)
class SparkFigure:
    """Medians of the rounds of one side."""

    scenario: str
    side: str
    rounds: int
    rate: float = 0.0  # rows a second
    jvm_us: float = 0.0  # processor time by row
    python_us: float = 0.0
    reader_us: float = 0.0
    is_disturbed: bool = False
    fault: str = ""

    @property
    def cpu_us(self) -> float:
        return self.jvm_us + self.python_us + self.reader_us


def disturbance(facts: Facts) -> float:
    whole = number(facts, "seconds") * number(facts, "cores")
    return number(facts, "foreign_s") / whole if whole else 0.0


def rate_of(facts: Facts) -> float:
    if number(facts, "steady_s"):
        return number(facts, "steady_rows") / number(facts, "steady_s")
    return number(facts, "rows") / max(number(facts, "seconds"), 1e-9)


def cpu_us_of(facts: Facts, *parts: str) -> float:
    """Of all that takes part in reading, or of the parts named."""
    used = sum(number(facts, f"{part}_cpu_s") for part in parts or ("jvm", "python", "reader"))
    return used * 1e6 / max(number(facts, "rows"), 1.0)


def find_facts(runs: Iterable[Run], scenario: str, side: str) -> list[Facts]:
    return [run.facts for run in runs if (run.scenario, run.broker) == (scenario, side) and not run.fault]


def summarize(scenario: str, side: str, runs: Sequence[Run]) -> SparkFigure:
    found = find_facts(runs, scenario, side)
    if not found:
        faults = [run.fault for run in runs if (run.scenario, run.broker) == (scenario, side) and run.fault]
        return SparkFigure(scenario, side, 0, fault=faults[0] if faults else "not run")
    return SparkFigure(
        scenario,
        side,
        len(found),
        rate=median(rate_of(facts) for facts in found),
        jvm_us=median(cpu_us_of(facts, "jvm") for facts in found),
        python_us=median(cpu_us_of(facts, "python") for facts in found),
        reader_us=median(cpu_us_of(facts, "reader") for facts in found),
        is_disturbed=median(disturbance(facts) for facts in found) > DISTURBED,
    )


@dataclass(frozen=True)
class Ratio:
    """Ours over theirs, or what the measure makes of the two."""

    value: float
    low: float
    high: float
    is_disturbed: bool
    is_other_disturbed: bool

    def text(self, suffix: str = " x") -> str:
        mark = ", disturbed" if self.is_disturbed or self.is_other_disturbed else ""
        spread = f" ({self.low:.2f}-{self.high:.2f})" if self.high - self.low >= 0.005 else ""
        return f"{self.value:.2f}{suffix}{spread}{mark}"


def find_ratio(
    runs: Sequence[Run], scenario: str, ours: str, theirs: str, above: Measure, below: Measure | None = None
) -> Ratio | None:
    """above(ours) / below(theirs), round by round."""
    divide = below or above
    pairs = [
        (mine, other)
        for number_of_round in sorted({run.round for run in runs})
        for mine in find_facts([run for run in runs if run.round == number_of_round], scenario, ours)
        for other in find_facts([run for run in runs if run.round == number_of_round], scenario, theirs)
    ]
    values = [above(mine) / divide(other) for mine, other in pairs if divide(other) > 0]
    if not values:
        return None
    return Ratio(
        median(values),
        min(values),
        max(values),
        median(disturbance(mine) for mine, _ in pairs) > DISTURBED,
        median(disturbance(other) for _, other in pairs) > DISTURBED,
    )


def judge(ratio: Ratio, holds: bool) -> str:
    if ratio.is_other_disturbed or (ratio.is_disturbed and not holds):
        return REFUSED
    return verdict(holds)


# ------------------------------------------------------------------------- promises


def check_spark(chosen: Sequence[SparkScenario], runs: Sequence[Run]) -> list[Check]:
    by_name: dict[str, Callable[[Sequence[Run]], list[Check]]] = {
        "batch": lambda found: check_batch(found, "batch"),
        "headers": lambda found: check_batch(found, "headers"),
        "stream": lambda found: check_rate(
            found,
            "stream",
            OURS,
            "parquet",
            "rows/s to noop against Spark's Parquet file stream",
            bars.STREAM_RATE_MIN,
        ),
        "lake": check_lake,
        "wire": lambda found: check_rate(
            found, "wire", OURS, "bare", "rows/s against a bare Arrow IPC copy over TCP", bars.WIRE_RATE_MIN
        ),
        "microbatch": check_microbatch,
        "latency": check_latency,
        "length": check_length,
        "interference": check_interference,
    }
    checks: list[Check] = []
    for scenario in chosen:
        checks += by_name[scenario.name](runs)
    faults = [run for run in runs if run.fault]
    checks += [
        Check(run.scenario, f"{run.broker} runs", run.fault, "no fault", verdict(False)) for run in faults
    ]
    return checks


def check_rate(
    runs: Sequence[Run], scenario: str, ours: str, theirs: str, claim: str, least: float
) -> list[Check]:
    ratio = find_ratio(runs, scenario, ours, theirs, rate_of)
    if ratio is None:
        return []
    return [Check(scenario, claim, ratio.text(), f">= {least:g} x", judge(ratio, ratio.value >= least))]


def check_batch(runs: Sequence[Run], scenario: str) -> list[Check]:
    checks: list[Check] = []
    ratio = find_ratio(runs, scenario, "parquet", OURS, cpu_us_of)
    if ratio is not None:
        target = f">= {bars.BATCH_CPU_MIN:g} x, aim {bars.BATCH_CPU_AIM:g} x"
        inside = find_ratio(
            runs, scenario, "parquet", OURS, cpu_us_of, lambda facts: cpu_us_of(facts, "jvm", "python")
        )
        aside = "" if inside is None else f"; {inside.value:.2f} x inside Spark, without the reader"
        checks.append(
            Check(
                scenario,
                "rows by CPU second against Spark's Parquet",
                ratio.text() + aside,
                target,
                verdict(ratio.value >= bars.BATCH_CPU_MIN),
            )
        )
    found = find_facts(runs, scenario, OURS)
    if found:
        cost_us = median(cpu_us_of(facts, "python", "reader") for facts in found)
        alone_us = median(cpu_us_of(facts, "python") for facts in found)
        checks.append(
            Check(
                scenario,
                "Python CPU by row, workers and reader",
                f"{cost_us:.2f} us ({alone_us:.2f} in the workers)",
                f"<= {bars.SOURCE_CPU_US_MAX:g} us",
                verdict(cost_us <= bars.SOURCE_CPU_US_MAX),
            )
        )
    return checks


def check_lake(runs: Sequence[Run]) -> list[Check]:
    ways = {
        "handed-parquet": "lake pipeline as Parquet",
        "handed-delta": "lake pipeline as Delta",
        "lake-parquet": "lake after Spark as Parquet",
        "lake-delta": "lake after Spark as Delta",
        "unbound-parquet": "lake after Spark, bound by rows only,",
    }
    return [
        check
        for side, way in ways.items()
        for check in check_rate(
            runs, "lake", side, "parquet", f"rows/s, {way} against Spark's Parquet sink", bars.LAKE_RATE_MIN
        )
    ]


def check_microbatch(runs: Sequence[Run]) -> list[Check]:
    ratio = find_ratio(runs, "microbatch", OURS, "native", lambda facts: number(facts, "trigger_ms"))
    if ratio is None:
        return []
    holds = ratio.value <= bars.TRIGGER_TIMES_MAX
    target = f"<= {bars.TRIGGER_TIMES_MAX:g} x"
    return [
        Check(
            "microbatch", "median trigger against a native source", ratio.text(), target, judge(ratio, holds)
        )
    ]


def check_latency(runs: Sequence[Run]) -> list[Check]:
    found = find_facts(runs, "latency", OURS)
    if not found:
        return []
    facts = found[0]
    mark = ", disturbed" if disturbance(facts) > DISTURBED else ""
    if number(facts, "late_s") > 0.5:
        mark += f", publisher {number(facts, 'late_s'):.1f} s late"
    measured = f"{number(facts, 'p95_ms'):,.0f} ms (p50 {number(facts, 'p50_ms'):,.0f}){mark}"
    return [Check("latency", "p95 from publisher to committed table", measured, "reported", "reported")]


def check_length(runs: Sequence[Run]) -> list[Check]:
    checks = check_rate(
        runs, "length", "long", "short", "rows/s of the last million, long stream", bars.LENGTH_RATE_MIN
    )
    ratio = find_ratio(runs, "length", "short", "long", cpu_us_of)
    if ratio is not None:
        claim = "rows by CPU second of the last million, long stream"
        holds = ratio.value >= bars.LENGTH_RATE_MIN
        checks.append(
            Check("length", claim, ratio.text(), f">= {bars.LENGTH_RATE_MIN:g} x", judge(ratio, holds))
        )
    return checks


def check_interference(runs: Sequence[Run]) -> list[Check]:
    """With Spark reading from the broker, against Spark reading files: the same processors, and nothing of ours. Burners are
    shown beside, and not judged by: where processors are short they get less than they are told to use."""
    checks: list[Check] = []
    rate = find_ratio(runs, "interference", "spark", "files", lambda facts: number(facts, "throughput_rate"))
    if rate is not None:
        least = 1 - bars.THROUGHPUT_FALL_MAX
        claim = "publishes/s while Spark reads, against Spark on Parquet"
        is_kept = rate.value >= least
        checks.append(Check("interference", claim, rate.text(), f">= {least:g} x", judge(rate, is_kept)))
    late = find_ratio(runs, "interference", "spark", "files", lambda facts: number(facts, "answer_p99_us"))
    if late is not None:
        most = 1 + bars.P99_RISE_MAX
        claim = "p99 of a confirm while Spark reads, against Spark on Parquet"
        is_kept = late.value <= most
        checks.append(Check("interference", claim, late.text(), f"<= {most:g} x", judge(late, is_kept)))
    return checks
