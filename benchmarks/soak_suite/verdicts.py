"""From samples and accounts to verdicts. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, Final

from benchmarks.soak_suite.sampling import HOUR_S, MEBIBYTE, Sample, fit_slope
from benchmarks.suite.results import REFUSED, Check, verdict

NAME: Final = "soak"
SLOPE_MAX_MIB: Final = 1.0  # per hour
DESCRIPTORS_MORE: Final = 3  # churn opens and closes some at every moment
MINUTES_MIN: Final = 30.0  # of samples; before that a slope per hour is noise


def check_soak(
    samples: Sequence[Sample],
    warm_up_s: float,
    lanes: Mapping[str, Mapping[str, Any]],
    log: Mapping[str, int],
) -> list[Check]:
    settled = [sample for sample in samples if sample.seconds >= warm_up_s]
    return [
        check_slope(settled),
        check_child(settled),
        *check_flat(settled),
        *check_lanes(lanes),
        check_log(log),
    ]


def check_slope(settled: Sequence[Sample]) -> Check:
    slope, error = fit_slope([(item.seconds, item.rss_bytes) for item in settled])
    anonymous, _ = fit_slope([(item.seconds, item.anonymous_bytes) for item in settled])
    per_hour = slope * HOUR_S / MEBIBYTE
    minutes = (settled[-1].seconds - settled[0].seconds) / 60 if settled else 0.0
    text = f"{per_hour:+.2f} MiB/h (± {error * HOUR_S / MEBIBYTE:.2f}, anonymous {anonymous * HOUR_S / MEBIBYTE:+.2f})"
    if settled:
        low, high = (pick(item.rss_bytes for item in settled) / MEBIBYTE for pick in (min, max))
        text += f", {low:.1f} to {high:.1f} MiB in {minutes:.0f} min"
    judged = verdict(per_hour <= SLOPE_MAX_MIB) if minutes >= MINUTES_MIN else REFUSED
    return Check(NAME, "RSS slope after warm-up", text, f"<= {SLOPE_MAX_MIB:.0f} MiB/h", judged)


def check_child(settled: Sequence[Sample]) -> Check:
    """The process that folds the log: as large at the end as at the beginning, whenever it is there."""
    half = len(settled) // 2
    first, last = (
        max((item.child_rss_bytes for item in part), default=0) for part in (settled[:half], settled[half:])
    )
    text = f"at most {first / MEBIBYTE:.1f} MiB, then at most {last / MEBIBYTE:.1f} MiB"
    return Check(
        NAME, "RSS of the checkpoint process", text, "flat", verdict(last <= first + SLOPE_MAX_MIB * MEBIBYTE)
    )


def check_flat(settled: Sequence[Sample]) -> list[Check]:
    quarter = max(1, len(settled) // 4)
    first, last = settled[:quarter], settled[-quarter:]
    checks = []
    for claim, name, more in (("descriptors", "descriptors", DESCRIPTORS_MORE), ("threads", "threads", 0)):
        before = median([getattr(item, name) for item in first] or [0])
        after = median([getattr(item, name) for item in last] or [0])
        text = f"{before:.0f} -> {after:.0f}"
        checks.append(Check(NAME, claim, text, "flat", verdict(after <= before + more)))
    data = (
        f"{first[0].data_bytes / MEBIBYTE:.1f} -> {last[-1].data_bytes / MEBIBYTE:.1f} MiB" if settled else ""
    )
    return [*checks, Check(NAME, "data directory", data, "", REFUSED)]


def check_lanes(lanes: Mapping[str, Mapping[str, Any]]) -> list[Check]:
    sent = sum(int(lane["sent"]) for lane in lanes.values())
    lost = sum(int(lane["lost"]) for lane in lanes.values())
    wrong = {
        name: f"{lane['repeated']} repeated, {lane['ghosts']} rolled back but seen, {lane['wrong']} wrong"
        for name, lane in lanes.items()
        if (lane["repeated"] and not lane["may_repeat"]) or lane["ghosts"] or lane["wrong"]
    }
    faults = sum(int(lane["faults"]) for lane in lanes.values())
    prompt = [name for name, lane in lanes.items() if not lane["is_delayed"]] or list(lanes)
    slowest = max(prompt, key=lambda name: lanes[name]["longest_ms"])
    p99 = max(prompt, key=lambda name: lanes[name]["p99_ms"])
    return [
        Check(NAME, "lost", f"{lost} of {sent:,}", "0", verdict(lost == 0 and sent > 0)),
        Check(
            NAME,
            "repeated or wrong",
            ", ".join(f"{k}: {v}" for k, v in wrong.items()) or "0",
            "0",
            verdict(not wrong),
        ),
        Check(NAME, "connections lost or refused", str(faults), "0", verdict(faults == 0)),
        Check(
            NAME,
            "latency",
            f"longest {lanes[slowest]['longest_ms']:,.0f} ms ({slowest}), p99 at most {lanes[p99]['p99_ms']:,.1f} ms ({p99})",
            "",
            REFUSED,
        ),
    ]


def check_log(log: Mapping[str, int]) -> Check:
    failures = {event: count for event, count in log.items() if "failed" in event or "Traceback" in event}
    text = ", ".join(f"{event} x{count}" for event, count in list(log.items())[:8])
    return Check(NAME, "log", text or "nothing", "no failures", verdict(not failures))
