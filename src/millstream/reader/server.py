"""The HTTP server of the reader: a thread for each request under way, blocking sockets, everything bounded.

Invariants
- At most `connections_max` connections are served; who comes then is told so. Heads are waited for elsewhere.
- Callers of one address that have not proven who they are take at most half of the places.
- Every wait has an end: for a head, for a body, for a client that does not take its answer.
- A body whose producer fails is broken off, never ended: what a client has seen whole is whole.
- Answers are sent from the buffers they stand in, without putting them together first.
"""

from __future__ import annotations

import contextlib
import resource
import socket
import ssl
import threading
import time
from collections.abc import Sequence
from typing import Final

import structlog

from millstream.reader.callers import Callers, Tell
from millstream.reader.http import (
    JSON_TYPE,
    Answer,
    Body,
    Buffer,
    Credentials,
    Head,
    HttpFault,
    Request,
    Route,
    StreamAnswer,
    find_route,
    parse_credentials,
    parse_head,
)
from millstream.reader.http_answer import encode_answer, encode_fault, encode_head
from millstream.reader.waiting_room import Guest, WaitingRoom
from millstream.runtime.transport.http_head import HEAD_BYTES_MAX, HEAD_END, HostNames

KEEP_S: Final = (
    0.05  # a thread waits so long for the next request; then the connection waits where it costs none
)
BODY_S: Final = 30.0  # without a byte of a body
SEND_S: Final = 60.0  # without taking a byte of an answer
LEFTOVER_S: Final = 5.0  # for all of a body that nobody wants
WATCH_S: Final = 1.0
WAITING_MAX: Final = 1024  # connections that are not being served
ARRIVING_MAX: Final = 256
LEFTOVER_MAX: Final = 64 * 1024  # of a body nobody wanted that is read away to keep the connection
RECEIVE: Final = 64 * 1024
BUFFERS_MAX: Final = 512  # in one system call


class Closed(Exception):
    """Nobody is there any more, or it took too long."""


class HttpConnection:
    """A connection while it is served: its first head is there when `serve` begins, in a thread of its own."""

    def __init__(self, server: HttpServer, guest: Guest) -> None:
        self.guest = guest
        self._server = server
        self._socket = guest.socket
        self._unread = guest.unread
        self._body_until_s = 0.0  # 0: as long as something comes
        self._credentials: Credentials | None = None

    @property
    def is_stranger(self) -> bool:
        """Whether the caller of the request under way has not yet proven who it is."""
        return self._credentials is None or not self._credentials.is_proven

    # ---------------------------------------------------------------- serving

    def serve(self) -> bool:
        """Whether it waits for another request; else it is closed."""
        try:
            while self._serve_one():
                if not self._has_next():
                    self.guest.unread = self._unread
                    return True
        except (Closed, OSError):
            pass  # there is nobody to tell
        with contextlib.suppress(OSError):
            self._socket.close()
        return False

    def _has_next(self) -> bool:
        """Whether the next head is there, or comes at once: a client that asks often keeps its thread."""
        if HEAD_END in self._unread:
            return True
        if not self._server.give_place_up(self):
            return False
        has_next = False
        try:
            self._socket.settimeout(KEEP_S)
            data = self._socket.recv(RECEIVE)
            if not data:
                raise Closed
            self._unread += data
            has_next = HEAD_END in self._unread
        except TimeoutError:
            pass
        finally:
            self._credentials = None  # who asks next has proven nothing yet
            has_next = self._server.take_place_again(self, has_next)
        return has_next

    def _serve_one(self) -> bool:
        """Answer a request; False when there will be no more."""
        self._credentials = None
        self._body_until_s = 0.0
        try:
            head = self._take_head()
        except HttpFault as fault:
            self._answer_fault(fault, is_last=True)
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
        server.note_request(self.guest.address)
        credentials = parse_credentials(head.headers.get("authorization"), self.guest.address)
        self._credentials = credentials
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
        self.hurry()
        try:
            while body.take(RECEIVE):
                pass
        except HttpFault:
            return False
        return True

    # ---------------------------------------------------------------- reading

    def _take_head(self) -> Head:
        at = self._unread.find(HEAD_END)
        if at > HEAD_BYTES_MAX:
            raise HttpFault(431, f"the head of a request has at most {HEAD_BYTES_MAX} bytes")
        raw, self._unread = self._unread[:at], self._unread[at + len(HEAD_END) :]
        self._socket.settimeout(BODY_S)
        return parse_head(raw)

    def hurry(self) -> None:
        """Nobody wants the rest of the body: there is little time for it."""
        if self._body_until_s == 0:
            self._body_until_s = time.monotonic() + LEFTOVER_S

    def _receive(self) -> bytes:
        if self._body_until_s:
            self._socket.settimeout(max(0.001, min(BODY_S, self._body_until_s - time.monotonic())))
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
        self.send(encode_answer(answer, is_last))

    def _answer_fault(self, fault: HttpFault, is_last: bool) -> None:
        self.send(encode_fault(fault, is_last))


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
        return [encode_head(200, self._head.is_last, "Transfer-Encoding: chunked\r\n", self.content_type)]


