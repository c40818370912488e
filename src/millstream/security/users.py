"""The password file: who exists, in which account, and how a password is checked.

One user a line, `name:hash[:account[:scram record]]`; `#` starts a comment line. Three forms of hash are
read: argon2id, and mosquitto's `$7$` (PBKDF2-SHA512) and `$6$` (one round of salted SHA-512), so its files
load as they are.

Invariants
- A table never changes; adding and removing give a new one. A thread may read it while the loop swaps it.
- A file with one bad line loads nothing.
- No password and no hash is ever part of an error text or a repr.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from typing import Final, final

import argon2

from millstream.security.principal import DEFAULT_ACCOUNT, find_name_fault, find_user_name_fault
from millstream.security.scram_record import (
    ITERATIONS_DEFAULT,
    SALT_LENGTH,
    ScramRecord,
    derive_scram_record,
    format_scram_record,
    parse_scram_record,
)

PASSWORD_LENGTH_MAX: Final = 4096
LINE_LENGTH_MAX: Final = 4096
USERS_MAX: Final = 1_000_000

_HASHER: Final = argon2.PasswordHasher(
    time_cost=2, memory_cost=19 * 1024, parallelism=1, hash_len=32, salt_len=16, type=argon2.Type.ID
)
# A hash of nothing in particular, with the cost of a real one: checked when there is no user to check.
_STAND_IN_HASH: Final = (
    "$argon2id$v=19$m=19456,t=2,p=1$HZfUb6YxcP2aL+1xlKzRww$qIZCH5FNWj6bYHK7R+RzqukNLHNTzkv1uGozrDn3mis"
)
_ARGON_MEMORY_KIB_MAX: Final = 1024 * 1024
_ARGON_ROUNDS_MAX: Final = 64
_ARGON_LANES_MAX: Final = 16
_PBKDF2_ITERATIONS_MAX: Final = 10_000_000
_SHA512_LENGTH: Final = 64


class UserFileFault(Exception):
    """A line of a password file cannot be read. Lines count from 1; 0 means no line in particular."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(f"line {line}: {text}" if line else text)
        self.line = line
        self.text = text


@final
class User:
    __slots__ = ("account", "name", "password_hash", "scram")

    def __init__(
        self, name: str, password_hash: str, account: str = DEFAULT_ACCOUNT, scram: ScramRecord | None = None
    ) -> None:
        self.name = name
        self.password_hash = password_hash
        self.account = account
        self.scram = scram

    def __repr__(self) -> str:
        return f"User({self.name!r}, {self.account!r})"


@final
class UserTable:
    """All users, fixed.

    `find_stand_in` tells what an unknown user should cost, so that it cannot be told apart.
    """

    __slots__ = ("_hashes", "_scram_iterations", "_users")

    def __init__(self, users: dict[str, User]) -> None:
        self._users = dict(users)
        # Sorted, so that the same fraction of unknown names meets each cost as of known ones,
        # and so that adding a user moves few of them from one cost to another.
        self._hashes = sorted([user.password_hash for user in users.values()])
        self._scram_iterations = sorted(
            [user.scram.iterations for user in users.values() if user.scram is not None]
        )

    def __len__(self) -> int:
        return len(self._users)

    def names(self) -> list[str]:
        return list(self._users)

    def users(self) -> list[User]:
        return list(self._users.values())

    def find_user(self, name: str) -> User | None:
        return self._users.get(name)

    def find_stand_in(self, seed: bytes) -> str:
        """A hash to spend time on for a user that does not exist; `seed` must be fixed for the name."""
        if not self._hashes:
            return _STAND_IN_HASH
        return self._hashes[_pick(seed, len(self._hashes))]

    def scram_iterations_for(self, seed: bytes) -> int:
        """The iteration count to name to a SCRAM user that does not exist."""
        if not self._scram_iterations:
            return ITERATIONS_DEFAULT
        return self._scram_iterations[_pick(seed, len(self._scram_iterations))]

    def with_user(self, user: User) -> UserTable:
        """A table that also holds `user`, in place of one of the same name."""
        fault = _find_user_fault(user)
        if fault is not None:
            raise UserFileFault(0, fault)
        users = dict(self._users)
        users[user.name] = user
        return UserTable(users)

    def without_user(self, name: str) -> UserTable:
        """A table without `name`; UserFileFault if there is no such user."""
        if name not in self._users:
            raise UserFileFault(0, f"there is no user {name!r}; `millstream user list` shows who exists")
        users = dict(self._users)
        del users[name]
        return UserTable(users)


