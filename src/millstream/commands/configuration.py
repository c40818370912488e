"""`millstream config …`: check, show, schema, init and diff."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from millstream.commands.outcome import CommandFailed, ExitCode
from millstream.commands.output import Output, OutputOption, print_json, print_rows
from millstream.commands.settings import ConfigOption, OptionalOption, SetOption, load_settings

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Check, show and write configurations.")

CHECK_EXAMPLES = """\b
Examples:
  millstream config check --config millstream.yaml
  millstream config check -c millstream.yaml -o json
"""
SHOW_EXAMPLES = """\b
Examples:
  millstream config show
  millstream config show --config millstream.yaml --changed
  MILLSTREAM_MQTT__PORT=1884 millstream config show -o json
"""
SCHEMA_EXAMPLES = """\b
Examples:
  millstream config schema > config.schema.json
  millstream config schema --format markdown
  millstream config schema --write docs
"""
INIT_EXAMPLES = """\b
Examples:
  millstream config init > millstream.yaml
  millstream config init --file millstream.yaml
"""
DIFF_EXAMPLES = """\b
Examples:
  millstream config diff old.yaml new.yaml
  millstream config diff old.yaml new.yaml -o json
"""


class SchemaFormat(StrEnum):
    JSON = "json"
    MARKDOWN = "markdown"


@app.command(epilog=CHECK_EXAMPLES)
def check(
    config: ConfigOption = None,
    config_optional: OptionalOption = False,
    set_: SetOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Read the configuration as `serve` would, tell everything that is wrong, open nothing."""
    from millstream.config.faults import ConfigFault
    from millstream.config.listeners import listeners_of

    try:
        loaded = load_settings(config, set_, is_optional=config_optional)
    except ConfigFault as refused:
        if output is not Output.JSON:
            raise
        print_json({"ok": False, "faults": [fault.as_dict() for fault in refused.faults]})
        raise typer.Exit(ExitCode.USAGE) from None
    listeners = [
        {
            "listener": listener.name,
            "host": listener.host,
            "port": listener.port,
            "tls": listener.tls is not None,
        }
        for listener in listeners_of(loaded.config)
    ]
    if output is Output.JSON:
        print_json(
            {"ok": True, "file": None if loaded.file is None else str(loaded.file), "listeners": listeners}
        )
        return
    print(f"{loaded.file or 'The defaults'}: no fault found. It would open:")
    print_rows(listeners, ("listener", "host", "port", "tls"), output)


@app.command(epilog=SHOW_EXAMPLES)
def show(
    config: ConfigOption = None,
    config_optional: OptionalOption = False,
    set_: SetOption = None,
    changed: Annotated[
        bool, typer.Option("--changed", help="Only keys that differ from their default.")
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show every key, its value in effect, and where it was set."""
    from millstream.config.difference import flatten
    from millstream.config.schema import Config

    loaded = load_settings(config, set_, is_optional=config_optional)
    defaults = flatten(Config())
    rows: list[dict[str, object]] = []
    for path, value in flatten(loaded.config).items():
        if changed and path in defaults and defaults[path] == value:
            continue
        origin = loaded.origins.get(path)
        rows.append(
            {"key": ".".join(path), "value": value, "origin": "default" if origin is None else origin.text}
        )
    print_rows(rows, ("key", "value", "origin"), output)


@app.command(epilog=SCHEMA_EXAMPLES)
def schema(
    format_: Annotated[SchemaFormat, typer.Option("--format", help="JSON Schema, or the reference page.")] = (
        SchemaFormat.JSON
    ),
    write: Annotated[
        Path | None,
        typer.Option(metavar="DIRECTORY", help="Write config.schema.json and configuration.md there."),
    ] = None,
) -> None:
    """Print the schema of the configuration, for editors (JSON Schema) or people (Markdown)."""
    from millstream.config.reference import configuration_page, json_schema_text

    if write is not None:
        if not write.is_dir():
            raise CommandFailed(ExitCode.USAGE, f"There is no directory {write}.", f"mkdir {write}")
        (write / "config.schema.json").write_text(json_schema_text(), encoding="utf-8")
        (write / "configuration.md").write_text(configuration_page(), encoding="utf-8")
        return
    print(json_schema_text() if format_ is SchemaFormat.JSON else configuration_page(), end="")


@app.command(epilog=INIT_EXAMPLES)
def init(
    file: Annotated[
        Path | None, typer.Option("--file", "-f", metavar="FILE", help="Write there instead of printing.")
    ] = None,
) -> None:
    """Print a configuration file to start from: every key with its default, commented out."""
    from millstream.config.reference import starting_file

    if file is None:
        print(starting_file(), end="")
        return
    try:
        with file.open("x", encoding="utf-8") as target:
            target.write(starting_file())
    except FileExistsError:
        raise CommandFailed(
            ExitCode.FAILED,
            f"{file} exists already and is left as it is.",
            f"millstream config check -c {file}",
        ) from None
    print(f"{file} is written. Start the broker with `millstream serve --config {file}`.")


@app.command(epilog=DIFF_EXAMPLES)
def diff(
    old: Annotated[Path, typer.Argument(metavar="OLD", help="The configuration that runs.")],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="The one to compare it with.")],
    output: OutputOption = Output.TABLE,
) -> None:
    """Compare two configuration files and tell which changes need a restart."""
    from millstream.config.difference import difference
    from millstream.config.load import load

    changes = difference(load(old, checks_files=False).config, load(new, checks_files=False).config)
    rows = [
        {"key": change.key, "old": change.old, "new": change.new, "needs_restart": change.needs_restart}
        for change in changes
    ]
    if output is Output.TABLE and not rows:
        print("The two configurations mean the same.")
        return
    print_rows(rows, ("key", "old", "new", "needs_restart"), output)
