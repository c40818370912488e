"""What the broker keeps of a password so that SCRAM-SHA-256 can be spoken: never the password itself.

The text form is `SCRAM-SHA-256$<iterations>:<salt>$<stored key>:<server key>`, binary parts in base64.
To change it: give the new form a new first word and let `parse_scram_record` read both.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import stringprep
import unicodedata
from typing import Final, final

SCRAM_MECHANISM: Final = "SCRAM-SHA-256"
ITERATIONS_MIN: Final = 4096  # [RFC7677 4]
ITERATIONS_MAX: Final = 600_000
ITERATIONS_DEFAULT: Final = 15_000  # the client pays for it, and clients are small
KEY_LENGTH: Final = 32
SALT_LENGTH: Final = 16
_SALT_LENGTH_MIN: Final = 8
_SALT_LENGTH_MAX: Final = 64


@final
class ScramRecord:
    __slots__ = ("iterations", "salt", "server_key", "stored_key")

    def __init__(self, iterations: int, salt: bytes, stored_key: bytes, server_key: bytes) -> None:
        self.iterations = iterations
        self.salt = salt
        self.stored_key = stored_key
        self.server_key = server_key

    def __repr__(self) -> str:
        return f"ScramRecord({self.iterations} iterations)"


def parse_scram_record(text: str) -> ScramRecord | None:
    """The record `text` stands for, or None if it is not a sound one."""
    parts = text.split("$")
    if len(parts) != 3 or parts[0] != SCRAM_MECHANISM:
        return None
    count, colon, salt_text = parts[1].partition(":")
    stored_text, second_colon, server_text = parts[2].partition(":")
    if not colon or not second_colon or not (count.isascii() and count.isdigit()) or len(count) > 6:
        return None
    iterations = int(count)
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        return None
    try:
        salt = base64.b64decode(salt_text, validate=True)
        stored_key = base64.b64decode(stored_text, validate=True)
        server_key = base64.b64decode(server_text, validate=True)
    except ValueError:
        return None
    if not _SALT_LENGTH_MIN <= len(salt) <= _SALT_LENGTH_MAX:
        return None
    if len(stored_key) != KEY_LENGTH or len(server_key) != KEY_LENGTH:
        return None
    return ScramRecord(iterations, salt, stored_key, server_key)


def format_scram_record(record: ScramRecord) -> str:
    salt = base64.b64encode(record.salt).decode()
    stored_key = base64.b64encode(record.stored_key).decode()
    server_key = base64.b64encode(record.server_key).decode()
    return f"{SCRAM_MECHANISM}${record.iterations}:{salt}${stored_key}:{server_key}"


def derive_scram_record(password: str, salt: bytes, iterations: int) -> ScramRecord:
    """Slow by design: `iterations` rounds of PBKDF2 [RFC5802 3]."""
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise ValueError(f"the iteration count must lie between {ITERATIONS_MIN} and {ITERATIONS_MAX}")
    secret = prepare_password(password).encode()
    salted = hashlib.pbkdf2_hmac("sha256", secret, salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    server_key = hmac.digest(salted, b"Server Key", "sha256")
    return ScramRecord(iterations, salt, hashlib.sha256(client_key).digest(), server_key)


def prepare_password(password: str) -> str:
    """The password in the form clients hash it, SASLprep [RFC4013]; ValueError if it has none."""
    mapped: list[str] = []
    for character in password:
        if stringprep.in_table_c12(character):
            mapped.append(" ")
        elif not stringprep.in_table_b1(character):
            mapped.append(character)
    prepared = unicodedata.normalize("NFKC", "".join(mapped))
    if not prepared:
        raise ValueError("the password is empty")
    has_right_to_left = False
    has_left_to_right = False
    for character in prepared:
        if _is_prohibited(character):
            raise ValueError("the password contains a character that SCRAM does not allow")
        has_right_to_left = has_right_to_left or stringprep.in_table_d1(character)
        has_left_to_right = has_left_to_right or stringprep.in_table_d2(character)
    if has_right_to_left and (
        has_left_to_right
        or not stringprep.in_table_d1(prepared[0])
        or not stringprep.in_table_d1(prepared[-1])
    ):
        raise ValueError("the password mixes writing directions in a way SCRAM does not allow")
    return prepared


def _is_prohibited(character: str) -> bool:
    return (
        stringprep.in_table_a1(character)
        or stringprep.in_table_c12(character)
        or stringprep.in_table_c21_c22(character)
        or stringprep.in_table_c3(character)
        or stringprep.in_table_c4(character)
        or stringprep.in_table_c5(character)
        or stringprep.in_table_c6(character)
        or stringprep.in_table_c7(character)
        or stringprep.in_table_c8(character)
        or stringprep.in_table_c9(character)
    )
