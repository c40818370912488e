"""The password file: what loads, what is refused, which password fits."""

from __future__ import annotations

import pytest

from millstream.security.scram_record import parse_scram_record
from millstream.security.users import (
    LINE_LENGTH_MAX,
    PASSWORD_LENGTH_MAX,
    User,
    UserFileFault,
    UserTable,
    find_hash_fault,
    format_users,
    hash_password,
    make_scram_record,
    parse_users,
    verify_password,
)

# Written by mosquitto_passwd 2.0.11.
PBKDF2_HASH = "$7$101$qxQya3eNdQ5ZrU6j$ubXEjnbVePfktAWfQPUzDADcaG/MO7jIozhCW2x4afukmsGFMBd/ZgPKyPuDNnAA1t26o2vaJj5ZOVGbsCdD7g=="
PBKDF2_UNICODE_HASH = "$7$101$r5EbrdpjIynG1k+l$iw2GOqlraXe/e514ZbrBfDY9IB3D0m20vdwiohHwUKiVGgnEFAeYAZcCwCN92/uw2DbDOs/CfLq98JKOb9xj9A=="
SHA512_HASH = "$6$tJNV6IhJOugpPj3s$SvLwKOTmYBm8bK+DlnOJLaIsVjox7w1HPjkFwiKsgtsNFkeaRDE912XRZhpwBTOkUSbqJ0rAUEGI+3+EHgXi0Q=="
ARGON_HASH = (
    "$argon2id$v=19$m=19456,t=2,p=1$HZfUb6YxcP2aL+1xlKzRww$qIZCH5FNWj6bYHK7R+RzqukNLHNTzkv1uGozrDn3mis"
)
SCRAM_TEXT = (
    "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ=="
    "$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="
)


@pytest.mark.parametrize(
    ("password_hash", "password"),
    [
        (PBKDF2_HASH, b"correct horse"),
        (PBKDF2_UNICODE_HASH, "pässword:with$signs".encode()),
        (SHA512_HASH, b"tr0ub4dor"),
    ],
)
def test_hashes_written_by_mosquitto_are_verified(password_hash: str, password: bytes) -> None:
    assert verify_password(password_hash, password)
    assert not verify_password(password_hash, password + b"x")
    assert not verify_password(password_hash, password[:-1])
    assert not verify_password(password_hash, b"")


def test_a_new_hash_is_argon2id_with_the_chosen_cost_and_a_salt_of_its_own() -> None:
    first = hash_password("correct horse")
    second = hash_password("correct horse")
    assert first.startswith("$argon2id$v=19$m=19456,t=2,p=1$")
    assert first != second
    assert verify_password(first, b"correct horse")
    assert not verify_password(first, b"correct horsf")
    assert find_hash_fault(first) is None


@pytest.mark.parametrize("password", ["", "x" * (PASSWORD_LENGTH_MAX + 1)])
def test_empty_and_endless_passwords_cannot_be_set(password: str) -> None:
    with pytest.raises(ValueError, match="between 1 and"):
        hash_password(password)


@pytest.mark.parametrize(
    "password_hash",
    [
        "",
        "plain text",
        "$1$abc$def",
        "$argon2i$v=19$m=19456,t=2,p=1$HZfUb6YxcP2aL+1xlKzRww$qIZCH5FNWj6bYHK7R+RzqukNLHNTzkv1uGozrDn3mis",
        ARGON_HASH.replace("v=19", "v=16"),
        ARGON_HASH.replace("m=19456", "m=99999999"),
        ARGON_HASH.replace("t=2", "t=65"),
        ARGON_HASH.replace("p=1", "p=17"),
        ARGON_HASH.replace("m=19456", "m=x"),
        ARGON_HASH[:60],
        ARGON_HASH + "$more",
        "$argon2id$v=19$m=19456,t=2,p=1$!!!!$????",
        PBKDF2_HASH.replace("$101$", "$0$"),
        PBKDF2_HASH.replace("$101$", "$99999999$"),
        PBKDF2_HASH.replace("$101$", "$-1$"),
        PBKDF2_HASH.replace("$101$", "$x$"),
        PBKDF2_HASH[:-8],
        "$7$101$$" + PBKDF2_HASH.split("$")[4],
        "$7$101",
        SHA512_HASH[:-8],
        "$6$*$*",
        "$6$$" + SHA512_HASH.split("$")[3],
        "$6$",
    ],
)
def test_a_hash_that_cannot_be_checked_within_bounds_is_refused_and_fits_no_password(
    password_hash: str,
) -> None:
    assert find_hash_fault(password_hash) is not None
    assert not verify_password(password_hash, b"correct horse")
    with pytest.raises(UserFileFault):
        parse_users(f"anna:{password_hash}\n")


