"""`millstream storage …`: look at what a data directory holds, and repair it, without starting a broker on it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millstream.commands.outcome import CommandFailed, ExitCode
from millstream.commands.output import Output, OutputOption, print_json, print_rows
from millstream.commands.settings import ConfigOption, SetOption, load_settings

if TYPE_CHECKING:
    from millstream.maintenance.survey import Survey

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Verify, repair and inspect a data directory."
)

DATA_NAMES = ("log", "state", "queues", "manifest")  # any of them makes a directory one of a broker
COLUMNS = ("file", "count", "kind", "state")

VERIFY_EXAMPLES = """\b
Examples:
  millstream storage verify --set data_dir=/var/lib/millstream
  millstream storage verify --config millstream.yaml -o json
\b
Exit code 0 means that every byte in use was read and its checksum is right, 1 that something is damaged.
"""
REPAIR_EXAMPLES = """\b
Examples:
  millstream storage repair --set data_dir=/var/lib/millstream
  millstream storage repair --config millstream.yaml --yes -o json
\b
The broker must be stopped. Bytes that cannot be trusted are kept in `quarantine` of the data directory.
"""
INSPECT_EXAMPLES = """\b
Examples:
  millstream storage inspect --set data_dir=/var/lib/millstream
"""


@app.command(epilog=VERIFY_EXAMPLES)
def verify(config: ConfigOption = None, set_: SetOption = None, output: OutputOption = Output.TABLE) -> None:
    """Read everything and check every checksum. Changes nothing."""
    folder = find_folder(config, set_, "millstream storage verify --set data_dir=DIR")
    with _stopped(folder):
        found = _survey(folder)
    print_rows([finding.to_row() for finding in found.findings], COLUMNS, output)
    if found.is_damaged():
        raise CommandFailed(
            ExitCode.FAILED,
            "Part of the data is damaged; what the broker leaves out is named above.",
            f"millstream storage repair --set data_dir={folder}",
        )


@app.command(epilog=REPAIR_EXAMPLES)
def repair(
    config: ConfigOption = None,
    set_: SetOption = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Move what is damaged to `quarantine` and make the rest whole again; what is good stays as it is.

    Says first what is damaged and what is lost with it, and asks.
    """
    from millstream.maintenance.repair import repair_storage
    from millstream.runtime.disk.data_folder import StorageFault

    folder = find_folder(config, set_, "millstream storage repair --set data_dir=DIR")
    with _stopped(folder):
        found = _survey(folder)
        damaged = [finding for finding in found.findings if finding.is_damaged]
        if output is Output.TABLE:
            print_rows([finding.to_row() for finding in damaged], COLUMNS, output)
        lost = [sentence for finding in damaged for sentence in finding.lost]
        if damaged and output is Output.TABLE:
            for sentence in lost or ["nothing"]:
                print(f"lost: {sentence}")
        if damaged and not yes and not typer.confirm("Repair it?", err=True):
            raise CommandFailed(ExitCode.FAILED, "Nothing was changed.", "millstream storage repair --yes")
        try:
            done = repair_storage(folder, found) if damaged else []
        except StorageFault as fault:
            raise CommandFailed(ExitCode.FAILED, f"The repair stopped: {fault}.", fault.hint) from fault
    if output is Output.JSON:
        rows = [finding.to_row() for finding in damaged]
        print_json({"damaged": rows, "lost": lost, "done": done})
        return
    for sentence in done:
        print(sentence)
    print("done; `millstream storage verify` reads it all again" if done else "nothing is damaged")


