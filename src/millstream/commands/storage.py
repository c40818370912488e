"""`millstream storage …`: look at what a data directory holds, without starting a broker on it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import typer

from millstream.commands.outcome import CommandFailed, ExitCode
from millstream.commands.output import Output, OutputOption, print_json, print_rows
from millstream.commands.settings import ConfigOption, SetOption, load_settings

if TYPE_CHECKING:
    from pathlib import Path

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Verify and inspect a data directory.")

VERIFY_EXAMPLES = """\b
Examples:
  millstream storage verify --set data_dir=/var/lib/millstream
  millstream storage verify --config millstream.yaml -o json
\b
Exit code 0 means that every byte in use was read and its checksum is right, 1 that something is damaged.
"""
INSPECT_EXAMPLES = """\b
Examples:
  millstream storage inspect --set data_dir=/var/lib/millstream
"""


@app.command(epilog=VERIFY_EXAMPLES)
def verify(config: ConfigOption = None, set_: SetOption = None, output: OutputOption = Output.TABLE) -> None:
    """Read everything and check every checksum. Changes nothing."""
    from millstream.runtime.disk_files import RealDisk
    from millstream.storage.log_recovery import log_names, read_file

    folder = _find_folder(config, set_)
    lock = _lock(folder)
    disk = RealDisk(folder)
    names = log_names(disk)
    rows: list[dict[str, object]] = []
    is_damaged = False
    for name in names:
        found = read_file(disk, name, name == names[-1])
        is_damaged = is_damaged or bool(found.damage)
        torn = f"a torn write at byte {found.cut_at}, never confirmed" if found.cut_at >= 0 else "good"
        state = "; ".join(damage.sentence() for damage in found.damage) or torn
        rows.append({"file": name, "facts": len(found.records), "state": state})
    os.close(lock)
    print_rows(rows, ("file", "facts", "state"), output)
    if is_damaged:
        raise CommandFailed(
            ExitCode.FAILED,
            "Part of the data is damaged; what the broker leaves out is named above.",
            "millstream storage inspect",
        )


@app.command(epilog=INSPECT_EXAMPLES)
def inspect(config: ConfigOption = None, set_: SetOption = None, output: OutputOption = Output.TABLE) -> None:
    """Tell what would be restored: sessions, subscriptions, messages that wait, retained messages."""
    from millstream.app.storage import read_state
    from millstream.runtime.disk_files import RealDisk

    folder = _find_folder(config, set_)
    lock = _lock(folder)
    state = read_state(RealDisk(folder), folder).state()
    os.close(lock)
    counts = {
        "sessions": len(state.sessions),
        "subscriptions": sum(len(session.subscriptions) for session in state.sessions),
        "deliveries": sum(len(session.deliveries) for session in state.sessions),
        "wills": sum(session.will is not None for session in state.sessions),
        "retained": len(state.retained),
    }
    if output is Output.JSON:
        print_json(counts)
    else:
        rows = [{"what": name, "count": count} for name, count in counts.items()]
        print_rows(rows, ("what", "count"), output)


def _find_folder(config: Path | None, set_: list[str] | None) -> Path:
    folder = load_settings(config, list(set_ or [])).config.data_dir
    if not (folder / "log").is_dir():
        raise CommandFailed(
            ExitCode.USAGE,
            f"{folder} holds no data of a broker.",
            "millstream storage verify --set data_dir=DIR",
        )
    return folder


def _lock(folder: Path) -> int:
    from millstream.app.storage import StorageFault, lock

    try:
        return lock(folder)
    except StorageFault:
        raise CommandFailed(ExitCode.FAILED, f"A broker is running on {folder}; stop it first.") from None
