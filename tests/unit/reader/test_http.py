"""Heads of requests have one meaning or none; bodies are bounded; routes are found by method and path."""

from __future__ import annotations

import base64

import pytest

from millstream.reader.http import (
    Answer,
    Body,
    Credentials,
    Head,
    HttpFault,
    Request,
    Route,
    find_route,
    parse_credentials,
    parse_head,
)
from millstream.runtime.transport.http_head import HEADERS_MAX


class Wire:
    """What a client has sent, a few bytes at a time."""

    def __init__(self, data: bytes, step: int = 3) -> None:
        self.data = data
        self.step = step
        self.continued = 0

    def read_line(self, bytes_max: int) -> bytes:
        line, found, self.data = self.data.partition(b"\r\n")
        if not found or len(line) > bytes_max:
            raise HttpFault(400, "no line")
        return line

    def read_some(self, bytes_max: int) -> bytes:
        size = min(bytes_max, self.step)
        some, self.data = self.data[:size], self.data[size:]
        return some

    def send_continue(self) -> None:
        self.continued += 1


def head_of(*lines: str) -> Head:
    return parse_head("\r\n".join(lines).encode("latin-1"))


def status_of(*lines: str) -> int:
    with pytest.raises(HttpFault) as caught:
        head_of(*lines)
    return caught.value.status


def request_of(target: str, body: bytes = b"") -> Request:
    head = head_of(f"GET {target} HTTP/1.1", "Host: h")
    return Request(head, [], Credentials(), Body(Wire(body), len(body), False, 1 << 20))


def test_a_head_is_taken_apart() -> None:
    head = head_of("GET /v1/queues?fresh=true&pattern=a%2Bb HTTP/1.1", "Host: h", "X-Y:  z ", "x-y: w")
    assert (head.method, head.path) == ("GET", "/v1/queues")
    assert head.query == {"fresh": "true", "pattern": "a+b"}
    assert head.headers["x-y"] == "z, w"
    assert not head.is_last
    assert head_of("GET / HTTP/1.1", "Host: h", "Connection: Close").is_last


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        (("GET / HTTP/1.0", "Host: h"), 505),
        (("GET / HTTP/2", "Host: h"), 505),
        (("GET / HTTP/1.1",), 400),
        (("GET  / HTTP/1.1", "Host: h"), 400),
        (("G(T / HTTP/1.1", "Host: h"), 400),
        (("GET http://h/ HTTP/1.1", "Host: h"), 400),
        (("GET /\x7f HTTP/1.1", "Host: h"), 400),
        (("GET / HTTP/1.1", "Host: h", " folded"), 400),
        (("GET / HTTP/1.1", "Host: h", "A b: c"), 400),
        (("GET / HTTP/1.1", "Host: h", "A: b\nC: d"), 400),
        (("GET / HTTP/1.1", "Host: h", "Host: i"), 400),
        (("GET / HTTP/1.1", "Host: h", "Content-Length: 1", "Content-Length: 1"), 400),
        (("GET / HTTP/1.1", "Host: h", "Content-Length: -1"), 400),
        (("GET / HTTP/1.1", "Host: h", "Content-Length: 1", "Transfer-Encoding: chunked"), 400),
        (("GET / HTTP/1.1", "Host: h", "Transfer-Encoding: gzip, chunked"), 501),
        (("GET /?a=1&a=2 HTTP/1.1", "Host: h"), 400),
        (("GET /?a HTTP/1.1", "Host: h"), 400),
        (("GET /?a=%ff HTTP/1.1", "Host: h"), 400),
        (("GET / HTTP/1.1", "Host: h", *[f"h{number}: v" for number in range(HEADERS_MAX)]), 431),
    ],
)
def test_a_head_that_could_mean_two_things_is_refused(lines: tuple[str, ...], status: int) -> None:
    assert status_of(*lines) == status


def test_a_body_with_a_length_ends_there() -> None:
    wire = Wire(b"0123456789rest")
    body = Body(wire, 10, False, 100)
    assert body.read_all(100) == b"0123456789"
    assert body.is_done
    assert wire.data == b"rest"


def test_a_body_in_chunks_ends_with_the_empty_one() -> None:
    wire = Wire(b"5\r\n01234\r\na;x=y\r\n5678901234\r\n0\r\n\r\nrest")
    body = Body(wire, 0, True, 100)
    assert body.read() == b"012345678901234"
    assert body.is_done
    assert wire.data == b"rest"


