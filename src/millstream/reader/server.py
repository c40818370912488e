"""The HTTP server of the reader: a thread per connection, blocking sockets, everything bounded.

Invariants
- At most `connections_max` connections are served; who comes then is told so, after the one that has been idle longest
  was let go.
- Every wait has an end: for a head, for a body, for a client that does not take its answer.
- A body whose producer fails is broken off, never ended: what a client has seen whole is whole.
- Answers are sent from the buffers they stand in, without putting them together first.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Sequence
from http import HTTPStatus
from typing import Final

import structlog

from millstream.reader.http import (
    JSON_TYPE,
    Answer,
    Body,
    Buffer,
    Head,
    HttpFault,
    Request,
    Route,
    StreamAnswer,
    find_route,
    parse_credentials,
    parse_head,
)
from millstream.runtime.http_head import HEAD_BYTES_MAX, HostNames

IDLE_S: Final = 60.0  # between two requests
IDLE_KEPT_S: Final = 5.0  # an idle connection is not let go for another before this
HEAD_S: Final = 10.0  # from the first byte of a head to its last
BODY_S: Final = 30.0  # without a byte of a body
SEND_S: Final = 60.0  # without taking a byte of an answer
REFUSE_S: Final = 2.0
REFUSING_MAX: Final = 16
LEFTOVER_MAX: Final = 64 * 1024  # of a body nobody wanted that is read away to keep the connection
RECEIVE: Final = 64 * 1024
BUFFERS_MAX: Final = 512  # in one system call
HEADERS: Final = "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"


class Closed(Exception):
    """Nobody is there any more, or it took too long."""


class HttpConnection:
    """One connection: `serve` runs in a thread of its own until it ends."""

    def __init__(self, server: HttpServer, link: socket.socket, address: str) -> None:
        self._server = server
        self._socket = link
        self._address = address
        self._unread = b""
        self.idle_since = 0.0  # 0: a request is under way

    # ---------------------------------------------------------------- serving

    def serve(self) -> None:
        try:
            self._secure()
            while self._serve_one():
                pass
        except (Closed, OSError):
            pass  # there is nobody to tell
        finally:
            with contextlib.suppress(OSError):
                self._socket.close()

    def refuse(self) -> None:
        """Too many are here: say so, and let the client read it before the connection goes."""
        try:
            self._socket.settimeout(REFUSE_S)
            self._secure()
            busy = HttpFault(
                503, f"{self._server.connections_max} connections are being served", retry_after_s=1
            )
            self._answer_fault(busy, is_last=True)
            self._socket.shutdown(socket.SHUT_WR)
            deadline = time.monotonic() + REFUSE_S
            while time.monotonic() < deadline and self._socket.recv(RECEIVE):
                pass
        except (Closed, OSError):
            pass  # it will find out by itself
        finally:
            with contextlib.suppress(OSError):
                self._socket.close()

    def let_go(self) -> None:
        """From another thread: it is idle, and its place is needed."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def _secure(self) -> None:
        if self._server.tls is not None:
            self._socket.settimeout(HEAD_S)
            self._socket = self._server.tls.wrap_socket(self._socket, server_side=True)

    def _serve_one(self) -> bool:
        """Answer a request; False when there will be no more."""
        try:
            head = self._read_head()
        except HttpFault as fault:
            self._answer_fault(fault, is_last=True)
            return False
        if head is None:
            return False
        is_awaited = head.headers.get("expect", "").lower() == "100-continue"
        body = Body(self, head.length, head.is_chunked, 0, is_awaited)
        try:
            body = self._answer(head, is_awaited)
        except HttpFault as fault:
            head.is_last = head.is_last or not self._can_go_on(body, head)
            self._answer_fault(fault, head.is_last)
        return not head.is_last

    def _answer(self, head: Head, is_awaited: bool) -> Body:
        server = self._server
        server.check_origin(head)
        route, parts = find_route(server.routes, head)
        if head.length > route.body_bytes_max or (head.is_chunked and not route.body_bytes_max):
            text = (
                f"the body has more than {route.body_bytes_max} bytes"
                if route.body_bytes_max
                else "no body is taken here"
            )
            raise HttpFault(413, text)
        credentials = parse_credentials(head.headers.get("authorization"), self._address)
        body = Body(self, head.length, head.is_chunked, route.body_bytes_max, is_awaited)
        sender = _Sender(self, head)
        try:
            answer = route.handle(Request(head, parts, credentials, body))
            if not self._can_go_on(body, head):
                head.is_last = True
            if isinstance(answer, StreamAnswer):
                sender.content_type = answer.content_type
                answer.produce(sender.send)
                sender.finish()
            else:
                self._answer_json(answer, head.is_last)
        except HttpFault as fault:
            sender.check_unsent(fault)
            head.is_last = head.is_last or not self._can_go_on(body, head)
            self._answer_fault(fault, head.is_last)
        except (Closed, OSError):
            raise
        except Exception as error:  # our bug costs this answer, not the reader
            server.log.exception("reader_failed", path=head.path)
            inside = HttpFault(500, f"something went wrong inside the reader ({type(error).__name__})")
            sender.check_unsent(inside)
            head.is_last = True
            self._answer_fault(inside, is_last=True)
        return body

    def _can_go_on(self, body: Body, head: Head) -> bool:
        """Whether the next request can be found: what is left of this one's body is small, and is read away."""
        if body.is_done:
            return True
        if body.is_waiting or head.is_chunked or head.length - body.taken > LEFTOVER_MAX:
            return False
        try:
            while body.take(RECEIVE):
                pass
        except HttpFault:
            return False
        return True

    # ---------------------------------------------------------------- reading

    def _read_head(self) -> Head | None:
        """None: the client has nothing more to say."""
        self.idle_since = time.monotonic()
        try:
            if not self._unread:
                self._socket.settimeout(IDLE_S)
                self._unread = self._socket.recv(RECEIVE)
                if not self._unread:
                    return None
        finally:
            self.idle_since = 0.0
        deadline = time.monotonic() + HEAD_S
        while (at := self._unread.find(b"\r\n\r\n")) < 0:
            if len(self._unread) > HEAD_BYTES_MAX:
                raise HttpFault(431, f"the head of a request has at most {HEAD_BYTES_MAX} bytes")
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise HttpFault(408, f"the head of the request took longer than {HEAD_S:.0f} seconds")
            self._socket.settimeout(left_s)
            data = self._receive()
            if not data:
                return None
            self._unread += data
        if at > HEAD_BYTES_MAX:
            raise HttpFault(431, f"the head of a request has at most {HEAD_BYTES_MAX} bytes")
        raw, self._unread = self._unread[:at], self._unread[at + 4 :]
        self._socket.settimeout(BODY_S)
        return parse_head(raw)

    def _receive(self) -> bytes:
        try:
            return self._socket.recv(RECEIVE)
        except TimeoutError:
            raise HttpFault(408, "the request did not come in time") from None

    def read_line(self, bytes_max: int) -> bytes:
        while (at := self._unread.find(b"\r\n")) < 0:
            if len(self._unread) > bytes_max + 2:
                break
            data = self._receive()
            if not data:
                raise Closed
            self._unread += data
        if at < 0 or at > bytes_max:
            raise HttpFault(400, "the chunks of the body are not those of HTTP")
        line, self._unread = self._unread[:at], self._unread[at + 2 :]
        return line

    def read_some(self, bytes_max: int) -> bytes:
        if not self._unread:
            self._socket.settimeout(BODY_S)
            self._unread = self._receive()
        data, self._unread = self._unread[:bytes_max], self._unread[bytes_max:]
        return data

    def send_continue(self) -> None:
        self.send([b"HTTP/1.1 100 Continue\r\n\r\n"])

    # ---------------------------------------------------------------- sending

    def send(self, buffers: Sequence[Buffer]) -> None:
        """All of them, in order, as few calls as it takes."""
        self._socket.settimeout(SEND_S)
        views = [view for view in [memoryview(buffer) for buffer in buffers] if view.nbytes]
        if isinstance(self._socket, ssl.SSLSocket):
            for view in views:
                self._socket.sendall(view)
            return
        views = [view.cast("B") if view.format != "B" or view.ndim != 1 else view for view in views]
        at = 0
        while at < len(views):
            sent = self._socket.sendmsg(views[at : at + BUFFERS_MAX])
            while at < len(views) and sent >= len(views[at]):
                sent -= len(views[at])
                at += 1
            if sent:
                views[at] = views[at][sent:]

    def _answer_json(self, answer: Answer, is_last: bool) -> None:
        body = answer.encode()
        self.send([_status_line(answer.status, is_last, f"Content-Length: {len(body)}\r\n", JSON_TYPE), body])

    def _answer_fault(self, fault: HttpFault, is_last: bool) -> None:
        body = Answer({"error": fault.error, "hint": fault.hint, **fault.fields}).encode()
        more = f"Content-Length: {len(body)}\r\n"
        if fault.status == HTTPStatus.UNAUTHORIZED:
            more += 'WWW-Authenticate: Basic realm="millstream", charset="UTF-8"\r\n'
        if fault.retry_after_s:
            more += f"Retry-After: {fault.retry_after_s}\r\n"
        self.send([_status_line(fault.status, is_last, more, JSON_TYPE), body])