def test_a_file_gives_users_with_accounts_and_scram_records() -> None:
    table = parse_users(
        "\ufeff# people\n\n"
        f"anna:{PBKDF2_HASH}\r\n"
        f"  bo:{SHA512_HASH}:north  \n"
        f"caro:{ARGON_HASH}::{SCRAM_TEXT}\n"
        f"dan:{ARGON_HASH}:south:{SCRAM_TEXT}"
    )
    assert table.names() == ["anna", "bo", "caro", "dan"]
    accounts = [user.account for user in table.users()]
    assert accounts == ["default", "north", "default", "south"]
    anna = table.find_user("anna")
    assert anna is not None
    assert anna.scram is None
    caro = table.find_user("caro")
    assert caro is not None
    assert caro.scram is not None
    assert caro.scram.iterations == 4096
    assert table.find_user("eve") is None


def test_a_written_table_reads_back_the_same() -> None:
    text = (
        f"anna:{PBKDF2_HASH}\nbo:{SHA512_HASH}:north\ncaro:{ARGON_HASH}:default:{SCRAM_TEXT}\n"
        f"dan:{ARGON_HASH}:south:{SCRAM_TEXT}\n"
    )
    written = format_users(parse_users(text))
    assert written.split("\n", 1)[1] == text
    assert format_users(parse_users(written)) == written


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("anna", "name:hash"),
        ("anna:secret", "not hashed"),
        (f":{PBKDF2_HASH}", "at least one"),
        (f"anonymous:{PBKDF2_HASH}", "reserved"),
        (f"a\0b:{PBKDF2_HASH}", "control"),
        (f"a\x0bb:{PBKDF2_HASH}", "control"),
        (f"{'x' * 257}:{PBKDF2_HASH}", "at most"),
        (f"anna:{PBKDF2_HASH}:nor\tth", "account"),
        (f"anna:{PBKDF2_HASH}:north:SCRAM-SHA-1$4096:aaaa$bbbb:cccc", "SCRAM"),
        (f"anna:{PBKDF2_HASH}:north:more:fields", "SCRAM"),
        ("x" * (LINE_LENGTH_MAX + 1), "longer"),
        (f"first:{PBKDF2_HASH}", "twice"),
    ],
)
def test_one_bad_line_refuses_the_file_and_is_named(line: str, word: str) -> None:
    with pytest.raises(UserFileFault, match=word) as caught:
        parse_users(f"# head\nfirst:{PBKDF2_HASH}\n{line}\nlast:{PBKDF2_HASH}\n")
    assert caught.value.line == 3
    assert str(caught.value).startswith("line 3: ")


def test_no_secret_reaches_an_error_text_or_a_repr() -> None:
    with pytest.raises(UserFileFault) as caught:
        parse_users("anna:CANARY-plain\n")
    assert "CANARY" not in str(caught.value)
    assert "ubXE" not in repr(User("anna", PBKDF2_HASH))
    assert "WG5d" not in repr(parse_scram_record(SCRAM_TEXT))


def test_adding_and_removing_give_new_tables_and_leave_the_old_one() -> None:
    empty = UserTable({})
    one = empty.with_user(User("anna", PBKDF2_HASH))
    two = one.with_user(User("bo", SHA512_HASH, "north"))
    changed = two.with_user(User("anna", ARGON_HASH))
    left = changed.without_user("bo")
    assert [len(table) for table in (empty, one, two, changed, left)] == [0, 1, 2, 2, 1]
    anna = changed.find_user("anna")
    assert anna is not None
    assert anna.password_hash == ARGON_HASH
    with pytest.raises(UserFileFault, match="no user 'bo'"):
        left.without_user("bo")
    for user in (User("a:b", PBKDF2_HASH), User("anna", "plain"), User("anna", PBKDF2_HASH, "a:b")):
        with pytest.raises(UserFileFault):
            two.with_user(user)


def test_a_made_scram_record_is_sound_and_salted() -> None:
    first = make_scram_record("correct horse")
    assert parse_scram_record(first) is not None
    assert first != make_scram_record("correct horse")


def test_unknown_users_are_given_the_costs_that_known_users_have() -> None:
    """With three cheap hashes for each dear one, about three in four unknown names must meet a cheap one."""
    cheap = {f"cheap{number}": User(f"cheap{number}", SHA512_HASH) for number in range(3)}
    table = UserTable({**cheap, "dear": User("dear", ARGON_HASH)})
    kinds = [table.find_stand_in(bytes([first]) * 8)[:4] for first in range(256)]
    assert kinds.count("$6$t") == 192
    assert kinds.count("$arg") == 64
    assert UserTable({}).find_stand_in(b"\0" * 8).startswith("$argon2id$v=19$m=19456,t=2,p=1$")