def _pick(seed: bytes, count: int) -> int:
    return (int.from_bytes(seed[:8], "big") * count) >> 64


def parse_users(text: str) -> UserTable:
    """The table of a password file. Raises UserFileFault with the line number; nothing is half loaded."""
    users: dict[str, User] = {}
    number = 0
    # Not splitlines(): it also cuts at characters that may stand in a name in other programs' files.
    for raw in text.removeprefix("\ufeff").split("\n"):
        number += 1
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        user = _parse_line(line, number)
        if user.name in users:
            raise UserFileFault(number, f"the user {user.name!r} appears twice; remove one of the lines")
        if len(users) >= USERS_MAX:
            raise UserFileFault(number, f"more than {USERS_MAX} users; use tokens or certificates instead")
        users[user.name] = user
    return UserTable(users)


def _parse_line(line: str, number: int) -> User:
    if len(line) > LINE_LENGTH_MAX:
        raise UserFileFault(number, f"the line is longer than {LINE_LENGTH_MAX} characters")
    fields = line.split(":", 3)  # the record comes last because it has colons of its own
    if len(fields) < 2:
        raise UserFileFault(number, "expected name:hash; add users with `millstream user add <name>`")
    scram: ScramRecord | None = None
    if len(fields) == 4 and fields[3]:
        scram = parse_scram_record(fields[3])
        if scram is None:
            raise UserFileFault(
                number, "the SCRAM record is not sound; write it again with `millstream user add <name>`"
            )
    account = fields[2] if len(fields) > 2 and fields[2] else DEFAULT_ACCOUNT
    user = User(fields[0], fields[1], account, scram)
    fault = _find_user_fault(user)
    if fault is not None:
        raise UserFileFault(number, fault)
    return user


def _find_user_fault(user: User) -> str | None:
    fault = find_user_name_fault(user.name)
    if fault is not None:
        return fault
    fault = find_name_fault(user.account)
    if fault is not None:
        return f"account: {fault}"
    return find_hash_fault(user.password_hash)


def format_users(table: UserTable) -> str:
    """The text of the file for `table`; `parse_users` gives the same table back."""
    lines = ["# name:hash[:account[:scram record]]; change it with `millstream user add` and `remove`"]
    for user in table.users():
        line = f"{user.name}:{user.password_hash}"
        if user.scram is not None:
            line += f":{user.account}:{format_scram_record(user.scram)}"
        elif user.account != DEFAULT_ACCOUNT:
            line += f":{user.account}"
        lines.append(line)
    return "\n".join(lines) + "\n"


def hash_password(password: str) -> str:
    """A new argon2id hash with a fresh salt. Takes some 30 ms: never on the loop."""
    secret = password.encode()
    if not secret or len(secret) > PASSWORD_LENGTH_MAX:
        raise ValueError(f"a password must have between 1 and {PASSWORD_LENGTH_MAX} bytes")
    return _HASHER.hash(secret)


def make_scram_record(password: str) -> str:
    """The SCRAM-SHA-256 record of a password, with a fresh salt, as it stands in the file.

    Slow like a hash.
    """
    return format_scram_record(
        derive_scram_record(password, secrets.token_bytes(SALT_LENGTH), ITERATIONS_DEFAULT)
    )


