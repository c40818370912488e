"""The clients of one test: all are gone at its end, and their sessions with them."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

from foreign_client import Address, ForeignClient, Options

if TYPE_CHECKING:
    from links import Link

numbers = itertools.count(1)  # for names that nobody else uses


class Guests:
    def __init__(self, addresses: dict[str, Address]) -> None:
        self._addresses = addresses
        self._clients: list[ForeignClient] = []

    def make(self, link: Link, **options: object) -> ForeignClient:
        """A client that has not connected yet."""
        options.setdefault("client_id", f"{link.kind.name}-{next(numbers)}")
        said = Options(version=link.version, **options)  # type: ignore[arg-type]
        client = link.kind(self._addresses[link.transport], said)
        self._clients.append(client)
        return client

    def join(self, link: Link, **options: object) -> ForeignClient:
        client = self.make(link, **options)
        client.connect()
        return client

    def leave(self) -> None:
        for client in self._clients:
            if client.is_joined and not client.inbox.is_closed:
                client.disconnect()
        for client in self._clients:
            if client.is_joined and not client.options.clean:
                last = type(client)(client.address, replace(client.options, clean=True, will=None))
                last.connect()
                last.disconnect()
