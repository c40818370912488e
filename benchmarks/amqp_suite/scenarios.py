"""The scenarios of `bench amqp091`, as data: what is sent and what must be shown."""

from __future__ import annotations

from benchmarks.suite.scenarios import Scenario, Targets

BOTH = ("millstream", "rabbitmq")
FLOW = "amqp-flow"
PAIRS = "amqp-pairs"
STEADY = "amqp-steady"
SERVE = "serve"

TRANSIENT_BYTES = 64
PERSISTENT_BYTES = 256
PREFETCH = 100
AIMED_TIMES = 10.0  # of the transient rate; 5 must be shown

TRANSIENT_TARGETS = Targets(rate_times={"rabbitmq": 5.0}, cpu_share={"rabbitmq": 1 / 5.0})
AHEAD_TARGETS = Targets(rate_times={"rabbitmq": 1.0})
WINDOW_100_TARGETS = Targets(rate_times={"rabbitmq": 3.0})
WAKEUP_TARGETS = Targets(cpu_share={"rabbitmq": 1.0}, round_trips_within="rabbitmq")


def flow(name: str, title: str, parties: int, size: int, targets: Targets | None = None) -> Scenario:
    job: dict[str, object] = {"publishers": parties, "subscribers": parties, "payload_bytes": size}
    return Scenario(name, title, FLOW, BOTH, job, targets or Targets())


def confirmed(window: int, targets: Targets) -> Scenario:
    noun = "message" if window == 1 else "messages"
    job: dict[str, object] = {
        "publishers": 1,
        "consumers": 1,
        "window": window,
        "credit": PREFETCH,
        "payload_bytes": PERSISTENT_BYTES,
    }
    title = f"Persistent, confirms, window of {window:,} {noun}"
    return Scenario(f"confirmed-{window}", title, SERVE, BOTH, job, targets)


SCENARIOS: tuple[Scenario, ...] = (
    flow("transient-1to1", "Transient, auto-ack, 1 to 1", 1, TRANSIENT_BYTES, TRANSIENT_TARGETS),
    flow("transient-5to5", "Transient, auto-ack, 5 to 5", 5, TRANSIENT_BYTES, TRANSIENT_TARGETS),
    flow("transient-4KiB", "Transient, auto-ack, 1 to 1, 4 KiB", 1, 4096),
    confirmed(1, AHEAD_TARGETS),
    confirmed(10, AHEAD_TARGETS),
    confirmed(100, WINDOW_100_TARGETS),
    confirmed(1000, AHEAD_TARGETS),
    Scenario(
        "wakeup",
        "Transient, 50 pairs, one in flight",
        PAIRS,
        BOTH,
        {"publishers": 50, "payload_bytes": TRANSIENT_BYTES},
        WAKEUP_TARGETS,
    ),
    Scenario(
        "steady",
        "Transient, 1,000 messages/s",
        STEADY,
        BOTH,
        {"payload_bytes": TRANSIENT_BYTES, "rate": 1000},
    ),
)

BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}
