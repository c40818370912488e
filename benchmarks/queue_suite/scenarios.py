"""The scenarios of `bench queues`, as data: what is stored or taken, which brokers can do it, and what must be shown."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.suite.scenarios import Scenario

OURS = ("millstream", "millstream-os")
ALL = (*OURS, "nats-sync", "nats", "rabbitmq")

# Like is compared with like: who syncs with who syncs, who trusts the page cache with who does the same.
PAIRS = (("millstream", "nats-sync"), ("millstream", "rabbitmq"), ("millstream-os", "nats"))
AHEAD_TIMES = 1.0  # what must be shown against each peer ...
AIMED_TIMES = 3.0  # ... and what is aimed at

SINGLE_SHARE = 0.8  # of n times S, with one message in flight each
BATCH_SHARE = 0.5  # of R(256), with wide windows
SYNCED_TIMES_MAX = (
    1.5  # one publisher that is confirmed more often than this times S did not wait for the disk
)
READY_S_MAX = 5.0
GROWTH_BYTES_MAX = 100 * 1024 * 1024
COST_TIMES_MAX = 1.25  # the last publishes against the first: "does not grow", with room for noise

RATES = ("publish", "consume", "session")  # kinds whose figure is a rate


@dataclass(frozen=True)
class QueueScenario(Scenario):
    """`singles` is the number of publishers with one in flight; `batch` the batch whose floor holds."""

    singles: int = 0
    batch: int = 0
    is_compared: bool = True

    @property
    def is_once(self) -> bool:
        """Measured in the first round only: it takes minutes, and needs no median."""
        return self.kind in ("restart", "grow")

    @property
    def has_stream(self) -> bool:
        return bool(self.job.get("is_stream", False))

    @property
    def batches(self) -> tuple[int, ...]:
        """The floors its promise needs."""
        if self.singles:
            return (1,) if self.singles == 1 else (1, self.singles)
        return (1, self.batch) if self.batch else ()


def single(count: int) -> QueueScenario:
    noun = "publisher" if count == 1 else "publishers"
    return QueueScenario(
        f"publish-{count}",
        f"Publish, {count} {noun}, one in flight",
        "publish",
        ALL,
        {"publishers": count, "window": 1},
        singles=count,
    )


def session(name: str, title: str, kind: str) -> QueueScenario:
    job: dict[str, object] = {"publishers": 10, "window": 256, "has_session": True}
    return QueueScenario(name, title, kind, OURS, job, is_compared=False)


SCENARIOS: tuple[QueueScenario, ...] = (
    single(1),
    single(16),
    single(64),
    QueueScenario(
        "publish-10x256",
        "Publish, 10 publishers, 256 in flight",
        "publish",
        ALL,
        {"publishers": 10, "window": 256},
        batch=256,
    ),
    QueueScenario("consume-1", "Consume and settle, 1 consumer", "consume", ALL, {"consumers": 1}),
    QueueScenario("consume-10", "Consume and settle, 10 consumers", "consume", ALL, {"consumers": 10}),
    QueueScenario(
        "replay", "Stream replay, 1 new group", "consume", ALL, {"consumers": 1, "is_stream": True}
    ),
    session("session-online", "Persistent session, online", "session"),
    session("session-offline", "Persistent session, offline: stored", "publish"),
    session("session-return", "Persistent session: delivered on return", "consume"),
    QueueScenario(
        "restart", "Restart after kill -9", "restart", OURS[:1], {"payload_bytes": 1024}, is_compared=False
    ),
    QueueScenario(
        "memory",
        "Messages piled up in a stream",
        "grow",
        OURS[:1],
        {"payload_bytes": 64, "is_stream": True},
        is_compared=False,
    ),
)

BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}