def _status_line(status: int, is_last: bool, more: str, content_type: str) -> bytes:
    end = "Connection: close\r\n" if is_last else ""
    head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: {content_type}\r\n{more}{HEADERS}{end}\r\n"
    return head.encode("latin-1")


class _Sender:
    """A chunked body. Its head goes out with the first piece, so that what fails before is answered as a fault."""

    def __init__(self, connection: HttpConnection, head: Head) -> None:
        self._connection = connection
        self._head = head
        self._is_begun = False
        self.content_type = JSON_TYPE

    def send(self, buffers: Sequence[Buffer]) -> None:
        size = sum(memoryview(buffer).nbytes for buffer in buffers)
        if size:
            self._connection.send([*self._begin(), b"%x\r\n" % size, *buffers, b"\r\n"])

    def finish(self) -> None:
        self._connection.send([*self._begin(), b"0\r\n\r\n"])

    def check_unsent(self, fault: HttpFault) -> None:
        """A fault after the first piece can only break the body off."""
        if self._is_begun:
            log = structlog.get_logger("millstream.reader")
            log.warning("answer_broken_off", path=self._head.path, reason=fault.error)
            raise Closed

    def _begin(self) -> list[bytes]:
        if self._is_begun:
            return []
        self._is_begun = True
        return [_status_line(200, self._head.is_last, "Transfer-Encoding: chunked\r\n", self.content_type)]


