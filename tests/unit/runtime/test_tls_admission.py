"""Places for TLS handshakes: bounded, fair between addresses, and not for those who stall."""

from __future__ import annotations

from millstream.runtime.tls_admission import PATIENCE_NS, Candidate, TlsAdmission
from millstream.runtime.tls_server import HELLO_MAX, HELLO_MIN, hello_length

NOW_NS = 10**12


class Hello(Candidate):
    def __init__(self, address: str = "192.0.2.1", *, is_stalling: bool = True) -> None:
        super().__init__(address)
        self.is_stalling = is_stalling

    def waits_for_peer(self) -> bool:
        return self.is_stalling


def put(admission: TlsAdmission, *hellos: Hello) -> None:
    for hello in hellos:
        admission.put(hello)


def test_places_are_bounded_in_all_and_by_address() -> None:
    admission = TlsAdmission(4)
    many = [Hello() for _ in range(5)]
    others = [Hello(f"192.0.2.{number}") for number in range(10, 15)]
    put(admission, *many, *others)
    taken = [admission.take(NOW_NS) for _ in range(6)]
    assert taken[4:] == [None, None]
    assert sum(hello in many for hello in taken) <= 2
    assert admission.held == 4
    first = taken[0]
    assert first is not None
    admission.release(first)
    admission.release(first)
    assert admission.held == 3
    assert admission.take(NOW_NS) is not None


def test_addresses_take_turns_and_the_newest_of_one_goes_first() -> None:
    admission = TlsAdmission(100)
    old, new = Hello("192.0.2.1"), Hello("192.0.2.1")
    other = Hello("192.0.2.2")
    put(admission, old, new, other)
    assert [admission.take(NOW_NS) for _ in range(4)] == [new, other, old, None]
    assert not admission.has_waiting


def test_one_that_left_while_it_waited_gets_no_place() -> None:
    admission = TlsAdmission(100)
    gone, here = Hello(), Hello()
    put(admission, here, gone)
    gone.is_gone = True
    assert admission.take(NOW_NS) is here
    assert admission.take(NOW_NS) is None


def test_who_stalls_loses_the_place_when_somebody_waits() -> None:
    admission = TlsAdmission(2)
    stalling, busy = Hello("192.0.2.1"), Hello("192.0.2.2", is_stalling=False)
    put(admission, busy, stalling)
    while admission.take(NOW_NS) is not None:
        pass
    assert admission.find_stalled(NOW_NS + 10 * PATIENCE_NS) is None, "nobody waits"
    put(admission, Hello("192.0.2.3"))
    assert admission.find_stalled(NOW_NS + PATIENCE_NS - 1) is None
    assert admission.find_stalled(NOW_NS + PATIENCE_NS) is stalling
    admission.release(stalling)
    assert admission.find_stalled(NOW_NS + PATIENCE_NS) is None, "there is a place now"
    assert admission.take(NOW_NS + PATIENCE_NS) is not None


def test_an_address_at_its_bound_loses_its_own_stalled_ones() -> None:
    admission = TlsAdmission(4)
    flood = [Hello("192.0.2.1") for _ in range(3)]
    other = Hello("192.0.2.2")
    put(admission, other, *flood)
    while admission.take(NOW_NS) is not None:
        pass
    assert admission.held == 3
    stalled = admission.find_stalled(NOW_NS + PATIENCE_NS)
    assert stalled in flood


def test_the_length_of_a_hello_is_known_from_its_first_bytes() -> None:
    head = bytes([22, 3, 1, 2, 0, 1, 0, 1, 252])
    assert hello_length(head) == 5 + 512
    assert hello_length(head[:1]) == HELLO_MIN
    assert hello_length(head[:8]) == HELLO_MIN
    largest = bytes([22, 3, 1]) + (HELLO_MAX - 5).to_bytes(2, "big") + bytes([1, 0, 0, 0])
    assert hello_length(largest) == HELLO_MAX
    for other in (
        b"",
        b"\x10\x20\x00\x04MQTT\x04",
        b"GET / HTTP/1.1",
        bytes([22, 2, 1, 2, 0, 1, 0, 1, 252]),  # no version of TLS
        bytes([22, 3, 1, 2, 0, 2, 0, 1, 252]),  # no ClientHello
        bytes([22, 3, 1, 0, 0, 1, 0, 0, 0]),
        bytes([22, 3, 1, 255, 255, 1, 0, 0, 0]),
    ):
        assert hello_length(other) == 0, other
