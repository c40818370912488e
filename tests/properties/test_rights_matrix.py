"""Rights through real protocol machines: protocol x operation x spelling x indirect path x revocation, against an oracle that
was written from the documents alone (`rights_oracle`).

A case is one thing that was asked of a broker, or that it did by itself, with what the oracle says of it. Rules are made by
chance; half of them are replaced by others in the middle, so that what was set up before must stop or go on.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from amqp091_traffic import consume, publish, queue
from indirect_paths import PATHS, render
from rights_exchanges import MORE, mandatory
from rights_stage import Stage

from millstream.protocols.amqp091.policies import QUEUES, Policy
from millstream.protocols.amqp091.wire.field_table import FieldTable
from millstream.protocols.amqp091.wire.methods import (
    BasicCancel,
    BasicGet,
    ConfirmSelect,
    ExchangeBind,
    ExchangeDeclare,
    QueueBind,
    QueueDeclare,
    QueueDelete,
    QueuePurge,
    QueueUnbind,
    TxCommit,
    TxSelect,
)
from millstream.protocols.amqp091.wire.properties import BasicProperties
from millstream.protocols.mqtt.wire.packets import (
    Answer,
    Publish,
    SubAck,
    Subscribe,
    SubscribeEntry,
    Will,
)
from millstream.protocols.mqtt.wire.properties import Properties

SEEDS = range(10)
ROUNDS = 9
CASES_MIN = 5000
REFUSED = 403
DOCUMENT = Path(__file__).parents[2] / "docs" / "security.md"
# how a queue may be written: (as a topic, as a name of AMQP)
SPELLINGS = (
    *(
        "$queue/q",
        "$queue/d",
        "$queue/a%2Fb",
        "$queue/z",
        "$dlq/q",
        "$queue/%71",
        "$queue/a%2fb",
        "$queue/$dlq/q",
    ),
    *("$dlq/%71", "$queue/a%2Fb/k", "$queue/q/k"),
)
TOPICS = ("a/b", "a", "b", "b/a", "z/z", "x/a", "y/b")


# --- straight: operations and spellings


def mqtt_operations(stage: Stage) -> None:
    version = stage.chance.choice((4, 5))
    refused = 0x87 if version == 5 else 0x80
    for topic in stage.chance.sample((*SPELLINGS, *TOPICS), 6):
        peer, _ = stage.mqtt(version)
        prefix = stage.chance.choice(("", "$share/g/"))
        answer = peer.send(Subscribe(1, [SubscribeEntry((prefix + topic).encode(), 1)]))[0]
        assert isinstance(answer, SubAck)
        wanted = stage.oracle.can_subscribe(topic)
        stage.case(f"mqtt subscribe {prefix}{topic}", wanted, answer.reasons[0] != refused)
        retain = stage.chance.random() < 0.3 and not topic.startswith("$")
        answers = peer.send(Publish(topic.encode(), b"x", 1, retain, packet_id=2))
        reasons = [one.reason for one in answers if isinstance(one, Answer)]
        wanted = stage.oracle.can_publish(topic)
        if version == 5:
            stage.case(f"mqtt publish {topic}", wanted, reasons[0] != 0x87)
        if not topic.startswith("$"):
            stage.case(f"mqtt published {topic}", [topic] if wanted else [], stage.watched())
        if retain:
            kept = stage.account.retained.find(topic.encode()) is not None
            stage.case(f"mqtt retained {topic}", wanted, kept)


def amqp_operations(stage: Stage) -> None:
    for topic in stage.chance.sample([name for name in SPELLINGS if name.count("/") == 1], 3):
        allowed = stage.oracle.can_subscribe(topic)
        name = topic.encode()
        for method in (
            QueueDeclare(name, True, False, False, False, False, {}),
            BasicGet(name, True),
            consume(name),
            QueuePurge(name, False),
            QueueUnbind(name, b"x", b"k", {}),
            QueueDelete(name, True, True, False),
        ):
            stage.case(f"amqp {type(method).__name__} {topic}", allowed, stage.ask(method))
        stage.case(f"amqp publish {topic}", stage.oracle.can_publish(topic), stage.send(name))
    for key, topic in (
        (b"a.b", "a/b"),
        (b"a/b", "$queue/a%2Fb"),
        (b"b/a", "b/a"),
        (b"q", "$queue/q"),
        (b"b", "b"),
    ):
        if topic == "$queue/q" and stage.account.queues.catalog.find("q") is None:
            topic = "q"
        if topic == "$queue/a%2Fb" and stage.account.queues.catalog.find("a/b") is None:
            topic = "a/b"
        stage.case(f"amqp default {key!r}", stage.oracle.can_publish(topic), stage.send(key))
    for key, topic in ((b"a.b", "a/b"), (b"b", "b"), (b"$queue.q", "%24queue/q")):
        stage.case(f"amqp amq.topic {key!r}", stage.oracle.can_publish(topic), stage.send(key, b"amq.topic"))
    for key in (b"a", b"b"):
        wanted = stage.oracle.can_publish(f"x/{key.decode()}")
        stage.case(f"amqp x {key!r}", wanted, stage.send(key, b"x"))
    declare = ExchangeDeclare(b"x", stage.kind.encode(), False, True, False, False, False, {})
    stage.case("amqp exchange x", stage.oracle.can_subscribe("x/#"), stage.ask(declare))


# --- indirect paths


def will(stage: Stage) -> None:
    version = stage.chance.choice((4, 5))
    topic = stage.chance.choice((*TOPICS, *SPELLINGS))
    peer, reason = stage.mqtt(version, Will(topic.encode(), b"gone", 1))
    granted = stage.oracle.can_publish(topic)
    stage.case(f"will {topic}", granted, reason == 0)
    if not granted:
        return
    stage.change()
    place = topic if not topic.startswith("$") else ""
    before = stage.ready("q")
    peer.lose()
    sent = stage.oracle.can_publish(topic)
    if place:
        stage.case(f"will sent {topic}", [topic] if sent else [], stage.watched())
    elif topic in ("$queue/q", "$queue/q/k"):
        stage.case(f"will sent {topic}", int(sent), stage.ready("q") - before)


def subscription(stage: Stage) -> None:
    version = stage.chance.choice((4, 5))
    prefix = stage.chance.choice(("", "$share/g/"))
    filter = stage.chance.choice(("#", "a/#", "+/b", "a/b", "x/#"))
    peer, _ = stage.mqtt(version)
    answer = peer.send(Subscribe(1, [SubscribeEntry((prefix + filter).encode(), 1)]))[0]
    assert isinstance(answer, SubAck)
    granted = stage.oracle.can_subscribe(filter)
    stage.case(f"subscription {prefix}{filter}", granted, answer.reasons[0] < 0x80)
    if not granted:
        return
    for _ in range(2):
        for topic in ("a/b", "x/a"):
            stage.publish(topic)
            found = [one.topic.decode() for one in peer.take() if isinstance(one, Publish)]
            fits = filter == "#" or (topic == "a/b" and filter != "x/#") or (topic, filter) == ("x/a", "x/#")
            wanted = [topic] if fits and stage.oracle.can_receive(topic) else []
            stage.case(f"subscription {prefix}{filter} brings {topic}", wanted, found)
        stage.change()


def consumer(stage: Stage) -> None:
    topic = stage.chance.choice(("$queue/q", "$dlq/q", "$queue/a%2Fb", "$queue/d"))
    name = {"$queue/q": "q", "$dlq/q": "$dlq/q", "$queue/d": "d"}.get(topic, "a/b")
    if stage.chance.random() < 0.5:
        peer, _ = stage.mqtt(5)
        answer = peer.send(Subscribe(1, [SubscribeEntry(topic.encode(), 0)]))[0]
        assert isinstance(answer, SubAck)
        granted = answer.reasons[0] < 0x80
        stage.case(f"mqtt consumer {topic}", stage.oracle.can_subscribe(topic), granted)
        if granted:
            stage.change()
            stage.publish(topic)
            found = len([one for one in peer.take() if isinstance(one, Publish)])
            stage.case(f"mqtt consumer {topic} later", int(stage.oracle.can_subscribe(topic)), found)
        return
    granted = stage.ask(consume(topic.encode(), no_ack=True))
    stage.case(f"amqp consumer {topic}", stage.oracle.can_subscribe(topic), granted)
    if granted:
        stage.change()
        kept = stage.oracle.can_subscribe(topic)
        told = [one for one in stage.amqp().take() if isinstance(one, BasicCancel)]
        stage.case(f"amqp consumer {topic} cancelled", not kept, bool(told))
        stage.publish(topic)
        stage.case(f"amqp consumer {topic} later", 0 if kept else 1, stage.ready(name))


def queue_binding(stage: Stage) -> None:
    source, key, brought, sent = stage.chance.choice(
        (
            (b"amq.topic", b"a.#", "a/#", (b"a.b", b"a")),
            (b"amq.topic", b"a.*", "a/+", (b"a.b",)),
            (b"amq.topic", b"a.b", "a/b", (b"a.b",)),
            (b"amq.topic", b"#.b", "#", (b"a.b",)),
            (b"x", b"a", "x/#" if stage.kind == "fanout" else "x/a", (b"a",)),
            (b"y", b"", "y/#", (b"b",)),
        )
    )

    def may() -> bool:
        return stage.oracle.can_subscribe("$queue/q") and stage.oracle.has_all(brought, "subscribe")

    granted = stage.ask(QueueBind(b"q", source, key, False, {}))
    stage.case(f"binding {source!r} {key!r}", may(), granted)
    for _ in range(2):
        for each in sent:
            before = stage.ready("q")
            stage.publish_to(source.decode(), each)
            wanted = int(granted and may())
            stage.case(f"binding {source!r} {key!r} brings", wanted, stage.ready("q") - before)
        stage.change()


def exchange_binding(stage: Stage) -> None:
    stage.account.exchanges.bind_queue(stage.queue("q"), "y", b"", {})
    key = b"a"
    brought = "x/#" if stage.kind == "fanout" else "x/a"
    target = stage.chance.choice((b"y", b"amq.topic"))
    whole = "y/#" if target == b"y" else "#"
    one = "y/a" if target == b"y" else "a"

    def may() -> bool:
        written = one if stage.kind == "direct" else whole
        return (
            stage.oracle.can_subscribe(whole)
            and stage.oracle.has_all(brought, "subscribe")
            and stage.oracle.has_all(written, "publish")
        )

    granted = stage.ask(ExchangeBind(target, b"x", key, False, {}))
    stage.case(f"exchange binding to {target!r}", may(), granted)
    for _ in range(2):
        before = stage.ready("q")
        stage.watched()
        stage.publish_to("x", key)
        topics = stage.watched()
        if target == b"y":
            found = stage.ready("q") - before
            stage.case(f"exchange binding to {target!r} brings", int(granted and may()), found)
        else:
            wanted = ["a"] if granted and may() else []
            stage.case(f"exchange binding to {target!r} brings", wanted, topics)
        stage.change()


def alternate(stage: Stage) -> None:
    stage.account.exchanges.bind_queue(stage.queue("d"), "y", b"", {})
    name, wanted = stage.chance.choice(((b"y", "y/#"), (b"amq.topic", "#"), (b"", "$queue/#")))
    arguments: FieldTable = {b"alternate-exchange": name}
    declare = ExchangeDeclare(b"z", b"direct", False, True, False, False, False, arguments)

    def may() -> bool:
        return stage.oracle.has_all(wanted, "publish")

    granted = stage.ask(declare)
    stage.case(f"alternate {name!r}", stage.oracle.can_subscribe("z/#") and may(), granted)
    if not granted:
        return
    for _ in range(2):
        before = stage.ready("d")
        stage.watched()
        stage.publish_to("z", b"d")
        found = len(stage.watched()) if name == b"amq.topic" else stage.ready("d") - before
        stage.case(f"alternate {name!r} brings", int(may()), found)
        stage.change()


def letters(stage: Stage, exchange: bytes, key: bytes | None) -> None:
    """Of the queue z, which holds one message: the next one is a dead letter."""
    arguments: FieldTable = {b"x-dead-letter-exchange": exchange, b"x-max-length": 1}
    if key is not None:
        arguments[b"x-dead-letter-routing-key"] = key
    letter = b"z" if key is None else key
    stage.account.exchanges.bind_queue(stage.queue("d"), "y", b"", {})
    if exchange == b"y":
        topic, place = f"y/{letter.decode()}", "d"
    elif letter in (b"z", b"q"):
        topic, place = f"$queue/{letter.decode()}", letter.decode()
    elif letter.startswith(b"$"):
        topic, place = letter.decode(), "q"
    else:
        topic, place = letter.decode().replace(".", "/"), ""

    def may_declare() -> bool:
        if key is not None:
            named = key.decode().replace("/", "%2F")
            may_come = exchange == b"" and not key.startswith(b"$")  # a queue of that name
            return stage.oracle.can_publish(topic) or (
                may_come and stage.oracle.can_publish(f"$queue/{named}")
            )
        return stage.oracle.has_all("y/#" if exchange == b"y" else "$queue/#", "publish")

    granted = stage.ask(queue(b"z", arguments=arguments))
    wanted = stage.oracle.can_subscribe("$queue/z") and may_declare()
    stage.case(f"letters to {exchange!r} {key!r}", wanted, granted)
    if not granted:
        return
    stage.publish("$queue/z")
    for _ in range(2):
        before = stage.ready(place) if place else 0
        stage.watched()
        stage.publish("$queue/z")
        found = stage.ready(place) - before if place else len(stage.watched())
        if place == "z":
            found = 0  # it would go round: nobody gets it
            stage.case(f"letters to {exchange!r} {key!r} arrive", 0, stage.ready("z") - before)
        else:
            stage.case(f"letters to {exchange!r} {key!r} arrive", int(stage.oracle.can_publish(topic)), found)
        stage.change()


def letters_with_key(stage: Stage) -> None:
    exchange, key = stage.chance.choice(
        (
            (b"y", b"a"),
            (b"y", b"b"),
            (b"", b"q"),
            (b"", b"a.b"),
            (b"", b"b/a"),
            (b"", b"b"),
            (b"", b"$queue/q"),
        )
    )
    letters(stage, exchange, key)


def letters_without_key(stage: Stage) -> None:
    letters(stage, stage.chance.choice((b"y", b"")), None)


def letters_by_policy(stage: Stage) -> None:
    arguments: dict[str, object] = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "b.a"}
    policy = Policy("letters", "^z$", QUEUES, 0, arguments, None)
    ruled = Stage(stage.chance, [policy])
    granted = ruled.ask(queue(b"z", arguments={b"x-max-length": 1}))
    stage.case("queue with a policy", ruled.oracle.can_subscribe("$queue/z"), granted)
    if granted:
        ruled.publish("$queue/z")
        for _ in range(2):
            ruled.watched()
            ruled.publish("$queue/z")
            stage.case("letters by a policy arrive", ["b/a"], ruled.watched())
            ruled.change()


def copies(stage: Stage) -> None:
    name, copy = stage.chance.sample((b"a.b", b"b", b"b.a"), 2)
    word = stage.chance.choice((b"CC", b"BCC"))
    properties = BasicProperties(headers={word: [copy]})
    topics = [each.decode().replace(".", "/") for each in (name, copy)]
    wanted = all(stage.oracle.can_publish(topic) for topic in topics)
    stage.case(f"copies {name!r} {word!r} {copy!r}", wanted, stage.send(name, b"amq.topic", properties))
    stage.case("copies arrive", bool(wanted), bool(stage.watched()))


def transaction(stage: Stage) -> None:
    number = stage.channel()
    peer = stage.amqp()
    peer.say(TxSelect(), number)
    key, topic = stage.chance.choice(((b"a.b", "a/b"), (b"b", "b")))
    peer.receive(publish(key, b"x", b"amq.topic", None, number))
    granted = not stage.is_refused(peer.take(), number)
    stage.case(f"transaction {topic}", stage.oracle.can_publish(topic), granted)
    if granted:
        stage.change()
        refused = stage.is_refused(peer.say(TxCommit(), number), number)
        stage.case(f"commit {topic}", stage.oracle.can_publish(topic), not refused)
        stage.case(f"committed {topic}", [] if refused else [topic], stage.watched())


def remembered(stage: Stage) -> None:
    topic = stage.chance.choice(("a/b", "b", "x/a"))
    peer, _ = stage.mqtt(5)
    number = stage.channel()
    stage.amqp().say(ConfirmSelect(False), number)
    for turn in range(2):
        wanted = [topic] if stage.oracle.can_publish(topic) else []
        packet = Publish(b"" if turn else topic.encode(), b"x", 1, packet_id=turn + 1)
        packet.properties = Properties()
        packet.properties.topic_alias = 1
        peer.send(packet)
        stage.case(f"alias of {topic}", wanted, stage.watched())
        key = topic.replace("/", ".").encode()
        stage.amqp().receive(publish(key, b"x", b"amq.topic", None, number))
        stage.case(f"route of {topic}", wanted, stage.watched())
        if not wanted:
            return  # the channel is closed
        stage.change()


def reply(stage: Stage) -> None:
    asker = stage.world.client()
    asker.open_channel()
    asker.say(consume(b"amq.rabbitmq.reply-to", no_ack=True), 1)
    address = b"amq.rabbitmq.reply-to." + asker.endpoint.channels[1].reply_token
    headers: FieldTable = {b"BCC": [b"blind"], b"_dlq_reason": b"forged"}
    for _ in range(2):
        stage.case("reply", True, stage.send(address))
        stage.case("reply arrives", 1, len(asker.take()))
        stage.case("reply of others", False, stage.send(address, b"", BasicProperties(user_id=b"other"), 406))
        stage.case("reply of others arrives", 0, len(asker.take()))
        stage.case("reply with words", True, stage.send(address, b"", BasicProperties(headers=headers)))
        stage.case("reply with words arrives", 1, len(asker.take()))
        told = any(word in asker.link.data for word in (b"blind", b"forged"))
        stage.case("reply tells what it must not", False, told)
        stage.change()


CASES: dict[str, Callable[[Stage], None]] = {
    "will": will,
    "subscription, shared or not": subscription,
    "consumer of a queue or of its dead letters": consumer,
    "binding of a queue": queue_binding,
    "binding of an exchange to an exchange": exchange_binding,
    "alternate exchange": alternate,
    "dead letters with a key": letters_with_key,
    "dead letters without a key": letters_without_key,
    "dead letters and alternate exchanges by a policy": letters_by_policy,
    "further routing keys (CC, BCC)": copies,
    "transaction": transaction,
    "topic alias, and routes that a connection remembers": remembered,
    "direct reply-to": reply,
    "return of a mandatory message": mandatory,
}
STRAIGHT = (mqtt_operations, amqp_operations)


def run_round(chance: random.Random) -> Counter[str]:
    counted: Counter[str] = Counter()
    work = [*STRAIGHT, *[path for path in (*CASES.values(), *MORE) for _ in range(3)]]
    for run in work:
        stage = Stage(chance)
        run(stage)
        for what, wanted, found in stage.cases:
            assert found == wanted, (what, stage.rules)
            counted[run.__name__] += 1
    return counted


@pytest.mark.parametrize("seed", SEEDS)
def test_every_path_decides_as_the_documents_say(seed: int) -> None:
    chance = random.Random(seed)
    counted: Counter[str] = Counter()
    for _ in range(ROUNDS):
        counted += run_round(chance)
    assert sum(counted.values()) * len(SEEDS) >= CASES_MIN
    assert set(counted) == {run.__name__ for run in (*STRAIGHT, *CASES.values(), *MORE)}


def test_the_matrix_has_a_case_for_every_path_of_the_table() -> None:
    assert set(CASES) == {path.name for path in PATHS if path.is_in_matrix}


def test_the_document_lists_every_path_of_the_table() -> None:
    assert render() in DOCUMENT.read_text(encoding="utf-8")
