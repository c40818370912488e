"""`millstream status`: whether a running broker is well, and if not, what is wrong and what to do."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from millstream.commands.outcome import ExitCode
from millstream.commands.output import Output, OutputOption, print_json
from millstream.commands.queue_control import find_place
from millstream.commands.settings import ConfigOption, SetOption

EXAMPLES = """\b
Examples:
  millstream status
  millstream status --json
  millstream status --config millstream.yaml
\b
Exit codes: 0 ok, 1 failed (nothing is confirmed until a restart), 3 no broker answers, 5 degraded.
"""
MIB = 1024 * 1024
CODES = {"ok": ExitCode.OK, "degraded": ExitCode.DEGRADED, "failed": ExitCode.FAILED}


def status(
    config: ConfigOption = None,
    set_: SetOption = None,
    output: OutputOption = Output.TABLE,
    as_json: Annotated[bool, typer.Option("--json", help="Same as --output json.")] = False,
) -> None:
    """Tell whether the broker is well: ok, degraded or failed, with every active condition.

    The broker is found by its data_dir: give the --config or --set it was started with.
    """
    found = find_place(config, set_, "default").call("broker.status")
    if as_json or output is Output.JSON:
        print_json(found)
    else:
        for line in status_lines(found):
            print(line)
    raise typer.Exit(CODES.get(str(found.get("status")), ExitCode.FAILED))


def memory_line(memory: object) -> str:
    assert isinstance(memory, dict)
    if memory["state"] == "off":
        return "memory: no limit (memory.limit is off)"
    used, limit, high = (int(memory[name]) // MIB for name in ("used", "limit", "high_watermark"))
    kinds = [
        (int(size), name.partition("/")[2]) for name, size in memory.items() if name.startswith("kinds/")
    ]
    largest = [f"{name} {size // MIB} MiB" for size, name in sorted(kinds, reverse=True)[:3] if size >= MIB]
    tail = f"; most is in {', '.join(largest)}" if largest else ""
    return (
        f"memory: {memory['state']}, {used} of {limit} MiB (publishers are slowed from {high} MiB on){tail}"
    )


def loop_line(loop: object) -> str:
    assert isinstance(loop, dict)
    return f"longest turn of the event loop lately: {loop['longest_turn_ms']} ms"


def status_lines(found: dict[str, object]) -> list[str]:
    lines = [
        f"status: {found['status']}",
        f"millstream {found['version']} ({found['build']}), process {found['pid']}, up {found['uptime_s']} s",
        f"{found['connections']} connections, {found['sessions']} sessions, {found['queues']} queues",
        f"{found['unconfirmed']} changes not yet on disk",
        memory_line(found["memory"]),
        loop_line(found["loop"]),
    ]
    counted = found["counted"]
    assert isinstance(counted, dict)
    if counted:
        shown = ", ".join(f"{name} {int(count):,}" for name, count in counted.items())
        lines.append(f"counted since the start: {shown}")
    conditions = found["conditions"]
    assert isinstance(conditions, list)
    for each in conditions:
        since = datetime.fromtimestamp(int(each["since"]), UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        lines += [
            "",
            f"{each['severity']}: {each['condition']} since {since} ({each['lasts_s']} s)",
            f"  cause:   {each['cause']}",
            f"  meaning: {each['meaning']}",
            f"  advice:  {each['advice']}",
        ]
        if each["counts"]:
            lines.append(f"  counted: {int(each['count']):,} {each['counts']}")
    return lines
