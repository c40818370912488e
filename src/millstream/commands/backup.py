"""`millstream backup` and `millstream restore`: the whole state of a broker as one file, and back."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millstream.commands.outcome import CommandFailed, ExitCode
from millstream.commands.output import Output, OutputOption, print_json, print_rows
from millstream.commands.settings import ConfigOption, SetOption
from millstream.commands.storage import find_folder

if TYPE_CHECKING:
    from millstream.maintenance.backup_manifest import Manifest

BACKUP_EXAMPLES = """\b
Examples:
  millstream backup monday.tar
  millstream backup monday.tar.gz --config millstream.yaml
  millstream backup monday.tar --force -o json
"""
RESTORE_EXAMPLES = """\b
Examples:
  millstream restore monday.tar --to /var/lib/millstream
  millstream serve --set data_dir=/var/lib/millstream
"""
SUFFIXES = (".tar", ".tar.gz", ".tgz")


def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to: a .tar, .tar.gz or .tgz file.")],
    config: ConfigOption = None,
    set_: SetOption = None,
    force: Annotated[bool, typer.Option("--force", help="Replace FILE if it is there.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Write everything durable into one file, while the broker runs or not.

    The file holds a consistent prefix: all that was confirmed before the backup began, and nothing half.
    The configuration, users and access rules are files of their own and are not in it.
    """
    if not file.name.endswith(SUFFIXES):
        raise CommandFailed(
            ExitCode.USAGE, f"{file} must end in .tar, .tar.gz or .tgz.", f"millstream backup {file}.tar"
        )
    if not file.absolute().parent.is_dir():
        raise CommandFailed(ExitCode.USAGE, f"There is no directory {file.absolute().parent}.")
    if file.exists() and not force:
        raise CommandFailed(ExitCode.USAGE, f"{file} is there already.", f"millstream backup {file} --force")
    from millstream.maintenance.backup import make_backup
    from millstream.runtime.start_fault import StartFault

    folder = find_folder(config, set_, "millstream backup FILE --set data_dir=DIR")
    try:
        with progress_bar() as on_progress:
            manifest = make_backup(folder, file.absolute(), on_progress)
    except StartFault as fault:
        raise CommandFailed(ExitCode.FAILED, f"No backup was made: {fault}.", fault.hint) from fault
    _print_backup(file, manifest, output)
    if manifest.damage:
        raise CommandFailed(
            ExitCode.FAILED,
            f"{file} was made, but part of the data was damaged before.",
            "millstream storage verify",
        )


def _print_backup(file: Path, manifest: Manifest, output: Output) -> None:
    result = {
        "file": str(file),
        "bytes": file.stat().st_size,
        "files": len(manifest.files),
        "data_bytes": manifest.size(),
        "last_sequence": manifest.last_sequence,
        "damage": manifest.damage,
    }
    if output is Output.JSON:
        print_json(result)
        return
    print(f"{file}: {result['bytes']} bytes, {result['files']} files, facts up to {manifest.last_sequence}")
    for sentence in manifest.damage:
        print(f"damaged: {sentence}")


def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `millstream backup` wrote.")],
    to: Annotated[Path, typer.Option("--to", metavar="DIR", help="A directory that is empty or not there.")],
    output: OutputOption = Output.TABLE,
) -> None:
    """Unpack a backup into a new data directory, and prove that a broker can open it.

    Every file is checked against the manifest before anything appears in DIR.
    """
    from millstream.maintenance.backup import restore_backup
    from millstream.runtime.start_fault import StartFault

    try:
        with progress_bar() as on_progress:
            restored = restore_backup(file, to, on_progress)
    except StartFault as fault:
        raise CommandFailed(ExitCode.FAILED, f"Nothing was restored: {fault}.", fault.hint) from fault
    counts = restored.counts
    if output is Output.JSON:
        print_json(
            {
                "directory": str(to),
                "last_sequence": restored.manifest.last_sequence,
                **counts,
                "damage": restored.damage,
            }
        )
    else:
        print_rows(
            [{"restored": name, "count": count} for name, count in counts.items()],
            ("restored", "count"),
            output,
        )
        for sentence in restored.damage:
            print(f"damaged: {sentence}")
    if restored.damage:
        raise CommandFailed(
            ExitCode.FAILED,
            f"{to} was restored, but part of the data was damaged before the backup; it is named above.",
            f"millstream storage repair --set data_dir={to}",
        )


@contextmanager
def progress_bar(is_of_files: bool = False) -> Iterator[Callable[[str, int, int], None]]:
    """On a terminal, of bytes or of files; programs that read along see nothing of it."""
    if not sys.stderr.isatty():
        yield _ignore
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    count = MofNCompleteColumn() if is_of_files else DownloadColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), count, TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("preparing", total=None)

        def show(step: str, done: int, total: int) -> None:
            progress.update(task, description=step, completed=done, total=total)

        yield show


def _ignore(step: str, done: int, total: int) -> None:
    pass
