"""Places for TLS handshakes: bounded, fair between addresses, and not for those who stall."""

from __future__ import annotations

from millstream.runtime.transport.tls_admission import PATIENCE_NS, Candidate, TlsAdmission

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
    admission.withdraw(gone)
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


class CountedKey(str):
    """The name of an address that counts how often somebody looks for it."""

    __slots__ = ()
    looks = 0

    def __hash__(self) -> int:
        CountedKey.looks += 1
        return super().__hash__()


def test_no_call_looks_at_all_addresses_that_wait() -> None:
    admission = TlsAdmission(2)
    put(admission, Hello("192.0.2.1"), Hello("192.0.2.2"))
    while admission.take(NOW_NS) is not None:
        pass
    for number in range(1000):
        hello = Hello()
        hello.key = CountedKey(number)
        admission.put(hello)
    CountedKey.looks = 0
    assert admission.take(NOW_NS) is None
    stalled = admission.find_stalled(NOW_NS + PATIENCE_NS)
    assert stalled is not None
    admission.release(stalled)
    assert admission.find_stalled(NOW_NS + PATIENCE_NS) is None
    assert admission.take(NOW_NS + PATIENCE_NS) is not None
    assert CountedKey.looks < 10


def test_a_login_that_waits_to_be_checked_leaves_its_place_to_others() -> None:
    admission = TlsAdmission(2)
    logins = [Hello("192.0.2.1", is_stalling=False), Hello("192.0.2.2", is_stalling=False)]
    put(admission, *logins)
    while admission.take(NOW_NS) is not None:
        pass
    for login in logins:
        admission.release(login)
    newcomer = Hello("192.0.2.3")
    put(admission, newcomer)
    assert admission.take(NOW_NS) is newcomer
    for login in logins:
        admission.restore(login, NOW_NS)
    assert admission.held == 3, "who was refused and does not leave counts again"
    put(admission, Hello("192.0.2.4"))
    assert admission.take(NOW_NS) is None
    for login in logins:
        admission.release(login)
    assert admission.take(NOW_NS) is not None


def test_an_address_at_its_bound_waits_until_one_of_its_own_has_gone() -> None:
    admission = TlsAdmission(4)
    flood = [Hello("192.0.2.1") for _ in range(3)]
    put(admission, *flood)
    taken = [admission.take(NOW_NS) for _ in range(3)]
    assert taken == [flood[2], flood[1], None]
    admission.restore(flood[2], NOW_NS)  # told though it never lent its place
    assert admission.held == 2
    admission.release(flood[1])
    assert admission.take(NOW_NS) is flood[0]
    put(admission, flood[1])
    admission.withdraw(flood[1])
    assert not admission.has_waiting
