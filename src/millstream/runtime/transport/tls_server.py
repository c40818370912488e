"""TLS listeners: a connection gets its TLS state only when its ClientHello is there and a place is free.

Until then it is a socket with nothing read from it: the kernel keeps the bytes, and `SO_RCVLOWAT` keeps it from waking
the loop before they are all there. Handshakes are begun a few at a time, so that a flood of them leaves the loop to
everybody else.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final, cast

from millstream.broker.conditions import HANDSHAKES_FULL
from millstream.runtime.transport.acceptor import Acceptor
from millstream.runtime.transport.gate import Gate, HandshakePlace
from millstream.runtime.transport.link import TransportLink
from millstream.runtime.transport.tls_admission import Candidate, TlsAdmission

BEGUN_AT_ONCE: Final = 8
PACE_S: Final = 0.005  # between two rounds of handshakes: others have their turn
SWEEP_S: Final = 0.25
SWEPT_AT_ONCE: Final = 200
SHUTDOWN_S: Final = 5.0
RECORD_HEAD: Final = 5
HELLO_MIN: Final = RECORD_HEAD + 4
HELLO_MAX: Final = RECORD_HEAD + 16 * 1024
READS_PER_LOOK: Final = 16  # of those who wait; then it is looked how long the turn has taken
READS_NS: Final = 10_000_000
POSTPONED_NS: Final = 5_000_000  # a turn, for those that found no time in the turn they were met in
IDLE_WAKEUPS_MAX: Final = 8  # without a byte more: the kernel does not keep to SO_RCVLOWAT
_CLOSE_WAIT: Final = 8
_HANDSHAKE: Final = 22
_CLIENT_HELLO: Final = 1


class Arrival(Candidate):
    """An accepted socket that has no TLS state yet."""

    def __init__(self, server: TlsServer, link: socket.socket, address: str, accepted_ns: int) -> None:
        super().__init__(address)
        self.server = server
        self.socket = link
        self.address = address
        self.accepted_ns = accepted_ns
        self.wanted = HELLO_MIN
        self.idle_wakeups = 0
        self.is_read = False  # the loop watches its socket
        self.connection: TransportLink | None = None
        self.task: asyncio.Task[None] | None = None

    def give_way(self) -> None:
        """Others of less crowded addresses have no room."""
        self.server.drop(self)

    def waits_for_peer(self) -> bool:
        return self.connection is None or self.connection.waits_for_peer


class Place(HandshakePlace):
    def __init__(self, door: TlsDoor, arrival: Arrival) -> None:
        self._door = door
        self._arrival = arrival

    def release(self) -> None:
        self._door.on_released(self._arrival)

    def lend(self) -> None:
        self._door.on_released(self._arrival)

    def reclaim(self) -> None:
        self._door.admission.restore(self._arrival, time.monotonic_ns())


class TlsDoor:
    """What all TLS listeners share: those who have no TLS state yet, and the places for handshakes."""

    def __init__(
        self,
        gate: Gate,
        loop: asyncio.AbstractEventLoop,
        read_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.gate = gate
        self.loop = loop
        self._read_ns = read_ns
        self.admission = TlsAdmission(int(gate.limits.tls_handshakes_max))
        self._timeout_ns = int(gate.limits.handshake_timeout_ms) * 1_000_000
        self._arrivals: OrderedDict[Arrival, None] = OrderedDict()  # in the order they came
        self._postponed: deque[Arrival] = deque()
        self._turn_ns = 0
        self._turn_reads = 0
        self._is_late = False  # reads have taken their part of this turn
        self._pump: asyncio.TimerHandle | None = None
        self._sweep: asyncio.TimerHandle | None = None

    # ---------------------------------------------------------------- arriving

    def take_in(self, server: TlsServer, link: socket.socket, address: str) -> None:
        now_ns = self._read_ns()
        arrival = Arrival(server, link, address, now_ns)
        if not self.gate.admit(address, now_ns, arrival, arrival.give_way):
            link.close()
            return
        self._arrivals[arrival] = None
        try:
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, HELLO_MIN)
            self._watch(arrival)
        except OSError:  # gone already
            self.drop(arrival)
            return
        if self._sweep is None:
            self._sweep = self.loop.call_later(SWEEP_S, self._on_sweep)

    def _has_time(self) -> bool:
        """Very many may send, or leave, at once: those for whom a turn has no time wait for the next one."""
        turn_ns = int(self.gate.clock.read_ns())
        if turn_ns != self._turn_ns:
            self._turn_ns = turn_ns
            self._turn_reads = 0
            self._is_late = False
        self._turn_reads += 1
        if self._turn_reads % READS_PER_LOOK == 0:
            self._is_late = self._read_ns() - turn_ns >= READS_NS
        return not self._is_late

    def _on_readable(self, arrival: Arrival) -> None:
        if self._has_time():
            self._look(arrival)
            return
        self._stop_reading(arrival)
        self._postponed.append(arrival)
        if len(self._postponed) == 1:
            self.loop.call_soon(self._on_postponed)

    def _on_postponed(self) -> None:
        began_ns = self._read_ns()
        while self._postponed and self._read_ns() - began_ns < POSTPONED_NS:
            arrival = self._postponed.popleft()
            if arrival not in self._arrivals:
                continue  # dropped meanwhile
            try:
                self._watch(arrival)
                self._look(arrival)
            except OSError:  # the others have their turn whatever becomes of it
                self.drop(arrival)
        if self._postponed:
            self.loop.call_later(0, self._on_postponed)

    def _watch(self, arrival: Arrival) -> None:
        self.loop.add_reader(arrival.socket, self._on_readable, arrival)
        arrival.is_read = True

    def _look(self, arrival: Arrival) -> None:
        try:
            data = arrival.socket.recv(arrival.wanted, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.drop(arrival)
            return
        wanted = hello_length(data)
        if wanted == 0:  # no TLS, or it has gone
            self.drop(arrival)
        elif len(data) >= wanted:
            self._stop_reading(arrival)
            self.admission.put(arrival)
            self._start_pump(0)
        elif has_peer_closed(arrival.socket):
            self.drop(arrival)  # no more will come
        elif wanted == arrival.wanted and len(data) < wanted:
            arrival.idle_wakeups += 1
            if arrival.idle_wakeups >= IDLE_WAKEUPS_MAX:
                self.drop(arrival)
        else:
            arrival.wanted = wanted
            with contextlib.suppress(OSError):
                arrival.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, wanted)

    def _stop_reading(self, arrival: Arrival) -> None:
        if arrival.is_read:
            arrival.is_read = False
            self.loop.remove_reader(arrival.socket)

    def drop(self, arrival: Arrival) -> None:
        """It never got as far as a handshake."""
        if self._arrivals.pop(arrival, arrival) is arrival:
            return  # dropped or begun already
        self._stop_reading(arrival)
        self.admission.withdraw(arrival)
        arrival.socket.close()
        self.gate.abandoned.add(arrival.address)
        self.gate.on_known(arrival.address, arrival)
        self.gate.on_gone()

    def _on_sweep(self) -> None:
        self._sweep = None
        due_ns = self._read_ns() - self._timeout_ns
        delay_s = 0.0  # more of them may be due: others have their turn first
        for _ in range(SWEPT_AT_ONCE):
            oldest = next(iter(self._arrivals), None)
            if oldest is None or oldest.accepted_ns > due_ns:
                delay_s = SWEEP_S
                break
            if not oldest.is_read:
                self._tell(oldest, "the first that found none in time")
            self.drop(oldest)
        if self._arrivals:
            self._sweep = self.loop.call_later(delay_s, self._on_sweep)

    # -------------------------------------------------------------- handshakes

    def _start_pump(self, delay_s: float) -> None:
        if self._pump is None:
            self._pump = self.loop.call_later(delay_s, self._on_pump)

    def _on_pump(self) -> None:
        self._pump = None
        admission = self.admission
        for _ in range(BEGUN_AT_ONCE):
            now_ns = self._read_ns()
            taken = admission.take(now_ns)
            if taken is None:
                stalled = admission.find_stalled(now_ns)
                if stalled is None:
                    break
                assert isinstance(stalled, Arrival)
                self._give_up(stalled)
                continue
            assert isinstance(taken, Arrival)
            self._begin(taken)
        if admission.has_waiting:
            self._start_pump(PACE_S)

    def _begin(self, arrival: Arrival) -> None:
        self._arrivals.pop(arrival, None)
        connection = arrival.server.make_connection()
        self.gate.on_progress(arrival.address, arrival)
        connection.take_over(arrival.address, arrival.accepted_ns, Place(self, arrival))
        arrival.connection = connection
        arrival.task = self.loop.create_task(self._shake_hands(arrival, connection))

    async def _shake_hands(self, arrival: Arrival, connection: TransportLink) -> None:
        left_ns = arrival.accepted_ns + self._timeout_ns - self._read_ns()
        protocol = cast("asyncio.Protocol", connection)  # duck-typed, so that it can be compiled
        try:
            arrival.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
            await self.loop.connect_accepted_socket(
                lambda: protocol,
                arrival.socket,
                ssl=arrival.server.context,
                ssl_handshake_timeout=max(left_ns / 1e9, 0.001),
                ssl_shutdown_timeout=SHUTDOWN_S,
            )
        except (OSError, asyncio.CancelledError):  # of TLS, of the network, out of time, given up
            connection.release()
            arrival.socket.close()

    def _give_up(self, arrival: Arrival) -> None:
        """Others wait for a place, and it does nothing with its own."""
        self._tell(arrival, "the first that stalled")
        self.admission.release(arrival)
        connection = arrival.connection
        if connection is not None and connection.transport is not None:
            connection.transport.abort()
        elif arrival.task is not None:
            arrival.task.cancel()

    def _tell(self, arrival: Arrival, words: str) -> None:
        places = (
            f"mqtt.max_tls_handshakes = {self.gate.limits.tls_handshakes_max}, half of it for one address"
        )
        cause = f"TLS handshakes wait for a place ({places}); {words} came from {arrival.address}"
        self.gate.health.report(HANDSHAKES_FULL, cause)

    def on_released(self, arrival: Arrival) -> None:
        self.admission.release(arrival)
        if self.admission.has_waiting:
            self._start_pump(0)

    def close(self, server: TlsServer) -> None:
        for arrival in [arrival for arrival in self._arrivals if arrival.server is server]:
            self.drop(arrival)
        for holder in self.admission.holders():
            assert isinstance(holder, Arrival)
            if holder.server is server and holder.task is not None:
                holder.task.cancel()  # changes nothing for one that is past its handshake


class TlsServer(Acceptor):
    def __init__(
        self,
        door: TlsDoor,
        context: ssl.SSLContext,
        make_connection: Callable[[], TransportLink],
    ) -> None:
        super().__init__(door.gate, door.loop, self._take_in)
        self._door = door
        self.context = context
        self.make_connection = make_connection

    def drop(self, arrival: Arrival) -> None:
        self._door.drop(arrival)

    def _take_in(self, link: socket.socket, address: str) -> None:
        self._door.take_in(self, link, address)

    def close(self) -> None:
        super().close()
        self._door.close(self)


def has_peer_closed(link: socket.socket) -> bool:
    """Whether the peer has said that it sends no more; known without reading what came before it."""
    state = link.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)
    return state[0] == _CLOSE_WAIT


def hello_length(data: bytes) -> int:
    """Bytes of the record that the ClientHello begins with; what is known so far is enough to ask for more. 0: not TLS."""
    if not data or data[0] != _HANDSHAKE:
        return 0
    if len(data) < HELLO_MIN:
        return HELLO_MIN
    length = RECORD_HEAD + int.from_bytes(data[3:5], "big")
    if data[1] != 3 or data[RECORD_HEAD] != _CLIENT_HELLO or not HELLO_MIN <= length <= HELLO_MAX:
        return 0
    return length
