"""The SCRAM exchange, against the RFC's example and against a client nobody here wrote."""

from __future__ import annotations

import base64
from collections.abc import Callable

import pytest
from scramp import ScramClient, ScramException  # type: ignore[import-untyped]

from millstream.security.scram import MESSAGE_LENGTH_MAX, ScramFault, ScramServer
from millstream.security.scram_record import derive_scram_record
from millstream.security.users import User, UserTable

SHA512_HASH = "$6$tJNV6IhJOugpPj3s$SvLwKOTmYBm8bK+DlnOJLaIsVjox7w1HPjkFwiKsgtsNFkeaRDE912XRZhpwBTOkUSbqJ0rAUEGI+3+EHgXi0Q=="
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SERVER_KEY = b"k" * 32
RECORD = derive_scram_record("pencil", SALT, 4096)
USERS = UserTable(
    {
        "user": User("user", SHA512_HASH, "default", RECORD),
        "a,b=c": User("a,b=c", SHA512_HASH, "default", RECORD),
        "plain": User("plain", SHA512_HASH),
    }
)
CLIENT_FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
CLIENT_FINAL = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="


def make_server(nonce: str = NONCE) -> ScramServer:
    return ScramServer(USERS, nonce, SERVER_KEY)


def run_client(name: str, password: str) -> str:
    """A whole exchange with an independent client; the user name the server has proven."""
    client = ScramClient(["SCRAM-SHA-256"], name, password)
    server = make_server()
    client.set_server_first(server.on_client_first(client.get_client_first().encode()).decode())
    final, proven = server.on_client_final(client.get_client_final().encode())
    client.set_server_final(final.decode())  # raises unless the server has proven itself as well
    return proven


def test_the_example_of_rfc_7677_passes_byte_for_byte() -> None:
    server = make_server()
    assert server.on_client_first(CLIENT_FIRST) == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    assert server.user_name == "user"
    assert server.on_client_final(CLIENT_FINAL) == (b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=", "user")


def test_an_independent_client_and_the_server_prove_each_other() -> None:
    assert run_client("user", "pencil") == "user"
    assert run_client("a,b=c", "pencil") == "a,b=c"


def test_the_proof_of_a_wrong_password_is_refused() -> None:
    with pytest.raises(ScramFault, match="wrong") as caught:
        run_client("user", "pencils")
    assert caught.value.code == "invalid-proof"


def test_a_client_notices_a_server_that_does_not_know_the_password() -> None:
    client = ScramClient(["SCRAM-SHA-256"], "user", "pencil")
    client.set_server_first(make_server().on_client_first(client.get_client_first().encode()).decode())
    client.get_client_final()
    with pytest.raises(ScramException):
        client.set_server_final("v=" + base64.b64encode(b"x" * 32).decode())


@pytest.mark.parametrize("name", ["nobody", "plain"])
def test_unknown_users_see_a_lasting_salt_and_the_same_refusal(name: str) -> None:
    first = make_server().on_client_first(f"n,,n={name},r=abc".encode())
    again = make_server().on_client_first(f"n,,n={name},r=abc".encode())
    other = make_server().on_client_first(b"n,,n=someone else,r=abc")
    known = make_server().on_client_first(b"n,,n=user,r=abc")
    assert first == again
    assert first != other
    assert len(first) == len(known)
    assert first.endswith(b",i=4096")  # what the known users have
    with pytest.raises(ScramFault) as unknown_fault:
        run_client(name, "pencil")
    with pytest.raises(ScramFault) as known_fault:
        run_client("user", "wrong")
    assert unknown_fault.value.text == known_fault.value.text
    assert unknown_fault.value.code == known_fault.value.code


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "other-error"),
        (b"n,,", "other-error"),
        (b"n,,n=user", "other-error"),
        (b"x,,n=user,r=abc", "other-error"),
        (b"n,n=user,r=abc", "other-error"),
        (b"p=tls-unique,,n=user,r=abc", "server-does-support-no-channel-binding"),
        (b"n,a=other,n=user,r=abc", "other-error"),
        (b"n,,m=x,n=user,r=abc", "extensions-not-supported"),
        (b"n,,r=abc,n=user", "other-error"),
        (b"n,,n=,r=abc", "invalid-username-encoding"),
        (b"n,,n=\xff,r=abc", "invalid-username-encoding"),
        (b"n,,n=a=b,r=abc", "invalid-username-encoding"),
        (b"n,,n=a=2c,r=abc", "invalid-username-encoding"),
        (b"n,,n=a\0b,r=abc", "invalid-username-encoding"),
        (b"n,,n=user,r=", "other-error"),
        (b"n,,n=user,r=a b", "other-error"),
        (b"n,,n=user,r=\xc3\xa9", "other-error"),
        (b"n,,n=user,r=" + b"x" * 257, "other-error"),
        (b"n,,n=" + b"x" * MESSAGE_LENGTH_MAX + b",r=abc", "other-error"),
    ],
)
def test_a_bad_first_message_ends_the_exchange(data: bytes, code: str) -> None:
    server = make_server()
    with pytest.raises(ScramFault) as caught:
        server.on_client_first(data)
    assert caught.value.code == code
    with pytest.raises(ScramFault, match="out of turn"):
        server.on_client_first(CLIENT_FIRST)


