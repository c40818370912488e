"""Policies that come, change and go while the broker runs: a reload applies them to what is there."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from amqp_names import IS_OURS
from conftest import BrokerProcess
from pika.spec import Basic
from raw_amqp import AmqpClients
from raw_amqp_channel import ChannelClosed, wait_until

pytestmark = pytest.mark.skipif(not IS_OURS, reason="a broker with a configuration file of its own")


class Reloading:
    """A broker whose configuration file is written anew while it runs, and a client of it."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "millstream.json"
        self.write({})
        self.broker = BrokerProcess(folder, (), ("--config", str(self.file)))
        self.broker.wait_ready()
        self.channel = AmqpClients(self.broker.ports["amqp"]).channel()
        self.channel.confirm_select()

    def write(self, policies: dict[str, object], **sections: object) -> None:
        self.file.write_text(
            json.dumps({"log": {"format": "json"}, "amqp": {"policies": policies}} | sections)
        )

    def events(self, name: str) -> list[dict[str, object]]:
        lines = self.broker.log_file.read_text().splitlines()
        entries = [json.loads(line) for line in lines if line.startswith("{")]
        return [entry for entry in entries if entry["event"] == name]

    def hang_up(self, event: str) -> dict[str, object]:
        """Have it read the file again; gives what it says about it."""
        count = len(self.events(event))
        self.broker.process.send_signal(signal.SIGHUP)
        wait_until(lambda: len(self.events(event)) > count, f"it never said {event}")
        return self.events(event)[-1]

    def set(self, **policies: object) -> dict[str, object]:
        self.write(policies)
        return self.hang_up("policies_applied")

    def fill(self, queue: str, count: int) -> None:
        for number in range(count):
            self.channel.publish_confirmed("", queue, b"%d" % number)


@pytest.fixture
def reloading(tmp_path: Path) -> Iterator[Reloading]:
    world = Reloading(tmp_path)
    yield world
    world.channel.client.cut()
    assert world.broker.stop() == 0


def test_a_policy_added_changed_and_removed_by_a_reload_holds_for_queues_that_are_there(
    reloading: Reloading,
) -> None:
    channel = reloading.channel
    for name in ("logs", "other", "dead"):
        channel.declare(name, durable=True)
    reloading.fill("logs", 6)
    reloading.fill("other", 6)
    short = {"pattern": "^logs", "max_length": 4}
    said = reloading.set(short=short)
    assert (said["queues"], said["exchanges"]) == (1, 0)
    assert (channel.counts("logs")[0], channel.counts("other")[0]) == (4, 6)
    buried = {"dead_letter_exchange": "", "dead_letter_routing_key": "dead"}
    reloading.set(short=short | {"max_length": 1} | buried)
    assert (reloading.channel.drain("logs"), reloading.channel.drain("dead")) == ([b"5"], [b"2", b"3", b"4"])
    reloading.set()
    reloading.fill("logs", 6)
    assert (len(reloading.channel.drain("logs")), reloading.channel.drain("dead")) == (6, [])


def test_a_reload_makes_a_full_queue_refuse_and_keeps_what_it_has(reloading: Reloading) -> None:
    channel = reloading.channel
    channel.declare("q", durable=True)
    reloading.fill("q", 3)
    reloading.set(full={"pattern": "q", "max_length": 2, "overflow": "reject-publish"})
    channel.publish("", "q", b"too much")
    assert isinstance(channel.confirm(), Basic.Nack)
    assert reloading.channel.drain("q") == [b"0", b"1", b"2"]


def test_a_reload_gives_messages_a_time_to_live_and_idle_queues_an_end(reloading: Reloading) -> None:
    channel = reloading.channel
    for name in ("brief", "idle", "stays"):
        channel.declare(name, durable=True)
    reloading.fill("brief", 3)
    reloading.fill("stays", 3)
    assert channel.get_one("brief").body == b"0"
    reloading.set(
        brief={"pattern": "^brief$", "message_ttl": 1},
        idle={"pattern": "^idle$", "expires": 1},
    )
    channel.wait_ready("brief", 0)
    wait_until(lambda: not is_there(reloading, "idle"), "the idle queue never went")
    assert channel.counts("stays")[0] == 3


def is_there(reloading: Reloading, queue: str) -> bool:
    """Without having to do with it, which would keep it."""
    channel = reloading.channel.client.channel()
    try:
        channel.bind(queue, "amq.direct", "k")
        channel.close()
    except ChannelClosed as closed:
        assert closed.code == 404
        return False
    return True


def test_a_reload_gives_an_exchange_its_alternate_and_takes_it_away(reloading: Reloading) -> None:
    channel = reloading.channel
    channel.declare("lost", durable=True)
    channel.bind("lost", "amq.fanout", "")
    channel.exchange("x", "direct")
    for number, policies in enumerate(({}, {"p": {"pattern": "^x", "alternate_exchange": "amq.fanout"}}, {})):
        if number:
            reloading.set(**policies)
        channel.publish_confirmed("x", "nowhere", b"%d" % number)
    assert reloading.channel.drain("lost") == [b"1"]


def test_a_file_with_a_fault_changes_nothing_and_what_needs_a_restart_is_named(reloading: Reloading) -> None:
    channel = reloading.channel
    channel.declare("q", durable=True)
    reloading.fill("q", 3)
    reloading.write({"good": {"pattern": "q", "max_length": 1}, "bad": {"pattern": "(", "max_length": 1}})
    said = reloading.hang_up("config_not_reloaded")
    assert "amqp.policies.bad.pattern is no regular expression" in str(said["reason"])
    assert channel.counts("q")[0] == 3
    reloading.write({"good": {"pattern": "q", "max_length": 1}}, mqtt={"max_keep_alive": 77})
    said = reloading.hang_up("config_reloaded")
    assert said["needs_restart"] == ["mqtt.max_keep_alive"]
    applied = said["applied"]
    assert isinstance(applied, list)
    assert {name.rpartition(".")[0] for name in applied} == {"amqp.policies.good"}
    channel.wait_ready("q", 1)


def test_policies_of_a_reload_hold_for_what_is_declared_later(reloading: Reloading) -> None:
    reloading.set(short={"pattern": "^logs", "max_length": 2})
    reloading.channel.declare("logs", durable=True)
    reloading.fill("logs", 5)
    assert reloading.channel.drain("logs") == [b"3", b"4"]
