"""Fuzz live connections: `./dev fuzz live [--connections N] [--seed S] [--protocol NAME] [--replay FILE]`.

A real broker with all its listeners is sent conversations that are nearly right, from a few processes, while an ordinary
client goes on using it. Exit code 1 when the broker met an error of its own (`connection_failed` in its log, or any other
line of level error), ended, grew without end, or did not serve the witness. A connection that made it fail is written to
`--keep` as a file for `--replay`; number and seed are enough to make it again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks.load.usage import find_family, read_rss_bytes
from crash.broker import PROJECT, Broker
from fuzz.live.broker import LogReader, make_broker
from fuzz.live.conversations import MAKERS, make_numbered, read_script, write_script
from fuzz.live.generator import ADDRESSES, HOLD_S, number_of
from fuzz.live.replay import send_script
from fuzz.live.script import Script
from fuzz.live.witness import Witness
from millstream.build_kind import build_name

CORPUS = Path(__file__).parent / "corpus"
FAULTS_MAX = 200  # a broker that fails all the time need not be watched to the end
FAULTS_SHOWN = 20  # kinds of them
GROWTH_MAX_MIB = 96.0  # of memory, after the first quarter
WARM_UP_S = 20.0  # a shorter run says nothing about memory
LOOK_S = 0.5
TELL_S = 10.0  # how often a run says how far it is
MIB = 1024 * 1024


class Outcome(NamedTuple):
    counts: dict[str, int]
    seconds: float
    faults: list[dict[str, object]]
    complaints: list[str]
    memory_mib: list[float]
    witness: Witness


def main(arguments: list[str]) -> int:
    options = read_options(arguments)
    if options.replay:
        return replay(options.replay)
    protocols = options.protocol or list(MAKERS)
    print(f"{options.connections:,} connections, seed {options.seed}, {build_name()} build", flush=True)
    with tempfile.TemporaryDirectory(prefix="fuzz-live-") as temporary:
        broker = make_broker(Path(temporary), "error")
        broker.start()
        try:
            outcome = watch(broker, options, protocols)
        finally:
            broker.kill()
    keep_failing(outcome.faults, options, protocols)
    return report(outcome, options.seed)


def read_options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev fuzz live", description="Fuzz live connections.")
    parser.add_argument("--connections", type=int, default=100_000, help="how many, over all protocols")
    parser.add_argument("--seed", type=int, default=1, help="where chance begins")
    parser.add_argument("--first", type=int, default=0, help="number of the first connection")
    parser.add_argument(
        "--protocol", action="append", choices=list(MAKERS), help="only this one; may be given again"
    )
    parser.add_argument("--processes", type=int, default=2, help="that make connections")
    parser.add_argument("--open", type=int, default=50, help="connections a process has open at a time")
    parser.add_argument(
        "--keep", type=Path, default=Path("build/fuzz-live"), help="folder for connections that fail"
    )
    parser.add_argument(
        "--replay", type=Path, nargs="+", help="send these files to a broker that says more, and end"
    )
    return parser.parse_args(arguments)


# ---------------------------------------------------------------------- the run


def watch(broker: Broker, options: argparse.Namespace, protocols: list[str]) -> Outcome:
    log = LogReader(broker.log_file)
    for file in sorted(CORPUS.glob("*.json")):
        send_script(read_script(file), broker.ports)
    witness = Witness(broker.ports)
    generators = [start_generator(broker, options, protocols, at) for at in range(options.processes)]
    faults: list[dict[str, object]] = []
    complaints: list[str] = []
    memory: list[float] = []
    pid = broker.pid()
    began = told = time.monotonic()
    try:
        while any(generator.poll() is None for generator in generators):
            time.sleep(LOOK_S)  # other processes: there is nothing to wait for
            faults += log.take_faults()
            memory.append(read_rss_bytes(find_family(pid)) / MIB)
            if broker.poll() is not None:
                complaints.append(f"the broker ended with code {broker.poll()}: {broker.last_lines()}")
            if complaints or len(faults) > FAULTS_MAX or witness.faults:
                break
            if time.monotonic() - told >= TELL_S:
                told = time.monotonic()
                made = sum_counts(broker.log_file.parent)["made"]
                print(tell_progress(made, options.connections, told - began, memory[-1], faults), flush=True)
    finally:
        for generator in generators:
            generator.kill()
            generator.wait()
    seconds = time.monotonic() - began
    counts = sum_counts(broker.log_file.parent)
    witness.stop()
    time.sleep(HOLD_S)
    faults += log.take_faults()
    growth = memory[-1] - memory[len(memory) // 4] if memory else 0.0
    if growth > GROWTH_MAX_MIB and seconds > WARM_UP_S:
        complaints.append(
            f"memory grew by {growth:.0f} MiB after the first quarter; {GROWTH_MAX_MIB:.0f} MiB are allowed"
        )
    if counts["made"] < (options.connections * 9) // 10:
        complaints.append(f"only {counts['made']:,} connections were made")
    return Outcome(counts, seconds, faults, [*complaints, *witness.faults], memory, witness)


def tell_progress(
    made: int, wanted: int, seconds: float, memory_mib: float, faults: list[dict[str, object]]
) -> str:
    rate = made / max(seconds, 0.001)
    left_s = (wanted - made) / rate if rate else 0.0
    failed = sum(fault.get("event") == "connection_failed" for fault in faults)
    return (
        f"{made:,} of {wanted:,} connections, {rate:,.0f} a second, about {left_s / 60:.0f} minutes left; "
        f"memory {memory_mib:.0f} MiB, connection_failed: {failed}"
    )


def start_generator(
    broker: Broker, options: argparse.Namespace, protocols: list[str], at: int
) -> subprocess.Popen[str]:
    orders = {
        "ports": broker.ports,
        "seed": options.seed,
        "first": options.first + at,
        "end": options.first + options.connections,
        "step": options.processes,
        "protocols": protocols,
        "open_max": options.open,
    }
    generator = subprocess.Popen(
        [sys.executable, "-m", "fuzz.live.generator"],
        stdin=subprocess.PIPE,
        stdout=(broker.log_file.parent / f"generator-{at}").open("w"),
        text=True,
        cwd=PROJECT,
    )
    assert generator.stdin is not None
    with generator.stdin as pipe:
        pipe.write(json.dumps(orders))
    return generator


def sum_counts(folder: Path) -> dict[str, int]:
    total = dict.fromkeys(("made", "answered", "granted", "refused", "given_up"), 0)
    for file in folder.glob("generator-*"):
        lines = file.read_text().splitlines(keepends=True)
        whole = [line for line in lines[-2:] if line.endswith("\n")]  # the last may be on its way
        for name, value in json.loads(whole[-1] if whole else "{}").items():
            total[name] += value
    return total


# ------------------------------------------------------------------- the verdict


def keep_failing(faults: list[dict[str, object]], options: argparse.Namespace, protocols: list[str]) -> None:
    """A file for every fault whose connection is known, and whether it fails alone."""
    seen: set[str] = set()
    for fault in faults:
        offset = number_of(str(fault.get("address", "")))
        sentence = f"{fault.get('error')} {fault.get('where')}"
        if offset is None or sentence in seen or len(seen) >= FAULTS_SHOWN:
            continue
        seen.add(sentence)
        number = options.first + (offset - options.first) % ADDRESSES
        script = make_numbered(options.seed, number, protocols)
        options.keep.mkdir(parents=True, exist_ok=True)
        file = options.keep / f"seed-{options.seed}-number-{number}.json"
        write_script(script, file, seed=options.seed, number=number, error=str(fault.get("error")))
        fault["file"] = str(file)
        chosen = "".join(f" --protocol {name}" for name in options.protocol or ())
        fault["again"] = (
            f"./dev fuzz live --seed {options.seed} --first {number} --connections 1{chosen}, "
            f"or: ./dev fuzz live --replay {file}"
        )


def group_faults(faults: list[dict[str, object]]) -> list[tuple[dict[str, object], int]]:
    """One of each kind, if possible one whose connection is known, and how many there were; the most frequent first."""
    kinds: dict[str, list[dict[str, object]]] = {}
    for fault in faults:
        kind = f"{fault.get('event')} {fault.get('error')} {fault.get('where')} {fault.get('text')}"
        kinds.setdefault(kind, []).append(fault)
    first = [(min(alike, key=lambda fault: "again" not in fault), len(alike)) for alike in kinds.values()]
    return sorted(first, key=lambda each: -each[1])


def report(outcome: Outcome, seed: int) -> int:
    counts, seconds = outcome.counts, outcome.seconds
    numbers = ", ".join(f"{value:,} {name.replace('_', ' ')}" for name, value in counts.items())
    print(f"{numbers} in {seconds:.0f} s ({counts['made'] / max(seconds, 0.001):,.0f} connections a second)")
    failed = sum(fault.get("event") == "connection_failed" for fault in outcome.faults)
    print(f"connection_failed: {failed}; other errors in the log: {len(outcome.faults) - failed}")
    if outcome.memory_mib:
        quarters = [outcome.memory_mib[(len(outcome.memory_mib) - 1) * at // 4] for at in range(5)]
        print("memory at the quarters: " + ", ".join(f"{value:.0f}" for value in quarters) + " MiB")
    for name, slowest_s in outcome.witness.slowest_s.items():
        print(f"witness, {name}: {outcome.witness.rounds[name]:,} times, slowest {slowest_s * 1000:.0f} ms")
    for fault, count in group_faults(outcome.faults)[:FAULTS_SHOWN]:
        again = fault.get("again", f"its connection is not known; all of them: --seed {seed}")
        told = {name: value for name, value in fault.items() if name != "again"}
        print(f"FAULT {count} times: {json.dumps(told)}\n  again: {again}")
    for complaint in outcome.complaints:
        print(f"FAULT {complaint}")
    return 1 if outcome.faults or outcome.complaints else 0


def replay(files: list[Path]) -> int:
    """Each file alone, to a broker that logs tracebacks."""
    with tempfile.TemporaryDirectory(prefix="fuzz-live-") as temporary:
        broker = make_broker(Path(temporary), "debug")
        broker.start()
        log = LogReader(broker.log_file)
        failed = False
        try:
            for file in files:
                failed |= replay_one(read_script(file), file, broker, log)
        finally:
            broker.kill()
    return 1 if failed else 0


def replay_one(script: Script, file: Path, broker: Broker, log: LogReader) -> bool:
    answer = send_script(script, broker.ports)
    faults = log.take_faults()
    print(f"{file}: {len(answer)} bytes of answer, {len(faults)} errors")
    for fault in faults:
        print(fault.pop("exception", ""), json.dumps(fault), sep="\n")
    return bool(faults) or broker.poll() is not None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
