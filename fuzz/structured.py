"""Structured inputs: hypothesis makes valid packets, and each example of it is a batch of executions.

hypothesis takes about a millisecond to make a packet, the decoder a few microseconds to read it. So what one
example draws (a few inputs and a number) is tried as it is, cut short, and then changed and joined in many ways, by
a chance that begins at the drawn number. The seed decides everything; nothing is kept between two calls.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import hypothesis
from amqp091_inputs import AMQP091_INPUTS
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from judge import Judge
from mutation import INPUT_SIZE_MAX, mutate
from test_mqtt_codec import connects, packets_of, property_sets

from millstream.protocols.mqtt.wire import kinds
from millstream.protocols.mqtt.wire.encode import encode_packet
from millstream.protocols.mqtt.wire.packets import Packet
from millstream.protocols.mqtt.wire.properties import Properties, encode_properties

BATCH = 200  # executions for one example
CUTS_MAX = 60
EXAMPLES_PER_ROUND = 500
ROUND_STEP = 1_000_003  # rounds of neighbouring seeds must not meet

Pieces = st.SearchStrategy[list[bytes]]


def as_frame(case: tuple[int, Packet]) -> bytes:
    version, packet = case
    return encode_packet(packet, version)


def connect_frames(version: int) -> st.SearchStrategy[bytes]:
    return connects(version).map(lambda packet: encode_packet(packet, version))


def frames(version: int) -> st.SearchStrategy[bytes]:
    return packets_of(version).map(as_frame)


def body_of(properties: Properties | None) -> bytes:
    """The properties without the length in front of them: the target writes it itself."""
    whole = encode_properties(properties)
    return whole[1 + next(at for at, byte in enumerate(whole) if byte < 0x80) :]


def bodies(kind: int) -> st.SearchStrategy[bytes]:
    return property_sets(kind).map(body_of)


def chosen_bodies() -> st.SearchStrategy[bytes]:
    kinds_with_any = st.sampled_from([kind for kind in range(16) if kind not in (12, 13)])
    return kinds_with_any.flatmap(lambda kind: bodies(kind).map(lambda body: bytes([kind]) + body))


def conversations(versions: dict[int, int]) -> st.SearchStrategy[bytes]:
    """Several packets behind a byte that chooses version and cut; `versions`: remainder of that byte to version."""

    def of_one(remainder: int) -> st.SearchStrategy[bytes]:
        firsts = st.integers(0, 255 // len(versions) - 1).map(lambda at: at * len(versions) + remainder)
        packets = st.lists(frames(versions[remainder]), min_size=1, max_size=5)
        return st.builds(lambda first, parts: bytes([first]) + b"".join(parts), firsts, packets)

    return st.sampled_from(sorted(versions)).flatmap(of_one)


def several(inputs: st.SearchStrategy[bytes]) -> Pieces:
    return st.lists(inputs, min_size=1, max_size=4)


INPUTS: dict[str, Pieces] = {
    "mqtt-connect": several(st.sampled_from([3, 4, 5]).flatmap(connect_frames)),
    "mqtt-3.1": several(frames(3)),
    "mqtt-3.1.1": several(frames(4)),
    "mqtt-5": several(frames(5)),
    "mqtt-properties": several(chosen_bodies()),
    "mqtt-publish-scan": several(bodies(kinds.PUBLISH)),
    "mqtt-client": several(conversations({0: 4, 1: 5})),
    "mqtt-server": several(conversations({0: 3, 1: 4, 2: 5})),
    **{name: several(inputs) for name, inputs in AMQP091_INPUTS.items()},
}


def batch_of(pieces: list[bytes], seeds: list[bytes], number: int) -> list[bytes]:
    """What is tried for one example: all of it valid, then cut short, then changed and joined."""
    chance = random.Random(number)
    joined = b"".join(pieces)
    batch = [*pieces, joined]
    places = range(len(joined))
    batch += [joined[:at] for at in chance.sample(places, min(CUTS_MAX, len(joined)))]
    material = [*pieces, *pieces, chance.choice(seeds)]
    while len(batch) < BATCH:
        batch.append(mutate(chance, material))
    return [data[:INPUT_SIZE_MAX] for data in batch]


def run_structured(
    name: str, judge: Judge, seeds: list[bytes], seed: int, on_progress: Callable[[int], None]
) -> None:
    """Rounds of examples until the judge has seen enough."""
    for round_number in itertools.count():
        if judge.is_done():
            return
        before = judge.executions
        run_round(name, judge, seeds, seed + round_number * ROUND_STEP)
        if judge.executions == before:
            raise RuntimeError("hypothesis gave no example")
        on_progress(judge.executions)


def run_round(name: str, judge: Judge, seeds: list[bytes], seed: int) -> None:
    @hypothesis.seed(seed)
    @settings(
        max_examples=EXAMPLES_PER_ROUND,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @hypothesis.given(INPUTS[name], st.integers(0, 2**64 - 1))
    def try_batch(pieces: list[bytes], number: int) -> None:
        for data in batch_of(pieces, seeds, number):
            if judge.is_done():
                return
            judge.try_input(data)

    try_batch()
