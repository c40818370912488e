"""`./dev bench memory`: what clients may do to a broker's memory, in a control group of 1 GiB.

Every flood in turn, again and again for as long as asked, against one broker that is never started again. The kernel must
not end it, and an ordinary client beside the floods must be served. Needs the right to make a memory control group.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)  # the project, so that `benchmarks` is a package

from benchmarks.memory_suite.clients import Gone  # noqa: E402
from benchmarks.memory_suite.floods import FLOODS, MIB, Target  # noqa: E402
from benchmarks.memory_suite.limited_broker import LimitedBroker  # noqa: E402
from benchmarks.memory_suite.limited_group import LimitedGroup, NoGroup  # noqa: E402
from benchmarks.memory_suite.probe import Probe  # noqa: E402
from benchmarks.suite.brokers import BrokerFault  # noqa: E402
from benchmarks.suite.report import RESULTS  # noqa: E402

NO_GROUP = 4


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev bench memory", description=__doc__)
    parser.add_argument("--minutes", type=float, default=3.0, help="of floods; each runs at least once")
    parser.add_argument("--seconds", type=float, default=12.0, help="of one flood")
    parser.add_argument("--limit-mib", type=int, default=1024, help="of the control group")
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of clients")
    parser.add_argument("--only", action="append", choices=list(FLOODS), help="this flood; may be repeated")
    parser.add_argument("--set", action="append", default=[], help="a setting of the broker, KEY=VALUE")
    parser.add_argument("--log", type=Path, help="where to leave the broker's log")
    parsed = parser.parse_args()
    try:
        group = LimitedGroup(parsed.limit_mib * MIB)
    except NoGroup as fault:
        print(f"skipped: {fault}")
        return NO_GROUP
    try:
        with LimitedBroker(group, parsed.set) as broker:
            assert isinstance(broker, LimitedBroker)
            code = run(broker, group, parsed)
            if parsed.log is not None:
                parsed.log.write_bytes((broker.folder / "log").read_bytes())
        return code
    except BrokerFault as fault:
        print(fault)
        return 1
    finally:
        group.remove()


def run(broker: LimitedBroker, group: LimitedGroup, parsed: argparse.Namespace) -> int:
    deadline = time.monotonic() + parsed.minutes * 60
    rows: list[dict[str, object]] = []
    probe = Probe(broker.port)
    probe.start()
    turn = 0
    while turn == 0 or time.monotonic() < deadline:
        turn += 1
        for name in parsed.only or FLOODS:
            row = run_flood(name, broker, group, probe, parsed)
            rows.append(row)
            print(" ".join(f"{key}={value}" for key, value in row.items()), flush=True)
            if not broker.is_alive() or group.killed():
                print(f"FAILED: the broker is gone after {name}: {broker.last_words()}")
                return 1
            if turn > 1 and time.monotonic() >= deadline:
                break
    probe.stop()
    settled = broker.wait_settled(60.0)
    summary = {
        "floods": len(rows),
        "minutes": round((time.monotonic() - deadline) / 60 + parsed.minutes, 1),
        "killed": group.killed(),
        "peak_mib": group.peak_bytes() // MIB,
        "resident_after_mib": settled // MIB,
        "ordinary_p50_ms": round(probe.percentile(50), 1),
        "ordinary_p99_ms": round(probe.percentile(99), 1),
        "ordinary_served": len(probe.times_ms),
        "ordinary_failures": probe.failures,
    }
    print("survived: " + " ".join(f"{key}={value}" for key, value in summary.items()))
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "memory.json").write_text(json.dumps({"summary": summary, "floods": rows}, indent=1) + "\n")
    return 0


def run_flood(
    name: str, broker: LimitedBroker, group: LimitedGroup, probe: Probe, parsed: argparse.Namespace
) -> dict[str, object]:
    target = Target(broker.port, broker.amqp_port, parsed.seconds, parsed.scale)
    served, failures = len(probe.times_ms), probe.failures
    begin = time.monotonic()
    broker.watch()
    try:
        FLOODS[name](target)
    except (Gone, OSError) as fault:
        target.add(0, 1)
        print(f"{name}: {fault}")
    peak = broker.end_watch()
    times = sorted(probe.times_ms[served:]) or [float("nan")]
    return {
        "flood": name,
        "seconds": round(time.monotonic() - begin, 1),
        "sent_mib": target.sent_bytes // MIB,
        "closed": target.lost,
        "resident_peak_mib": peak // MIB,
        "resident_mib": broker.resident() // MIB,
        "group_peak_mib": group.peak_bytes() // MIB,
        "killed": group.killed(),
        "ordinary_max_ms": round(times[-1], 1),
        "ordinary_p50_ms": round(times[len(times) // 2], 1),
        "ordinary_failures": probe.failures - failures,
    }


if __name__ == "__main__":
    sys.exit(main())
