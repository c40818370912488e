"""The tree of commands, and what every command has in common: `--version`, `--debug`, and how errors end."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from millstream.commands import (
    access,
    backup,
    bench,
    completion,
    configuration,
    definitions,
    exchange,
    pipeline,
    publish,
    queue,
    serve,
    status,
    storage,
    subscribe,
    users,
)
from millstream.commands.about import version_line
from millstream.commands.outcome import CommandFailed, ExitCode
from millstream.config.faults import ConfigFault

EXAMPLES = """\b
Examples:
  millstream serve
  millstream sub 'plant/#'
  millstream pub plant/hall1/temperature 21.5
  millstream config init > millstream.yaml
\b
Exit codes: 0 done, 1 failed, 2 wrong usage or configuration, 3 no connection, 4 refused by the broker, 5 degraded (status).
"""


class CommandTree(TyperGroup):
    """Turns what commands raise into sentences and exit codes, in one place."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except CommandFailed as failure:
            complain(failure.sentence, failure.next_step)
            raise typer.Exit(failure.code) from None
        except ConfigFault as refused:
            for fault in refused.faults:
                complain(fault.sentence())
            complain_next(_next_after_fault(refused))
            raise typer.Exit(ExitCode.USAGE) from None
        except BrokenPipeError:
            # The reader of our output has seen enough; the interpreter must not complain about it at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(ExitCode.OK) from None
        except Exception as error:
            if isinstance(error, typer.Exit | typer.Abort) or type(error).__module__.startswith("typer."):
                raise
            if ctx.params.get("debug"):
                raise
            complain(
                f"Something went wrong inside millstream: {type(error).__name__}: {error}.",
                f"millstream --debug {' '.join(sys.argv[1:])}",
            )
            raise typer.Exit(ExitCode.FAILED) from None


def complain(sentence: str, next_step: str | None = None) -> None:
    print(f"error: {sentence}", file=sys.stderr)
    if next_step is not None:
        complain_next(next_step)


def complain_next(next_step: str) -> None:
    print(f"next: {next_step}", file=sys.stderr)


def _next_after_fault(refused: ConfigFault) -> str:
    files = [fault.origin.file for fault in refused.faults if fault.origin.file]
    if files and os.path.isfile(files[0]):
        return f"millstream config check --config {files[0]}"
    return "millstream config schema --format markdown"


app = typer.Typer(
    cls=CommandTree,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    epilog=EXAMPLES,
    help="Millstream: a message broker for MQTT and AMQP.",
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(version_line())
        raise typer.Exit(ExitCode.OK)


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", "-V", is_eager=True, callback=_show_version, help="Print the version."),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show a traceback when something breaks.")] = False,
) -> None:
    """Options that stand before the command."""


app.command("serve", epilog=serve.EXAMPLES)(serve.serve)
app.command("status", epilog=status.EXAMPLES)(status.status)
app.command("pub", epilog=publish.EXAMPLES)(publish.publish)
app.command("sub", epilog=subscribe.EXAMPLES)(subscribe.subscribe)
app.command("bench", epilog=bench.EXAMPLES)(bench.bench)
app.add_typer(configuration.app, name="config")
app.add_typer(users.app, name="user")
app.add_typer(access.app, name="acl")
app.add_typer(storage.app, name="storage")
app.command("backup", epilog=backup.BACKUP_EXAMPLES)(backup.backup)
app.command("restore", epilog=backup.RESTORE_EXAMPLES)(backup.restore)
app.add_typer(queue.app, name="queue")
app.add_typer(exchange.app, name="exchange")
app.add_typer(definitions.app, name="definitions")
app.add_typer(pipeline.app, name="pipeline")
app.command("completion", epilog=completion.EXAMPLES)(completion.completion)
