"""What `bench flood` calls a fault, and how it counts messages."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.flood_suite.command import compare
from benchmarks.flood_suite.load import Job, delivery_bytes, encode_publish, last_confirmed, queue_name
from benchmarks.flood_suite.verdicts import Figures, Flood, find_faults
from benchmarks.load.queue_amqp import BASIC_ACK, CHANNEL, encode_method

GOOD = Figures(1000.0, 990.0, 15.0, 0.01, 0.1, 0.01, 0.1, 10, 100)
MARK_MIB = 700
MANY_QUEUES = Flood(5, 50, 0, False, False)


def test_a_flood_in_which_everybody_is_served_holds() -> None:
    assert find_faults(GOOD, None, 50, MARK_MIB) == []


def test_a_newcomer_may_wait_a_quarter_of_a_second_or_twice_as_long_as_elsewhere() -> None:
    late = replace(GOOD, amqp_worst_s=0.5)
    assert len(find_faults(late, None, 50, MARK_MIB)) == 1
    assert find_faults(late, replace(GOOD, amqp_worst_s=0.3), 50, MARK_MIB) == []


def test_consumers_that_get_little_one_that_is_starved_and_too_much_memory_are_faults() -> None:
    assert "30%" in find_faults(replace(GOOD, published_rate=3300.0), None, 50, MARK_MIB)[0]
    assert "one consumer" in find_faults(replace(GOOD, least_consumer_rate=1.0), None, 50, MARK_MIB)[0]
    assert "memory" in find_faults(replace(GOOD, resident_peak_mib=800), None, 50, MARK_MIB)[0]
    assert find_faults(replace(GOOD, fault="it died"), None, 50, MARK_MIB) == ["it died"]


def test_a_flood_that_could_not_be_compared_does_not_hold() -> None:
    assert compare(MANY_QUEUES, {"millstream": GOOD}) == []
    assert compare(MANY_QUEUES, {"millstream": GOOD, "rabbitmq": GOOD}) == []
    silent = replace(GOOD, fault="RabbitMQ was not ready")
    assert compare(MANY_QUEUES, {"millstream": GOOD, "rabbitmq": silent}) == [
        "not compared: RabbitMQ was not ready"
    ]


def test_a_flood_has_a_name() -> None:
    assert Flood(20, 50, 100, True, False).name == "20x50-durable-plain-100"


def test_publishes_and_deliveries_of_all_queues_have_one_length() -> None:
    job = Job("publish", 1, 1, 50, 100, False, True)
    assert {len(encode_publish(job, queue_name(number))) for number in range(50)} == {158}
    assert delivery_bytes(job) - delivery_bytes(replace(job, size=0)) == 108


def test_confirms_are_read_however_they_are_cut() -> None:
    frame = encode_method(CHANNEL, BASIC_ACK, (7).to_bytes(8, "big") + b"\x01")
    confirmed, rest = last_confirmed(frame + frame[:5], 0)
    assert (confirmed, rest) == (7, frame[:5])
