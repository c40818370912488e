"""Other policies while the broker runs: what is there takes them on, some of it at a time, and nothing else is touched."""

from __future__ import annotations

from amqp091_declarations import declare, declare_exchange, find
from amqp091_traffic import client_with, publish, queue, ready
from amqp091_world import AmqpWorld

from millstream.protocols.amqp091.declaring import make_topic_queue
from millstream.protocols.amqp091.policies import Policies, Policy
from millstream.protocols.amqp091.policy_change import PolicyChange
from millstream.protocols.amqp091.wire.field_table import FieldTable
from millstream.queues.definition import WORK, Definition


def policy(name: str, pattern: str, alternate: str | None = None, **arguments: object) -> Policy:
    wanted = {"x-" + word.replace("_", "-"): value for word, value in arguments.items()}
    return Policy(name, pattern, "all", 0, wanted, alternate)


def begin(world: AmqpWorld, *policies: Policy, kept: list[str] | None = None) -> PolicyChange:
    after = Policies(list(policies))
    before = world.context.policies.replace(after)
    return PolicyChange([(world.account, kept or [])], before, after)


def change(world: AmqpWorld, *policies: Policy, kept: list[str] | None = None) -> tuple[int, int]:
    walk = begin(world, *policies, kept=kept)
    while walk.step(1):
        pass
    world.settle_down()
    return walk.queues, walk.exchanges


def test_a_policy_that_comes_changes_and_goes_holds_for_what_is_there() -> None:
    world = AmqpWorld()
    endpoint = world.client().endpoint
    arguments: FieldTable = {b"x-max-length": 9}
    declare(endpoint, b"a", arguments=arguments)
    declare(endpoint, b"b", arguments=arguments)
    seen = []
    for policies in (
        [policy("p", "^a", max_length=5)],
        [policy("p", "^a", max_length=3, message_ttl=100)],
        [policy("p", "^b", max_length=3)],
        [],
    ):
        counts = change(world, *policies)
        lengths = [int(find(world, name).definition.length_max) for name in ("a", "b")]
        seen.append((counts, lengths, int(find(world, "a").definition.message_ttl_ms)))
        assert declare(endpoint, b"a", arguments=arguments) == (b"a", 0, 0), "its own arguments are the same"
    assert seen == [
        ((1, 0), [5, 9], 0),
        ((1, 0), [3, 9], 100),
        ((2, 0), [9, 3], 0),
        ((1, 0), [9, 9], 0),
    ]


def test_what_is_declared_after_the_change_has_it_from_the_start() -> None:
    world = AmqpWorld()
    walk = begin(world, policy("p", ".", max_length=5))
    declare(world.client().endpoint)
    assert find(world).definition.length_max == 5
    assert not walk.step(100)


def test_a_queue_whose_policy_stays_the_same_is_left_alone() -> None:
    same = policy("p", "^q", max_length=5)
    world = AmqpWorld(policies=[same])
    declare(world.client().endpoint)
    find(world).definition.message_ttl_ms = 77  # by an operator, on the command line
    assert change(world, policy("p", "^q", max_length=5), policy("other", "^x", max_length=1)) == (0, 0)
    assert find(world).definition.message_ttl_ms == 77
    assert change(world, policy("renamed", "^q", max_length=5)) == (1, 0)
    assert find(world).definition.arguments == {"x-policy": "renamed"}


def test_queues_of_other_protocols_and_configured_ones_are_left_alone() -> None:
    world = AmqpWorld()
    declare(world.client().endpoint, b"kept")
    catalog = world.account.queues.catalog
    catalog.declare("mqtt", Definition(WORK))
    make_topic_queue(world.client().endpoint, b"a.*")  # nobody has declared that: it is a subscription
    assert change(world, policy("p", ".", max_length=5), kept=["kept"]) == (0, 0)
    assert [int(one.definition.length_max) for one in catalog.queues.values()] == [0, 0, 0]


def test_a_queue_that_went_meanwhile_does_not_come_back() -> None:
    world = AmqpWorld()
    endpoint = world.client().endpoint
    for name in (b"a", b"b"):
        declare(endpoint, name)
    walk = begin(world, policy("p", ".", max_length=5))
    assert walk.step(1)
    catalog = world.account.queues.catalog
    catalog.delete(find(world, "b"))
    while walk.step(1):
        pass
    assert list(catalog.queues) == ["a"]


def test_exchanges_get_and_lose_their_alternate_and_publishes_follow() -> None:
    world = AmqpWorld()
    peer = client_with(world, queue())
    declare_exchange(peer.endpoint, b"x")
    world.account.exchanges.bind_queue(find(world), "amq.fanout", b"", {})
    for count, policies in (
        (0, []),
        (1, [policy("p", "^x", "amq.fanout")]),
        (1, []),
    ):
        change(world, *policies)
        peer.receive(publish(b"k", exchange=b"x"))
        assert ready(world) == count


def test_a_shorter_queue_drops_its_oldest_and_one_that_refuses_keeps_them() -> None:
    world = AmqpWorld()
    peer = client_with(world, queue(), queue(b"r"), queue(b"dead"))
    for name in (b"q", b"r"):
        for _ in range(5):
            peer.receive(publish(name))
    change(
        world,
        policy("p", "^q", max_length=2, dead_letter_exchange="", dead_letter_routing_key="dead"),
        policy("r", "^r", max_length=2, overflow="reject-publish"),
    )
    assert [ready(world, name) for name in ("q", "dead", "r")] == [2, 3, 5]
