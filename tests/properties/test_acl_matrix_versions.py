"""Access lists through real connections: path x rule x wildcard x version, against the oracle of the matrix.

A case is packets in and packets out of an endpoint. MQTT 3.1.1 and MQTT 5 meet the same cases; half of them find a
connection that was open, and routes that were known, before the list came.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest
from fakes import FakeOutlet, MqttPeer, MqttWorld, make_message
from test_acl_matrix import ACCOUNTS, CLIENT_IDS, NAMES, WORLD, make_document, make_filter, oracle, topics_of

from millstream.broker.account import Account
from millstream.broker.account_options import AccountOptions
from millstream.model.errors import Reason
from millstream.protocols.mqtt.wire import reason_codes as code
from millstream.protocols.mqtt.wire.encode import encode_packet
from millstream.protocols.mqtt.wire.frames import FrameRun
from millstream.protocols.mqtt.wire.packets import (
    Answer,
    ConnAck,
    Connect,
    Packet,
    Publish,
    SubAck,
    Subscribe,
    SubscribeEntry,
    Will,
)
from millstream.protocols.mqtt.wire.properties import Properties
from millstream.routing.subscription import Subscription
from millstream.security.acl import parse_acl
from millstream.security.authentication import Decision, Verdict
from millstream.security.principal import Principal
from millstream.security.users import User, UserTable

SEEDS = range(8)
LISTS_PER_SEED = 40
VERSIONS = [4, 5]
ALL_TOPICS = ["#", "$SYS/#"]
SHORT_TOPICS = [topic for topic in WORLD if topic.count("/") < 2]
RETAINED_COUNT = 12


class Stage:
    """A broker, a client at its door with the list it falls under, and what came of it so far."""

    def __init__(self, chance: random.Random, version: int, document: dict[str, object]) -> None:
        self.chance = chance
        self.version = version
        self.document = document
        self.who = Principal(chance.choice(NAMES), chance.choice(ACCOUNTS), "user")
        # A user who exists: so passwords are asked for, and who comes is what the test says.
        users = UserTable({self.who.name: User(self.who.name, "never asked", self.who.account, None)})
        self.world = MqttWorld(users=users, accounts={name: AccountOptions() for name in ACCOUNTS})
        self.client_id = chance.choice(CLIENT_IDS)
        self.verdicts: list[bool] = []
        self._watcher = FakeOutlet()

    def __repr__(self) -> str:
        return f"{self.document} for {self.who} as {self.client_id!r} in version {self.version}"

    @property
    def account(self) -> Account:
        return self.world.broker.get_account(self.who.account)

    # --- what the oracle says

    def may(self, action: str, asked: str) -> bool:
        verdict = oracle(self.document, action, self.who, self.client_id, asked)
        self.verdicts.append(verdict)
        return verdict

    def pick(self, action: str, asked: list[str]) -> list[str]:
        return [one for one in asked if self.may(action, one)]

    # --- what a case needs

    def topics(self, count: int = 3) -> list[str]:
        return [self.chance.choice(self.chance.choice([WORLD, SHORT_TOPICS])) for _ in range(count)]

    def enforce(self) -> None:
        self.world.authorizer.replace(parse_acl(self.document))
        for account in self.world.broker.accounts.values():
            account.on_rights_changed()

    def connect(self, will: Will | None = None, lasting: bool = False) -> MqttPeer:
        properties = None
        if self.version == 5 and lasting:
            properties = Properties()
            properties.session_expiry_interval = 1000
        peer = self.world.peer(self.version)
        packet = Connect(
            self.version, self.client_id, not lasting, 0, self.who.name, b"secret", will, properties
        )
        assert peer.send(packet) == []
        assert [credentials.username for credentials in peer.link.asked] == [self.who.name]
        peer.endpoint.on_decision(Decision(Verdict.ALLOWED, self.who, Reason.SUCCESS, ""), self.world.now_ns)
        if not self.client_id:
            self.client_id = "made-1"
        return peer

    def open(self, lasting: bool = False) -> MqttPeer:
        peer = self.connect(lasting=lasting)
        answer = peer.take()[0]
        assert isinstance(answer, ConnAck)
        assert answer.reason == 0
        return peer

    def open_sender(self, topics: list[str]) -> MqttPeer:
        """A client that may have published to all of it before the list came."""
        for name in ALL_TOPICS:
            self.account.router.subscribe(Subscription(self._watcher, name.encode(), b"", 2, False, False, 0))
        if self.chance.random() < 0.5:
            self.enforce()
            return self.open()
        peer = self.open()
        peer.send(*[Publish(topic.encode(), b"before") for topic in topics])
        self.watched()
        self.world.observer.lines.clear()
        self.enforce()
        return peer

    def open_reader(self, prefix: str = "", lasting: bool = False) -> MqttPeer:
        """A client that has subscribed to everything before the list came."""
        peer = self.open(lasting)
        peer.send(Subscribe(1, [SubscribeEntry((prefix + name).encode(), 1) for name in ALL_TOPICS]))
        if self.chance.random() < 0.5:
            for topic in self.topics():
                self.account.router.find_route(topic.encode())
        return peer

    # --- what came of it

    def watched(self) -> list[str]:
        """Topics of what got past the rights of a publisher, and forget them."""
        found = list(self._watcher.messages)
        for run in self._watcher.runs:
            found += run.messages()
        self._watcher.messages.clear()
        self._watcher.runs.clear()
        return [message.topic.decode() for message in found]

    def denied(self, action: str) -> set[str]:
        """What the log was told to be denied."""
        found = [
            said for what, who, said in self.world.observer.lines if (what, who) == ("denied", self.client_id)
        ]
        assert all(said.startswith(f"{action} ") for said in found)
        return {said.removeprefix(f"{action} ") for said in found}


def received(peer: MqttPeer) -> list[str]:
    found: list[Packet] = []
    while more := peer.take():
        found += more
    return [packet.topic.decode() for packet in found if isinstance(packet, Publish)]


# --- the paths: what the oracle wants, and what happened


def publish(stage: Stage, qos: int) -> tuple[object, object]:
    topics = stage.topics()
    topics.insert(0, topics[0])  # twice in a row: QoS 0 makes a run of it, MQTT 5 an alias
    sender = stage.open_sender(topics)
    packets: list[Packet] = []
    for number, topic in enumerate(topics, 1):
        packet = Publish(topic.encode(), b"x", qos, packet_id=number if qos else 0)
        if stage.version == 5 and number <= 2:
            packet.properties = Properties()
            packet.properties.topic_alias = 1
            packet.topic = topic.encode() if number == 1 else b""
        packets.append(packet)
    answers = [one.reason for one in sender.send(*packets) if isinstance(one, Answer)]
    allowed = stage.pick("publish", topics)
    refused = code.NOT_AUTHORIZED if stage.version == 5 else 0  # MQTT 3.1.1 has no word for it
    wanted = [0 if topic in allowed else refused for topic in topics] if qos else []
    return (allowed, wanted, set(topics) - set(allowed)), (stage.watched(), answers, stage.denied("publish"))


def publish_retained(stage: Stage) -> tuple[object, object]:
    topics = stage.topics()
    sender = stage.open_sender([])
    qos = stage.chance.choice([0, 1])
    sender.send(*[Publish(topic.encode(), b"x", qos, True, packet_id=qos) for topic in topics])
    kept = [topic for topic in topics if stage.account.retained.find(topic.encode()) is not None]
    return stage.pick("publish", topics), kept


def will_at_connect(stage: Stage) -> tuple[object, object]:
    topic = stage.topics()[0]
    stage.enforce()
    peer = stage.connect(will=Will(topic.encode(), b"gone"))
    answer = peer.take()[0]
    assert isinstance(answer, ConnAck)
    allowed = stage.may("publish", topic)
    refused = code.NOT_AUTHORIZED if stage.version == 5 else 5
    wanted = (0 if allowed else refused, not allowed, set() if allowed else {topic}, int(allowed))
    return wanted, (answer.reason, peer.link.is_closed, stage.denied("will"), len(stage.account.sessions))


def will_when_sent(stage: Stage) -> tuple[object, object]:
    topic = stage.topics()[0].removeprefix("$SYS/") or "a"  # nobody gets as far as that
    stage.open_sender([]).lose()
    stage.world.authorizer.replace(None)
    leaving = stage.connect(will=Will(topic.encode(), b"gone", stage.chance.choice([0, 1])))
    stage.enforce()
    leaving.lose()
    return stage.pick("publish", [topic]), stage.watched()


def subscribe(stage: Stage, prefix: str) -> tuple[object, object]:
    filters = [make_filter(stage.chance, placeholders=False) for _ in range(3)]
    stage.enforce()
    peer = stage.open()
    names = [prefix + filter for filter in filters]
    answer = peer.send(Subscribe(1, [SubscribeEntry(name.encode(), 1) for name in names]))[0]
    assert isinstance(answer, SubAck)
    allowed = stage.pick("subscribe", filters)
    refused = code.NOT_AUTHORIZED if stage.version == 5 else 0x80
    reasons = [1 if filter in allowed else refused for filter in filters]
    denied = {prefix + filter for filter in filters if filter not in allowed}
    found = [one.filter.decode() for one in stage.account.sessions[stage.client_id].subscriptions.all()]
    return (reasons, denied, sorted(set(allowed))), (answer.reasons, stage.denied("subscribe"), sorted(found))


def deliver_run(stage: Stage) -> tuple[object, object]:
    topics = stage.topics()
    reader = stage.open_reader()
    stage.enforce()
    for topic in topics:
        version = stage.chance.choice(VERSIONS)
        frames = encode_packet(Publish(topic.encode(), b"x"), version) * 2
        run = FrameRun(frames, 0, len(frames), 2, version, stage.world.now_ns)
        route = stage.account.router.find_route(topic.encode())
        stage.world.broker.publishing.publish_run(stage.account, route, run, None)
    return [topic for topic in stage.pick("receive", topics) for _ in range(2)], received(reader)


def send(stage: Stage, topics: list[str], retain: bool = False) -> None:
    for topic in topics:
        message = make_message(topic.encode(), b"x", 1, retain)
        stage.world.broker.publish_internal(stage.account, message, None)


def deliver(stage: Stage, prefix: str) -> tuple[object, object]:
    topics = stage.topics()
    reader = stage.open_reader(prefix)
    stage.enforce()
    send(stage, topics)
    return stage.pick("receive", topics), received(reader)


def deliver_retained(stage: Stage) -> tuple[object, object]:
    topics = list(dict.fromkeys(stage.topics(RETAINED_COUNT)))
    send(stage, topics, retain=True)
    stage.enforce()
    filter = stage.chance.choice([make_filter(stage.chance, placeholders=False), topics[0], "#"])
    reader = stage.open()
    reader.endpoint.receive_data(
        encode_packet(Subscribe(1, [SubscribeEntry(filter.encode(), 1)]), stage.version), stage.world.now_ns
    )
    readable = stage.pick("receive", [topic for topic in topics if topic in topics_of(filter)])
    if not stage.may("subscribe", filter):
        readable = []
    return sorted(readable), sorted(received(reader))


def deliver_offline(stage: Stage) -> tuple[object, object]:
    topics = stage.topics()
    stage.client_id = stage.client_id or "c1"
    stage.open_reader(lasting=True).lose()
    was_stored = stage.chance.random() < 0.5
    if was_stored:
        send(stage, topics)
    stage.enforce()
    if not was_stored:
        send(stage, topics)
    return stage.pick("receive", topics), received(stage.connect(lasting=True))


PATHS: dict[str, Callable[[Stage], tuple[object, object]]] = {
    "publish, a run": lambda stage: publish(stage, 0),
    "publish, at least once": lambda stage: publish(stage, 1),
    "publish, exactly once": lambda stage: publish(stage, 2),
    "retained publish": publish_retained,
    "will at connect": will_at_connect,
    "will when sent": will_when_sent,
    "subscribe": lambda stage: subscribe(stage, ""),
    "shared subscribe": lambda stage: subscribe(stage, "$share/group/"),
    "live delivery, a run": deliver_run,
    "live delivery": lambda stage: deliver(stage, ""),
    "shared delivery": lambda stage: deliver(stage, "$share/group/"),
    "retained delivery": deliver_retained,
    "offline replay": deliver_offline,
}


def test_the_matrix_has_at_least_two_thousand_connections_of_each_version() -> None:
    assert len(SEEDS) * LISTS_PER_SEED * len(PATHS) >= 2000


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("seed", SEEDS)
def test_every_path_of_a_connection_decides_as_the_oracle(seed: int, version: int) -> None:
    chance = random.Random(seed)
    verdicts: Counter[tuple[str, bool]] = Counter()
    cases = 0
    for _ in range(LISTS_PER_SEED):
        document = make_document(chance)
        for name, path in PATHS.items():
            stage = Stage(chance, version, document)
            wanted, found = path(stage)
            assert found == wanted, (name, stage)
            verdicts.update([(name, verdict) for verdict in stage.verdicts])
            cases += 1
    assert cases == LISTS_PER_SEED * len(PATHS)
    for name in PATHS:  # a matrix of one colour proves nothing
        share = verdicts[name, True] / (verdicts[name, True] + verdicts[name, False])
        assert 0.05 < share < 0.95, name
