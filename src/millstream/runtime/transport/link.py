"""What TCP and WebSocket connections share: counting at the gate, pausing, closing, deadlines.

The classes are plain (duck-typed asyncio protocols) so that they can be compiled.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64, mypyc_attr

from millstream.protocols.endpoint import Endpoint, Link
from millstream.runtime.transport.client_certificate import find_certificate_name
from millstream.runtime.transport.growth import SLOWED, SLOWED_NS, STOPPED, Growth
from millstream.runtime.transport.intake import PIECE_FIRST, SHARE_NS, SMALL_BYTES, next_piece
from millstream.runtime.transport.receive_buffer import ReceiveBuffer
from millstream.security.authentication import Credentials

if TYPE_CHECKING:
    from millstream.runtime.transport.gate import Gate, HandshakePlace, Reception

WAITS_FOR_OUTLET: Final[i64] = 1
WAITS_FOR_ANSWER: Final[i64] = 2
WAITS_FOR_RATE: Final[i64] = 4
WAITS_FOR_STORE: Final[i64] = 8
WAITS_FOR_TURN: Final[i64] = 16
WAITS_FOR_SHARE: Final[i64] = 32  # what it sent waits for its share of a turn
WAITS_FOR_MEMORY: Final[i64] = 64
WAITS_FOR_LOG: Final[i64] = 128  # which is behind with what publishers store
HEAVY_BYTES: Final[i64] = 256 * 1024  # unsent: who has more of it goes first
LINGER_NS: Final[i64] = 5_000_000_000  # a peer that does not read may hold its close no longer
LOOK_NS: Final[i64] = (
    60_000_000_000  # what waits for a deadline or a pause to end is kept no longer when it has gone
)


@mypyc_attr(allow_interpreted_subclasses=True)
class TransportLink(Link):
    def __init__(self, gate: Gate, reception: Reception | None = None) -> None:
        super().__init__("")
        self.gate = gate
        self.reception: Reception = reception or gate.mqtt
        self.transport: asyncio.Transport | None = None
        self.endpoint: Endpoint | None = None
        self._waits: i64 = 0
        self._unread: ReceiveBuffer | None = None  # what waits for its share of a turn
        self._piece: i64 = PIECE_FIRST
        self._is_lost = False
        self._is_stranger = False
        self._is_counted = False
        self._abort_ns: i64 = 0
        self._is_lagging = False
        self._is_leaving = False  # the client has closed the connection
        self._growth: Growth | None = None  # since memory was short, or the log behind, for the first time
        self._due_ns: i64 = 0  # when the nearest entry in `deadlines` is due
        self._accepted_ns: i64 = 0
        self._place: HandshakePlace | None = None

    def take_over(self, address: str, accepted_ns: i64, place: HandshakePlace) -> None:
        """The gate let it in before its TLS handshake: it counts from then on."""
        self.address = address
        self._accepted_ns = accepted_ns
        self._place = place
        self._is_stranger = True
        self._is_counted = True

    def give_way(self) -> None:
        """It has not logged in, and others of less crowded addresses have no room."""
        self.release()
        self.abort()

    def release(self) -> None:
        """It is counted no more; for one whose TLS handshake failed, which nobody calls lost."""
        if self._is_stranger:
            self.gate.abandoned.add(self.address)
        self._be_known()
        if self._is_counted:
            self._is_counted = False
            self.gate.on_gone()

    @property
    def waits_for_peer(self) -> bool:
        """Whether the next step is the client's, not the broker's."""
        return self._waits == 0

    # ------------------------------------------------------- asyncio protocol

    def connection_made(self, transport: asyncio.Transport) -> None:
        now_ns = time.monotonic_ns()
        self.transport = transport
        peer = transport.get_extra_info("peername")
        self.address = str(peer[0]) if isinstance(peer, tuple) else "local"
        gate = self.gate
        if self._accepted_ns:
            now_ns = self._accepted_ns  # the time for the handshake began there
        elif not gate.admit(self.address, now_ns, self, self.give_way):
            transport.abort()
            return
        self._is_stranger = True
        self._is_counted = True
        gate.strange[self] = None
        gate.links[self] = None
        lag_mark = gate.memory.lag_mark(gate.connections)
        # lagging begins at our low mark, so that it has been watched for a while before it reaches the high one
        transport.set_write_buffer_limits(high=lag_mark, low=lag_mark // 4)
        self.certificate_name = find_certificate_name(transport)
        self.on_made(now_ns)

    def on_made(self, now_ns: i64) -> None:
        """The connection may speak: give it an endpoint."""
        endpoint = self.reception.make_endpoint(self, now_ns)
        self.endpoint = endpoint
        self._arm(endpoint.next_deadline())

    def eof_received(self) -> bool:
        return False  # half-open connections are closed

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None
        self._note_lagging(False)
        self.gate.memory_waiters.pop(self, None)
        self.gate.log_waiters.pop(self, None)
        self.gate.links.pop(self, None)
        self.gate.note_ended(self)
        self.release()
        if self._waits & WAITS_FOR_ANSWER:
            self.gate.asker.forget(self)
        if self._unread is not None and self._waits == WAITS_FOR_SHARE:
            self._is_lost = True  # behind what it had sent
            return
        self._forget_unread()
        intake = self.gate.intake
        if intake.ends_at_once(self.gate.clock.read_ns()):
            self._end()
        else:
            self._is_lost = True
            self._waits = WAITS_FOR_SHARE
            intake.wait(self, SMALL_BYTES + 1)

    def _end(self) -> None:
        endpoint = self.endpoint
        if endpoint is not None:
            self.endpoint = None
            try:
                endpoint.on_lost(time.monotonic_ns())
            except Exception as fault:  # noqa: BLE001 our bug ends this connection, not the broker
                self.gate.observer.failed("", self.address, fault)

    def pause_writing(self) -> None:
        self._note_lagging(True)
        endpoint = self.endpoint
        if endpoint is not None:
            endpoint.on_lagging()

    def resume_writing(self) -> None:
        self._note_lagging(False)
        endpoint = self.endpoint
        if endpoint is not None:
            endpoint.on_caught_up()

    def _note_lagging(self, is_lagging: bool) -> None:
        if is_lagging != self._is_lagging:
            self._is_lagging = is_lagging
            self.gate.memory.on_lagging(1 if is_lagging else -1)

    # ----------------------------------------------------------------- intake

    def receive(self, endpoint: Endpoint, data: bytes, now_ns: i64) -> None:
        """Hand it to the endpoint, now or when it has a share of a turn."""
        intake = self.gate.intake
        if self._unread is None:
            is_free = self._waits & ~WAITS_FOR_SHARE == 0
            if is_free and intake.takes_at_once(len(data), now_ns):
                self._take(endpoint, data, now_ns)
                return
            self._unread = ReceiveBuffer(data)
            intake.unread += len(data)
            is_begun = intake.begins_at_once(now_ns)
            is_due = not is_begun or self.serve(SHARE_NS)
            if not self._has_unread():
                return
            self._wait(WAITS_FOR_SHARE)
            if is_due:
                intake.wait(self, SMALL_BYTES + 1 if is_begun else len(data))
        elif data:
            self._unread.append(data)
            intake.unread += len(data)
        while intake.is_full() and self.serve(SHARE_NS):
            pass  # it is not kept, whatever the turn takes

    def serve(self, share_ns: i64) -> bool:
        """Hand on what waits, for about so long. True: there is more, and nothing but the time keeps it."""
        intake = self.gate.intake
        began_ns: i64 = intake.read_ns()
        before_ns: i64 = began_ns
        while self._waits & ~WAITS_FOR_SHARE == 0:
            piece = self._next_piece()
            endpoint = self.endpoint
            if not piece or endpoint is None:
                self._on_served()
                return False
            try:
                self._take(endpoint, piece, self.gate.clock.read_ns())
            except Exception as fault:  # noqa: BLE001 our bug ends this connection, not the broker
                self._forget_unread()
                self.on_fault(fault)
            after_ns: i64 = intake.read_ns()
            self._piece = next_piece(self._piece, len(piece), after_ns - before_ns)
            if after_ns - began_ns >= share_ns and self._unread is not None:
                return self._waits & ~WAITS_FOR_SHARE == 0
            before_ns = after_ns
        return False

    def _has_unread(self) -> bool:
        """Asked by a call: in the code that has just set it, the compiler takes it for what it was set to."""
        return self._unread is not None

    def _next_piece(self) -> bytes:
        unread = self._unread
        if unread is None:
            return b""
        data = unread.take(self._piece)
        if unread.is_empty():
            self._unread = None
        self.gate.intake.unread -= len(data)
        return data

    def _on_served(self) -> None:
        if self._is_lost:
            self._is_lost = False
            self._forget_unread()
            self._end()
        elif self._waits & WAITS_FOR_SHARE and not self.gate.intake.rest(self):
            self._go_on(WAITS_FOR_SHARE)

    def read_on(self) -> None:
        """Others have been served meanwhile."""
        self._go_on(WAITS_FOR_SHARE)

    def _forget_unread(self) -> None:
        unread = self._unread
        self._unread = None
        self.gate.intake.forget(self)
        if unread is not None:
            self.gate.intake.unread -= unread.size()

    # ----------------------------------------------------------------- memory

    def _take(self, endpoint: Endpoint, data: bytes, now_ns: i64) -> None:
        """Hand it to the endpoint, and see what that does to the memory of the process and to the log."""
        gate = self.gate
        memory = gate.memory
        store = gate.store
        before: i64 = memory.intake
        logged: i64 = store.backlog_bytes()
        endpoint.receive_data(data, now_ns)
        self.spent_ns += gate.clock.lap_ns()
        grown: i64 = memory.intake - before
        memory.intake += len(data)
        if memory.intake >= memory.check_at:
            memory.look()
        if memory.is_high and self._waits & WAITS_FOR_MEMORY == 0:
            self._spare_memory(endpoint, grown, len(data), now_ns)
        logged = store.backlog_bytes() - logged
        if logged > 0 and self._waits & WAITS_FOR_LOG == 0 and gate.is_log_behind():
            if self._find_growth().is_heavy(logged, now_ns):
                gate.log_waiters[self] = None
                self._wait(WAITS_FOR_LOG)

    def _find_growth(self) -> Growth:
        if self._growth is None:
            self._growth = Growth()
        return self._growth

    def _spare_memory(self, endpoint: Endpoint, grown: i64, sent: i64, now_ns: i64) -> None:
        """Memory is short: who brings much is not read until there is more."""
        if self._is_leaving:
            if self.gate.memory.is_critical:
                self.abort()
            return
        verdict: i64 = self._find_growth().judge(grown, sent, endpoint.held_bytes(), now_ns)
        if verdict == SLOWED:
            self.pause_for(SLOWED_NS)
        elif verdict == STOPPED:
            self.gate.memory_waiters[self] = None
            self._wait(WAITS_FOR_MEMORY)
            endpoint.on_memory_short(True)

    def on_peer_closed(self, is_reset: bool) -> None:
        """The client has closed the connection while it is not read. What it has sent before is read to the end, memory or
        not, so that the end is reached; not after a reset, which takes that back, and not while memory is critical."""
        if is_reset:
            self.abort()
        elif self._waits & WAITS_FOR_MEMORY:
            self._is_leaving = True
            self.gate.memory_waiters.pop(self, None)
            self.resume_for_memory()

    def resume_for_memory(self) -> None:
        """There is memory again."""
        self._find_growth().forget()
        self._go_on(WAITS_FOR_MEMORY)
        endpoint = self.endpoint
        if endpoint is not None:
            endpoint.on_memory_short(False)

    def resume_for_log(self) -> None:
        """The log has caught up."""
        self._find_growth().forget()
        self._go_on(WAITS_FOR_LOG)

    def abort(self) -> None:
        """Close at once: what was not sent is given up, and its memory with it."""
        if self.transport is not None:
            self.transport.abort()

    # ------------------------------------------------------------------- link

    def send(self, data: bytes | memoryview) -> None:
        transport = self.transport
        if transport is not None:
            transport.write(data)
            self.check_sent(transport, len(data))

    def send_parts(self, parts: list[bytes | memoryview]) -> None:
        transport = self.transport
        if transport is not None:
            transport.writelines(parts)
            size: i64 = 0
            for part in parts:
                size += len(part)
            self.check_sent(transport, size)

    def check_sent(self, transport: asyncio.Transport, size: i64) -> None:
        """One turn may hand much to very many: when memory runs out meanwhile, who does not read it goes at once."""
        memory = self.gate.memory
        memory.intake += size
        if memory.intake < memory.check_at:
            return
        memory.look()
        if memory.is_critical and transport.get_write_buffer_size() >= HEAVY_BYTES:
            memory.connections_dropped += 1
            endpoint = self.endpoint
            name = "" if endpoint is None else endpoint.describe()
            self.gate.observer.dropped(name, self.address, transport.get_write_buffer_size())
            transport.abort()

    def unsent_bytes(self) -> i64:
        transport = self.transport
        return 0 if transport is None else transport.get_write_buffer_size()

    def pause_reading(self) -> None:
        self._wait(WAITS_FOR_OUTLET)

    def resume_reading(self) -> None:
        self._go_on(WAITS_FOR_OUTLET)

    def pause_for(self, duration_ns: i64) -> None:
        if self._waits & WAITS_FOR_RATE == 0:
            self._wait(WAITS_FOR_RATE)
            self.gate.asker.later(duration_ns, self)

    def resume_after_pause(self) -> None:
        self._go_on(WAITS_FOR_RATE)

    def wait_for_store(self, waits: bool) -> None:
        if waits:
            self._wait(WAITS_FOR_STORE)
        else:
            self._go_on(WAITS_FOR_STORE)

    def wait_for_turn(self, waits: bool) -> None:
        if waits:
            self._wait(WAITS_FOR_TURN)
        else:
            self._go_on(WAITS_FOR_TURN)

    def charge(self, spent_ns: i64) -> None:
        self.spent_ns += spent_ns
        if self.transport is None:
            self.gate.note_ended(self)  # it may take a while to end

    def count_filters(self, count: i64) -> None:
        self.gate.filters.add(self.address, count)

    def ask(self, credentials: Credentials) -> None:
        endpoint = self.endpoint
        if endpoint is not None:
            self._wait(WAITS_FOR_ANSWER)
            if self._place is not None:
                self._place.lend()
            self.gate.asker.ask(credentials, self)

    def on_answer(self) -> Endpoint | None:
        """The verification is over; gives the endpoint if the connection is still there."""
        if self._place is not None:
            self._place.reclaim()
        self._go_on(WAITS_FOR_ANSWER)
        return self.endpoint

    def on_authenticated(self) -> None:
        self._be_known()
        endpoint = self.endpoint
        if endpoint is not None:
            self._arm(endpoint.next_deadline())

    def _be_known(self) -> None:
        if self._is_stranger:
            self._is_stranger = False
            self.gate.on_known(self.address, self)
            self.gate.strange.pop(self, None)
        place = self._place
        if place is not None:
            self._place = None
            place.release()

    def _arm(self, due_ns: i64) -> None:
        """See to it that `on_due` is called by then; an earlier entry will see to it too."""
        if due_ns and (self._due_ns == 0 or due_ns < self._due_ns):
            self._due_ns = due_ns
            self.gate.deadlines.add(self, due_ns)

    def close(self) -> None:
        transport = self.transport
        if transport is None and self._is_lost:  # nobody wants what it had sent any more
            self._forget_unread()
            self._waits = WAITS_FOR_SHARE
            self.gate.intake.wait(self, SMALL_BYTES + 1)
            self.gate.clock.read_ns()
        elif transport is not None and self._abort_ns == 0:
            self.abort_at(time.monotonic_ns() + LINGER_NS)
            transport.close()

    def abort_at(self, due_ns: i64) -> None:
        """Nothing more is expected of the peer: end the connection then, unless it has ended by itself."""
        self._abort_ns = due_ns
        self._arm(due_ns)

    def on_due(self, now_ns: i64) -> i64:
        """Do what is due; gives the next deadline, 0 for none."""
        if self._due_ns > now_ns:
            return 0  # an entry that a nearer one has replaced
        self._due_ns = min(self._look(now_ns), now_ns + LOOK_NS)
        return self._due_ns

    def _look(self, now_ns: i64) -> i64:
        transport = self.transport
        if transport is None:
            return 0
        if self._abort_ns:
            if now_ns >= self._abort_ns:
                transport.abort()
                return 0
            return self._abort_ns
        endpoint = self.endpoint
        if endpoint is None:
            return 0
        try:
            if self._waits:
                endpoint.touch(now_ns)  # it is we who do not listen
            endpoint.on_deadline(now_ns)
        except Exception as fault:  # noqa: BLE001 our bug ends this connection, not the broker
            self.on_fault(fault)
            return 0
        return self._abort_ns or endpoint.next_deadline()

    def on_fault(self, fault: Exception) -> None:
        """Our own bug: it ends this connection and nothing else."""
        self.gate.observer.failed("", self.address, fault)
        if self.transport is not None:
            self.transport.abort()

    def _wait(self, cause: i64) -> None:
        transport = self.transport
        if self._waits == 0 and transport is not None and not transport.is_closing():
            transport.pause_reading()
        self._waits |= cause

    def _go_on(self, cause: i64) -> None:
        if self._waits & cause == 0:
            return
        self._waits &= ~cause
        if self._waits == WAITS_FOR_SHARE:
            if self._unread is None:
                self._on_served()  # the last piece of what it had sent made it wait for something else
            else:
                self.gate.intake.wait(self, SMALL_BYTES + 1)
                self.gate.clock.read_ns()  # so that there is a turn to serve it in
            return
        transport = self.transport
        if self._waits == 0 and transport is not None and not transport.is_closing():
            if self.endpoint is not None:
                # what it has sent meanwhile is read behind this turn
                self.endpoint.touch(self.gate.clock.read_ns())
            transport.resume_reading()