@app.command(epilog=INSPECT_EXAMPLES)
def inspect(config: ConfigOption = None, set_: SetOption = None, output: OutputOption = Output.TABLE) -> None:
    """Tell what would be restored: sessions, subscriptions, messages that wait, retained messages, queues."""
    from millstream.maintenance.backup import count_state
    from millstream.runtime.disk.data_dir import advise
    from millstream.runtime.disk.data_folder import read_state
    from millstream.runtime.disk.files import RealDisk
    from millstream.storage.disk import DiskFault
    from millstream.storage.records.session_records import FactFault

    folder = find_folder(config, set_, "millstream storage inspect --set data_dir=DIR")
    with _stopped(folder):
        try:
            state = read_state(RealDisk(folder), folder).state()
        except DiskFault as fault:
            hint = f"millstream storage verify --set data_dir={folder}"
            hint = advise(folder, fault, hint)
            raise CommandFailed(ExitCode.FAILED, f"It cannot be told: {fault.text}.", hint) from fault
        except FactFault as fault:
            hint = f"millstream storage verify --set data_dir={folder}"
            raise CommandFailed(ExitCode.FAILED, f"It cannot be told: {fault}.", hint) from fault
        segments = [path.stat().st_size for path in sorted((folder / "queues").glob("*/*.segment"))]
    counts = count_state(state) | {"segments": len(segments), "segment_bytes": sum(segments)}
    if output is Output.JSON:
        print_json(counts)
    else:
        rows = [{"what": name, "count": count} for name, count in counts.items()]
        print_rows(rows, ("what", "count"), output)


def find_folder(config: Path | None, set_: list[str] | None, next_step: str) -> Path:
    folder = load_settings(config, list(set_ or [])).config.data_dir
    try:
        is_data = any((folder / name).exists() for name in DATA_NAMES)
    except OSError as error:
        from millstream.runtime.disk.data_dir import describe

        fault = describe(folder, error, "cannot be looked at")
        raise CommandFailed(ExitCode.FAILED, f"{fault}.", fault.hint) from None
    if not is_data:
        raise CommandFailed(ExitCode.USAGE, f"{folder} holds no data of a broker.", next_step)
    return folder


def _survey(folder: Path) -> Survey:
    from millstream.commands.backup import progress_bar
    from millstream.maintenance.survey import survey_storage
    from millstream.runtime.disk.data_dir import advise, look_command
    from millstream.storage.disk import DiskFault

    try:
        with progress_bar(is_of_files=True) as on_progress:
            return survey_storage(folder, on_progress)
    except DiskFault as fault:
        hint = advise(folder, fault, look_command(folder))
        raise CommandFailed(ExitCode.FAILED, f"The disk refuses to read {fault.text}.", hint) from fault


@contextmanager
def _stopped(folder: Path) -> Iterator[None]:
    """Keep brokers and checkpoints away meanwhile."""
    from millstream.runtime.disk.checkpoint_lock import hold_checkpoints
    from millstream.runtime.disk.data_dir import advise, check_parts, describe, look_command
    from millstream.runtime.disk.data_folder import StorageFault, check_whole, lock
    from millstream.runtime.start_fault import StartFault
    from millstream.storage.disk import DiskFault

    try:
        check_parts(folder)
        check_whole(folder)
    except StartFault as fault:
        raise CommandFailed(ExitCode.FAILED, f"The data cannot be read: {fault}.", fault.hint) from None
    try:
        descriptor = lock(folder)
    except StorageFault:
        raise CommandFailed(ExitCode.FAILED, f"A broker is running on {folder}; stop it first.") from None
    except StartFault as fault:
        raise CommandFailed(ExitCode.FAILED, f"The data cannot be read: {fault}.", fault.hint) from None
    try:
        with hold_checkpoints(folder):
            yield
    except BrokenPipeError:
        raise  # of whoever reads what is printed
    except DiskFault as fault:
        hint = advise(folder, fault, look_command(folder))
        raise CommandFailed(ExitCode.FAILED, f"The data cannot be read: {fault.text}.", hint) from fault
    except OSError as error:
        refused = describe(Path(os.fsdecode(error.filename or folder)), error, "cannot be used")
        raise CommandFailed(ExitCode.FAILED, f"The data cannot be read: {refused}.", refused.hint) from error
    finally:
        os.close(descriptor)
