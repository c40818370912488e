"""Logins that wait: addresses and names take turns, promising ones go first, refusals are told in order."""

from __future__ import annotations

import gc

from millstream.model.errors import Reason
from millstream.security.authentication import Credentials, Decision, Verdict
from millstream.security.login_queue import LoginQueue, Ticket

WRONG = Decision(Verdict.DENIED, None, Reason.BAD_CREDENTIALS, "")


def login(name: str, address: str = "10.0.0.1") -> Credentials:
    return Credentials("c", name, b"x", None, address)


def put(queue: LoginQueue, name: str, address: str = "10.0.0.1", *, preferred: bool = False) -> Ticket:
    ticket = queue.put(login(name, address), preferred)
    assert ticket is not None
    return ticket


def take_names(queue: LoginQueue) -> list[str]:
    names = []
    while (ticket := queue.take()) is not None:
        names.append(ticket.credentials.username or "")
    return names


def test_addresses_take_turns_however_many_one_sends() -> None:
    queue = LoginQueue()
    for number in range(5):
        put(queue, f"a{number}", "10.0.0.1")
    put(queue, "b", "10.0.0.2")
    put(queue, "c", "10.0.0.3")
    assert take_names(queue) == ["a0", "b", "c", "a1", "a2", "a3", "a4"]


def test_names_of_one_address_take_turns() -> None:
    queue = LoginQueue()
    for name in ("a", "a", "a", "b"):
        put(queue, name)
    assert take_names(queue) == ["a", "b", "a", "a"]


def test_promising_logins_take_every_second_turn() -> None:
    queue = LoginQueue()
    for number in range(3):
        put(queue, f"x{number}", f"10.0.1.{number}")
    for number in range(3):
        put(queue, f"p{number}", f"10.0.2.{number}", preferred=True)
    assert take_names(queue) == ["p0", "x0", "p1", "x1", "p2", "x2"]
    put(queue, "p", preferred=True)
    put(queue, "q", preferred=True)
    assert take_names(queue) == ["p", "q"]


def test_refusals_are_told_in_the_order_the_logins_came() -> None:
    queue = LoginQueue()
    first, second, third = (put(queue, name) for name in "abc")
    queue.on_denied(third, WRONG)
    queue.on_denied(second, WRONG)
    assert queue.take_answered() == []
    queue.on_denied(first, WRONG)
    assert queue.take_answered() == [first, second, third]
    assert queue.waiting == 0


def test_a_success_and_one_that_left_hold_nobody_up() -> None:
    queue = LoginQueue()
    first, second, third = (put(queue, name) for name in "abc")
    queue.on_denied(third, WRONG)
    queue.on_allowed(first)
    assert queue.take_answered() == []
    queue.cancel(second)
    assert queue.take_answered() == [third]
    assert queue.take() is None, "who left is not checked"


def kept_passwords(queue: LoginQueue) -> set[bytes]:
    """Passwords of all logins that can be reached from the queue."""
    seen: dict[int, object] = {}
    unseen: list[object] = [queue]
    while unseen:
        found = unseen.pop()
        if id(found) not in seen and not isinstance(found, type):
            seen[id(found)] = found
            unseen.extend(gc.get_referents(found))
    return {item.password for item in seen.values() if isinstance(item, Credentials) and item.password}


def test_a_login_that_left_is_not_kept_with_its_password() -> None:
    queue = LoginQueue()
    tickets = []
    for number in range(100):
        credentials = Credentials("c", f"u{number % 3}", b"secret-%d" % number, None, "10.0.0.1")
        ticket = queue.put(credentials, number % 2 == 0)
        assert ticket is not None
        tickets.append(ticket)
    assert len(kept_passwords(queue)) == 100
    for ticket in tickets[:99]:
        queue.cancel(ticket)
    assert kept_passwords(queue) == {b"secret-99"}
    assert queue.take() is tickets[99]
    assert queue.take() is None


def test_one_that_leaves_after_it_was_taken_takes_nobodys_turn() -> None:
    queue = LoginQueue()
    put(queue, "a")
    put(queue, "a")
    put(queue, "b")
    taken = queue.take()
    assert taken is not None
    queue.cancel(taken)
    assert take_names(queue) == ["b", "a"]


def test_the_queue_is_bounded_in_all_and_by_address() -> None:
    queue = LoginQueue(waiting_max=5, waiting_per_address_max=3)
    for name in "abc":
        put(queue, name)
    assert queue.put(login("d"), False) is None
    put(queue, "e", "10.0.0.2")
    put(queue, "f", "10.0.0.2")
    assert queue.put(login("g", "10.0.0.3"), False) is None
    ticket = queue.take()
    assert ticket is not None
    queue.cancel(ticket)
    put(queue, "h")
    assert queue.put(login("i", "10.0.0.3"), True) is None


def test_a_refusal_names_the_bound_that_was_met_with_its_key() -> None:
    queue = LoginQueue(waiting_max=3, waiting_per_address_max=2)
    assert queue.find_refusal("10.0.0.1") == ""
    put(queue, "a")
    put(queue, "b")
    assert queue.find_refusal("10.0.0.2") == ""
    own = "2 logins from 10.0.0.1 wait to be checked (auth.max_waiting_logins_per_address = 2)"
    assert queue.find_refusal("10.0.0.1") == own
    put(queue, "c", "10.0.0.2")
    assert queue.find_refusal("10.0.0.3") == "3 logins wait to be checked (auth.max_waiting_logins = 3)"


def test_ipv6_neighbours_share_a_turn() -> None:
    queue = LoginQueue()
    for number in range(3):
        put(queue, f"a{number}", f"2001:db8::{number}")
    put(queue, "b", "2001:db8:1::1")
    assert take_names(queue) == ["a0", "b", "a1", "a2"]
