"""From the facts of each run to medians, ratios and verdicts. Pure: no clock, no files.

A figure is *bound by the generator* when the generator was busy, or waited for its core, for 95 % of the window. Such a
rate is a lower bound: it may prove a promise, it can never break one, and it is no base for a peer's ratio. The same
holds for a *disturbed* figure, in whose window other programs held the broker's or the generator's core for more than
a tenth of the time. CPU per delivery suffers less, but a busy neighbour shows there too (shared caches).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from statistics import median

from benchmarks.suite.scenarios import Scenario

GENERATOR_BOUND = 0.95
DISTURBED = 0.10

PASSED = "pass"
FAILED = "fail"
REFUSED = "no figure"

Facts = dict[str, float]


@dataclass(frozen=True)
class Run:
    """One scenario, one broker, one round."""

    scenario: str
    broker: str
    round: int
    facts: Facts = field(default_factory=dict)
    fault: str = ""


@dataclass(frozen=True)
class Figure:
    """The median of a scenario's rounds for one broker."""

    scenario: str
    broker: str
    rounds: int = 0
    rate: float = 0.0  # deliveries per second
    cpu_us: float = 0.0  # broker CPU microseconds per delivery = CPU seconds per million
    broker_share: float = 0.0
    generator_share: float = 0.0
    is_generator_bound: bool = False
    is_disturbed: bool = False
    p50_us: float = 0.0
    p99_us: float = 0.0
    lost: int = 0
    bytes_per_connection: float = 0.0
    connections_per_s: float = 0.0
    fault: str = ""

    @property
    def is_lower_bound(self) -> bool:
        """Whether the broker could have done better than this, had it been left alone."""
        return self.is_generator_bound or self.is_disturbed


@dataclass(frozen=True)
class Check:
    """One promise, what was measured, and whether it holds."""

    scenario: str
    claim: str
    measured: str
    target: str
    verdict: str


def number(facts: Facts, key: str) -> float:
    return float(facts.get(key, 0.0))


def busy_share(facts: Facts, who: str) -> float:
    seconds = number(facts, "seconds")
    return (number(facts, f"{who}_cpu_s") + number(facts, f"{who}_wait_s")) / seconds if seconds else 0.0


def disturbance(facts: Facts) -> float:
    """The part of the window in which other processes held the broker's or the generator's core."""
    seconds = number(facts, "seconds")
    waited = max(number(facts, "broker_wait_s"), number(facts, "generator_wait_s"))
    return waited / seconds if seconds else 0.0


def summarize(scenario: Scenario, broker: str, runs: Iterable[Run]) -> Figure:
    """Medians over the rounds that gave a figure; a fault in all rounds is a fault of the figure."""
    mine = [run for run in runs if run.scenario == scenario.name and run.broker == broker]
    good = [run.facts for run in mine if not run.fault]
    if not good:
        fault = next((run.fault for run in mine if run.fault), "not run")
        return Figure(scenario.name, broker, fault=fault)
    seconds = [max(number(facts, "seconds"), 1e-9) for facts in good]
    if scenario.is_idle:
        connections = [max(number(facts, "connections"), 1.0) for facts in good]
        growth = [number(facts, "rss_after_bytes") - number(facts, "rss_before_bytes") for facts in good]
        return Figure(
            scenario.name,
            broker,
            rounds=len(good),
            bytes_per_connection=median(
                part / count for part, count in zip(growth, connections, strict=True)
            ),
            connections_per_s=median(count / time for count, time in zip(connections, seconds, strict=True)),
        )
    deliveries = [max(number(facts, "deliveries"), 1.0) for facts in good]
    cpu_s = [number(facts, "broker_cpu_s") for facts in good]
    generator_share = median(busy_share(facts, "generator") for facts in good)
    return Figure(
        scenario.name,
        broker,
        rounds=len(good),
        rate=median(count / time for count, time in zip(deliveries, seconds, strict=True)),
        cpu_us=median(cpu * 1e6 / count for cpu, count in zip(cpu_s, deliveries, strict=True)),
        broker_share=median(cpu / time for cpu, time in zip(cpu_s, seconds, strict=True)),
        generator_share=generator_share,
        is_generator_bound=generator_share >= GENERATOR_BOUND,
        is_disturbed=median(disturbance(facts) for facts in good) > DISTURBED,
        p50_us=median(number(facts, "round_trip_p50_us") for facts in good),
        p99_us=median(number(facts, "round_trip_p99_us") for facts in good),
        lost=int(sum(number(facts, "expected_total") - number(facts, "delivered_total") for facts in good)),
    )


