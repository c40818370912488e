"""Parts of a RabbitMQ export taken in, and queues as it would write them, on a broker in memory."""

from __future__ import annotations

import pytest
from control_world import ControlWorld

from millstream.model.owner import Owner
from millstream.protocols.amqp091.policies import Policies, Policy
from millstream.runtime.control.server import ControlRefusal

JOBS = {
    "name": "jobs",
    "vhost": "/",
    "durable": True,
    "auto_delete": False,
    "type": "classic",
    "arguments": {"x-message-ttl": 60_000, "x-overflow": "reject-publish", "x-dead-letter-exchange": "dead"},
}
STREAM = {
    "name": "history",
    "durable": True,
    "auto_delete": False,
    "arguments": {"x-queue-type": "stream", "x-max-age": "7D"},
}


async def take(world: ControlWorld, kind: str, *items: object) -> dict[str, object]:
    found: dict[str, object] = await world.ask("definitions.take", kind=kind, items=list(items))
    return found


async def test_queues_get_what_their_arguments_say() -> None:
    world = ControlWorld()
    assert (await take(world, "queue", JOBS, STREAM))["created"] == 2
    jobs, history = world.queue("jobs").definition, world.queue("history").definition
    assert (jobs.kind, jobs.message_ttl_ms, jobs.overflow) == ("work", 60_000, "reject")
    assert jobs.dead_letter_exchange == "dead"
    assert (history.kind, history.retention_age_s) == ("stream", 7 * 86_400)


async def test_doing_it_again_changes_nothing() -> None:
    world = ControlWorld()
    for expected in ((2, 0), (0, 2)):
        answer = await take(world, "queue", JOBS, STREAM)
        assert (answer["created"], answer["unchanged"], answer["refused"]) == (*expected, [])


async def test_what_is_there_as_something_else_is_refused_and_the_others_are_taken() -> None:
    world = ControlWorld()
    await take(world, "queue", JOBS)
    changed = {**JOBS, "arguments": {"x-message-ttl": 1}}
    answer = await take(world, "queue", changed, "nonsense", {"name": 5}, STREAM)
    assert answer["created"] == 1
    refused = answer["refused"]
    assert isinstance(refused, list)
    assert [row["at"] for row in refused] == [0, 1, 2]
    assert "inequivalent arg 'x-message-ttl'" in refused[0]["reason"]


async def test_what_is_not_durable_is_refused() -> None:
    world = ControlWorld()
    for kind in ("queue", "exchange"):
        answer = await take(world, kind, {"name": "passing", "type": "direct", "durable": False})
        assert answer["created"] == 0
        assert "only what is durable" in str(answer["refused"])


async def test_exchanges_and_bindings_work_as_if_a_client_had_declared_them() -> None:
    world = ControlWorld()
    await take(world, "queue", JOBS)
    await take(world, "exchange", {"name": "x", "type": "topic", "durable": True, "arguments": {}})
    ways = [
        {"source": "amq.topic", "destination": "x", "destination_type": "exchange", "routing_key": "#"},
        {"source": "x", "destination": "jobs", "destination_type": "queue", "routing_key": "a.*"},
        {"source": "x", "destination": "absent", "destination_type": "queue", "routing_key": "a.*"},
    ]
    answer = await take(world, "binding", *ways)
    assert (answer["created"], len(answer["refused"])) == (2, 1)  # type: ignore[arg-type]
    world.publish(b"a/b", b"taken")
    assert await world.payloads("jobs") == ["taken"]


async def test_what_was_taken_in_is_written_out_the_same() -> None:
    world = ControlWorld()
    await take(world, "queue", JOBS, STREAM)
    rows = (await world.ask("definitions.queues"))["queues"]
    assert {row["name"]: row["arguments"] for row in rows} == {
        "jobs": JOBS["arguments"],
        "history": STREAM["arguments"],
    }
    assert all(row["lost"] == [] for row in rows)


async def test_whose_a_queue_is_here_is_no_setting_that_an_export_loses() -> None:
    world = ControlWorld()
    await take(world, "queue", JOBS)
    world.queue("jobs").definition.owner = Owner("ann", "user", "amqp-1")
    (row,) = (await world.ask("definitions.queues"))["queues"]
    assert row["lost"] == []


async def test_a_queue_of_our_own_is_written_as_near_as_can_be_and_the_rest_is_told() -> None:
    world = ControlWorld()
    settings = {"length_max": 10, "visibility_ms": 5000, "bindings": ["a/+/b", "with.dot/#", "a*/b"]}
    await world.ask("queue.create", name="own", definition=settings)
    (row,) = (await world.ask("definitions.queues"))["queues"]
    assert row["arguments"] == {"x-max-length": 10, "x-max-priority": 9, "x-overflow": "reject-publish"}
    assert row["keys"] == ["a.*.b", "with/dot.#"]
    assert "visibility_ms=5000" in row["lost"]
    assert "the binding to a*/b" in row["lost"]


async def test_a_policy_shapes_what_is_taken_in_and_stays_out_of_its_arguments() -> None:
    world = ControlWorld()
    world.context.policies = Policies([Policy("short", "^jobs", "all", 0, {"x-message-ttl": 7}, "rest")])
    await take(world, "queue", JOBS)
    await take(world, "exchange", {"name": "jobs", "type": "fanout", "durable": True})
    assert world.queue("jobs").definition.message_ttl_ms == 7
    assert world.broker.get_account("default").exchanges.get("jobs").alternate == "rest"
    (row,) = (await world.ask("definitions.queues"))["queues"]
    assert (row["arguments"], row["lost"]) == (JOBS["arguments"], [])
    assert (await take(world, "queue", JOBS))["unchanged"] == 1


async def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ControlRefusal, match="exchange, queue, binding"):
        await take(ControlWorld(), "policy", {})
