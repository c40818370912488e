"""Which addresses keep the reader busy."""

from __future__ import annotations

from millstream.reader.callers import QUIET_S, REFUSED_PER_S, REQUESTS_PER_S, UNFINISHED, Callers


class World:
    def __init__(self) -> None:
        self.now_s = 100.0
        self.told: list[tuple[str, str]] = []
        self.callers = Callers(lambda address, text: self.told.append((address, text)), lambda: self.now_s)

    def look(self, unfinished: dict[str, int] | None = None) -> list[tuple[str, str]]:
        self.now_s += 1
        self.told = []
        self.callers.look(unfinished or {})
        return self.told


def test_an_address_with_very_many_requests_is_told() -> None:
    world = World()
    for _ in range(REQUESTS_PER_S - 1):
        world.callers.on_request("192.0.2.1")
    assert world.look() == []
    for _ in range(REQUESTS_PER_S):
        world.callers.on_request("192.0.2.1")
    world.callers.on_request("192.0.2.2")
    assert world.look() == [("192.0.2.1", "sends 500 requests a second to the reader")]


def test_an_address_that_is_refused_again_and_again_is_told() -> None:
    world = World()
    for _ in range(REFUSED_PER_S):
        world.callers.on_refused("192.0.2.1")
    assert world.look() == [("192.0.2.1", "is refused 20 times a second by the reader")]


def test_an_address_with_many_unfinished_heads_is_told() -> None:
    world = World()
    assert world.look({"192.0.2.1": UNFINISHED - 1}) == []
    told = world.look({"192.0.2.1": UNFINISHED, "192.0.2.2": 1})
    assert told == [("192.0.2.1", "has 64 requests under way at the reader whose heads do not end")]


def test_an_address_is_told_once_in_a_while() -> None:
    world = World()
    many = {"192.0.2.1": UNFINISHED}
    assert len(world.look(many)) == 1
    assert world.look(many) == []
    world.now_s += QUIET_S
    assert len(world.look(many)) == 1
