"""Whose turn it is to be served: large reads in slices and by turns, small ones ahead of them."""

from __future__ import annotations

from fake_transport import FakeTransport, GateWorld

from millstream.broker.line import Ending
from millstream.protocols.endpoint import Endpoint, Link
from millstream.runtime.transport.gate import Gate, Reception
from millstream.runtime.transport.intake import (
    HELD_NS,
    PIECE_MAX,
    PIECE_MIN,
    SHARE_NS,
    UNREAD_LOW,
    Intake,
    next_piece,
)
from millstream.runtime.transport.tcp import TcpConnection
from millstream.security.authentication import Decision

LARGE = 200_000


class SlowEndpoint(Endpoint):
    """Takes `byte_ns` for each byte it is given, by the clock of the test."""

    def __init__(self, world: IntakeWorld, link: Link) -> None:
        super().__init__()
        self.world = world
        self.link = link
        self.byte_ns = 100
        self.got = b""
        self.pauses = False  # it stops reading after each piece
        self.pauses_at = -1  # or when it has got so much
        self.fails = False
        self.is_lost = False
        self.end_ns = 0

    def receive_data(self, data: bytes, now_ns: int) -> None:
        if self.fails:
            raise RuntimeError("ours")
        self.world.time_ns += self.byte_ns * len(data)
        self.world.order.append((self, len(data)))
        self.got += data
        if self.pauses or len(self.got) == self.pauses_at:
            self.link.pause_reading()

    def next_deadline(self) -> int:
        return 0

    def on_deadline(self, now_ns: int) -> None: ...

    def on_decision(self, decision: Decision, now_ns: int) -> None: ...

    def on_lagging(self) -> None: ...

    def on_caught_up(self) -> None: ...

    def on_lost(self, now_ns: int) -> None:
        self.is_lost = True
        self.world.time_ns += self.end_ns

    def unsent_bytes(self) -> int:
        return 0

    def end(self, ending: Ending) -> None: ...

    def resume(self) -> None:
        self.link.resume_reading()

    def on_durable(self) -> None: ...

    def flush(self) -> None: ...

    def on_flush_failed(self, error: Exception) -> None:
        raise error


class SlowReception(Reception):
    def __init__(self, world: IntakeWorld) -> None:
        self._world = world

    def make_endpoint(self, link: Link, now_ns: int) -> Endpoint:
        return SlowEndpoint(self._world, link)


class Client:
    def __init__(self, world: IntakeWorld) -> None:
        self.world = world
        self.transport = FakeTransport()
        self.link = TcpConnection(world.gate, SlowReception(world))
        self.link.connection_made(self.transport)
        assert isinstance(self.link.endpoint, SlowEndpoint)
        self.endpoint = self.link.endpoint

    def send(self, data: bytes) -> None:
        assert self.transport.is_reading_now
        self.link.data_received(data)


class IntakeWorld(GateWorld):
    def __init__(self) -> None:
        super().__init__()
        self.time_ns = 1
        self.order: list[tuple[SlowEndpoint, int]] = []
        self.intake = Intake(0, self.read_ns)
        self.gate = Gate(self.context, self.deadlines, self.asker, self.limits, self.clock, self.intake)
        self.begin_turn()

    def read_ns(self) -> int:
        return self.time_ns

    def begin_turn(self) -> None:
        """The first read of a turn reads the clock; here it is the test's."""
        self.clock._now_ns = self.time_ns

    def end_turn(self) -> bool:
        is_more = self.intake.work_off()
        self.begin_turn()
        return is_more

    def served(self) -> list[SlowEndpoint]:
        """Who was served, in order, each run of pieces once."""
        found: list[SlowEndpoint] = []
        for endpoint, _ in self.order:
            if not found or found[-1] is not endpoint:
                found.append(endpoint)
        return found


def test_a_large_read_is_handed_on_in_pieces_for_its_share_and_the_rest_waits() -> None:
    world = IntakeWorld()
    client = Client(world)
    data = bytes(range(256)) * 800
    client.send(data)
    assert len(client.endpoint.got) < len(data) // 2
    assert world.time_ns < 2 * SHARE_NS
    assert not client.transport.is_reading_now
    while world.end_turn():
        pass
    assert client.endpoint.got == data
    assert client.transport.is_reading_now
    assert world.intake.unread == 0


def test_no_turn_takes_longer_than_the_shares_that_fit_in_it() -> None:
    world = IntakeWorld()
    clients = [Client(world) for _ in range(20)]
    began_ns = world.time_ns
    for client in clients:
        client.send(bytes(LARGE))
    assert world.time_ns - began_ns <= 8_000_000
    is_more = True
    while is_more:
        began_ns = world.time_ns
        is_more = world.end_turn()
        assert world.time_ns - began_ns <= 10_000_000
    assert all(len(client.endpoint.got) == LARGE for client in clients)


