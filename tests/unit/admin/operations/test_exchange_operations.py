"""Operations on exchanges as the control channel offers them, on a broker in memory."""

from __future__ import annotations

import pytest
from control_world import ControlWorld

from millstream.model.errors import Reason, Refused, Unavailable
from millstream.runtime.control.server import ControlRefusal


async def test_an_exchange_is_made_once_listed_shown_and_deleted() -> None:
    world = ControlWorld()
    made = await world.ask("exchange.declare", name="x", type="topic")
    again = await world.ask("exchange.declare", name="x", type="topic")
    assert (made["created"], again["created"]) == (True, False)
    rows = (await world.ask("exchange.list"))["exchanges"]
    assert [row["name"] for row in rows] == [
        "amq.direct",
        "amq.fanout",
        "amq.headers",
        "amq.match",
        "amq.topic",
        "x",
    ]
    shown = await world.ask("exchange.show", name="x")
    assert (shown["type"], shown["durable"], shown["bindings"], shown["bound"]) == ("topic", True, 0, [])
    assert (await world.ask("exchange.delete", name="x")) == {"deleted": "x", "bindings": 0}
    with pytest.raises(ControlRefusal, match="there is no exchange 'x'"):
        await world.ask("exchange.show", name="x")


async def test_another_type_under_the_same_name_is_refused() -> None:
    world = ControlWorld()
    await world.ask("exchange.declare", name="x", type="topic")
    with pytest.raises(Refused, match="inequivalent arg 'type'"):
        await world.ask("exchange.declare", name="x", type="fanout")
    with pytest.raises(Refused, match="unknown exchange type 'x-other'"):
        await world.ask("exchange.declare", name="y", type="x-other")


async def test_a_binding_is_made_once_shown_and_taken_away() -> None:
    world = ControlWorld()
    await world.fill("q", 0)
    request = {"source": "amq.topic", "target": "q", "key": "a.#"}
    assert (await world.ask("exchange.bind", **request))["created"]
    assert not (await world.ask("exchange.bind", **request))["created"]
    (row,) = (await world.ask("exchange.bindings", name="amq.topic"))["bindings"]
    assert (row["target"], row["target_kind"], row["key"], row["durable"]) == ("q", "queue", "a.#", True)
    assert world.publish(b"a/b/c", b"taken") is Reason.SUCCESS
    assert await world.payloads("q") == ["taken"]
    assert (await world.ask("exchange.unbind", **request))["removed"]
    with pytest.raises(ControlRefusal, match="is not bound"):
        await world.ask("exchange.unbind", **request)


async def test_bindings_come_in_pages() -> None:
    world = ControlWorld()
    await world.fill("q", 0)
    for number in range(5):
        await world.ask("exchange.bind", source="amq.direct", target="q", key=str(number))
    found: list[str] = []
    page = {"more": True, "bindings": []}
    while page["more"]:
        page = await world.ask("exchange.bindings", name="amq.direct", start=len(found), limit=2)
        found += [row["key"] for row in page["bindings"]]
    assert found == ["0", "1", "2", "3", "4"]


async def test_a_target_must_be_there_and_be_what_was_said() -> None:
    world = ControlWorld()
    with pytest.raises(ControlRefusal, match="there is no queue 'q'"):
        await world.ask("exchange.bind", source="amq.direct", target="q")
    with pytest.raises(ControlRefusal, match="leads to a queue or an exchange"):
        await world.ask("exchange.bind", source="amq.direct", target="q", target_kind="topic")
    with pytest.raises(Refused, match="no exchange 'q'"):
        await world.ask("exchange.bind", source="amq.direct", target="q", target_kind="exchange")


async def test_nothing_is_changed_while_the_disk_takes_nothing() -> None:
    world = ControlWorld()
    world.store.is_broken = True
    with pytest.raises(Unavailable):
        await world.ask("exchange.declare", name="x")
    assert world.broker.get_account("default").exchanges.find("x") is None
