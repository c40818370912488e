"""Policies that are replaced while the broker runs: in which order, in how many turns of the loop, and how it stops."""

from __future__ import annotations

import asyncio

from fakes import World

from millstream.app.live_policies import STEP, LivePolicies
from millstream.config.load import config_of
from millstream.config.schema import Config
from millstream.protocols.amqp091.queue_arguments import make_definition

MANY = 2 * STEP + 50


def config(**policies: object) -> Config:
    return config_of({"amqp": {"policies": policies}, "queues": {"own": {"kind": "work"}}})


def policy(length: int, pattern: str = ".") -> dict[str, object]:
    return {"pattern": pattern, "max_length": length}


class Running:
    """A broker with many queues, which began without policies."""

    def __init__(self, count: int = MANY) -> None:
        world = World()
        self.catalog = world.account.queues.catalog
        for number in range(count):
            self.declare(f"q{number}")
        self.live = LivePolicies(config(), world.broker)

    def declare(self, name: str) -> None:
        self.catalog.declare(name, make_definition({}, False, False, False))

    def lengths(self) -> dict[int, int]:
        """How many queues have which bound."""
        found = [int(queue.definition.length_max) for queue in self.catalog.queues.values()]
        return {length: found.count(length) for length in set(found)}


async def settle() -> None:
    await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))


async def test_others_have_their_turn_while_very_many_queues_change() -> None:
    running = Running()
    running.live.replace(config(p=policy(5)))
    seen = []
    for _ in range(4):
        await asyncio.sleep(0)
        seen.append(running.lengths().get(5, 0))
    assert 0 < seen[0] < seen[1] < MANY == seen[-1]


async def test_a_change_that_follows_at_once_begins_where_the_first_one_ends() -> None:
    running = Running()
    running.live.replace(config(p=policy(5)))
    await asyncio.sleep(0)  # the first has come to some of them
    running.live.replace(config(p=policy(5), q=policy(7, "^q[0-9]$") | {"priority": 1}))
    await settle()
    assert running.lengths() == {5: MANY - 10, 7: 10}
    running.live.replace(config(p=policy(6)))
    running.live.replace(config())
    await settle()
    assert running.lengths() == {0: MANY}


async def test_the_same_policies_again_are_no_change() -> None:
    running = Running(1)
    running.live.replace(config())
    assert len(asyncio.all_tasks()) == 1
    running.live.replace(config(p=policy(5)))
    await settle()
    running.live.replace(config(p=policy(5)))
    assert len(asyncio.all_tasks()) == 1


async def test_queues_that_are_configured_one_by_one_keep_what_they_have() -> None:
    running = Running(1)
    running.declare("own")
    running.live.start()
    running.live.replace(config(p=policy(5)))
    await settle()
    assert running.lengths() == {5: 1, 0: 1}


async def test_a_broker_that_stops_leaves_the_rest_for_its_next_start() -> None:
    running = Running()
    running.live.replace(config(p=policy(5)))
    running.live.replace(config(p=policy(6)))
    await asyncio.sleep(0)
    await running.live.stop()
    assert len(asyncio.all_tasks()) == 1
    assert running.lengths().get(6, 0) == 0
    running.live.start()
    assert running.lengths() == {6: MANY}