def test_large_reads_are_served_by_turns() -> None:
    world = IntakeWorld()
    clients = [Client(world) for _ in range(4)]
    for client in clients:
        client.send(bytes(LARGE))
    while world.end_turn():
        pass
    endpoints = [client.endpoint for client in clients]
    assert [endpoints.index(endpoint) for endpoint in world.served()][:8] == [0, 1, 2, 3, 0, 1, 2, 3]


def test_a_connection_that_sends_much_does_not_get_ahead_of_one_that_waits() -> None:
    world = IntakeWorld()
    first, second = Client(world), Client(world)
    first.send(bytes(LARGE))
    second.send(bytes(LARGE))
    before = len(second.endpoint.got)
    world.end_turn()
    assert len(second.endpoint.got) > before
    assert not first.transport.is_reading_now


def test_a_small_read_goes_ahead_of_large_ones_that_wait() -> None:
    world = IntakeWorld()
    clients = [Client(world) for _ in range(20)]
    for client in clients:
        client.send(bytes(LARGE))
    newcomer = Client(world)
    newcomer.send(b"hello")
    assert newcomer.endpoint.got == b"hello"


def test_very_many_small_reads_wait_for_the_next_turn_and_go_first_in_it() -> None:
    world = IntakeWorld()
    flood = Client(world)
    flood.send(bytes(LARGE))
    small = [Client(world) for _ in range(30)]
    for client in small:
        client.endpoint.byte_ns = 1000
        client.send(bytes(4000))
    waiting = [client for client in small if not client.endpoint.got]
    assert 0 < len(waiting) < 30
    assert not waiting[0].transport.is_reading_now
    world.order.clear()
    world.end_turn()
    assert world.served()[0] is waiting[0].endpoint
    while world.end_turn():
        pass
    assert all(len(client.endpoint.got) == 4000 for client in small)


def test_nothing_is_handed_on_while_the_endpoint_waits_for_something_else() -> None:
    world = IntakeWorld()
    client = Client(world)
    client.endpoint.pauses = True
    client.send(bytes(LARGE))
    taken = len(client.endpoint.got)
    assert taken < LARGE
    while world.end_turn():
        pass
    assert len(client.endpoint.got) == taken
    client.endpoint.pauses = False
    client.endpoint.resume()
    assert not client.transport.is_reading_now
    while world.end_turn():
        pass
    assert len(client.endpoint.got) == LARGE
    assert client.transport.is_reading_now


def test_a_connection_that_has_to_wait_after_the_last_of_a_read_is_read_again() -> None:
    world = IntakeWorld()
    client = Client(world)
    client.endpoint.pauses_at = LARGE
    client.send(bytes(LARGE))
    while world.end_turn():
        pass
    assert not client.transport.is_reading_now
    client.endpoint.resume()
    while world.end_turn():
        pass
    assert client.transport.is_reading_now


def test_very_many_lost_connections_end_by_turns() -> None:
    world = IntakeWorld()
    clients = [Client(world) for _ in range(300)]
    for client in clients:
        client.endpoint.end_ns = 100_000
    began_ns = world.time_ns
    for client in clients:
        client.link.connection_lost(None)
    assert world.time_ns - began_ns < 10_000_000
    lost = [client for client in clients if client.endpoint.is_lost]
    assert 0 < len(lost) < 300
    is_more = True
    while is_more:
        began_ns = world.time_ns
        is_more = world.end_turn()
        assert world.time_ns - began_ns < 10_000_000
    assert all(client.endpoint.is_lost for client in clients)


def test_connections_that_take_long_to_end_do_not_end_in_one_turn() -> None:
    """Each may leave a will to very many."""
    world = IntakeWorld()
    clients = [Client(world) for _ in range(10)]
    for client in clients:
        client.endpoint.end_ns = 100_000_000
        client.link.connection_lost(None)
    assert sum(client.endpoint.is_lost for client in clients) == 1
    for ended in range(2, 11):
        world.end_turn()
        assert sum(client.endpoint.is_lost for client in clients) == ended


def test_a_lost_connection_that_is_told_to_wait_before_its_turn_to_end_is_ended() -> None:
    world = IntakeWorld()
    clients = [Client(world) for _ in range(300)]
    for client in clients:
        client.endpoint.end_ns = 100_000
    for client in clients:
        client.link.connection_lost(None)
    waiting = [client for client in clients if not client.endpoint.is_lost]
    for client in waiting:
        client.link.pause_reading()
    while world.end_turn():
        pass
    for client in waiting:
        client.link.resume_reading()
    while world.end_turn():
        pass
    assert all(client.endpoint.is_lost for client in clients)


