"""SCRAM records: their text, and the passwords they are made of."""

from __future__ import annotations

import base64

import pytest

from millstream.security.scram_record import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    derive_scram_record,
    format_scram_record,
    parse_scram_record,
    prepare_password,
)

SALT = "W22ZaJ0SNY7soEsUEjb6gQ=="
KEY = base64.b64encode(b"k" * 32).decode()
SOUND = f"SCRAM-SHA-256$4096:{SALT}${KEY}:{KEY}"


def test_a_record_reads_back_as_it_was_written() -> None:
    record = derive_scram_record("pencil", base64.b64decode(SALT), 4096)
    text = format_scram_record(record)
    again = parse_scram_record(text)
    assert again is not None
    assert format_scram_record(again) == text
    assert (again.iterations, again.salt) == (4096, base64.b64decode(SALT))
    assert (again.stored_key, again.server_key) == (record.stored_key, record.server_key)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "SCRAM-SHA-256",
        SOUND.replace("SHA-256", "SHA-1"),
        SOUND + "$more",
        SOUND.replace("4096", "4095"),
        SOUND.replace("4096", "600001"),
        SOUND.replace("4096", "٤٠٩٦"),
        SOUND.replace("4096", ""),
        SOUND.replace("4096:", "4096"),
        SOUND.replace(SALT, ""),
        SOUND.replace(SALT, "****"),
        SOUND.replace(f"{KEY}:", f"{SALT}:"),
        SOUND[: -len(KEY)] + SALT,
        SOUND[:-1],
    ],
)
def test_what_is_not_a_sound_record_gives_none(text: str) -> None:
    assert parse_scram_record(SOUND) is not None
    assert parse_scram_record(text) is None


@pytest.mark.parametrize("iterations", [ITERATIONS_MIN - 1, ITERATIONS_MAX + 1])
def test_iteration_counts_stay_within_bounds(iterations: int) -> None:
    with pytest.raises(ValueError, match="iteration count"):
        derive_scram_record("pencil", b"salt" * 4, iterations)


@pytest.mark.parametrize(
    ("password", "prepared"),
    [
        ("I\u00adX", "IX"),
        ("user", "user"),
        ("USER", "USER"),
        ("\u00aa", "a"),
        ("\u2168", "IX"),
        ("a\u00a0b", "a b"),
    ],
)
def test_passwords_are_prepared_as_clients_prepare_them(password: str, prepared: str) -> None:
    assert prepare_password(password) == prepared  # the examples of RFC 4013, and a hard space


@pytest.mark.parametrize("password", ["", "\u00ad", "\u0007", "\u0627\u0031", "\u0627a\u0627", "\ue000"])
def test_passwords_that_have_no_prepared_form_are_refused(password: str) -> None:
    with pytest.raises(ValueError, match="the password"):
        prepare_password(password)
