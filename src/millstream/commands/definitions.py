"""`millstream definitions …`: exchanges, queues and bindings of a running broker, in RabbitMQ's form, out and in."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millstream.commands.definition_file import (
    HOST,
    TAKEN,
    Left,
    Parsed,
    cut,
    name_of,
    parse_definitions,
    read_definitions,
)
from millstream.commands.outcome import CommandFailed, ExitCode
from millstream.commands.output import Output, OutputOption, print_json, print_rows
from millstream.commands.queue_control import Place, find_place
from millstream.commands.settings import ConfigOption, SetOption, load_settings
from millstream.version import VERSION

if TYPE_CHECKING:
    from millstream.commands.queue_control import Caller

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Write the exchanges, queues and bindings of a running broker to a file of RabbitMQ's form, or take them from "
    "one. The virtual host / is the default account, any other the account of that name.",
)

EXPORT_EXAMPLES = """\b
Examples:
  millstream definitions export definitions.json
  millstream definitions export | jq .queues
  millstream definitions export factory.json --account factory -o json
\b
What this form cannot say is told on standard error, a line each. Users and their passwords are never written.
"""
IMPORT_EXAMPLES = """\b
Examples:
  rabbitmqctl export_definitions definitions.json
  millstream definitions import definitions.json
  millstream definitions import definitions.json --ignore users --ignore permissions -o json
\b
Doing it again is harmless. Exit code 0 means that everything was taken over, 1 that some of it was not: each such part is
told with the reason.
"""
COLUMNS = ("kind", "vhost", "name", "reason")
DEFAULT = "default"


@app.command("export", epilog=EXPORT_EXAMPLES)
def export(
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="Where to write; else standard output.")
    ] = None,
    account: Annotated[
        str | None, typer.Option("--account", "-a", metavar="ACCOUNT", help="Only this account.")
    ] = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Write what is durable: exchanges, queues with their arguments, bindings."""
    lost: list[Left] = []
    place = find_place(config, set_, account or DEFAULT)
    accounts = [account] if account is not None else _accounts(place)
    policies = _policies(config, set_)
    parts: dict[str, list[dict[str, object]]] = {"vhosts": [], "policies": [], **{part: [] for part in TAKEN}}
    for name in accounts:
        vhost = HOST if name == DEFAULT else name
        parts["vhosts"].append({"name": vhost})
        parts["policies"].extend({"vhost": vhost, **policy} for policy in policies)
        with Place(place.path, place.is_enabled, name).open() as caller:
            _export_queues(caller, vhost, parts, lost)
            _export_exchanges(caller, vhost, parts)
    _tell_lost(lost)
    text = json.dumps({"product_name": "Millstream", "product_version": VERSION, **parts}, indent=2)
    if file is None:
        print(text)
        return
    try:
        file.write_text(text + "\n")
    except OSError as error:
        raise CommandFailed(ExitCode.FAILED, f"{file} cannot be written: {error.strerror}.") from None
    counts = {part: len(items) for part, items in parts.items()}
    if output is Output.JSON:
        print_json({"file": str(file), **counts, "lost": [one.to_row() for one in lost]})
    else:
        print(f"{file}: " + ", ".join(f"{count} {part}" for part, count in counts.items()) + ".")