def test_a_lost_connection_that_is_closed_while_it_waits_leaves_nothing_behind() -> None:
    world = IntakeWorld()
    client = Client(world)
    client.send(bytes(LARGE))
    client.link.connection_lost(None)
    client.endpoint.pauses = True  # what it had sent is not taken to its end
    while world.end_turn():
        pass
    client.link.close()
    while world.end_turn():
        pass
    assert client.endpoint.is_lost
    assert world.intake.unread == 0


def test_who_was_served_is_read_while_what_others_sent_waits_for_something_else() -> None:
    world = IntakeWorld()
    client = Client(world)
    client.send(bytes(LARGE))
    world.intake.unread += UNREAD_LOW  # of connections that wait for memory
    while world.end_turn():
        pass
    assert client.transport.is_reading_now


def test_one_that_was_read_again_before_its_time_came_is_not_read_on_while_it_waits() -> None:
    world = IntakeWorld()
    client, other = Client(world), Client(world)
    client.send(bytes(LARGE))
    other.send(bytes(20 * LARGE))
    world.intake.unread += UNREAD_LOW
    while len(client.endpoint.got) < LARGE:
        world.end_turn()
    assert not client.transport.is_reading_now, "others are served first"
    client.link.pause_reading()  # its endpoint has a cause too
    world.intake.unread -= UNREAD_LOW
    client.link.resume_reading()
    client.send(bytes(LARGE))
    world.end_turn()
    assert len(client.endpoint.got) < 2 * LARGE
    assert not client.transport.is_reading_now
    while world.end_turn():
        pass
    assert client.transport.is_reading_now
    assert len(client.endpoint.got) == 2 * LARGE


def test_what_comes_although_reading_is_paused_keeps_its_place() -> None:
    world = IntakeWorld()
    client = Client(world)
    client.send(b"a" * LARGE)
    client.link.data_received(b"b")
    while world.end_turn():
        pass
    assert client.endpoint.got == b"a" * LARGE + b"b"


def test_a_lost_connection_ends_behind_what_it_had_sent() -> None:
    world = IntakeWorld()
    client = Client(world)
    client.send(bytes(LARGE))
    client.link.connection_lost(None)
    assert not client.endpoint.is_lost
    while world.end_turn():
        pass
    assert len(client.endpoint.got) == LARGE
    assert client.endpoint.is_lost
    assert world.intake.unread == 0


def test_what_a_lost_connection_could_not_be_served_for_another_reason_is_forgotten() -> None:
    world = IntakeWorld()
    client = Client(world)
    client.endpoint.pauses = True
    client.send(bytes(LARGE))
    client.link.connection_lost(None)
    assert client.endpoint.is_lost
    assert world.intake.unread == 0
    assert not world.end_turn()


def test_a_fault_ends_its_connection_and_the_others_are_served() -> None:
    world = IntakeWorld()
    bad, good = Client(world), Client(world)
    bad.send(bytes(LARGE))
    good.send(bytes(LARGE))
    bad.endpoint.fails = True
    while world.end_turn():
        pass
    assert bad.transport.is_aborted
    assert len(good.endpoint.got) == LARGE
    assert world.intake.unread == 0


def test_with_very_much_unread_who_was_served_is_not_read_before_others_are() -> None:
    world = IntakeWorld()
    clients = [Client(world) for _ in range(100)]
    for client in clients:
        client.endpoint.byte_ns = 1
        client.send(bytes(LARGE))
    done = [client for client in clients if len(client.endpoint.got) == LARGE]
    world.intake.unread += UNREAD_LOW  # as if there were that much more
    world.end_turn()
    served = [c for c in clients if len(c.endpoint.got) == LARGE and c not in done]
    assert served
    assert not any(client.transport.is_reading_now for client in served)
    world.intake.unread -= UNREAD_LOW
    while world.end_turn():
        pass
    assert all(client.transport.is_reading_now for client in clients)


def test_there_is_a_bound_to_what_is_kept() -> None:
    world = IntakeWorld()
    Client(world).send(bytes(LARGE))
    world.intake.unread += 64 * 1024 * 1024
    client = Client(world)
    client.send(bytes(LARGE))
    assert len(client.endpoint.got) == LARGE


def test_a_piece_is_as_large_as_the_connections_input_is_cheap() -> None:
    assert next_piece(16 * 1024, 16 * 1024, SHARE_NS) == 16 * 1024
    assert next_piece(16 * 1024, 16 * 1024, 2 * SHARE_NS) == 8 * 1024
    assert next_piece(16 * 1024, 16 * 1024, 1) == 64 * 1024
    assert next_piece(PIECE_MAX, PIECE_MAX, 0) == PIECE_MAX
    assert next_piece(1024, 1024, 1000 * SHARE_NS) == PIECE_MIN