class HttpServer:
    """`listening` is bound already. `run` accepts until the socket is closed."""

    def __init__(
        self,
        listening: socket.socket,
        routes: Sequence[Route],
        connections_max: int,
        tls: ssl.SSLContext | None = None,
        is_loopback: bool = True,
        tell: Tell | None = None,
    ) -> None:
        self._listening = listening
        self.routes = routes
        self._connections_max = connections_max
        self._strangers_max = max(1, connections_max // 2)
        self._names = HostNames(is_loopback)
        self._connections: dict[
            HttpConnection, None
        ] = {}  # with a request under way: the places that are taken
        self._idle_threads = 0
        self._callers = Callers(tell)
        self._room = WaitingRoom(self._begin, find_waiting_max(), tls, on_refused=self._callers.on_refused)
        self._lock = threading.Lock()
        self.log = structlog.get_logger("millstream.reader")

    def run(self) -> None:
        threading.Thread(target=self._room.run, name="heads", daemon=True).start()
        threading.Thread(target=self._watch, name="callers", daemon=True).start()
        try:
            while self._accept():
                pass
        finally:
            self._room.close()

    def _watch(self) -> None:
        while self._listening.fileno() >= 0:
            time.sleep(WATCH_S)
            try:
                self._callers.look(self._room.unfinished)
            except HttpFault:
                continue  # the broker is away, which others tell

    def _accept(self) -> bool:
        """One connection; False when there will be no more."""
        if self._room.arriving > ARRIVING_MAX:
            time.sleep(0.001)  # they come faster than they can be looked at: the kernel keeps the rest
            return True
        try:
            link, address = self._listening.accept()
        except ConnectionError:
            return True  # gone before it was here
        except OSError as error:
            if self._listening.fileno() < 0:
                return False
            self.log.warning("accept_failed", reason=error.strerror or str(error))
            time.sleep(0.1)  # no descriptor is left: some will come back
            return True
        if link.family in (socket.AF_INET, socket.AF_INET6):
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._room.put(Guest(link, str(address[0]) if isinstance(address, tuple) else ""))
        return True

    def note_request(self, address: str) -> None:
        self._callers.on_request(address)

    def check_origin(self, head: Head) -> None:
        """Pages in a browser have no business here: not with an Origin, and not by a name that was made to mean this
        machine."""
        if "origin" in head.headers:
            raise HttpFault(403, "pages of a browser are not served")
        if not self._names.allows(head.headers.get("host", "")):
            raise HttpFault(421, "this reader is on loopback; name it by its address or as localhost")

    def _begin(self, guest: Guest) -> HttpFault | None:
        """Serve a connection whose head is there; gives why not."""
        connection = HttpConnection(self, guest)
        with self._lock:
            refusal = self._find_refusal(guest.key)
            if refusal:
                return HttpFault(503, refusal, retry_after_s=1)
            self._connections[connection] = None
        try:
            threading.Thread(target=self._serve, args=(connection,), name="http", daemon=True).start()
        except RuntimeError:  # the system gives no thread now
            self._leave(connection)
            return HttpFault(503, "no thread can be started now", retry_after_s=1)
        return None

    def give_place_up(self, connection: HttpConnection) -> bool:
        """Its request is answered; whether its thread may wait for the next one."""
        with self._lock:
            self._connections.pop(connection, None)
            if self._idle_threads >= self._connections_max:
                return False
            self._idle_threads += 1
            return True

    def take_place_again(self, connection: HttpConnection, has_next: bool) -> bool:
        """Its thread waits no more; whether it has another request and a place for it."""
        with self._lock:
            self._idle_threads -= 1
            if not has_next or self._find_refusal(connection.guest.key):
                return False
            self._connections[connection] = None
            return True

    def _find_refusal(self, key: str) -> str:
        """Why a request from there gets no place now; empty: there is one."""
        if len(self._connections) >= self._connections_max:
            return f"{self._connections_max} connections are being served (reader.connections_max)"
        strangers = sum(other.guest.key == key and other.is_stranger for other in self._connections)
        if strangers >= self._strangers_max:
            return (
                f"{strangers} requests from this address have not proven who they are, "
                f"which is half of reader.connections_max = {self._connections_max}"
            )
        return ""

    def _serve(self, connection: HttpConnection) -> None:
        is_kept = False
        try:
            is_kept = connection.serve()
        finally:
            self._leave(connection)
        if is_kept:
            self._room.put(connection.guest)

    def _leave(self, connection: HttpConnection) -> None:
        with self._lock:
            self._connections.pop(connection, None)


def find_waiting_max() -> int:
    """Half of the descriptors there are at most: the others are for work."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return WAITING_MAX if soft == resource.RLIM_INFINITY else max(16, min(WAITING_MAX, soft // 2))
