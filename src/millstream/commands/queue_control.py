"""How `millstream queue …` reaches the broker: which one, in whose name, and how a refusal ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millstream.commands.outcome import CommandFailed, ExitCode
from millstream.commands.settings import load_settings

if TYPE_CHECKING:
    from millstream.runtime.control.client import ControlClient, ControlError

AccountOption = Annotated[
    str, typer.Option("--account", "-a", metavar="ACCOUNT", help="Account of the queue.")
]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the queue.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@dataclass(frozen=True)
class Place:
    """One running broker, found by its data directory, and an account in it."""

    path: Path
    is_enabled: bool
    account: str

    @contextmanager
    def open(self) -> Iterator[Caller]:
        from millstream.runtime.control.client import ControlClient, ControlError

        try:
            with ControlClient(self.path) as client:
                yield Caller(client, self.account)
        except ControlError as error:
            raise self._failure(error) from None

    def call(
        self, operation: str, on_progress: Callable[[dict[str, object]], None] | None = None, **fields: object
    ) -> dict[str, object]:
        """One request on a connection of its own."""
        with self.open() as caller:
            return caller.call(operation, on_progress, **fields)

    def _failure(self, error: ControlError) -> CommandFailed:
        from millstream.runtime.control.client import ControlEnd

        sentence = f"{error.text[:1].upper()}{error.text[1:]}."
        if error.end is ControlEnd.REFUSED:
            return CommandFailed(ExitCode.REFUSED, sentence, error.hint or None)
        if not self.is_enabled:
            sentence += " control.enabled is false: a broker with this configuration takes no commands."
            return CommandFailed(
                ExitCode.NOT_CONNECTED, sentence, "millstream serve --set control.enabled=true"
            )
        next_step = f"millstream serve --set data_dir={self.path.parent}"
        return CommandFailed(ExitCode.NOT_CONNECTED, sentence, next_step)


class Caller:
    def __init__(self, client: ControlClient, account: str) -> None:
        self._client = client
        self._account = account

    def call(
        self, operation: str, on_progress: Callable[[dict[str, object]], None] | None = None, **fields: object
    ) -> dict[str, object]:
        result = self._client.call(operation, {"account": self._account, **fields}, on_progress)
        return result if isinstance(result, dict) else {}

    def pages(self, operation: str, part: str, key: str, **fields: object) -> list[dict[str, object]]:
        """All rows of a list that the broker gives a page at a time."""
        rows: list[dict[str, object]] = []
        after = ""
        while True:
            page = self.call(operation, None, after=after, **fields)
            found = page[part]
            assert isinstance(found, list)
            rows.extend(found)
            if not page["more"] or not found:
                return rows
            after = str(found[-1][key])


def find_place(config: Path | None, set_: list[str] | None, account: str) -> Place:
    from millstream.runtime.control.client import SOCKET_NAME

    settings = load_settings(config, list(set_ or []), checks_files=False).config
    return Place(settings.data_dir / SOCKET_NAME, settings.control.enabled, account)


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something is gone; without a terminal to ask on, --yes must be given."""
    import sys

    if yes:
        return
    if not sys.stdin.isatty():
        raise CommandFailed(
            ExitCode.USAGE, f"{question} There is no terminal to ask on; add --yes to mean it."
        )
    typer.confirm(question, abort=True)