@pytest.mark.parametrize(
    "data", [b"x\r\n", b"-1\r\n", b"5\r\n01234xx", b"0\r\nTrailer: x\r\n\r\n", b"5\r\n01"]
)
def test_chunks_that_are_not_those_of_http_are_refused(data: bytes) -> None:
    with pytest.raises(HttpFault):
        Body(Wire(data), 0, True, 100).read_all(100)


@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_body_beyond_its_bound_is_refused(is_chunked: bool) -> None:
    data = b"b\r\n0123456789a\r\n0\r\n\r\n" if is_chunked else b"0123456789a"
    with pytest.raises(HttpFault) as caught:
        Body(Wire(data), 0 if is_chunked else 11, is_chunked, 10).read_all(100)
    assert caught.value.status == 413


def test_a_client_that_waits_is_told_to_go_on_once() -> None:
    wire = Wire(b"0123456789")
    body = Body(wire, 10, False, 100, is_awaited=True)
    assert wire.continued == 0
    body.read_all(100)
    assert wire.continued == 1


def test_a_body_is_read_as_json_or_refused() -> None:
    assert request_of("/", b'{"a": 1}').read_json() == {"a": 1}
    for wrong in (b"", b"[]", b"{", b"[" * 100_000):
        with pytest.raises(HttpFault, match="JSON"):
            request_of("/", wrong).read_json()


def test_what_stands_behind_the_question_mark_is_checked() -> None:
    request = request_of("/?n=12&big=9223372036854775807&s=true&c=b")
    assert request.find_whole("n", 0) == 12
    assert request.find_whole("none", 7) == 7
    assert request.find_whole("big", 0, 0, 1 << 63) == (1 << 63) - 1
    assert request.find_switch("s")
    assert request.find_choice("c", ("a", "b")) == "b"
    assert request.find_choice("none", ("a", "b")) == "a"
    for call in (
        lambda: request.get_whole("none"),
        lambda: request.find_whole("s", 0),
        lambda: request.find_whole("n", 0, 13, 20),
        lambda: request.find_switch("n"),
        lambda: request.find_choice("n", ("a",)),
    ):
        with pytest.raises(HttpFault):
            call()


@pytest.mark.parametrize("value", ["-1", "1.5", "٣", "1e3", "99999999999999999999", ""])
def test_a_number_is_digits_and_nothing_else(value: str) -> None:
    request = request_of("/?a=b")
    request.query["n"] = value
    with pytest.raises(HttpFault):
        request.find_whole("n", 0)


def test_credentials_are_a_user_a_token_or_nobody() -> None:
    basic = "Basic " + base64.b64encode(b"anna:pa:ss").decode()
    assert parse_credentials(basic, "::1").to_fields() == {
        "username": "anna",
        "password": "pa:ss",
        "address": "::1",
    }
    assert parse_credentials("bearer a.b.c").to_fields()["token"] == "a.b.c"
    assert parse_credentials(None).to_fields() == {"username": "", "address": ""}
    for wrong in ("Basic !", "Basic", "Digest x", "Bearer " + "x" * 10_000):
        with pytest.raises(HttpFault) as caught:
            parse_credentials(wrong)
        assert caught.value.status == 401


def answer(request: Request) -> Answer:
    return Answer({})


ROUTES = [
    Route("GET", "/v1/queues", answer, ("fresh",)),
    Route("GET", "/v1/queues/*/records", answer),
    Route("POST", "/v1/queues/*/groups/*", answer),
]


def find(method: str, target: str) -> tuple[Route, list[str]]:
    return find_route(ROUTES, head_of(f"{method} {target} HTTP/1.1", "Host: h"))


def test_a_route_is_found_with_the_words_its_stars_stand_for() -> None:
    assert find("GET", "/v1/queues?fresh=true") == (ROUTES[0], [])
    assert find("GET", "/v1/queues/%24dlq%2Fjobs/records") == (ROUTES[1], ["$dlq/jobs"])
    assert find("POST", "/v1/queues/a/groups/b") == (ROUTES[2], ["a", "b"])


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/v1/queues/", 404),
        ("GET", "/v1/queues/a/b/records", 404),
        ("PUT", "/v1/queues", 405),
        ("GET", "/v1/queues?fish=true", 400),
        ("GET", "/v1/queues/%ff/records", 400),
    ],
)
def test_what_no_route_stands_for_is_refused(method: str, target: str, status: int) -> None:
    with pytest.raises(HttpFault) as caught:
        find(method, target)
    assert caught.value.status == status