class HttpServer:
    """`listening` is bound already. `run` accepts until the socket is closed."""

    def __init__(
        self,
        listening: socket.socket,
        routes: Sequence[Route],
        connections_max: int,
        tls: ssl.SSLContext | None = None,
        is_loopback: bool = True,
    ) -> None:
        self._listening = listening
        self.routes = routes
        self.connections_max = connections_max
        self.tls = tls
        self._names = HostNames(is_loopback)
        self._connections: dict[HttpConnection, None] = {}
        self._refusing = 0
        self._lock = threading.Lock()
        self.log = structlog.get_logger("millstream.reader")

    def run(self) -> None:
        while True:
            try:
                link, address = self._listening.accept()
            except ConnectionError:
                continue  # gone before it was here
            except OSError as error:
                if self._listening.fileno() < 0:
                    return
                self.log.warning("accept_failed", reason=error.strerror or str(error))
                time.sleep(0.1)  # no descriptor is left: some will come back
                continue
            self._begin(link, str(address[0]) if isinstance(address, tuple) else "")

    def check_origin(self, head: Head) -> None:
        """Pages in a browser have no business here: not with an Origin, and not by a name that was made to mean this
        machine."""
        if "origin" in head.headers:
            raise HttpFault(403, "pages of a browser are not served")
        if not self._names.allows(head.headers.get("host", "")):
            raise HttpFault(421, "this reader is on loopback; name it by its address or as localhost")

    def _begin(self, link: socket.socket, address: str) -> None:
        if link.family in (socket.AF_INET, socket.AF_INET6):
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = HttpConnection(self, link, address)
        with self._lock:
            is_served = len(self._connections) < self.connections_max or self._make_room()
            if is_served:
                self._connections[connection] = None
            elif self._refusing < REFUSING_MAX:
                self._refusing += 1
            else:
                link.close()
                return
        run = self._serve if is_served else self._refuse
        try:
            threading.Thread(target=run, args=(connection,), name="http", daemon=True).start()
        except RuntimeError:  # the system gives no thread now
            self._leave(connection)
            link.close()

    def _make_room(self) -> bool:
        """Let the connection go that has been idle longest, if it has been so for a while."""
        now = time.monotonic()
        idle = [other for other in self._connections if 0 < other.idle_since <= now - IDLE_KEPT_S]
        if not idle:
            return False
        oldest = min(idle, key=lambda other: other.idle_since)
        del self._connections[oldest]
        oldest.let_go()
        return True

    def _serve(self, connection: HttpConnection) -> None:
        try:
            connection.serve()
        finally:
            self._leave(connection)

    def _refuse(self, connection: HttpConnection) -> None:
        try:
            connection.refuse()
        finally:
            with self._lock:
                self._refusing -= 1

    def _leave(self, connection: HttpConnection) -> None:
        with self._lock:
            self._connections.pop(connection, None)
