"""`millstream queue …`: what a running broker holds in its queues, and how to change it."""

from __future__ import annotations

from typing import Annotated

import typer

from millstream.commands import queue_records
from millstream.commands.outcome import CommandFailed, ExitCode
from millstream.commands.output import Output, OutputOption, print_json, print_result, print_rows
from millstream.commands.queue_control import AccountOption, NameArgument, YesOption, confirm, find_place
from millstream.commands.settings import ConfigOption, SetOption

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="List, make, change, read and empty the queues of a running broker. It is found by its data_dir: give the "
    "--config or --set it was started with.",
)

LIST_EXAMPLES = """\b
Examples:
  millstream queue list
  millstream queue list --config millstream.yaml -o json
"""
SHOW_EXAMPLES = """\b
Examples:
  millstream queue show orders
  millstream queue show '$dlq/orders' -o json
"""
CREATE_EXAMPLES = """\b
Examples:
  millstream queue create orders
  millstream queue create jobs max_deliveries=3 visibility_ms=2m length_max=100000 overflow=dead_letter
  millstream queue create readings --kind stream --bind 'plant/+/temperature' retention_age_s=7d
\b
Settings: visibility_ms, max_deliveries, backoff_ms, backoff_max_ms, prefetch, message_ttl_ms, length_max, bytes_max,
overflow (reject, drop_head, dead_letter, reject_dead_letter), bounds_ready, dead_letter, dead_letter_exchange,
dead_letter_key, priority_max, single_active, auto_delete, expires_ms, retention_age_s, retention_bytes, retention_count.
"""
UPDATE_EXAMPLES = """\b
Examples:
  millstream queue update orders max_deliveries=10 backoff_ms=1s
  millstream queue update readings retention_bytes=10GiB
"""
DELETE_EXAMPLES = """\b
Examples:
  millstream queue delete orders
  millstream queue delete '$dlq/orders' --yes
"""
PURGE_EXAMPLES = """\b
Examples:
  millstream queue purge orders
  millstream queue purge '$dlq/orders' --yes -o json
"""
BIND_EXAMPLES = """\b
Examples:
  millstream queue bind readings 'plant/+/temperature'
"""
UNBIND_EXAMPLES = """\b
Examples:
  millstream queue unbind readings 'plant/+/temperature'
"""
GROUPS_EXAMPLES = """\b
Examples:
  millstream queue groups readings
  millstream queue groups readings -o json
"""
SEEK_EXAMPLES = """\b
Examples:
  millstream queue seek readings billing first
  millstream queue seek readings billing 120000
  millstream queue seek readings billing timestamp=1767225600
\b
A place is first, last (the newest record), next (behind it), an offset, or timestamp=SECONDS of the unix clock.
"""
REMOVE_GROUP_EXAMPLES = """\b
Examples:
  millstream queue remove-group readings billing
  millstream queue remove-group orders old-workers --force --yes
"""

SettingsArgument = Annotated[
    list[str] | None, typer.Argument(metavar="[SETTING=VALUE]...", help="Settings, as listed below.")
]
FilterArgument = Annotated[str, typer.Argument(metavar="FILTER", help="Filter over ordinary topics.")]
COLUMNS = ("name", "kind", "records", "bytes", "handed_out", "groups", "consumers")
GROUP_COLUMNS = ("group", "committed", "lag", "handed_out", "consumers")


