"""Policies: which one counts for a name, how it goes together with arguments, and which patterns are safe."""

from __future__ import annotations

import pytest
from amqp091_declarations import declare, declare_exchange, find
from amqp091_world import AmqpWorld

from millstream.protocols.amqp091.policies import Policies, Policy, find_pattern_fault
from millstream.protocols.amqp091.wire.field_table import FieldTable
from millstream.queues.definition import WORK, Definition


def policy(
    pattern: str, priority: int = 0, target: str = "all", alternate: str | None = None, **arguments: object
) -> Policy:
    wanted = {"x-" + name.replace("_", "-"): value for name, value in arguments.items()}
    return Policy(f"{pattern} {priority}", pattern, target, priority, wanted, alternate)


def test_of_all_that_fit_a_name_the_highest_priority_counts_alone() -> None:
    world = AmqpWorld(
        policies=[
            policy("^logs", message_ttl=100, max_length=5),
            policy("logs", 2, message_ttl=200),
            policy("logs", 3, target="exchanges", message_ttl=300),
        ]
    )
    endpoint = world.client().endpoint
    declare(endpoint, b"logs.a")
    assert find(world, "logs.a").definition.message_ttl_ms == 200
    assert find(world, "logs.a").definition.length_max == 0
    declare(endpoint, b"other")
    assert find(world, "other").definition.message_ttl_ms == 0


def test_the_smaller_number_counts_and_otherwise_the_argument() -> None:
    world = AmqpWorld(
        policies=[
            policy(
                ".",
                message_ttl=100,
                max_length=5,
                expires=1000,
                overflow="reject-publish",
                dead_letter_exchange="policy",
                dead_letter_routing_key="k",
            )
        ]
    )
    arguments: FieldTable = {
        b"x-message-ttl": 50,
        b"x-max-length": 9,
        b"x-overflow": b"drop-head",
        b"x-dead-letter-exchange": b"argument",
    }
    endpoint = world.client().endpoint
    declare(endpoint, arguments=arguments)
    definition = find(world).definition
    assert (definition.message_ttl_ms, definition.length_max, definition.expires_ms) == (50, 5, 1000)
    assert (definition.overflow, definition.dead_letter_exchange) == ("drop_head", "argument")
    assert definition.dead_letter_key == "k"
    assert declare(endpoint, arguments=arguments) == (b"q", 0, 0)


def test_a_policy_gives_a_queue_only_what_its_type_takes() -> None:
    world = AmqpWorld(policies=[policy(".", message_ttl=100, delivery_limit=3, max_age="1D")])
    endpoint = world.client().endpoint
    for name, kind in ((b"c", b"classic"), (b"q", b"quorum"), (b"s", b"stream")):
        declare(endpoint, name, arguments={b"x-queue-type": kind})
    classic, quorum, stream = (find(world, name).definition for name in ("c", "q", "s"))
    assert (classic.message_ttl_ms, classic.max_deliveries, classic.retention_age_s) == (100, 0, 0)
    assert (quorum.message_ttl_ms, quorum.max_deliveries, quorum.retention_age_s) == (100, 4, 0)
    assert (stream.message_ttl_ms, stream.max_deliveries, stream.retention_age_s) == (0, 0, 86_400)


def test_at_start_they_hold_for_what_clients_declared_before_and_leave_the_rest() -> None:
    world = AmqpWorld()
    endpoint = world.client().endpoint
    declare(endpoint, arguments={b"x-max-length": 9})
    declare(endpoint, b"kept")
    catalog = world.account.queues.catalog
    catalog.declare("mqtt", Definition(WORK))
    policies = Policies([policy(".", message_ttl=100, max_length=5)])
    policies.apply_to_all(world.account, ["kept"])
    assert (find(world).definition.message_ttl_ms, find(world).definition.length_max) == (100, 5)
    for name in ("kept", "mqtt"):
        assert find(world, name).definition.message_ttl_ms == 0
    declare(endpoint, arguments={b"x-max-length": 9})
    Policies([]).apply_to_all(world.account, [])
    assert (find(world).definition.message_ttl_ms, find(world).definition.length_max) == (0, 9)


def test_without_a_policy_nothing_is_touched_at_start() -> None:
    world = AmqpWorld()
    declare(world.client().endpoint)
    changed = find(world).definition
    changed.message_ttl_ms = 77  # by an operator, on the command line
    Policies([]).apply_to_all(world.account, [])
    assert find(world).definition.message_ttl_ms == 77


def test_a_policy_names_an_alternate_exchange_unless_the_declaration_does() -> None:
    world = AmqpWorld(policies=[policy("^x", alternate="amq.fanout")])
    endpoint = world.client().endpoint
    declare_exchange(endpoint, b"x1")
    declare_exchange(endpoint, b"x2", arguments={b"alternate-exchange": b"amq.topic"})
    declare_exchange(endpoint, b"y")
    found = {name: world.account.exchanges.find(name) for name in ("x1", "x2", "y")}
    alternates = {name: None if one is None else one.alternate for name, one in found.items()}
    assert alternates == {"x1": "amq.fanout", "x2": "amq.topic", "y": None}
    Policies([]).apply_to_all(world.account, [])
    x1 = found["x1"]
    assert x1 is not None
    assert x1.alternate is None


@pytest.mark.parametrize(
    "pattern",
    [".*", "^amq\\.", r"^logs\..*\.eu$", "^(a|b)c$", "[a-z]+-[0-9]{3}$", "^[(*+?{]+$", r"\(x\)*", "a|b|c"],
)
def test_ordinary_patterns_are_taken(pattern: str) -> None:
    assert find_pattern_fault(pattern) is None


@pytest.mark.parametrize(
    "pattern",
    ["", "a" * 256, "(", "(a+)+$", "(a|aa)*", "(a*){5}", "(?=a)a", "(a)\\1", ".*.*.*x", "(?P<n>a)(?P=n)"],
)
def test_patterns_that_could_take_long_are_refused(pattern: str) -> None:
    assert find_pattern_fault(pattern) is not None


def test_the_worst_pattern_on_the_worst_name_ends_soon() -> None:
    for pattern in (".*.*x", "a*a*$b", "a{1,9}a+b"):
        assert find_pattern_fault(pattern) is None
        assert not policy(pattern).fits("queues", "a" * 255)
