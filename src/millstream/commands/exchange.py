"""`millstream exchange …`: the exchanges of a running broker and their bindings, and how to change them."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from millstream.commands.outcome import CommandFailed, ExitCode
from millstream.commands.output import Output, OutputOption, print_json, print_result, print_rows
from millstream.commands.queue_control import AccountOption, YesOption, confirm, find_place
from millstream.commands.settings import ConfigOption, SetOption

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="List, make, bind and remove the exchanges that AMQP clients publish to. The broker is found by its data_dir: "
    "give the --config or --set it was started with.",
)

LIST_EXAMPLES = """\b
Examples:
  millstream exchange list
  millstream exchange list --account factory -o json
"""
SHOW_EXAMPLES = """\b
Examples:
  millstream exchange show orders
  millstream exchange show amq.topic -o json
"""
DECLARE_EXAMPLES = """\b
Examples:
  millstream exchange declare orders --type topic
  millstream exchange declare events --type fanout --argument alternate-exchange=unrouted
"""
DELETE_EXAMPLES = """\b
Examples:
  millstream exchange delete orders
  millstream exchange delete orders --if-unused --yes
"""
BIND_EXAMPLES = """\b
Examples:
  millstream exchange bind orders jobs --key 'order.*.created'
  millstream exchange bind events audit --to-exchange
  millstream exchange bind amq.headers jobs --argument x-match=any --argument colour=red --argument size=3
"""
UNBIND_EXAMPLES = """\b
Examples:
  millstream exchange unbind orders jobs --key 'order.*.created'
"""
COLUMNS = ("name", "type", "durable", "auto_delete", "internal", "alternate", "bindings")
BINDING_COLUMNS = ("target", "target_kind", "key", "durable", "arguments")

ExchangeArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the exchange.")]
SourceArgument = Annotated[str, typer.Argument(metavar="SOURCE", help="Exchange that messages come from.")]
TargetArgument = Annotated[str, typer.Argument(metavar="TARGET", help="Queue that they go to.")]
KeyOption = Annotated[str, typer.Option("--key", "-k", metavar="KEY", help="Binding key.")]
ToExchangeOption = Annotated[bool, typer.Option("--to-exchange", help="The target is an exchange.")]
ArgumentOption = Annotated[
    list[str] | None,
    typer.Option(
        "--argument",
        metavar="NAME=VALUE",
        help="An argument; a value that is JSON is taken as such. May be repeated.",
    ),
]


@app.command("list", epilog=LIST_EXAMPLES)
def list_exchanges(
    account: AccountOption = "default",
    config: ConfigOption = None,
    set_: SetOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the exchanges of an account."""
    with find_place(config, set_, account).open() as caller:
        rows = caller.pages("exchange.list", "exchanges", "name")
    print_rows(rows, COLUMNS, output)


@app.command(epilog=SHOW_EXAMPLES)
def show(
    name: ExchangeArgument,
    account: AccountOption = "default",
    config: ConfigOption = None,
    set_: SetOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show an exchange and the bindings from it."""
    result = find_place(config, set_, account).call("exchange.show", name=name)
    if output is Output.JSON:
        print_json(result)
        return
    bound = result.pop("bound")
    assert isinstance(bound, list)
    print_rows([{"what": what, "value": value} for what, value in result.items()], ("what", "value"), output)
    if bound:
        print()
        print_rows([{**row, "arguments": row["arguments"] or None} for row in bound], BINDING_COLUMNS, output)


@app.command(epilog=DECLARE_EXAMPLES)
def declare(
    name: ExchangeArgument,
    type_: Annotated[
        str, typer.Option("--type", "-t", metavar="TYPE", help="direct, fanout, topic or headers.")
    ] = "direct",
    transient: Annotated[bool, typer.Option("--transient", help="It goes with the next restart.")] = False,
    auto_delete: Annotated[
        bool, typer.Option("--auto-delete", help="It goes with the last binding from it.")
    ] = False,
    internal: Annotated[bool, typer.Option("--internal", help="Only bindings lead to it.")] = False,
    argument: ArgumentOption = None,
    account: AccountOption = "default",
    config: ConfigOption = None,
    set_: SetOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Make an exchange. Doing it again with the same settings is harmless."""
    result = find_place(config, set_, account).call(
        "exchange.declare",
        name=name,
        type=type_,
        durable=not transient,
        auto_delete=auto_delete,
        internal=internal,
        arguments=parse_arguments(argument),
    )
    sentence = f"{name} is made ({type_})." if result["created"] else f"{name} was there, just like this."
    print_result(result, sentence, output)


@app.command(epilog=DELETE_EXAMPLES)
def delete(
    name: ExchangeArgument,
    if_unused: Annotated[bool, typer.Option("--if-unused", help="Only without bindings from it.")] = False,
    yes: YesOption = False,
    account: AccountOption = "default",
    config: ConfigOption = None,
    set_: SetOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Delete an exchange with its bindings. Queues stay, with what is in them."""
    place = find_place(config, set_, account)
    if not yes:
        shown = place.call("exchange.show", name=name)
        confirm(f"Delete {name} with {shown['bindings']} bindings?", yes=False)
    result = place.call("exchange.delete", name=name, if_unused=if_unused)
    print_result(result, f"{name} is deleted with {result['bindings']} bindings.", output)


@app.command(epilog=BIND_EXAMPLES)
def bind(
    source: SourceArgument,
    target: TargetArgument,
    key: KeyOption = "",
    argument: ArgumentOption = None,
    to_exchange: ToExchangeOption = False,
    account: AccountOption = "default",
    config: ConfigOption = None,
    set_: SetOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Let messages of an exchange go to a queue, or on to another exchange."""
    fields = _binding_fields(source, target, key, argument, to_exchange)
    result = find_place(config, set_, account).call("exchange.bind", None, **fields)
    sentence = f"{target} is bound to {source}." if result["created"] else "It was bound just like this."
    print_result(result, sentence, output)


@app.command(epilog=UNBIND_EXAMPLES)
def unbind(
    source: SourceArgument,
    target: TargetArgument,
    key: KeyOption = "",
    argument: ArgumentOption = None,
    to_exchange: ToExchangeOption = False,
    account: AccountOption = "default",
    config: ConfigOption = None,
    set_: SetOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Take a binding away. What came through it stays where it is."""
    fields = _binding_fields(source, target, key, argument, to_exchange)
    result = find_place(config, set_, account).call("exchange.unbind", None, **fields)
    print_result(result, f"{target} is no longer bound to {source} like this.", output)


def _binding_fields(
    source: str, target: str, key: str, argument: list[str] | None, to_exchange: bool
) -> dict[str, object]:
    return {
        "source": source,
        "target": target,
        "target_kind": "exchange" if to_exchange else "queue",
        "key": key,
        "arguments": parse_arguments(argument),
    }


def parse_arguments(pairs: list[str] | None) -> dict[str, object]:
    found: dict[str, object] = {}
    for pair in pairs or []:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise CommandFailed(ExitCode.USAGE, f"--argument {pair}: write NAME=VALUE.")
        try:
            found[name] = json.loads(value)
        except (ValueError, RecursionError):
            found[name] = value
    return found
