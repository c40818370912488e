"""The server on a real socket: keeps connections, bounds them, breaks off what fails, and speaks to nobody it should not."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
from collections.abc import Callable, Iterator

import pytest
import trustme

from millstream.reader import server as server_module
from millstream.reader.http import Answer, HttpFault, Request, Route, Send, StreamAnswer
from millstream.reader.server import HttpConnection, HttpServer
from millstream.reader.waiting_room import Guest

WAIT_S = 20.0
BIG = 300_000


class Served:
    """A few routes, and gates a test can hold an answer at."""

    def __init__(self) -> None:
        self.is_begun = threading.Event()
        self.may_end = threading.Event()

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/hello", lambda request: Answer({"hello": request.credentials.username})),
            Route("GET", "/stream", lambda request: StreamAnswer(stream)),
            Route("GET", "/broken", lambda request: StreamAnswer(break_off)),
            Route("GET", "/refused", lambda request: StreamAnswer(refuse)),
            Route("GET", "/bug", bug),
            Route("GET", "/slow", self.slow),
            Route("GET", "/proven", self.slow_and_proven),
            Route("POST", "/echo", lambda request: Answer(request.read_json()), body_bytes_max=BIG),
            Route("POST", "/unread", lambda request: Answer({}), body_bytes_max=BIG),
        ]

    def slow(self, request: Request) -> Answer:
        self.is_begun.set()
        assert self.may_end.wait(WAIT_S)
        return Answer({})

    def slow_and_proven(self, request: Request) -> Answer:
        request.credentials.is_proven = True
        return self.slow(request)


def stream(send: Send) -> None:
    for number in range(50):
        send([b"%d," % number, memoryview(bytes([number]) * 100_000), b""])


def break_off(send: Send) -> None:
    send([b"some"])
    raise HttpFault(503, "the disk went away")


def refuse(send: Send) -> None:
    raise HttpFault(410, "gone", "add &gap=skip", {"first": 7}, retry_after_s=3)


def bug(request: Request) -> Answer:
    raise ZeroDivisionError


@pytest.fixture
def served() -> Served:
    return Served()


Start = Callable[..., int]


@pytest.fixture
def start(served: Served) -> Iterator[Start]:
    listening: list[socket.socket] = []

    def start(connections_max: int = 8, tls: ssl.SSLContext | None = None) -> int:
        listening.append(socket.create_server(("127.0.0.1", 0)))
        server = HttpServer(listening[-1], served.routes(), connections_max, tls)
        threading.Thread(target=server.run, daemon=True).start()
        return int(listening[-1].getsockname()[1])

    yield start
    served.may_end.set()
    for one in listening:
        one.shutdown(socket.SHUT_RDWR)
        one.close()


def connect(port: int) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)


def ask(connection: http.client.HTTPConnection, path: str, **headers: str) -> tuple[int, bytes]:
    connection.request("GET", path, headers=headers)
    reply = connection.getresponse()
    return reply.status, reply.read()


def test_a_connection_serves_one_request_after_another(start: Start) -> None:
    connection = connect(start(connections_max=1))
    for _ in range(5):
        assert ask(connection, "/hello") == (200, b'{"hello":""}\n')
        status, body = ask(connection, "/stream")
        assert (status, len(body)) == (200, 50 * 100_000 + sum(len(f"{number},") for number in range(50)))
        assert ask(connection, "/nothing")[0] == 404


def test_a_body_that_fails_on_its_way_is_broken_off(start: Start) -> None:
    connection = connect(start())
    connection.request("GET", "/broken")
    reply = connection.getresponse()
    assert reply.status == 200
    with pytest.raises(http.client.IncompleteRead) as caught:
        reply.read()
    assert caught.value.partial == b"some"


def test_what_fails_before_the_first_piece_is_answered(start: Start) -> None:
    connection = connect(start())
    connection.request("GET", "/refused")
    reply = connection.getresponse()
    assert (reply.status, reply.getheader("Retry-After")) == (410, "3")
    assert reply.read() == b'{"error":"gone","hint":"add &gap=skip","first":7}\n'
    assert ask(connection, "/hello")[0] == 200, "the connection lives"


def test_a_bug_costs_one_answer(start: Start) -> None:
    port = start()
    status, body = ask(connect(port), "/bug")
    assert status == 500
    assert b"ZeroDivisionError" in body
    assert b"Traceback" not in body
    assert ask(connect(port), "/hello")[0] == 200


def test_bodies_are_taken_and_bounded(start: Start) -> None:
    port = start()
    connection = connect(port)
    connection.request("POST", "/echo", b'{"a": 1}')
    assert connection.getresponse().read() == b'{"a":1}\n'
    connection.request(
        "POST",
        "/echo",
        iter([b'{"b"', b": 2}"]),
        encode_chunked=True,
        headers={"Transfer-Encoding": "chunked"},
    )
    assert connection.getresponse().read() == b'{"b":2}\n'
    connection.request("POST", "/unread", b"x" * 1000)
    assert connection.getresponse().read() == b"{}\n"
    assert ask(connection, "/hello")[0] == 200, "a small body that nobody read is no obstacle"
    connection.request("POST", "/echo", b"x" * (BIG + 1))
    assert connection.getresponse().status == 413
    connection = connect(port)
    connection.request("GET", "/hello", b"body")
    assert connection.getresponse().status == 413


def test_a_client_that_waits_to_be_asked_for_its_body_is(start: Start) -> None:
    with socket.create_connection(("127.0.0.1", start()), WAIT_S) as raw:
        head = b"POST /echo HTTP/1.1\r\nHost: 127.0.0.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
        raw.sendall(head)
        assert raw.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        raw.sendall(b"{}")
        assert raw.recv(1000).startswith(b"HTTP/1.1 200 OK\r\n")


@pytest.mark.parametrize("data", [b"nonsense\r\n\r\n", b"GET / HTTP/1.1\r\nHost: h\r\nX: " + b"y" * 20_000])
def test_what_is_not_http_is_answered_and_ended(start: Start, data: bytes) -> None:
    with socket.create_connection(("127.0.0.1", start()), WAIT_S) as raw:
        raw.sendall(data)
        parts = b""
        while part := raw.recv(1000):
            parts += part
        assert parts.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 431 "))
        assert b"Connection: close" in parts


def test_pages_of_a_browser_are_not_served(start: Start) -> None:
    port = start()
    assert ask(connect(port), "/hello", Origin="http://evil.example")[0] == 403
    assert ask(connect(port), "/hello", Host="evil.example")[0] == 421


def test_who_comes_when_all_places_are_taken_is_told_so(start: Start, served: Served) -> None:
    port = start(connections_max=1)
    busy = connect(port)
    busy.request("GET", "/slow")
    assert served.is_begun.wait(WAIT_S)
    late = connect(port)
    late.request("GET", "/hello")
    reply = late.getresponse()
    assert (reply.status, reply.getheader("Retry-After")) == (503, "1")
    served.may_end.set()
    assert busy.getresponse().status == 200


def test_a_connection_that_is_idle_takes_no_place(start: Start) -> None:
    port = start(connections_max=1)
    idle = [connect(port) for _ in range(5)]
    for connection in (*idle, *idle):
        while (
            status := ask(connection, "/hello")[0]
        ) == 503:  # the one before has its answer, but has not left yet
            connection.close()
        assert status == 200


def test_slow_heads_keep_nobody_out(start: Start) -> None:
    port = start(connections_max=4)
    slow = [socket.create_connection(("127.0.0.1", port), WAIT_S) for _ in range(80)]
    for one in slow:
        one.sendall(b"GET /hello HTTP/1.1\r\nHost: 127.")
    assert ask(connect(port), "/hello")[0] == 200
    slow[0].sendall(b"0.0.1\r\n\r\n")
    assert slow[0].recv(1000).startswith(b"HTTP/1.1 200 OK\r\n"), "slow is not wrong"
    for one in slow:
        one.close()


def test_slow_handshakes_keep_nobody_out(start: Start) -> None:
    context, trusting = make_contexts()
    port = start(connections_max=2, tls=context)
    slow = [socket.create_connection(("127.0.0.1", port), WAIT_S) for _ in range(40)]
    for one in slow:
        one.sendall(b"\x16\x03\x01\x02\x00\x01")
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=WAIT_S, context=trusting)
    assert ask(connection, "/hello")[0] == 200
    for one in slow:
        one.close()


def test_everybody_who_comes_when_all_places_are_taken_is_answered(start: Start, served: Served) -> None:
    """Not only the first few: each gets a 503 and reads it, whatever it still sends."""
    port = start(connections_max=1)
    busy = connect(port)
    busy.request("GET", "/slow")
    assert served.is_begun.wait(WAIT_S)
    late = [socket.create_connection(("127.0.0.1", port), WAIT_S) for _ in range(60)]
    for one in late:
        one.sendall(
            b"POST /echo HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 90000\r\n\r\n" + b"x" * 90_000
        )
    for one in late:
        assert b"\r\nRetry-After: 1\r\n" in read_to_end(one)
        one.close()
    served.may_end.set()
    assert busy.getresponse().status == 200


def test_a_refusal_over_tls_can_be_read(start: Start, served: Served) -> None:
    context, trusting = make_contexts()
    port = start(connections_max=1, tls=context)
    busy, late = (
        http.client.HTTPSConnection("127.0.0.1", port, timeout=WAIT_S, context=trusting) for _ in range(2)
    )
    busy.request("GET", "/slow")
    assert served.is_begun.wait(WAIT_S)
    assert ask(late, "/hello")[0] == 503
    served.may_end.set()
    assert busy.getresponse().status == 200


def test_callers_that_prove_nothing_leave_half_of_the_places_to_others(start: Start, served: Served) -> None:
    port = start(connections_max=4)
    checked = [connect(port) for _ in range(2)]
    for one in checked:
        one.request("GET", "/slow")
    assert served.is_begun.wait(WAIT_S)
    while ask(connect(port), "/hello")[0] != 503:  # until both are there
        pass
    elsewhere = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S, source_address=("127.0.0.2", 0))
    while (status := ask(elsewhere, "/hello")[0]) == 503:  # those above have not all left yet
        elsewhere.close()
    assert status == 200
    served.may_end.set()
    assert [one.getresponse().status for one in checked] == [200, 200]


def test_the_next_request_of_a_connection_asks_for_the_share_of_strangers_too() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = HttpServer(listening, [], connections_max=4)
        ends = [socket.socketpair() for _ in range(5)]
        crowd = [
            HttpConnection(server, Guest(ours, "192.0.2.1" if number < 4 else "192.0.2.2"))
            for number, (ours, _) in enumerate(ends)
        ]
        for connection in crowd:
            assert server.give_place_up(connection) == (connection is not crowd[4])
        taken = [server.take_place_again(connection, True) for connection in crowd]
        assert taken == [True, True, False, False, True]
        for end in ends:
            for one in end:
                one.close()


def test_callers_that_have_proven_who_they_are_may_take_all_places(start: Start, served: Served) -> None:
    port = start(connections_max=2)
    known = connect(port)
    known.request("GET", "/proven")
    assert served.is_begun.wait(WAIT_S)
    assert ask(connect(port), "/hello")[0] == 200
    served.may_end.set()
    assert known.getresponse().status == 200


def test_the_rest_of_an_unwanted_body_is_not_waited_for(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "LEFTOVER_S", 0.05)
    with socket.create_connection(("127.0.0.1", start()), WAIT_S) as raw:
        raw.sendall(b"POST /unread HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\nx")
        assert b"\r\nConnection: close\r\n" in read_to_end(raw)


def read_to_end(raw: socket.socket) -> bytes:
    parts = b""
    with contextlib.suppress(ConnectionResetError):
        while part := raw.recv(1000):
            parts += part
    return parts


def make_contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The server's, and one that trusts it."""
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    return context, trusting


def test_tls_is_spoken_when_it_is_set_up(start: Start) -> None:
    context, trusting = make_contexts()
    port = start(tls=context)
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=WAIT_S, context=trusting)
    status, body = ask(connection, "/stream")
    assert (status, len(body) > 5_000_000) == (200, True)
    assert ask(connection, "/hello")[0] == 200
    with socket.create_connection(("127.0.0.1", port), WAIT_S) as raw:
        raw.sendall(b"GET /hello HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        answer = b""
        with contextlib.suppress(ConnectionResetError):
            answer = raw.recv(100)
        assert not answer.startswith(b"HTTP")
