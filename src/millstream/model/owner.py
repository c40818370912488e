"""Who made something that goes on working without a connection: a binding, a dead-letter or an alternate exchange.

It works by the right of its owner, which is asked again when rights change. Without an owner it is the account's own, made by
an operator, a policy, or a release that did not keep owners.
"""

from __future__ import annotations

from typing import Final, final

OWNER_FIELDS: Final = ("user", "kind", "client")
OWNERS_MAX: Final = 16  # of one binding


@final
class Owner:
    """`kind` is how the name was proven, `client_id` is that of the connection which made it: rules may name it."""

    __slots__ = ("client_id", "kind", "name")

    def __init__(self, name: str, kind: str, client_id: str) -> None:
        self.name = name
        self.kind = kind
        self.client_id = client_id

    def is_same(self, other: Owner) -> bool:
        return self.name == other.name and self.kind == other.kind

    def to_fields(self) -> dict[str, object]:
        return {"user": self.name, "kind": self.kind, "client": self.client_id}


def read_owner(value: object) -> Owner | None:
    """From what `to_fields` wrote; None: it is nothing of the kind."""
    if not isinstance(value, dict) or len(value) != len(OWNER_FIELDS):
        return None
    name, kind, client_id = value.get("user"), value.get("kind"), value.get("client")
    if not isinstance(name, str) or not isinstance(kind, str) or not isinstance(client_id, str):
        return None
    return Owner(name, kind, client_id)
