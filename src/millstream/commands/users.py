"""`millstream user …`: who may connect. Works on the password file; a running broker takes it up by itself."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millstream.commands.outcome import CommandFailed, ExitCode
from millstream.commands.output import Output, OutputOption, print_rows
from millstream.commands.settings import ConfigOption, load_settings

if TYPE_CHECKING:
    from millstream.security.users import UserTable

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Add, remove, list and import users.")

PasswordFileOption = Annotated[
    Path | None,
    typer.Option(
        "--password-file", "-f", metavar="FILE", help="The password file. Default: auth.password_file."
    ),
]

ADD_EXAMPLES = """\b
Examples:
  millstream user add alice --password-file users.txt
  millstream user add sensor-7 --account plant --config millstream.yaml
  printf '%s' "$PASSWORD" | millstream user add alice -f users.txt --password-stdin --replace
"""
REMOVE_EXAMPLES = """\b
Examples:
  millstream user remove alice --password-file users.txt
"""
LIST_EXAMPLES = """\b
Examples:
  millstream user list --password-file users.txt
  millstream user list --config millstream.yaml -o json
"""
IMPORT_EXAMPLES = """\b
Examples:
  millstream user import /etc/mosquitto/passwd --password-file users.txt
"""


@app.command(epilog=ADD_EXAMPLES)
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the user.")],
    password_file: PasswordFileOption = None,
    config: ConfigOption = None,
    account: Annotated[str, typer.Option(metavar="ACCOUNT", help="Account of the user.")] = "default",
    replace: Annotated[bool, typer.Option("--replace", help="Give an existing user a new password.")] = False,
    password_stdin: Annotated[
        bool, typer.Option("--password-stdin", help="Read the password from standard input.")
    ] = False,
    scram: Annotated[bool, typer.Option("--scram/--no-scram", help="Also allow SCRAM-SHA-256.")] = True,
) -> None:
    """Add a user. The password is asked for, never given as an argument."""
    from millstream.security.principal import find_name_fault, find_user_name_fault
    from millstream.security.scram_record import parse_scram_record
    from millstream.security.users import User, hash_password, make_scram_record

    path = _find_password_file(password_file, config)
    fault = find_user_name_fault(name) or find_name_fault(account)
    if fault is not None:
        raise CommandFailed(ExitCode.USAGE, f"{name} in account {account} cannot be added: {fault}.")
    password = _read_password(from_stdin=password_stdin)
    try:
        record = parse_scram_record(make_scram_record(password)) if scram else None
        user = User(name, hash_password(password), account, record)
    except ValueError as error:
        raise CommandFailed(ExitCode.USAGE, f"The password cannot be used: {error}.") from None

    def with_new(table: UserTable) -> UserTable:
        if table.find_user(name) is not None and not replace:
            raise CommandFailed(
                ExitCode.FAILED,
                f"There is a user {name} already in {path}.",
                f"millstream user add {name} --password-file {path} --replace",
            )
        return table.with_user(user)

    _change(path, with_new)
    print(f"{name} may connect (account {account}, {path}).")


@app.command(epilog=REMOVE_EXAMPLES)
def remove(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the user.")],
    password_file: PasswordFileOption = None,
    config: ConfigOption = None,
) -> None:
    """Remove a user."""
    path = _find_password_file(password_file, config, must_exist=True)

    def without(table: UserTable) -> UserTable:
        if table.find_user(name) is None:
            raise CommandFailed(
                ExitCode.FAILED, f"There is no user {name} in {path}.", f"millstream user list -f {path}"
            )
        return table.without_user(name)

    _change(path, without)
    print(f"{name} is removed from {path}.")


@app.command("list", epilog=LIST_EXAMPLES)
def list_users(
    password_file: PasswordFileOption = None, config: ConfigOption = None, output: OutputOption = Output.TABLE
) -> None:
    """List the users, their accounts, and how their passwords are kept."""
    from millstream.config.contents import read_users

    path = _find_password_file(password_file, config, must_exist=True)
    rows = [
        {
            "name": user.name,
            "account": user.account,
            "hash": _hash_kind(user.password_hash),
            "scram": user.scram is not None,
        }
        for user in read_users(path).users()
    ]
    print_rows(rows, ("name", "account", "hash", "scram"), output)


@app.command("import", epilog=IMPORT_EXAMPLES)
def import_users(
    source: Annotated[
        Path, typer.Argument(metavar="FILE", help="A password file of mosquitto or of Millstream.")
    ],
    password_file: PasswordFileOption = None,
    config: ConfigOption = None,
    account: Annotated[
        str | None, typer.Option(metavar="ACCOUNT", help="Put all imported users into this account.")
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Overwrite users that exist already.")] = False,
) -> None:
    """Take over users with their passwords from another password file."""
    from millstream.config.contents import read_users
    from millstream.security.users import User, UserTable

    path = _find_password_file(password_file, config)
    imported = read_users(source).users()

    def with_all(table: UserTable) -> UserTable:
        known = [user.name for user in imported if table.find_user(user.name) is not None]
        if known and not replace:
            raise CommandFailed(
                ExitCode.FAILED,
                f"{len(known)} of the users exist already in {path}: {', '.join(known[:5])}.",
                f"millstream user import {source} --password-file {path} --replace",
            )
        merged = {user.name: user for user in table.users()}
        for user in imported:
            merged[user.name] = User(user.name, user.password_hash, account or user.account, user.scram)
        return UserTable(merged)

    _change(path, with_all)
    print(f"{len(imported)} users are imported into {path}.")


def _change(path: Path, change: Callable[[UserTable], UserTable]) -> None:
    from millstream.commands.user_file import change_users
    from millstream.security.users import UserFileFault

    try:
        change_users(path, change)
    except UserFileFault as fault:
        raise CommandFailed(ExitCode.FAILED, f"{path}: {fault}.") from None
    except OSError as error:
        raise CommandFailed(ExitCode.FAILED, f"{path} cannot be changed: {error.strerror}.") from None


def _find_password_file(given: Path | None, config: Path | None, *, must_exist: bool = False) -> Path:
    path = given or load_settings(config, checks_files=False).config.auth.password_file
    if path is None:
        raise CommandFailed(
            ExitCode.USAGE,
            "No password file is named; give --password-file, or --config with auth.password_file in it.",
            "millstream user add NAME --password-file users.txt",
        )
    if must_exist and not path.exists():
        raise CommandFailed(
            ExitCode.FAILED, f"There is no file {path}.", f"millstream user add NAME --password-file {path}"
        )
    return path


def _read_password(*, from_stdin: bool) -> str:
    if from_stdin:
        password = sys.stdin.readline().rstrip("\r\n")
    elif sys.stdin.isatty():
        password = str(typer.prompt("Password", hide_input=True, confirmation_prompt=True))
    else:
        raise CommandFailed(
            ExitCode.USAGE,
            "There is no terminal to ask for the password on; pipe it in and add --password-stdin.",
        )
    if not password:
        raise CommandFailed(ExitCode.USAGE, "The password is empty.")
    return password


def _hash_kind(password_hash: str) -> str:
    kinds = {"$argon2id$": "argon2id", "$7$": "pbkdf2-sha512", "$6$": "sha512"}
    return next((kind for prefix, kind in kinds.items() if password_hash.startswith(prefix)), "unknown")
