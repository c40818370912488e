"""What a flood must show: newcomers are served, consumers get their share, memory stays below the first mark."""

from __future__ import annotations

from dataclasses import asdict, dataclass

NEWCOMER_S = 0.25
NEWCOMER_TIMES = 2.0  # as long as on the other broker
SHARE_LEAST = 0.7  # of what was published, delivered meanwhile
EVEN_LEAST = 0.2  # the least a consumer gets, of the average of all


@dataclass(frozen=True)
class Flood:
    publishers: int
    queues: int
    size: int
    is_durable: bool
    confirms: bool

    @property
    def name(self) -> str:
        kind = "durable" if self.is_durable else "transient"
        way = "confirms" if self.confirms else "plain"
        return f"{self.publishers}x{self.queues}-{kind}-{way}-{self.size}"


@dataclass(frozen=True)
class Figures:
    """Of one broker in one flood; times in seconds, rates per second."""

    published_rate: float
    delivered_rate: float
    least_consumer_rate: float
    amqp_median_s: float
    amqp_worst_s: float
    mqtt_median_s: float
    mqtt_worst_s: float
    newcomers: int
    resident_peak_mib: int
    fault: str = ""

    def share(self) -> float:
        return self.delivered_rate / self.published_rate if self.published_rate else 0.0

    def document(self) -> dict[str, object]:
        return asdict(self) | {"share": round(self.share(), 3)}


def find_faults(ours: Figures, theirs: Figures | None, queues: int, high_mark_mib: int) -> list[str]:
    """What does not hold, in words."""
    if ours.fault:
        return [ours.fault]
    faults: list[str] = []
    times = (("AMQP", ours.amqp_worst_s, "amqp_worst_s"), ("MQTT", ours.mqtt_worst_s, "mqtt_worst_s"))
    for protocol, ours_s, field in times:
        allowed = NEWCOMER_S
        if theirs is not None and not theirs.fault:
            allowed = max(allowed, NEWCOMER_TIMES * float(getattr(theirs, field)))
        if ours_s > allowed:
            faults.append(f"{protocol} newcomer {ours_s:.2f} s, allowed {allowed:.2f} s")
    if ours.share() < SHARE_LEAST:
        faults.append(f"consumers got {ours.share():.0%} of what was published")
    if ours.least_consumer_rate < EVEN_LEAST * ours.delivered_rate / queues:
        faults.append(f"one consumer got {ours.least_consumer_rate:.0f} messages a second")
    if ours.resident_peak_mib > high_mark_mib:
        faults.append(f"memory {ours.resident_peak_mib} MiB, the first mark is {high_mark_mib} MiB")
    return faults
