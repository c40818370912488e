"""Who a connection speaks for.

Invariants
- Names come in through `find_name_fault`: short, printable on one line, without a colon.
- `anonymous` is a principal like any other, with rules of its own; no user, certificate or token can bear
  that name.
"""

from __future__ import annotations

import unicodedata
from typing import Final, final

ANONYMOUS_NAME: Final = "anonymous"
DEFAULT_ACCOUNT: Final = "default"
NAME_LENGTH_MAX: Final = 256

KIND_USER: Final = "user"
KIND_ANONYMOUS: Final = "anonymous"
KIND_CERTIFICATE: Final = "certificate"
KIND_TOKEN: Final = "token"  # noqa: S105 a kind of principal, not a secret
KIND_UNKNOWN: Final = (
    "unknown"  # of a session that the store kept: its user has not come back since the start
)

# Controls, surrogates, line and paragraph separators: what could forge a line of a file or of a log.
_FORBIDDEN_CATEGORIES: Final = ("Cc", "Cs", "Zl", "Zp")


@final
class Principal:
    """A proven identity inside one account. `expires_at_s` is wall time, 0 means never."""

    __slots__ = ("account", "expires_at_s", "kind", "name")

    def __init__(self, name: str, account: str, kind: str, expires_at_s: int = 0) -> None:
        self.name = name
        self.account = account
        self.kind = kind
        self.expires_at_s = expires_at_s

    def __repr__(self) -> str:
        return f"Principal({self.name!r}, {self.account!r}, {self.kind!r}, {self.expires_at_s})"


def find_name_fault(name: str) -> str | None:
    """Why `name` cannot name a user or an account, or None if it can."""
    if not name:
        return "a name must have at least one character"
    if len(name) > NAME_LENGTH_MAX:
        return f"a name must have at most {NAME_LENGTH_MAX} characters"
    if ":" in name:
        return "a name must not contain a colon"
    if name != name.strip() or name.startswith("#"):
        return "a name must not begin with # nor begin or end with a space"
    for character in name:
        if unicodedata.category(character) in _FORBIDDEN_CATEGORIES:
            return "a name must not contain control characters"
    return None


def find_user_name_fault(name: str) -> str | None:
    """Why `name` cannot be proven by a client, or None if it can."""
    if name == ANONYMOUS_NAME:
        return f"the name {ANONYMOUS_NAME} is reserved for clients without credentials"
    return find_name_fault(name)
