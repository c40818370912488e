"""How a client's bytes are cut into reads changes nothing but the time at which things happen."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import pytest
from client_stream import (
    EDGE_SIZES,
    ENDS,
    FILTERS,
    PACKET_SIZE_MAX,
    PAYLOAD_SIZE_MAX,
    TOPICS,
    WORDS,
    Part,
    Sent,
    Sort,
    Step,
    Stream,
    sorts,
    steps,
)
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from read_world import ReadWorld, answers_in, endings_in, find_difference, messages_in, packets_of

from millstream.model.limits import Limits
from millstream.protocols.mqtt.wire.packets import PubAck, Publish, PubRec
from millstream.protocols.mqtt.wire.reason_codes import RECEIVE_MAXIMUM_EXCEEDED

# A subscriber takes all that is open: its window is another matter. So is the receive maximum, which counts what was
# not answered yet: packet by packet that is never more than one.
LIMITS = Limits(
    message_size_max=PAYLOAD_SIZE_MAX,
    packet_size_max=PACKET_SIZE_MAX,
    receive_maximum=65_535,
    inflight_max=65_535,
)
PHASES = (Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink)  # to explain takes minutes
UNBOUNDED: tuple[dict[str, object], ...] = (*[{}] * 8, {"kind": "ephemeral", "auto_delete": False})
KINDS: tuple[dict[str, object], ...] = (
    *UNBOUNDED,
    {"kind": "stream"},
    {"kind": "stream"},
    {"kind": "stream", "retention_count": 7},
    {"length_max": 5},
    {"bytes_max": 1500},
    {"length_max": 5, "overflow": "drop_head"},
    {"bytes_max": 1500, "overflow": "drop_head"},
    {"kind": "stream", "length_max": 5, "overflow": "drop_head"},
    {"length_max": 5, "overflow": "dead_letter"},
    {"length_max": 5, "overflow": "reject_dead_letter"},
    {"kind": "ephemeral", "auto_delete": False, "length_max": 5, "overflow": "dead_letter"},
    {"message_ttl_ms": 400},
    {"message_ttl_ms": 400, "dead_letter": "off"},
    {"priority_max": 2},
)
ODD_ONES: tuple[Sort | Step, ...] = (
    *[Sort(topic) for topic in TOPICS],
    *[Sort(b"$queue/a", size=size) for size in EDGE_SIZES],
    *[Sort(b"$queue/a", words=words) for words in sorted(set(WORDS))],
    Sort(b"$queue/a", qos=0),
    Sort(b"$queue/a", qos=2),
    Sort(b"$queue/a", qos=2, dup=True),
    Sort(b"$queue/a", dup=True),
    Sort(b"$queue/a", retain=True),
    Sort(b"bound/2", retain=True),
    Sort(b"$queue/a", alias=1),
    Sort(b"$queue/b", alias=1),
    *[Step(kind) for kind in ("ping", "release", "unknown")],
    *[Step("subscribe", at) for at in range(len(FILTERS))],
    *[Step("end", at) for at in range(len(ENDS))],
)
USUAL: tuple[tuple[Sort, dict[str, object]], ...] = (
    (Sort(b"$queue/a"), {}),
    (Sort(b"$queue/a"), {"kind": "stream"}),
    (Sort(b"$queue/a"), {"length_max": 5}),
    (Sort(b"$queue/a"), {"length_max": 5, "overflow": "drop_head"}),
    (Sort(b"bound/1"), {}),
    (Sort(b"$queue/a", words="user"), {}),
    (Sort(b"$queue/a", words="soon"), {}),
)
NAMES = ("a", "b", "bound", "both", "consumed")
MAKING_ROOM = ("drop_head", "dead_letter")
kinds = st.sampled_from(KINDS)
queues = st.fixed_dictionaries(
    {"a": kinds, "b": kinds, "bound": kinds, "both": kinds, "consumed": st.sampled_from(UNBOUNDED)}
).map(lambda chosen: with_names({name: dict(fields) for name, fields in chosen.items()}))
cuts = st.lists(st.integers(0, 1000), min_size=1, max_size=5)


def with_names(chosen: dict[str, dict[str, object]]) -> dict[str, dict[str, object]]:
    chosen["bound"]["bindings"] = ["bound/#"]
    chosen["both"]["bindings"] = ["both/#"]
    return {**chosen, "stream": {"kind": "stream"}}


@dataclass(frozen=True)
class Case:
    version: int
    sorts: list[Sort]
    steps: list[Step]
    expiry_s: int
    queues: dict[str, dict[str, object]]

    def stream(self) -> Stream:
        return Stream(self.version, self.sorts, self.steps, self.expiry_s)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    version = draw(st.sampled_from([4, 5]))
    chosen = draw(queues)
    return Case(
        version,
        draw(st.lists(sorts(version), min_size=1, max_size=3)),
        draw(steps()),
        draw(st.sampled_from([0, 100])),
        chosen,
    )


def is_known(odd: Sort | Step) -> bool:
    """To 3.1.1, which has neither properties nor aliases."""
    return isinstance(odd, Step) or not (odd.words or odd.alias)


def short_name(value: object) -> str:
    """What is not usual about it."""
    if isinstance(value, Step) and value.kind == "end":
        return ENDS[value.what]
    if isinstance(value, Step):
        return f"{value.kind} {FILTERS[value.what].decode()}" if value.kind == "subscribe" else value.kind
    if isinstance(value, Sort):
        usual = vars(Sort(b""))
        return ",".join(f"{name}={field}" for name, field in vars(value).items() if field != usual[name])
    return str(value)


def shown_first(part: Part) -> list[bytes]:
    """CONNECT and a publish, then everything else."""
    data = [packet.data for packet in part.packets]
    return [b"".join(data[:2]), b"".join(data[2:])]


def cut_data(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({len(data) * cut // 1000 for cut in cuts} | {0, len(data)})
    return [data[first:last] for first, last in itertools.pairwise(places)]


def read_by_packets(world: ReadWorld, stream: Stream) -> None:
    for part in stream.parts:
        for packet in part.packets:
            world.read(packet.data)
            world.make_safe()
        world.move(part.move_ms)


def check_equal(one: ReadWorld, other: ReadWorld) -> None:
    assert not find_difference(one.queues(), other.queues())
    assert not find_difference(one.ends(), other.ends())
    passed_over = {"bytes_sent": 0}
    if one.client.link.is_closed:  # what goes with the connection is not sent, and nothing is read after it
        passed_over |= {"messages_sent": 0, "bytes_received": 0}
    assert not find_difference(one.counters() | passed_over, other.counters() | passed_over)
    assert not find_difference(one.retained(), other.retained())
    assert not find_difference(one.endings(), other.endings())
    assert one.client.link.is_closed == other.client.link.is_closed
    assert not find_difference(packets_of(one.subscriber), packets_of(other.subscriber))
    assert one.subscriber.link.data == other.subscriber.link.data
    assert not find_difference(packets_of(one.reader), packets_of(other.reader))
    assert len(packets_of(other.reader)) == other.catalog.get("stream").next
    # among those that are handed out together, a priority goes first
    consumed = [sorted(map(repr, packets_of(world.consumer))) for world in (one, other)]
    assert not find_difference(*consumed)


def check_sent(one: ReadWorld, other: ReadWorld) -> None:
    """Answers in their order, and messages in theirs; what waits for the disk goes with the connection."""
    wanted, found = one.sent(), other.sent()
    is_cut_off = one.client.link.is_closed and not one.is_safe_at_once
    for choose in (answers_in, messages_in):
        end = len(choose(found)) if is_cut_off else None
        assert not find_difference(choose(wanted)[:end], choose(found))
    assert endings_in(wanted) == endings_in(found)


def check_stored(world: ReadWorld) -> None:
    """What is in memory is what the log has, and what the segments will have."""
    live = {name: rows for name, rows in world.queues().items() if world.catalog.get(name).is_durable}
    assert not find_difference(live, world.recover_queues())
    assert not find_difference(live, world.fold())


def compare(
    case: Case, reads: list[list[bytes]], is_late: bool, others: int = 5, at_once: bool = False
) -> None:
    """The same packets one by one, and as these reads of each part."""
    stream = case.stream()
    one = ReadWorld(case.queues, LIMITS, case.version, others, at_once)
    read_by_packets(one, stream)
    other = ReadWorld(case.queues, LIMITS, case.version, others, at_once)
    for part, pieces in zip(stream.parts, reads, strict=True):
        for data in pieces:
            other.read(data)
            if not is_late:  # or the disk is slower than the client
                other.make_safe()
        other.make_safe()
        other.move(part.move_ms)
    check_equal(one, other)
    check_sent(one, other)
    if not at_once:
        check_stored(other)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow], phases=PHASES)
@given(cases(), cuts, st.booleans(), st.sampled_from([4, 5]))
def test_however_the_bytes_are_cut_into_reads_the_broker_does_the_same(
    case: Case, cuts: list[int], is_late: bool, others: int
) -> None:
    compare(case, [cut_data(part.data(), cuts) for part in case.stream().parts], is_late, others)


ODD_PAIRS = [
    *[(4, odd) for odd in ODD_ONES if is_known(odd)],
    (4, Sort(b"$queue/a", pads=True)),
    *[(5, odd) for odd in ODD_ONES],
]


@pytest.mark.parametrize(("version", "odd"), ODD_PAIRS, ids=short_name)
def test_one_that_differs_among_many_that_are_alike_is_treated_as_if_it_came_alone(
    version: int, odd: Sort | Step
) -> None:
    """The first read shows what the client sends, the second has all the rest."""
    steps = [Step("publish"), Step("publish", 0, 3), Step("publish", 1, 2), Step("publish", 0, 3)]
    if isinstance(odd, Step):
        steps[2] = odd
    for usual, fields in USUAL:
        if version == 5 or is_known(usual):
            queues = with_names({name: dict(fields) for name in NAMES})
            case = Case(version, [usual, odd if isinstance(odd, Sort) else usual], steps, 0, queues)
            reads = [shown_first(part) for part in case.stream().parts]
            compare(case, reads, False)
            if usual == Sort(b"$queue/a") and not fields:
                compare(case, reads, False, at_once=True)


@pytest.mark.parametrize("version", [4, 5])
def test_no_place_to_cut_is_special(version: int) -> None:
    sorts = [Sort(b"$queue/a", size=2), Sort(b"$queue/a", size=115), Sort(b"$queue/stream", size=2)]
    steps = [Step("publish", at) for at in (0, 0, 0, 1, 2)] + [Step("ping"), Step("publish", 0, 2)]
    case = Case(version, sorts, steps, 0, with_names({name: {} for name in NAMES}))
    stream = case.stream()
    one = ReadWorld(case.queues, LIMITS, version)
    read_by_packets(one, stream)
    first, rest = shown_first(stream.parts[0])
    for place in range(1, len(rest)):
        other = ReadWorld(case.queues, LIMITS, version)
        for data in (first, rest[:place], rest[place:]):
            other.read(data)
            other.make_safe()
        assert (place, other.queues()) == (place, one.queues())
        assert (place, other.client.link.data) == (place, one.client.link.data)


# ------------------------------------------------------------------ receive maximum


def find_excess(reads: list[list[Sent]], receive_maximum: int) -> int:
    """Which of all packets is one too many; -1: none. What was answered is no longer open, but for exactly once, which
    is open until it is released."""
    open_ids: dict[int, None] = {}
    at = -1
    for read in reads:
        unanswered = 0
        for packet in read:
            at += 1
            if packet.data[0] == 0x62:
                open_ids.pop(int.from_bytes(packet.data[2:4], "big"), None)
            if not packet.qos or (packet.qos == 2 and packet.packet_id in open_ids):
                continue
            if unanswered + 1 + len(open_ids) > receive_maximum:
                return at
            if packet.qos == 1:
                unanswered += 1
            elif packet.topic != b"forbidden/1":  # refused: nothing is open
                open_ids[packet.packet_id] = None
    return -1


def check_excess(reads: list[list[Sent]], receive_maximum: int) -> None:
    """All before the one too many are taken as if they had come alone, and it is not."""
    packets = [packet for read in reads for packet in read]
    excess = find_excess(reads, receive_maximum)
    limits = replace(LIMITS, receive_maximum=receive_maximum)
    queues = with_names({name: {} for name in NAMES})
    one, other = ReadWorld(queues, limits, 5), ReadWorld(queues, limits, 5)
    for packet in packets if excess < 0 else packets[:excess]:
        one.read(packet.data)
        one.make_safe()
    for read in reads:
        other.read(b"".join(packet.data for packet in read))
        other.make_safe()
    assert not find_difference(one.queues(), other.queues())
    assert not find_difference(one.ends(), other.ends())
    assert one.subscriber.link.data == other.subscriber.link.data
    wanted, found = answers_in(one.sent()), answers_in(other.sent())
    assert not find_difference(wanted[: len(found)] if excess >= 0 else wanted, found)
    assert endings_in(other.sent()) == ([RECEIVE_MAXIMUM_EXCEEDED] if excess >= 0 else [])


@settings(max_examples=25, deadline=None, phases=PHASES)
@given(
    st.lists(
        st.builds(
            Sort,
            topic=st.sampled_from([b"$queue/a", b"$queue/a", b"$queue/stream", b"both/1", b"forbidden/1"]),
            qos=st.sampled_from([1, 1, 1, 0, 2]),
            dup=st.sampled_from([False, False, False, True]),
        ),
        min_size=1,
        max_size=3,
    ),
    st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from([1, 2, 3, 5]), st.sampled_from(["ping", "release"])),
        min_size=1,
        max_size=8,
    ),
    st.lists(st.integers(1, 7), min_size=1, max_size=8),
    st.integers(1, 9),
)
def test_the_first_publish_beyond_the_receive_maximum_ends_the_connection(
    sorts: list[Sort], rounds: list[tuple[int, int, str]], sizes: list[int], receive_maximum: int
) -> None:
    steps = [step for what, count, other in rounds for step in (Step("publish", what, count), Step(other))]
    packets = Stream(5, sorts, steps).packets()
    ends = itertools.accumulate(itertools.islice(itertools.cycle(sizes), len(packets)))
    check_excess([packets[first:last] for first, last in itertools.pairwise([0, *ends])], receive_maximum)


@pytest.mark.parametrize("receive_maximum", [1, 2, 5])
@pytest.mark.parametrize("open_ids", [0, 1, 2])
def test_publishes_that_are_alike_count_one_by_one_towards_the_receive_maximum(
    open_ids: int, receive_maximum: int
) -> None:
    for before, behind in itertools.product(range(5), range(5)):
        steps = [Step("publish", 1, open_ids), Step("publish"), Step("publish", 0, before)]
        steps += [Step("ping"), Step("publish", 0, behind)]
        packets = Stream(5, [Sort(b"$queue/a"), Sort(b"$queue/a", qos=2)], steps).packets()
        shown = 1 + open_ids
        check_excess([packets[:shown], packets[shown : shown + 1], packets[shown + 1 :]], receive_maximum)


# -------------------------------------------------------------------------- confirms


def check_confirmed(world: ReadWorld, stream: Stream) -> None:
    """What the client was told to be safe survives a power cut now; and nobody reads what does not."""
    recovered = {row[2] for rows in world.recover_queues().values() for row in rows}
    payloads = {packet.packet_id: packet.payload for packet in stream.packets()}
    confirmed = [payloads[packet.packet_id] for packet in world.sent() if isinstance(packet, PubAck | PubRec)]
    assert [payload for payload in confirmed if payload not in recovered] == []
    shown = [packet.payload for packet in packets_of(world.reader) if isinstance(packet, Publish)]
    assert [payload for payload in shown if payload not in recovered] == []


@settings(max_examples=30, deadline=None, phases=PHASES)
@given(
    st.sampled_from([4, 5]),
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from([1, 3, 9, 70])), min_size=1, max_size=8),
    cuts,
    st.lists(st.sampled_from(["", "hand over", "write"]), min_size=6, max_size=6),
)
def test_nothing_is_confirmed_or_shown_before_it_is_safe(
    version: int, publishes: list[tuple[int, int]], cuts: list[int], disk: list[str]
) -> None:
    """The disk takes what has gathered, or finishes what it took, or neither, between two reads."""
    sorts = [Sort(b"$queue/a"), Sort(b"$queue/stream"), Sort(b"bound/1"), Sort(b"$queue/a", qos=2)]
    stream = Stream(version, sorts, [Step("publish", *publish) for publish in publishes])
    queues = with_names({name: {} for name in NAMES})
    world = ReadWorld(queues, LIMITS, version)
    for data, does in zip(cut_data(stream.parts[0].data(), cuts), disk, strict=False):
        world.read(data)
        check_confirmed(world, stream)
        if does:
            world.node.log.flush()
        if does == "write":
            world.node.writer.work()
            world.tell_durable()
            check_confirmed(world, stream)
    world.make_safe()
    check_confirmed(world, stream)
    numbered = [packet.packet_id for packet in stream.packets() if packet.qos]
    found = [packet.packet_id for packet in world.sent() if isinstance(packet, PubAck | PubRec)]
    assert found == numbered
