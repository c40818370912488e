"""`millstream acl …`: who may publish and subscribe where, and why."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from millstream.commands.input_file import read_input
from millstream.commands.outcome import CommandFailed, ExitCode
from millstream.commands.output import Output, OutputOption, print_json, print_rows
from millstream.commands.settings import ConfigOption, load_settings

if TYPE_CHECKING:
    from millstream.config.schema import Config
    from millstream.security.principal import Principal

IMPORT_SIZE_MAX: Final = 16 * 1024 * 1024

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Check, show and import access rules.")

AclFileOption = Annotated[
    Path | None,
    typer.Option("--acl-file", "-f", metavar="FILE", help="The access list. Default: auth.acl_file."),
]

CHECK_EXAMPLES = """\b
Examples:
  millstream acl check alice publish plant/hall1/temperature --acl-file acl.yaml
  millstream acl check sensor-7 --client sensor-7 subscribe 'commands/#' --config millstream.yaml
  millstream acl check anonymous subscribe '#' -f acl.yaml -o json
\b
Exit code 0 means allowed, 4 denied.
"""
SHOW_EXAMPLES = """\b
Examples:
  millstream acl show --acl-file acl.yaml
  millstream acl show --config millstream.yaml --user alice -o json
"""
IMPORT_EXAMPLES = """\b
Examples:
  millstream acl import /etc/mosquitto/acl > acl.yaml
"""


class Action(StrEnum):
    PUBLISH = "publish"
    SUBSCRIBE = "subscribe"
    RECEIVE = "receive"


@app.command(epilog=CHECK_EXAMPLES)
def check(
    user: Annotated[str, typer.Argument(metavar="USER", help="User name, or anonymous.")],
    action: Annotated[Action, typer.Argument(help="What the user wants to do.")],
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Topic, or filter to subscribe to.")],
    client: Annotated[
        str, typer.Option(metavar="CLIENT", help="Client id. Default: the name of the user.")
    ] = "",
    account: Annotated[
        str | None, typer.Option(metavar="ACCOUNT", help="Account. Default: the one in the password file.")
    ] = None,
    acl_file: AclFileOption = None,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Tell whether a user may publish or subscribe, and which rule decides."""
    from millstream.config.contents import read_acl
    from millstream.model.topic import find_filter_fault, find_topic_fault, split_share
    from millstream.security.acl import Authorizer

    settings = load_settings(config, checks_files=False).config
    wanted = topic.encode("utf-8", "surrogateescape")
    share = split_share(wanted)
    bounds = (settings.broker.max_topic_length, settings.broker.max_topic_levels)
    if action is Action.SUBSCRIBE:
        fault = find_filter_fault(wanted if share is None else share[1], *bounds)
    else:
        fault = find_topic_fault(wanted, *bounds)
    if fault is not None:
        raise CommandFailed(ExitCode.USAGE, f"{topic} cannot be used to {action}: {fault}.")
    path = acl_file or settings.auth.acl_file
    principal = _principal(user, account, settings)
    sentence = Authorizer(None if path is None else read_acl(path)).explain(
        action.value, principal, client or user, wanted
    )
    is_allowed = sentence.startswith("allowed")
    if output is Output.JSON:
        print_json(
            {
                "allowed": is_allowed,
                "user": principal.name,
                "account": principal.account,
                "client": client or user,
                "action": action.value,
                "topic": topic,
                "reason": sentence,
            }
        )
    else:
        print(sentence)
    raise typer.Exit(ExitCode.OK if is_allowed else ExitCode.REFUSED)


@app.command(epilog=SHOW_EXAMPLES)
def show(
    acl_file: AclFileOption = None,
    config: ConfigOption = None,
    user: Annotated[
        str | None, typer.Option(metavar="USER", help="Only rules that concern this user.")
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the rules in their order."""
    from millstream.config.contents import read_acl

    path = acl_file or load_settings(config, checks_files=False).config.auth.acl_file
    if path is None:
        raise CommandFailed(
            ExitCode.USAGE,
            "No access list is named, so everyone may do everything; give --acl-file, or --config with "
            "auth.acl_file in it.",
            "millstream acl show --acl-file acl.yaml",
        )
    acl = read_acl(path)
    rows: list[dict[str, object]] = []
    for rule in acl.rules:
        if user is not None and rule.users is not None and user not in rule.users:
            continue
        clients = (
            None if rule.clients is None else [*rule.clients, *(f"{prefix}*" for prefix in rule.prefixes)]
        )
        rows.append(
            {
                "rule": f"rules[{rule.number - 1}]",  # as faults and decisions name it
                "effect": "deny" if rule.is_deny else "allow",
                "action": "all"
                if rule.on_publish and rule.on_subscribe
                else _action(publishes=rule.on_publish),
                "topics": [template.source for template in rule.filters],
                "users": None if rule.users is None else list(rule.users),
                "clients": clients,
                "accounts": None if rule.accounts is None else list(rule.accounts),
            }
        )
    if output is Output.JSON:
        print_json({"default": "allow" if acl.default_allow else "deny", "rules": rows})
        return
    columns = ("rule", "effect", "action", "topics", "users", "clients", "accounts")
    print_rows([{name: _joined(value) for name, value in row.items()} for row in rows], columns, output)
    print(f"Where no rule applies: {'allow' if acl.default_allow else 'deny'}.")


@app.command("import", epilog=IMPORT_EXAMPLES)
def import_acl(
    source: Annotated[Path, typer.Argument(metavar="FILE", help="An ACL file of mosquitto.")],
    output: OutputOption = Output.TABLE,
) -> None:
    """Translate mosquitto's access rules and print them, as YAML or JSON."""
    import yaml

    from millstream.security.acl import AclFault, import_mosquitto_acl

    text = read_input(source, IMPORT_SIZE_MAX, ExitCode.FAILED)
    try:
        document = import_mosquitto_acl(text.decode("utf-8"))
    except AclFault as fault:
        raise CommandFailed(ExitCode.FAILED, f"{source}: {fault}.") from None
    except UnicodeDecodeError:
        raise CommandFailed(ExitCode.FAILED, f"{source} is not UTF-8.") from None
    if output is Output.JSON:
        print_json(document)
    else:
        print(yaml.safe_dump(document, sort_keys=False, allow_unicode=True), end="")


def _principal(user: str, account: str | None, settings: Config) -> Principal:
    from millstream.config.contents import read_users
    from millstream.security.principal import (
        ANONYMOUS_NAME,
        DEFAULT_ACCOUNT,
        KIND_ANONYMOUS,
        KIND_USER,
        Principal,
    )

    if user == ANONYMOUS_NAME:
        return Principal(user, account or settings.auth.anonymous_account, KIND_ANONYMOUS)
    password_file = settings.auth.password_file
    known = None if password_file is None or account else read_users(password_file).find_user(user)
    found = known.account if known is not None else DEFAULT_ACCOUNT
    return Principal(user, account or found, KIND_USER)


def _action(*, publishes: bool) -> str:
    return "publish" if publishes else "subscribe"


def _joined(value: object) -> object:
    return ", ".join(str(part) for part in value) if isinstance(value, list) else value
