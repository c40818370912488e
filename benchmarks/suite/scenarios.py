"""A scenario as data: what is sent, which brokers can do it, and what must be shown."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Targets:
    """Promises of the project for one scenario; empty means the figure is shown without a promise."""

    rate_times: dict[str, float] = field(default_factory=dict)  # at least so many times the peer's rate
    cpu_share: dict[str, float] = field(
        default_factory=dict
    )  # at most this part of the peer's CPU per delivery
    round_trips_within: str = ""  # p50 and p99 no higher than this peer's
    slowdown_of: str = ""  # another scenario ...
    slowdown_max: float = 0.0  # ... this one may be so many times slower than
    bytes_per_connection_max: int = 0


@dataclass(frozen=True)
class Scenario:
    name: str
    title: str
    kind: str
    brokers: tuple[str, ...]
    job: dict[str, object]
    targets: Targets = field(default_factory=Targets)

    @property
    def is_idle(self) -> bool:
        return self.kind == "idle"

    @property
    def is_once(self) -> bool:
        """Measured in the first round only."""
        return self.is_idle
