"""What a client may send, as steps that are short to read: publishes of a few sorts, again and again, and what comes
between them. A `Stream` turns them into packets."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st

from millstream.protocols.mqtt.wire.encode import encode_packet
from millstream.protocols.mqtt.wire.packets import (
    Connect,
    Disconnect,
    PingReq,
    Publish,
    PubRel,
    Subscribe,
    SubscribeEntry,
    Unsubscribe,
)
from millstream.protocols.mqtt.wire.properties import Properties

PAYLOAD_SIZE_MAX = 20_000
PACKET_SIZE_MAX = 30_000
PACKETS_MAX = 450  # of one stream
LARGE_TOGETHER = 3  # so many large ones follow each other at most

TOPICS = (
    b"$queue/a",
    b"$queue/a/x",
    b"$queue/b",
    b"$queue/stream",
    b"$queue/consumed",  # as soon as it is safe
    b"$queue/fresh",  # made by its first publish
    b"$queue/a/$ack",  # an answer, not a publish
    b"bound/1",
    b"bound/2",
    b"both/1",  # bound to a queue, and subscribed to
    b"nobody/1",
    b"forbidden/1",
)
QUEUE_TOPICS = (b"$queue/a", b"$queue/a", b"$queue/b", b"$queue/stream", b"$queue/consumed", b"bound/1")
# a retained message is sent to whoever subscribes when there is time for it: not where this client does
RETAINED_TOPICS = (b"$queue/a", b"$queue/b", b"bound/2", b"forbidden/1")
FILTERS = (b"nobody/1", b"nobody/#", b"bound/1", b"+/1")
WORDS = ("", "", "", "", "user", "rest", "now", "soon", "late", "producer", "twice", "priority", "delay")
EDGE_SIZES = (0, 114, 115, 116, 16_370, 16_371, 16_372)  # to $queue/a: one more byte makes the length longer
SIZES = (1, 20, 20, 20, 20, 100, 130, 1000, *EDGE_SIZES)
ENDS = (
    "inside its topic",
    "inside its packet id",
    "packet id 0",
    "qos 3",
    "dup at qos 0",
    "large message",
    "large packet",
    "wildcard",
    "not utf-8",
    "unknown alias",
    "padded",
    "connect",
    "disconnect",
    "no such packet",
)


@dataclass(frozen=True)
class Sort:
    """Publishes that differ in their number alone."""

    topic: bytes
    qos: int = 1
    words: str = ""
    size: int = 20
    retain: bool = False
    dup: bool = False
    alias: int = 0
    pads: bool = False


@dataclass(frozen=True)
class Step:
    """`what`: which sort, which filter, how many milliseconds, which end."""

    kind: str
    what: int = 0
    count: int = 1


@dataclass(frozen=True)
class Sent:
    """A packet, and what is to be known of a publish."""

    data: bytes
    qos: int = 0
    packet_id: int = 0
    topic: bytes = b""
    payload: bytes = b""


@dataclass(frozen=True)
class Part:
    """What is sent before the clock moves."""

    packets: list[Sent] = field(default_factory=list)
    move_ms: int = 0

    def data(self) -> bytes:
        return b"".join(packet.data for packet in self.packets)


def sorts(version: int) -> st.SearchStrategy[Sort]:
    """Mostly what many clients send: QoS 1, nothing special, into a queue."""
    is_five = version == 5
    seldom = st.sampled_from([False] * 9 + [True])
    return st.builds(
        Sort,
        topic=st.one_of(st.sampled_from(QUEUE_TOPICS), st.sampled_from(TOPICS)),
        qos=st.sampled_from([1] * 8 + [0, 2]),
        words=st.sampled_from(WORDS) if is_five else st.just(""),
        size=st.sampled_from(SIZES),
        retain=seldom,
        dup=seldom,
        alias=st.sampled_from([0] * 8 + [1, 2]) if is_five else st.just(0),
        pads=st.just(False) if is_five else seldom,
    )


@st.composite
def steps(draw: st.DrawFn) -> list[Step]:
    """Publishes with something else between them now and then; an end is not the last thing a client says, and there may
    be more than one: the first of them counts."""
    count = st.sampled_from([1, 2, 3, 5, 9, 20, 70, 300])
    publishes = st.builds(Step, st.just("publish"), st.integers(0, 2), count)
    others = st.one_of(
        st.builds(Step, st.sampled_from(["ping", "release", "unknown"])),
        st.builds(Step, st.sampled_from(["subscribe", "unsubscribe"]), st.integers(0, len(FILTERS) - 1)),
        st.builds(Step, st.just("move"), st.sampled_from([500, 3000])),
    )
    found: list[Step] = []
    for publish, another, other in draw(
        st.lists(st.tuples(publishes, publishes, others), min_size=1, max_size=5)
    ):
        found += [publish, another, other]
    for end in draw(st.lists(st.integers(0, len(ENDS) - 1), max_size=2)):
        found += [draw(publishes), Step("end", end), draw(publishes)]
    return found


class Stream:
    """The packets of some steps, CONNECT first."""

    def __init__(self, version: int, sorts: list[Sort], steps: list[Step], expiry_s: int = 0) -> None:
        self._version = version
        self._sorts = sorts
        self._count = 0
        self._packet_id = 0
        self._open: list[int] = []  # ids that were not released
        self._aliases: dict[int, bytes] = {}
        self.parts: list[Part] = []
        self._packets: list[Sent] = [Sent(self._connect(expiry_s))]
        for step in steps:
            self._add(step)
        self.parts.append(Part(self._packets))

    def packets(self) -> list[Sent]:
        return [packet for part in self.parts for packet in part.packets]

    def _connect(self, expiry_s: int) -> bytes:
        properties = Properties()
        properties.session_expiry_interval = expiry_s
        is_clean = self._version == 5 or expiry_s == 0
        packet = Connect(self._version, "client", is_clean, 0)
        packet.properties = properties if self._version == 5 else None
        return encode_packet(packet, self._version)

    def _new_id(self) -> int:
        self._packet_id += 1
        return self._packet_id

    def _add(self, step: Step) -> None:
        if step.kind == "publish":
            sort = self._sorts[step.what % len(self._sorts)]
            count = step.count if sort.size < 1000 else min(step.count, LARGE_TOGETHER)
            for number in range(min(count, PACKETS_MAX - self._count)):
                self._packets.append(self._publish(sort, number))
        elif step.kind == "move":
            self.parts.append(Part(self._packets, step.what))
            self._packets = []
        elif step.kind == "end":
            self._packets.append(Sent(self._end(ENDS[step.what])))
        else:
            self._packets.append(Sent(self._other(step)))

    def _other(self, step: Step) -> bytes:
        version = self._version
        if step.kind == "ping":
            return encode_packet(PingReq(), version)
        if step.kind == "release":
            return encode_packet(PubRel(self._open.pop(0) if self._open else 50_000), version)
        if step.kind == "unknown":
            return encode_packet(PubRel(60_000), version)
        name = FILTERS[step.what]
        if step.kind == "subscribe":
            return encode_packet(Subscribe(self._new_id(), [SubscribeEntry(name, 1)]), version)
        return encode_packet(Unsubscribe(self._new_id(), [name]), version)

    def _publish(self, sort: Sort, number: int) -> Sent:
        self._count += 1
        topic, payload = sort.topic, (b"%d." % self._count).ljust(sort.size, b"-")[: sort.size]
        packet_id = 0
        if sort.qos == 2 and sort.dup and self._open:
            packet_id = self._open[-1]  # said again: it must not count again
        elif sort.qos:
            packet_id = self._new_id()
            if sort.qos == 2:
                self._open.append(packet_id)
        properties = self._properties(sort, number)
        if properties is not None and sort.alias:
            properties.topic_alias = sort.alias
            if self._aliases.get(sort.alias) == topic:
                topic = b""
            else:
                self._aliases[sort.alias] = topic
        retain = sort.retain and sort.topic in RETAINED_TOPICS
        dup = sort.dup and sort.qos > 0
        data = encode_packet(
            Publish(topic, payload, sort.qos, retain, dup, packet_id, properties), self._version
        )
        return Sent(pad(data) if sort.pads else data, sort.qos, packet_id, sort.topic, payload)

    def _properties(self, sort: Sort, number: int) -> Properties | None:
        if self._version < 5:
            return None
        properties = Properties()
        words = sort.words
        if words == "user":
            properties.user_properties = [(b"name", b"value"), (b"name", b"other")]
        elif words == "rest":
            properties.payload_format_indicator = 1
            properties.content_type = b"text/plain"
            properties.correlation_data = b"%d" % (number // 2)
        elif words in ("now", "soon", "late"):
            properties.message_expiry_interval = {"now": 0, "soon": 1, "late": 100}[words]
        elif words in ("producer", "twice"):  # each of them again with the next step, or at once
            sequence = number if words == "producer" else number // 2
            properties.user_properties = [(b"producer-id", b"p"), (b"sequence", b"%d" % sequence)]
        elif words == "priority":
            properties.user_properties = [(b"priority", b"%d" % (number % 4))]
        elif words == "delay":
            properties.user_properties = [(b"delay-ms", b"%d" % (1000 * (number % 3)))]
        return properties

    def _end(self, name: str) -> bytes:
        block = b"\x00" if self._version == 5 else b""
        topic = b"\x00\x08$queue/a"
        if name == "inside its packet id":
            return frame(0x32, topic, b"\x00")
        if name == "packet id 0":
            return frame(0x32, topic, b"\x00\x00", block, b"x")
        if name == "qos 3":
            return frame(0x36, topic, b"\x00\x01", block, b"x")
        if name == "dup at qos 0":
            return frame(0x38, topic, block, b"x")
        if name == "large message":
            return frame(0x32, topic, b"\x00\x01", block, bytes(PAYLOAD_SIZE_MAX + 1))
        if name == "large packet":
            return b"\x32\xff\xff\x7f"
        if name == "wildcard":
            return frame(0x32, b"\x00\x08$queue/#", b"\x00\x01", block, b"x")
        if name == "not utf-8":
            return frame(0x32, b"\x00\x08$queue/\xff", b"\x00\x01", block, b"x")
        if name == "unknown alias" and self._version == 5:
            return frame(0x32, b"\x00\x00", b"\x00\x01", b"\x03\x23\x00\x09", b"x")
        if name == "padded" and self._version == 5:
            return pad(frame(0x32, topic, b"\x00\x01", block, b"x"))
        if name == "connect":
            return self._connect(0)
        if name == "disconnect":
            return encode_packet(Disconnect(), self._version)
        if name == "no such packet":
            return b"\x00\x00"
        return frame(0x32, b"\x00")


def frame(first: int, *parts: bytes) -> bytes:
    """A packet put together by hand, for what our own encoder would refuse to write."""
    body = b"".join(parts)
    length = bytearray()
    size = len(body)
    while size > 127:
        length.append(size % 128 | 0x80)
        size //= 128
    return bytes([first, *length, size]) + body


def pad(data: bytes) -> bytes:
    """The same packet with a length that is one byte longer than it need be."""
    end = 1
    while data[end] & 0x80:
        end += 1
    return data[:end] + bytes([data[end] | 0x80, 0]) + data[end + 1 :]