def find_hash_fault(password_hash: str) -> str | None:
    """Why `password_hash` cannot be checked within bounds, or None if it can."""
    if password_hash.startswith("$argon2id$"):
        return _find_argon_fault(password_hash)
    if password_hash.startswith("$7$"):
        if _split_pbkdf2(password_hash) is None:
            return "the $7$ hash is not sound; write it again with `millstream user add <name>`"
        return None
    if password_hash.startswith("$6$"):
        if _split_sha512(password_hash) is None:
            return "the $6$ hash is not sound; write it again with `millstream user add <name>`"
        return None
    return "the password is not hashed in a known form; set it with `millstream user add <name>`"


def _find_argon_fault(password_hash: str) -> str | None:
    broken = "the argon2id hash is not sound; write it again with `millstream user add <name>`"
    parts = password_hash.split("$")
    if len(parts) != 6 or parts[2] != "v=19":
        return broken
    try:
        parameters = argon2.extract_parameters(password_hash)
        salt = base64.b64decode(parts[4] + "=" * (-len(parts[4]) % 4), validate=True)
        digest = base64.b64decode(parts[5] + "=" * (-len(parts[5]) % 4), validate=True)
    except ValueError:  # argon2's InvalidHashError is one
        return broken
    if not 8 <= len(salt) <= 64 or not 16 <= len(digest) <= 64:
        return broken
    if (
        not 8 <= parameters.memory_cost <= _ARGON_MEMORY_KIB_MAX
        or not 1 <= parameters.time_cost <= _ARGON_ROUNDS_MAX
        or not 1 <= parameters.parallelism <= _ARGON_LANES_MAX
    ):
        return "the argon2id hash costs too much to check; write it again with `millstream user add <name>`"
    return None


def _split_pbkdf2(password_hash: str) -> tuple[int, bytes, bytes] | None:
    """(iterations, salt, digest) of `$7$iterations$salt$digest`."""
    parts = password_hash.split("$")
    if len(parts) != 5 or not (parts[2].isascii() and parts[2].isdigit()) or len(parts[2]) > 8:
        return None
    iterations = int(parts[2])
    try:
        salt = base64.b64decode(parts[3], validate=True)
        digest = base64.b64decode(parts[4], validate=True)
    except ValueError:
        return None
    if not 1 <= iterations <= _PBKDF2_ITERATIONS_MAX or not salt or len(digest) != _SHA512_LENGTH:
        return None
    return iterations, salt, digest


def _split_sha512(password_hash: str) -> tuple[bytes, bytes] | None:
    """(salt, digest) of `$6$salt$digest`."""
    parts = password_hash.split("$")
    if len(parts) != 4:
        return None
    try:
        salt = base64.b64decode(parts[2], validate=True)
        digest = base64.b64decode(parts[3], validate=True)
    except ValueError:
        return None
    if not salt or len(digest) != _SHA512_LENGTH:
        return None
    return salt, digest


def verify_password(password_hash: str, password: bytes) -> bool:
    """Whether `password` is the one behind the hash.

    Slow: run it in a thread. What cannot be checked is wrong.
    """
    if not password or len(password) > PASSWORD_LENGTH_MAX:
        return False
    if password_hash.startswith("$argon2id$"):
        if _find_argon_fault(password_hash) is not None:
            return False
        try:
            return _HASHER.verify(password_hash, password)
        except (argon2.exceptions.VerificationError, argon2.exceptions.InvalidHashError):
            return False
    if password_hash.startswith("$7$"):
        pbkdf2 = _split_pbkdf2(password_hash)
        if pbkdf2 is None:
            return False
        iterations, salt, digest = pbkdf2
        return hmac.compare_digest(hashlib.pbkdf2_hmac("sha512", password, salt, iterations), digest)
    if password_hash.startswith("$6$"):
        simple = _split_sha512(password_hash)
        if simple is None:
            return False
        plain_salt, plain_digest = simple
        return hmac.compare_digest(hashlib.sha512(password + plain_salt).digest(), plain_digest)
    return False