@app.command("import", epilog=IMPORT_EXAMPLES)
def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Definitions, as rabbitmqctl exports them.")],
    account: Annotated[
        str, typer.Option("--account", "-a", metavar="ACCOUNT", help="Account for the virtual host /.")
    ] = DEFAULT,
    ignore: Annotated[
        list[str] | None,
        typer.Option("--ignore", metavar="PART", help="Leave this part of the file out, such as users."),
    ] = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Declare the exchanges, queues and bindings of a file, and tell what cannot be taken over."""
    parsed = parse_definitions(read_definitions(file), ignore or [])
    place = find_place(config, set_, account)
    counts = {"created": 0, "unchanged": 0}
    accounts = _accounts(place)
    left = parsed.left + _drop_unknown(parsed, accounts, account)
    with place.open() as caller:
        for kind in TAKEN.values():
            for (found, vhost), items in parsed.items.items():
                if found == kind:
                    name = account if vhost == HOST else vhost
                    left += _take(caller, name, vhost, kind, items, counts)
    if output is Output.JSON:
        print_json({**counts, "not_imported": [one.to_row() for one in left]})
    else:
        if left:
            print_rows([one.to_row() for one in left], COLUMNS, output)
        print(f"{counts['created']} made, {counts['unchanged']} were there just like this.")
    if left:
        raise CommandFailed(
            ExitCode.FAILED,
            f"{len(left)} parts of {file} were not taken over; each is named with the reason.",
            "millstream definitions import --help",
        )


def _accounts(place: Place) -> list[str]:
    found = place.call("definitions.accounts")["accounts"]
    assert isinstance(found, list)
    return [str(name) for name in found]


def _drop_unknown(parsed: Parsed, accounts: list[str], own: str) -> list[Left]:
    """Virtual hosts that are no account here: told once each, with what they hold."""
    held: dict[str, list[str]] = {}
    for kind, vhost in list(parsed.items):
        if (own if vhost == HOST else vhost) not in accounts:
            held.setdefault(vhost, []).append(f"{len(parsed.items.pop((kind, vhost)))} {kind}s")
    return [
        Left(
            "vhosts",
            vhost,
            vhost,
            f"there is no account {vhost!r}: name it under accounts ({', '.join(what)})",
        )
        for vhost, what in held.items()
    ]


def _take(
    caller: Caller,
    account: str,
    vhost: str,
    kind: str,
    items: list[dict[str, object]],
    counts: dict[str, int],
) -> list[Left]:
    left: list[Left] = []
    for piece in cut(items):
        answer = caller.call("definitions.take", None, account=account, kind=kind, items=piece)
        for word in counts:
            counts[word] += int(str(answer[word]))
        refused = answer["refused"]
        assert isinstance(refused, list)
        for refusal in refused:
            item = piece[int(refusal["at"])]
            left.append(Left(kind, vhost, name_of(kind, item), str(refusal["reason"])))
    return left


# ---------------------------------------------------------------------- export


def _export_queues(
    caller: Caller, vhost: str, parts: dict[str, list[dict[str, object]]], lost: list[Left]
) -> None:
    after = ""
    while True:
        page = caller.call("definitions.queues", None, after=after)
        found = page["queues"]
        assert isinstance(found, list)
        for queue in found:
            parts["queues"].append(
                {
                    "name": queue["name"],
                    "vhost": vhost,
                    "durable": True,
                    "auto_delete": queue["auto_delete"],
                    "arguments": queue["arguments"],
                }
            )
            for key in queue["keys"]:
                row = {"source": "amq.topic", "target": queue["name"], "target_kind": "queue", "key": key}
                parts["bindings"].append(_binding(vhost, {**row, "arguments": {}}))
            if queue["lost"]:
                reason = "cannot be said in this form: " + ", ".join(queue["lost"])
                lost.append(Left("queue", vhost, queue["name"], reason))
        if not page["more"]:
            return
        after = str(page["last"])


def _export_exchanges(caller: Caller, vhost: str, parts: dict[str, list[dict[str, object]]]) -> None:
    for exchange in caller.pages("exchange.list", "exchanges", "name"):
        if exchange["durable"] and not exchange["is_predeclared"]:
            kept = ("name", "type", "durable", "auto_delete", "internal", "arguments")
            parts["exchanges"].append({"vhost": vhost, **{name: exchange[name] for name in kept}})
        start = 0
        while exchange["bindings"]:
            page = caller.call("exchange.bindings", None, name=exchange["name"], start=start)
            found = page["bindings"]
            assert isinstance(found, list)
            parts["bindings"].extend(_binding(vhost, row) for row in found if row["durable"])
            if not page["more"]:
                break
            start += len(found)


def _binding(vhost: str, row: dict[str, object]) -> dict[str, object]:
    return {
        "source": row["source"],
        "vhost": vhost,
        "destination": row["target"],
        "destination_type": row["target_kind"],
        "routing_key": row["key"],
        "arguments": row["arguments"],
    }


def _policies(config: Path | None, set_: list[str] | None) -> list[dict[str, object]]:
    """Those of the configuration: they hold for every account."""
    found: list[dict[str, object]] = []
    settings = load_settings(config, list(set_ or []), checks_files=False).config
    for name, policy in settings.amqp.policies.items():
        fields = policy.model_dump(mode="json", exclude_none=True)
        pattern, apply_to, priority = (fields.pop(part) for part in ("pattern", "apply_to", "priority"))
        definition = {part.replace("_", "-"): value for part, value in fields.items()}
        found.append(
            {
                "name": name,
                "pattern": pattern,
                "apply-to": apply_to,
                "priority": priority,
                "definition": definition,
            }
        )
    return found


def _tell_lost(lost: list[Left]) -> None:
    for one in lost:
        print(f"lost: {one.kind} {one.name!r} of vhost {one.vhost!r}: {one.reason}", file=sys.stderr)