@app.command("list", epilog=LIST_EXAMPLES)
def list_queues(
    account: AccountOption = "default",
    config: ConfigOption = None,
    set_: SetOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the queues of an account."""
    with find_place(config, set_, account).open() as caller:
        rows = caller.pages("queue.list", "queues", "name")
    print_rows(rows, COLUMNS, output)


@app.command(epilog=SHOW_EXAMPLES)
def show(
    name: NameArgument,
    account: AccountOption = "default",
    config: ConfigOption = None,
    set_: SetOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show a queue: its settings, what it holds, and what happened to records since the broker started."""
    print_details(find_place(config, set_, account).call("queue.show", name=name), output)


@app.command(epilog=CREATE_EXAMPLES)
def create(
    name: NameArgument,
    settings: SettingsArgument = None,
    kind: Annotated[
        str, typer.Option("--kind", "-k", metavar="KIND", help="work, stream or ephemeral.")
    ] = "work",
    bind: Annotated[
        list[str] | None,
        typer.Option(
            "--bind", "-b", metavar="FILTER", help="Also take what is published there; may be repeated."
        ),
    ] = None,
    account: AccountOption = "default",
    config: ConfigOption = None,
    set_: SetOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Make a queue. Doing it again with the same settings is harmless."""
    definition = {**parse_settings(["kind=" + kind, *(settings or [])])}
    if bind:
        definition["bindings"] = bind
    result = find_place(config, set_, account).call("queue.create", name=name, definition=definition)
    sentence = f"{name} is made ({kind})." if result["created"] else f"{name} was there, just like this."
    print_result(result, sentence, output)


@app.command(epilog=UPDATE_EXAMPLES)
def update(
    name: NameArgument,
    settings: SettingsArgument = None,
    account: AccountOption = "default",
    config: ConfigOption = None,
    set_: SetOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Change settings of a queue; those not named stay as they are."""
    if not settings:
        raise CommandFailed(ExitCode.USAGE, "Name what to change.", "millstream queue update --help")
    definition = parse_settings(settings)
    result = find_place(config, set_, account).call("queue.update", name=name, definition=definition)
    print_details(result, output)


@app.command(epilog=DELETE_EXAMPLES)
def delete(
    name: NameArgument,
    yes: YesOption = False,
    account: AccountOption = "default",
    config: ConfigOption = None,
    set_: SetOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Delete a queue with all its records and groups."""
    place = find_place(config, set_, account)
    if not yes:
        shown = place.call("queue.show", name=name)
        confirm(f"Delete {name} with {shown['records']} records and {shown['groups']} groups?", yes=False)
    result = place.call("queue.delete", name=name)
    print_result(result, f"{name} is deleted with {result['records']} records.", output)


@app.command(epilog=PURGE_EXAMPLES)
def purge(
    name: NameArgument,
    yes: YesOption = False,
    account: AccountOption = "default",
    config: ConfigOption = None,
    set_: SetOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Forget all records of a queue. It stays, with its groups and bindings."""
    place = find_place(config, set_, account)
    if not yes:
        shown = place.call("queue.show", name=name)
        confirm(f"Forget {shown['records']} records of {name}?", yes=False)
    result = place.call("queue.purge", name=name)
    print_result(result, f"{result['purged']} records of {name} are gone.", output)


@app.command(epilog=BIND_EXAMPLES)
def bind(
    name: NameArgument,
    filter: FilterArgument,
    account: AccountOption = "default",
    config: ConfigOption = None,
    set_: SetOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Let a queue take what is published to ordinary topics."""
    _print_bindings(find_place(config, set_, account).call("queue.bind", name=name, filter=filter), output)


@app.command(epilog=UNBIND_EXAMPLES)
def unbind(
    name: NameArgument,
    filter: FilterArgument,
    account: AccountOption = "default",
    config: ConfigOption = None,
    set_: SetOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Take a binding away. What came through it stays in the queue."""
    _print_bindings(find_place(config, set_, account).call("queue.unbind", name=name, filter=filter), output)


@app.command(epilog=GROUPS_EXAMPLES)
def groups(
    name: NameArgument,
    account: AccountOption = "default",
    config: ConfigOption = None,
    set_: SetOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the groups of a queue: where each stands, how much is before it, who reads in it."""
    with find_place(config, set_, account).open() as caller:
        rows = caller.pages("queue.groups", "groups", "group", name=name)
    if output is not Output.JSON:
        rows = [{**row, "consumers": _join(row["consumers"])} for row in rows]
    print_rows(rows, GROUP_COLUMNS, output)


@app.command(epilog=SEEK_EXAMPLES)
def seek(
    name: NameArgument,
    group: Annotated[str, typer.Argument(metavar="GROUP", help="Group, as `queue groups` shows it.")],
    to: Annotated[str, typer.Argument(metavar="PLACE", help="Where it shall stand.")],
    account: AccountOption = "default",
    config: ConfigOption = None,
    set_: SetOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Let a group of a stream go on from another place, back or forth."""
    result = find_place(config, set_, account).call("queue.seek", name=name, group=group, to=to)
    sentence = (
        f"{group} goes on at offset {result['committed']} of {name}; {result['lag']} records are before it."
    )
    print_result(result, sentence, output)


@app.command("remove-group", epilog=REMOVE_GROUP_EXAMPLES)
def remove_group(
    name: NameArgument,
    group: Annotated[str, typer.Argument(metavar="GROUP", help="Group, as `queue groups` shows it.")],
    force: Annotated[
        bool, typer.Option("--force", help="Also with consumers; their subscriptions end.")
    ] = False,
    yes: YesOption = False,
    account: AccountOption = "default",
    config: ConfigOption = None,
    set_: SetOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Remove a group and what it has settled. Records that no other group needs go, except with the last group."""
    place = find_place(config, set_, account)
    if not yes:
        confirm(f"Remove the group {group} of {name}?", yes=False)
    result = place.call("queue.remove_group", name=name, group=group, force=force)
    print_result(result, f"{group} of {name} is removed; {result['lag']} records were before it.", output)


app.command(epilog=queue_records.PEEK_EXAMPLES)(queue_records.peek)
app.command(epilog=queue_records.MOVE_EXAMPLES)(queue_records.move)
app.command(epilog=queue_records.PUBLISH_EXAMPLES)(queue_records.publish)
app.command(epilog=queue_records.CONSUME_EXAMPLES)(queue_records.consume)


def parse_settings(pairs: list[str]) -> dict[str, object]:
    """`visibility_ms=2m` and the like, as the configuration file would read them."""
    from pydantic import ValidationError

    from millstream.config.named import QueueSettings

    raw: dict[str, object] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise CommandFailed(
                ExitCode.USAGE, f"{pair}: write SETTING=VALUE.", "millstream queue create --help"
            )
        raw[name] = value
    try:
        parsed = QueueSettings.model_validate(raw)
    except ValidationError as refused:
        raise CommandFailed(
            ExitCode.USAGE, _setting_fault(refused.errors()[0]), "millstream queue create --help"
        ) from None
    return parsed.model_dump(mode="json", include=set(raw))


def _setting_fault(error: object) -> str:
    assert isinstance(error, dict)
    name = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        from millstream.config.named import QueueSettings

        return f"A queue has no setting {name}; it has {', '.join(QueueSettings.model_fields)}."
    text = str(error["msg"]).removeprefix("Value error, ").replace("Input should be", "must be")
    return f"{name}={error['input']}: {text}."


def print_details(result: dict[str, object], output: Output) -> None:
    if output is Output.JSON:
        print_json(result)
        return
    rows: list[dict[str, object]] = []
    for name, value in result.items():
        if isinstance(value, dict):
            head = "since start: " if name == "since_start" else ""
            rows.extend(
                {"what": head + part, "value": _join(inner)}
                for part, inner in value.items()
                if part != "kind"
            )
        else:
            rows.append({"what": name, "value": value})
    print_rows(rows, ("what", "value"), output)


def _print_bindings(result: dict[str, object], output: Output) -> None:
    print_result(result, f"{result['name']} takes: {_join(result['bindings'])}", output)


def _join(value: object) -> object:
    if isinstance(value, list):
        return ", ".join(str(part) for part in value) or "-"
    return "-" if value == "" else value