def test_a_short_piece_says_as_much_less_about_the_next() -> None:
    piece = 64 * 1024
    at_the_same_rate = SHARE_NS * 100 // piece
    assert abs(next_piece(piece, 100, at_the_same_rate) - piece) < 10
    assert piece < next_piece(piece, 100, 0) <= piece + 300, "four times as much, by 100 of 64 Ki"
    assert piece - 100 <= next_piece(piece, 100, SHARE_NS - 1) < piece
    assert next_piece(piece, 100, SHARE_NS) == PIECE_MIN, "it took a share by itself"


def test_the_end_of_a_read_does_not_make_the_pieces_of_the_next_one_small() -> None:
    world = IntakeWorld()
    client = Client(world)
    client.endpoint.byte_ns = 20
    for _ in range(3):
        client.send(bytes(LARGE + 1))
        while world.end_turn():
            pass
    world.order.clear()
    client.send(bytes(LARGE + 1))
    share = SHARE_NS // 20
    assert share // 2 < world.order[0][1] <= share


def test_those_that_wait_are_served_in_order_however_many_have_left() -> None:
    world = IntakeWorld()
    first = Client(world)
    first.send(bytes(LARGE))
    clients = [Client(world) for _ in range(50)]
    for client in clients:
        client.send(bytes(LARGE))
    for client in clients[:40]:
        world.intake.forget(client.link)
    world.order.clear()
    while world.end_turn():
        pass
    endpoints = [client.endpoint for client in [first, *clients[40:]]]
    assert world.served()[:22] == endpoints * 2


def test_a_connection_whose_last_piece_made_it_wait_is_read_again() -> None:
    world = IntakeWorld()
    client = Client(world)
    client.send(bytes(LARGE))
    client.endpoint.pauses = True
    while len(client.endpoint.got) < LARGE:
        world.end_turn()
        client.link.resume_reading()
    while world.end_turn():
        pass
    assert client.transport.is_reading_now


def test_what_waits_for_a_share_gets_a_turn_though_nothing_else_happens() -> None:
    world = IntakeWorld()
    client = Client(world)
    client.endpoint.pauses = True
    client.send(bytes(LARGE))
    world.clock.forget()
    client.link.resume_reading()
    assert world.clock._now_ns > 0


def test_what_still_comes_while_a_connection_has_to_wait_is_kept_for_later() -> None:
    """A transport with layers, such as TLS, has some in hand when it is told to pause."""
    world = IntakeWorld()
    client = Client(world)
    client.link.wait_for_turn(True)
    for number in range(100):
        client.link.data_received(b"%02d" % number)
        world.end_turn()
    assert client.endpoint.got == b""
    assert world.intake.unread == 200
    client.link.wait_for_turn(False)
    while world.end_turn():
        pass
    assert client.endpoint.got == b"".join([b"%02d" % number for number in range(100)])
    assert client.transport.is_reading_now
    assert world.intake.unread == 0


def test_while_output_is_behind_large_reads_wait_and_small_ones_do_not() -> None:
    world = IntakeWorld()
    flood, small = Client(world), Client(world)
    world.intake.work_off(is_output_behind=True)
    world.begin_turn()
    flood.send(bytes(LARGE))
    small.send(b"hello")
    assert world.intake.work_off(is_output_behind=True)  # there is more: once the output is written
    assert (len(flood.endpoint.got), small.endpoint.got) == (0, b"hello")
    while world.end_turn():
        pass
    assert len(flood.endpoint.got) == LARGE


def test_output_that_is_always_behind_keeps_no_large_read_for_ever() -> None:
    world = IntakeWorld()
    flood, leaver = Client(world), Client(world)
    world.intake.work_off(is_output_behind=True)
    world.begin_turn()
    flood.send(bytes(LARGE))
    leaver.send(bytes(LARGE))
    leaver.link.connection_lost(None)
    began_ns = world.time_ns
    shares: dict[int, None] = {}
    while world.intake.work_off(is_output_behind=True):
        shares[len(flood.endpoint.got)] = None
        world.time_ns += 20_000_000  # that the output of the turn took
        world.begin_turn()
        assert world.time_ns - began_ns < 200 * HELD_NS, "it is never served"
    assert len(flood.endpoint.got) == len(leaver.endpoint.got) == LARGE
    assert leaver.endpoint.is_lost
    assert world.time_ns - began_ns >= (len(shares) - 1) * HELD_NS, "output goes first"
