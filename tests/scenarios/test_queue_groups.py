"""`millstream queue remove-group` is for good: neither a restart nor a session that waits brings the group back."""

from __future__ import annotations

from conftest import StartBroker
from raw_client import NEVER, RawClient
from test_queue_commands import operator_of, start_again

from millstream.protocols.mqtt.wire.packets import Publish, Subscribe, SubscribeEntry


def test_a_removed_group_stays_away_after_a_kill(start_broker: StartBroker) -> None:
    broker = start_broker()
    operator = operator_of(broker)
    operator.do("create", "readings", "--kind", "stream")
    with RawClient(broker.mqtt_port) as client:
        client.connect("reader", clean=False, expiry_s=NEVER)
        client.subscribe(b"$queue/readings/#", 1)
        client.disconnect()
    operator.do("publish", "readings", "--lines", text="a\nb\n")
    assert len(operator.lines("consume", "readings", "--group", "audit", "--count", "1")) == 1
    assert [row["group"] for row in operator.ask("groups", "readings")] == ["audit", "reader"]

    operator.do("remove-group", "readings", "audit", "--yes")
    refused = operator.type("remove-group", "readings", "reader", "--yes")
    assert refused.exit_code != 0
    assert "has consumers: reader" in refused.stderr
    assert "--force" in refused.stderr
    assert operator.ask("remove-group", "readings", "reader", "--yes", "--force") == {
        "name": "readings",
        "removed": "reader",
        "lag": 2,
        "consumers": 1,
    }
    broker.process.kill()
    broker.process.wait()

    again = start_again(start_broker, operator)
    assert operator.ask("groups", "readings") == []
    with RawClient(again.mqtt_port) as client:
        assert client.connect("reader", clean=False, expiry_s=NEVER).session_present
        client.expect_nothing()
        assert operator.ask("groups", "readings") == []
        client.send(Subscribe(client.new_packet_id(), [SubscribeEntry(b"$queue/readings/#", 1)]))
        answers = [client.receive() for _ in range(3)]  # the SUBACK waits for the disk, deliveries do not
        assert [answer.payload for answer in answers if isinstance(answer, Publish)] == [b"a", b"b"]