class Summary:
    """All figures of a run, by scenario and broker."""

    def __init__(self, figures: Iterable[Figure]) -> None:
        self.figures = {(figure.scenario, figure.broker): figure for figure in figures}

    def find(self, scenario: str, broker: str) -> Figure | None:
        """The figure, when there is one worth comparing."""
        figure = self.figures.get((scenario, broker))
        return figure if figure is not None and not figure.fault else None

    def rows(self) -> list[dict[str, object]]:
        return [asdict(figure) for figure in self.figures.values()]


def rate_ratio(ours: Figure, theirs: Figure) -> float:
    return ours.rate / theirs.rate if theirs.rate else 0.0


def check_all(scenarios: Iterable[Scenario], summary: Summary) -> list[Check]:
    checks: list[Check] = []
    for scenario in scenarios:
        ours = summary.find(scenario.name, "millstream")
        if ours is not None:
            checks += check_peers(scenario, ours, summary)
            checks += check_self(scenario, ours, summary)
    loaded = [figure for figure in summary.figures.values() if figure.broker == "millstream" and figure.rate]
    if loaded:
        lost = sum(figure.lost for figure in loaded)
        checks.append(Check("all", "messages lost", str(lost), "0", verdict(lost == 0)))
    return checks


def check_peers(scenario: Scenario, ours: Figure, summary: Summary) -> list[Check]:
    """The promises relative to another broker."""
    checks: list[Check] = []
    for peer, times in scenario.targets.rate_times.items():
        theirs = summary.find(scenario.name, peer)
        if theirs is not None:
            checks.append(check_rate(scenario, ours, theirs, times))
    for peer, share in scenario.targets.cpu_share.items():
        theirs = summary.find(scenario.name, peer)
        if theirs is not None and theirs.cpu_us:
            found = ours.cpu_us / theirs.cpu_us
            claim = f"CPU per delivery against {peer}"
            checks.append(
                Check(scenario.name, claim, f"{found:.3f} x", f"<= {share:.3f} x", verdict(found <= share))
            )
    peer = scenario.targets.round_trips_within
    theirs = summary.find(scenario.name, peer)
    if theirs is not None:
        pairs = (("p50", ours.p50_us, theirs.p50_us), ("p99", ours.p99_us, theirs.p99_us))
        for name, mine, other in pairs:
            claim = f"{name} round trip against {peer}"
            result = judge(ours, theirs, mine <= other)
            checks.append(Check(scenario.name, claim, f"{mine:,.0f} us", f"<= {other:,.0f} us", result))
    return checks


def check_rate(scenario: Scenario, ours: Figure, theirs: Figure, times: float) -> Check:
    found = rate_ratio(ours, theirs)
    sign = ">= " if ours.is_lower_bound else ""
    claim = f"deliveries/s against {theirs.broker}"
    result = judge(ours, theirs, found >= times)
    return Check(scenario.name, claim, f"{sign}{found:.1f} x", f">= {times:g} x", result)


def judge(ours: Figure, theirs: Figure, holds: bool) -> str:
    """A held-back peer proves nothing, and a held-back figure of ours breaks nothing."""
    if theirs.is_lower_bound or (ours.is_lower_bound and not holds):
        return REFUSED
    return verdict(holds)


def check_self(scenario: Scenario, ours: Figure, summary: Summary) -> list[Check]:
    """The promises that need no peer."""
    checks: list[Check] = []
    targets = scenario.targets
    if targets.bytes_per_connection_max:
        found = ours.bytes_per_connection
        limit = targets.bytes_per_connection_max
        measured = f"{found / 1024:.2f} KiB"
        checks.append(
            Check(
                scenario.name,
                "memory per connection",
                measured,
                f"<= {limit / 1024:g} KiB",
                verdict(found <= limit),
            )
        )
    other = summary.find(targets.slowdown_of, "millstream") if targets.slowdown_of else None
    if other is not None and ours.rate and other.cpu_us:
        pairs = (
            ("CPU per delivery", ours.cpu_us / other.cpu_us),
            ("time per delivery", other.rate / ours.rate),
        )
        for name, found in pairs:
            claim = f"{name} against {targets.slowdown_of}"
            result = verdict(found <= targets.slowdown_max)
            checks.append(
                Check(scenario.name, claim, f"{found:.2f} x", f"<= {targets.slowdown_max:g} x", result)
            )
    return checks


def verdict(holds: bool) -> str:
    return PASSED if holds else FAILED
