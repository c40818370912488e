"""Tokens of Flight, places for calls, addresses, and the parts of a range."""

from __future__ import annotations

import pytest
from pyarrow import flight

from millstream.reader.flight import split
from millstream.reader.flight_calls import TOKEN_S, Tokens, address_of, make_error, told
from millstream.reader.http import Credentials, HttpFault


def test_a_token_holds_what_was_shown_and_hides_it() -> None:
    tokens = Tokens(lambda: 0.0)
    sealed = tokens.seal(Credentials("zoë", "se:cret"))
    opened = tokens.open(sealed)
    assert (opened.username, opened.password, opened.has_password) == ("zoë", "se:cret", True)
    assert "cret" not in sealed
    assert tokens.seal(Credentials("zoë", "se:cret")) != sealed


def test_a_token_ends_when_its_time_is_over() -> None:
    now = [100.0]
    tokens = Tokens(lambda: now[0])
    sealed = tokens.seal(Credentials("a", "b"))
    now[0] += TOKEN_S - 1
    assert tokens.open(sealed).username == "a"
    now[0] += 1
    with pytest.raises(HttpFault, match="too old"):
        tokens.open(sealed)


@pytest.mark.parametrize("token", ["flight.", "flight.AAAA", "flight.ü", "flight." + "A" * 100, "flight.A"])
def test_what_this_reader_has_not_sealed_is_no_token(token: str) -> None:
    with pytest.raises(HttpFault) as caught:
        Tokens().open(token)
    assert caught.value.status == 401
    with pytest.raises(HttpFault):
        Tokens().open(Tokens().seal(Credentials("a", "b")))


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:10.0.0.7:5123", "10.0.0.7"),
        ("ipv6:[::1]:5123", "::1"),
        ("ipv6:%5B2001:db8::7%5D:5123", "2001:db8::7"),
        ("", ""),
    ],
)
def test_the_address_of_a_peer_has_no_port(peer: str, address: str) -> None:
    assert address_of(peer) == address


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, flight.FlightUnauthenticatedError),
        (403, flight.FlightUnauthorizedError),
        (404, flight.FlightServerError),
        (503, flight.FlightUnavailableError),
    ],
)
def test_a_refusal_is_the_error_that_clients_know(status: int, kind: type[Exception]) -> None:
    assert type(make_error(HttpFault(status, "no"))) is kind


def test_a_refusal_is_never_longer_than_its_headers_may_be() -> None:
    error = make_error(HttpFault(403, "ü" * 5000, "millstream queue show " + "ü" * 5000))
    assert str(error) == "ü" * 250
    assert len(error.extra_info) < 600


def test_a_bug_is_told_without_its_insides() -> None:
    with pytest.raises(flight.FlightInternalError) as caught, told():
        raise RuntimeError("/secret/path")
    assert str(caught.value) == "something went wrong inside the reader (RuntimeError)"


def test_parts_cover_a_range_once() -> None:
    assert split(0, 10, 3) == [(0, 3), (3, 6), (6, 10)]
    assert split(5, 7, 8) == [(5, 6), (6, 7)]
    assert split(5, 5, 8) == [(5, 5)]
