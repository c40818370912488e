"""The scenarios of `bench mqtt`, as data: what is sent, which brokers can do it, and what must be shown."""

from __future__ import annotations

from benchmarks.suite.scenarios import Scenario, Targets

ALL = ("millstream", "mosquitto", "nats")
WITHOUT_NATS = ("millstream", "mosquitto")  # NATS has neither QoS 2 nor MQTT 5

QOS0_TARGETS = Targets(
    rate_times={"nats": 6.0, "mosquitto": 50.0},
    cpu_share={"nats": 1 / 6.0, "mosquitto": 1 / 50.0},
)
QOS1_TARGETS = Targets(rate_times={"mosquitto": 20.0})
QOS2_TARGETS = Targets(rate_times={"mosquitto": 15.0})
WAKEUP_TARGETS = Targets(cpu_share={"mosquitto": 0.8}, round_trips_within="mosquitto")

MESH = {"publishers": 50, "subscribers": 50, "layout": "mesh"}
MANY = {"layout": "many", "topics": 10_000}
VERSION5 = {"version": 5, "has_properties": True}
KIBIBYTE = {"payload_bytes": 1024}
LARGE = {"payload_bytes": 65_536}
LARGE_WINDOW = {"payload_bytes": 65_536, "window": 32}  # 2 MiB on the way is enough to keep any broker busy


def pipelined(
    name: str,
    title: str,
    job: dict[str, object],
    targets: Targets | None = None,
    brokers: tuple[str, ...] = ALL,
) -> Scenario:
    return Scenario(name, title, "throughput", brokers, job, targets or Targets())


SCENARIOS: tuple[Scenario, ...] = (
    pipelined("q0-1to1", "QoS 0, 1 to 1", {}, QOS0_TARGETS),
    pipelined("q0-10to1", "QoS 0, 10 to 1", {"publishers": 10}, QOS0_TARGETS),
    pipelined("q0-1to100", "QoS 0, 1 to 100", {"subscribers": 100}, QOS0_TARGETS),
    pipelined("q0-50x50", "QoS 0, 50 x 50 by wildcard", dict(MESH), QOS0_TARGETS),
    pipelined("q0-10000topics", "QoS 0, 1 to 1 over 10,000 topics", dict(MANY), QOS0_TARGETS),
    pipelined("q1-1to1", "QoS 1, 1 to 1", {"qos": 1}, QOS1_TARGETS),
    pipelined("q1-1to50", "QoS 1, 1 to 50", {"qos": 1, "subscribers": 50}, QOS1_TARGETS),
    pipelined("q2-1to1", "QoS 2, 1 to 1", {"qos": 2}, QOS2_TARGETS, WITHOUT_NATS),
    pipelined("q0-1KiB", "QoS 0, 1 to 1, 1 KiB", dict(KIBIBYTE)),
    pipelined("q0-64KiB", "QoS 0, 1 to 1, 64 KiB", dict(LARGE)),
    pipelined("q1-1KiB", "QoS 1, 1 to 1, 1 KiB", {"qos": 1, **KIBIBYTE}),
    pipelined("q1-64KiB", "QoS 1, 1 to 1, 64 KiB", {"qos": 1, **LARGE_WINDOW}),
    pipelined(
        "q0-v5",
        "QoS 0, 1 to 1, MQTT 5 with properties",
        dict(VERSION5),
        Targets(slowdown_of="q0-1to1", slowdown_max=1.5),
        WITHOUT_NATS,
    ),
    pipelined(
        "q0-v5-1KiB",
        "QoS 0, 1 to 1, MQTT 5 with properties, 1 KiB",
        {**VERSION5, **KIBIBYTE},
        Targets(slowdown_of="q0-1KiB", slowdown_max=1.5),
        WITHOUT_NATS,
    ),
    pipelined(
        "q0-v5-long",
        "QoS 0, 1 to 1, MQTT 5 with 50 bytes of properties",
        {**VERSION5, "has_long_properties": True},
        brokers=WITHOUT_NATS,
    ),
    pipelined(
        "q1-v5",
        "QoS 1, 1 to 1, MQTT 5 with properties",
        {"qos": 1, **VERSION5},
        Targets(slowdown_of="q1-1to1", slowdown_max=1.5),
        WITHOUT_NATS,
    ),
    Scenario("q0-wakeup", "QoS 0, 50 pairs, one in flight", "pairs", ALL, {"publishers": 50}, WAKEUP_TARGETS),
    Scenario(
        "q1-wakeup",
        "QoS 1, 50 pairs, one in flight",
        "pairs",
        ALL,
        {"publishers": 50, "qos": 1},
        WAKEUP_TARGETS,
    ),
    Scenario("q0-steady", "QoS 0, 1,000 messages/s", "steady", ALL, {}),
    Scenario("q1-steady", "QoS 1, 1,000 messages/s", "steady", ALL, {"qos": 1}),
    Scenario(
        "idle-tcp", "Idle connections, TCP", "idle", ALL, {}, Targets(bytes_per_connection_max=4 * 1024)
    ),
    Scenario(
        "idle-websocket",
        "Idle connections, WebSocket",
        "idle",
        ("millstream",),
        {"websocket_path": "/mqtt"},
        Targets(bytes_per_connection_max=10 * 1024),
    ),
)

BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}