@pytest.mark.parametrize(
    "change",
    [
        lambda final: b"",
        lambda final: final.replace(b"c=biws", b"c=eSws"),
        lambda final: final.replace(b"c=biws", b"c=*"),
        lambda final: final.replace(b"c=biws,", b""),
        lambda final: final.replace(b"k0,", b"k1,"),
        lambda final: final.rpartition(b",")[0],
        lambda final: final[:-8] + b"AAAAAAA=",
        lambda final: final.rpartition(b",p=")[0] + b",p=",
        lambda final: final.rpartition(b",p=")[0] + b",p=AAAA",
        lambda final: final.replace(b",p=", b",x=extension,p="),
        lambda final: final + b",x=after",
        lambda final: final + b" " * MESSAGE_LENGTH_MAX,
    ],
)
def test_a_changed_final_message_is_refused_and_no_second_try_is_given(
    change: Callable[[bytes], bytes],
) -> None:
    server = make_server()
    server.on_client_first(CLIENT_FIRST)
    with pytest.raises(ScramFault):
        server.on_client_final(change(CLIENT_FINAL))
    with pytest.raises(ScramFault, match="out of turn"):
        server.on_client_final(CLIENT_FINAL)


def test_messages_out_of_turn_are_refused() -> None:
    with pytest.raises(ScramFault, match="out of turn"):
        make_server().on_client_final(CLIENT_FINAL)
    server = make_server()
    server.on_client_first(CLIENT_FIRST)
    with pytest.raises(ScramFault, match="out of turn"):
        server.on_client_first(CLIENT_FIRST)
    done = make_server()
    done.on_client_first(CLIENT_FIRST)
    done.on_client_final(CLIENT_FINAL)
    with pytest.raises(ScramFault, match="out of turn"):
        done.on_client_final(CLIENT_FINAL)


def test_a_recorded_exchange_cannot_be_replayed_to_another_nonce() -> None:
    server = make_server("another-nonce-of-the-server")
    server.on_client_first(CLIENT_FIRST)
    with pytest.raises(ScramFault, match="nonce"):
        server.on_client_final(CLIENT_FINAL)


@pytest.mark.parametrize(
    "nonce", ["", "short", "with,comma-in-the-middle", "with space in the middle", "é" * 20]
)
def test_a_weak_server_nonce_is_a_bug_of_ours(nonce: str) -> None:
    with pytest.raises(ValueError, match="nonce"):
        ScramServer(USERS, nonce, SERVER_KEY)


def test_a_short_server_key_is_a_bug_of_ours() -> None:
    with pytest.raises(ValueError, match="key"):
        ScramServer(USERS, NONCE, b"short")
