"""What the runner asks of the generator, and what the generator answers: plain data, JSON on the pipes."""

from __future__ import annotations

import json
from typing import Final

WINDOW_DEFAULT: Final = 256


class Job:
    """One scenario against one running broker."""

    def __init__(self, text: str) -> None:
        fields: dict[str, object] = json.loads(text)
        self.kind = str(fields["kind"])
        self.host = str(fields.get("host", "127.0.0.1"))
        self.port = whole(fields, "port", 0)
        self.websocket_path = str(fields.get("websocket_path", ""))
        self.broker_pids = [int(part) for part in str(fields.get("broker_pids", "")).split(",") if part]
        self.core = whole(fields, "core", -1)
        self.version = whole(fields, "version", 4)
        self.qos = whole(fields, "qos", 0)
        self.publishers = whole(fields, "publishers", 1)
        self.subscribers = whole(fields, "subscribers", 1)
        self.layout = str(fields.get("layout", "one"))
        self.topics = whole(fields, "topics", 1)
        self.payload_bytes = whole(fields, "payload_bytes", 64)
        self.has_properties = bool(fields.get("has_properties", False))
        self.has_long_properties = bool(fields.get("has_long_properties", False))
        self.window = whole(fields, "window", WINDOW_DEFAULT)
        self.rate = whole(fields, "rate", 1000)
        self.connections = whole(fields, "connections", 0)
        self.stopped = whole(fields, "stopped", 0)
        self.warmup_ms = whole(fields, "warmup_ms", 500)
        self.measure_ms = whole(fields, "measure_ms", 2000)
        self.silence_ms = whole(fields, "silence_ms", 5000)


def whole(fields: dict[str, object], key: str, otherwise: int) -> int:
    found = fields.get(key, otherwise)
    if not isinstance(found, int):
        raise ValueError(f"{key} must be a whole number")
    return found


class Result:
    """The measured window of one scenario; rates and shares are computed by the runner from these facts."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.deliveries = 0
        self.published_total = 0
        self.delivered_total = 0
        self.expected_total = 0
        self.proven_messages = 0
        self.broker_cpu_s = 0.0
        self.broker_wait_s = 0.0
        self.generator_cpu_s = 0.0
        self.generator_wait_s = 0.0
        self.round_trip_p50_us = 0.0
        self.round_trip_p99_us = 0.0
        self.round_trip_max_us = 0.0
        self.rss_before_bytes = 0
        self.rss_after_bytes = 0
        self.connections = 0
        self.findings: dict[str, float] = {}  # of the kinds of load that are not a rate

    def to_json(self) -> str:
        return json.dumps(
            {
                "seconds": self.seconds,
                "deliveries": self.deliveries,
                "published_total": self.published_total,
                "delivered_total": self.delivered_total,
                "expected_total": self.expected_total,
                "proven_messages": self.proven_messages,
                "broker_cpu_s": self.broker_cpu_s,
                "broker_wait_s": self.broker_wait_s,
                "generator_cpu_s": self.generator_cpu_s,
                "generator_wait_s": self.generator_wait_s,
                "round_trip_p50_us": self.round_trip_p50_us,
                "round_trip_p99_us": self.round_trip_p99_us,
                "round_trip_max_us": self.round_trip_max_us,
                "rss_before_bytes": self.rss_before_bytes,
                "rss_after_bytes": self.rss_after_bytes,
                "connections": self.connections,
                **self.findings,
            }
        )


def set_round_trips(result: Result, samples_ns: list[int]) -> None:
    """Nearest-rank percentiles of the round trips of one window."""
    if not samples_ns:
        return
    ordered = sorted(samples_ns)
    result.round_trip_p50_us = percentile(ordered, 50) / 1000
    result.round_trip_p99_us = percentile(ordered, 99) / 1000
    result.round_trip_max_us = ordered[-1] / 1000


def percentile(ordered: list[int], percent: int) -> int:
    """By nearest rank: the smallest value that so many per cent of all values do not exceed; 0 of nothing."""
    if not ordered:
        return 0
    rank = (len(ordered) * percent + 99) // 100
    return ordered[max(rank, 1) - 1]
