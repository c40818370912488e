"""Heads of requests have one meaning or none, and a listener on loopback answers to local names only."""

from __future__ import annotations

import pytest

from millstream.runtime.transport.http_head import HeadFault, HostNames, is_local_name, parse_request_head


def test_local_names_are_addresses_and_localhost() -> None:
    for name in (
        "localhost",
        "LOCALHOST:80",
        "localhost.:80",
        "127.0.0.1",
        "127.0.0.1:8090",
        "[::1]:8090",
        "[::1]",
        "10.0.0.7",
    ):
        assert is_local_name(name), name
    for name in (
        "",
        ":80",
        "example.com",
        "localhost.example.com:80",
        "127.0.0.1.example.com",
        "[evil.example]",
        "localhost:80:evil.example",
    ):
        assert not is_local_name(name), name


def test_a_loopback_listener_answers_to_local_and_configured_names() -> None:
    names = HostNames(True, ("plant.example", "Broker"))
    for host in (
        "localhost:1",
        "127.0.0.1",
        "plant.example",
        "PLANT.example:8083",
        "plant.example.",
        "broker",
    ):
        assert names.allows(host), host
    for host in ("evil.example", "x.plant.example", "plant.example.evil", ""):
        assert not names.allows(host), host


def test_beyond_loopback_every_name_is_answered_unless_some_are_configured() -> None:
    assert HostNames(False).allows("anything.example")
    assert not HostNames(False, ("plant.example",)).allows("anything.example")
    assert HostNames(False, ("plant.example",)).allows("192.0.2.1:8083")
    assert HostNames(True, ("*",)).allows("anything.example")


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nOrigin: http://a\r\nOrigin: http://b", 400),
        (b"GET / HTTP/1.1", 400),
        (b"GET / HTTP/1.0\r\nHost: a", 505),
        (b"GET http://a/ HTTP/1.1\r\nHost: a", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\n folded: b", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: \x00", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: a\rb", 400),
        (b"GET /\xff HTTP/1.1\r\nHost: a", 400),
        (b"\xff\xfe", 400),
        (b"", 400),
    ],
)
def test_a_head_that_could_be_read_in_two_ways_is_refused(head: bytes, status: int) -> None:
    with pytest.raises(HeadFault) as refused:
        parse_request_head(head)
    assert refused.value.status == status
