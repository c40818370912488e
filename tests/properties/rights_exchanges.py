"""Cases of the matrix of rights around exchanges: headers, mandatory returns, alternates of every type, further keys behind bindings
between exchanges, and virtual hosts."""

from __future__ import annotations

import random
from typing import cast

from amqp091_traffic import consume, publish
from amqp091_world import AmqpPeer, AmqpWorld
from fakes import FakeOutlet
from rights_oracle import Oracle, Rule, make_rules, to_document
from rights_stage import REFUSED, Stage

from millstream.broker.account import Account
from millstream.broker.account_options import AccountOptions
from millstream.protocols.amqp091.wire.field_table import ByteArray, Decimal091, FieldTable, Timestamp
from millstream.protocols.amqp091.wire.methods import (
    BasicReturn,
    ChannelClose,
    ChannelCloseOk,
    ConnectionClose,
    ExchangeBind,
    ExchangeDeclare,
    Method,
    QueueBind,
    QueueDeclare,
)
from millstream.protocols.amqp091.wire.properties import BasicProperties
from millstream.queues.definition import WORK, Definition
from millstream.routing.subscription import Subscription
from millstream.security.acl import parse_acl
from millstream.security.users import User, UserTable

RED: FieldTable = {b"colour": b"red"}
MATCH: FieldTable = {b"x-match": b"all", **RED}
NO_PASSWORD = "$scrypt$ln=4,r=8,p=1$c2FsdHNhbHRzYWx0c2FsdA$aGFzaGhhc2hoYXNoaGFzaGhhc2hoYXNoaGFzaGhhc2g"


def headers_binding(stage: Stage) -> None:
    """Of a queue to a headers exchange: headers decide what comes, so it needs the right to all that can."""
    stage.account.exchanges.declare("z", "headers", True, False, False, {})

    def may() -> bool:
        return stage.oracle.can_subscribe("$queue/q") and stage.oracle.has_all("z/#", "subscribe")

    granted = stage.ask(QueueBind(b"q", b"z", b"a", False, MATCH))
    stage.case("headers binding", may(), granted)
    for key in (b"a", b"b"):
        for headers, is_match in ((RED, True), ({b"colour": b"blue"}, False)):
            before = stage.ready("q")
            allowed = stage.oracle.can_publish(f"z/{key.decode()}")
            sent = stage.send(key, b"z", BasicProperties(headers=headers))
            stage.case(f"headers publish {key!r}", allowed, sent)
            wanted = int(granted and allowed and is_match)
            stage.case(f"headers {headers} bring", wanted, stage.ready("q") - before)
    for _ in range(2):
        stage.change()
        before = stage.ready("q")
        stage.publish_to("z", b"a", cast("dict[bytes, object]", RED))
        stage.case("headers binding brings later", int(granted and may()), stage.ready("q") - before)


def headers_to_exchange(stage: Stage) -> None:
    """From a headers exchange to another: no key decides, so it needs the right to publish all to the target."""
    access = stage.account.exchanges
    access.declare("z", "headers", True, False, False, {})
    access.bind_queue(stage.queue("q"), "y", b"", {})

    def may() -> bool:
        return (
            stage.oracle.can_subscribe("y/#")
            and stage.oracle.has_all("z/#", "subscribe")
            and stage.oracle.has_all("y/#", "publish")
        )

    granted = stage.ask(ExchangeBind(b"y", b"z", b"a", False, MATCH))
    stage.case("headers to exchange", may(), granted)
    for _ in range(2):
        for headers, is_match in ((RED, True), ({b"colour": b"blue"}, False)):
            before = stage.ready("q")
            stage.publish_to("z", b"b", cast("dict[bytes, object]", headers))
            wanted = int(granted and may() and is_match)
            stage.case("headers to exchange brings", wanted, stage.ready("q") - before)
        stage.change()


def mandatory(stage: Stage) -> None:
    """A message comes back only to who published it, by a right to, and only if nobody may have it."""
    access = stage.account.exchanges
    access.bind_queue(stage.queue("d"), "y", b"", {})
    access.declare("z", "direct", True, False, False, {})

    def may_bind() -> bool:
        return stage.oracle.can_subscribe("$queue/q") and stage.oracle.has_all("z/a", "subscribe")

    granted = stage.ask(QueueBind(b"q", b"z", b"a", False, {}))
    for _ in range(2):
        for exchange, key, topic, has_receiver in (
            (b"y", b"a", "y/a", True),
            (b"z", b"a", "z/a", granted and may_bind()),
            (b"z", b"b", "z/b", False),
            (b"amq.topic", b"a.b", "a/b", True),
            (b"", b"q", "$queue/q", True),
        ):
            number = stage.channel()
            peer = stage.amqp()
            peer.take()
            peer.receive(publish(key, b"x", exchange, None, number, True))
            answers = peer.take()
            returned = [one for one in answers if isinstance(one, BasicReturn)]
            allowed = stage.oracle.can_publish(topic)
            stage.case(f"mandatory {exchange!r} {key!r}", allowed, not stage.is_refused(answers, number))
            stage.case(f"returned {exchange!r} {key!r}", int(allowed and not has_receiver), len(returned))
        stage.change()


def typed_alternate(stage: Stage) -> None:
    """An alternate exchange is a text, and nothing else is taken for one, whatever the rules say."""
    name = stage.chance.choice((b"y", b"x"))
    value = stage.chance.choice(
        (ByteArray(name), Decimal091(0, 1), Timestamp(1), 1, True, None, [name], {b"a": name})
    )
    arguments = cast("FieldTable", {b"alternate-exchange": value})
    declare = ExchangeDeclare(b"z", b"direct", False, True, False, False, False, arguments)
    wanted = 406 if stage.oracle.can_subscribe("z/#") else REFUSED
    stage.case(f"alternate of type {type(value).__name__}", wanted, stage.code(declare))
    stage.case("alternate of another type is stored", None, stage.account.exchanges.find("z"))


def alternate_chain(stage: Stage) -> None:
    """What an exchange does not route goes to its alternate, and from there by a binding, each by the right of who made it."""
    access = stage.account.exchanges
    access.bind_queue(stage.queue("d"), "y", b"", {})
    arguments: FieldTable = {b"alternate-exchange": b"x"}
    made = stage.ask(ExchangeDeclare(b"z", b"direct", False, True, False, False, False, arguments))
    bound = stage.ask(ExchangeBind(b"y", b"x", b"a", False, {}))
    brought, written = ("x/#", "y/#") if stage.kind == "fanout" else ("x/a", "y/#")
    written = "y/a" if stage.kind == "direct" else written

    def may_lead() -> bool:
        return stage.oracle.has_all("x/#", "publish")

    def may_bind() -> bool:
        return (
            stage.oracle.can_subscribe("y/#")
            and stage.oracle.has_all(brought, "subscribe")
            and stage.oracle.has_all(written, "publish")
        )

    stage.case("alternate to x", stage.oracle.can_subscribe("z/#") and may_lead(), made)
    stage.case("binding behind an alternate", may_bind(), bound)
    if not made:
        return
    for _ in range(2):
        before = stage.ready("d")
        stage.publish_to("z", b"a")
        wanted = int(bound and may_lead() and may_bind())
        stage.case("alternate and binding bring", wanted, stage.ready("d") - before)
        stage.change()


def copies_behind_binding(stage: Stage) -> None:
    """CC and BCC through a binding between exchanges: all keys go by the right to all of them, else each as it would alone."""
    access = stage.account.exchanges
    access.declare("z", "direct", True, False, False, {})
    for name, key in (("q", b"a"), ("d", b"b")):
        access.bind_queue(stage.queue(name), "z", key, {})
    brought = "x/#" if stage.kind == "fanout" else "x/a"
    written = "z/a" if stage.kind == "direct" else "z/#"

    def may() -> bool:
        return (
            stage.oracle.can_subscribe("z/#")
            and stage.oracle.has_all(brought, "subscribe")
            and stage.oracle.has_all(written, "publish")
        )

    stage.change(_some_keys(stage.chance))
    granted = stage.ask(ExchangeBind(b"z", b"x", b"a", False, {}))
    stage.case("binding before copies", may(), granted)
    for _ in range(3):
        word = stage.chance.choice((b"CC", b"BCC"))
        before = stage.ready("q"), stage.ready("d")
        sent = stage.send(b"a", b"x", BasicProperties(headers={word: [b"b"]}))
        allowed = stage.oracle.can_publish("x/a") and stage.oracle.can_publish("x/b")
        stage.case(f"{word!r} before a binding", allowed, sent)
        stands = allowed and granted and may()
        passes = stands and stage.oracle.has_all("z/#", "publish")
        found = stage.ready("q") - before[0], stage.ready("d") - before[1]
        stage.case(f"{word!r} behind a binding", (int(stands), int(passes)), found)
        stage.change(_some_keys(stage.chance))


def _some_keys(chance: random.Random) -> list[Rule]:
    """Everything of x, and some keys of z: chance alone seldom finds such rules."""
    written = chance.choice((["z/a"], ["z/a", "z/b"], ["z/+"], ["z/#"], ["#"]))
    rules: list[Rule] = [
        {"allow": "all", "topics": ["x/#", "$queue/#"]},
        {"allow": "subscribe", "topics": ["z/#"]},
        {"allow": "publish", "topics": written},
    ]
    if chance.random() < 0.2:
        denied = chance.choice(("z/b", "x/b", "z/a"))
        rules.append({"deny": chance.choice(("publish", "subscribe")), "topics": [denied]})
    return rules


# --- virtual hosts


class Hosts:
    """Two accounts with a user and a watcher each; rules that concern one of them, or both."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.names = ("default", "plant")
        self.rules: list[Rule] = []
        table = UserTable(
            {name: User(name, NO_PASSWORD, account, None) for name, account in self.users().items()}
        )
        self.choose()
        options = {name: AccountOptions() for name in self.names}
        self.world = AmqpWorld(rules=self.document(), accounts=options, users=table, certificates=True)
        self.watchers: dict[str, FakeOutlet] = {}
        for name in self.names:
            watcher = self.watchers[name] = FakeOutlet(name)
            account = self.account(name)
            account.router.subscribe(Subscription(watcher, b"#", b"", 2, False, False, 0))
            account.queues.catalog.declare("q", Definition(WORK))
            account.exchanges.declare("x", "direct", True, False, False, {})

    def users(self) -> dict[str, str]:
        return {"ann": "default", "ben": "plant"}

    def choose(self) -> None:
        self.rules = []
        for names in (["default"], ["plant"], None):
            more = make_rules(self.chance)
            self.rules += [rule if names is None else {**rule, "accounts": names} for rule in more]

    def document(self) -> object:
        return to_document(self.rules)

    def change(self) -> None:
        self.choose()
        self.world.authorizer.replace(parse_acl(self.document()))
        for name in self.names:
            self.account(name).on_rights_changed()
        self.world.context.on_rights_changed()
        self.world.settle_down()

    def oracle(self, account: str) -> Oracle:
        """Of the rules that concern it."""
        return Oracle(
            [rule for rule in self.rules if account in cast("list[str]", rule.get("accounts", [account]))]
        )

    def account(self, name: str) -> Account:
        return self.world.broker.get_account(name)

    def log_in(self, user: str, host: str) -> tuple[AmqpPeer, list[Method]]:
        peer = self.world.stranger(user)
        peer.log_in(b"EXTERNAL", b"")
        return peer, peer.open(host.encode())

    def ready(self, account: str) -> int:
        self.world.settle_down()
        return int(self.account(account).queues.catalog.get("q").ready())


def hosts(stage: Stage) -> None:
    """An account is a virtual host: rules, topics, queues and addresses of one say nothing in another."""
    world = Hosts(stage.chance)
    user, own = stage.chance.choice(list(world.users().items()))
    other = "plant" if own == "default" else "default"
    for host, is_own in ((other, False), (own, True), ("nowhere", False), ("", True), ("/", True)):
        _, answers = world.log_in(user, host)
        is_closed = any(isinstance(one, ConnectionClose) and one.reply_code == 530 for one in answers)
        stage.case(f"host {host!r} of {user}", is_own, not is_closed)
    peer, _ = world.log_in(user, stage.chance.choice((own, "/")))
    asker, _ = world.log_in("ben" if user == "ann" else "ann", "/")
    asker.open_channel()
    asker.say(consume(b"amq.rabbitmq.reply-to", no_ack=True), 1)
    address = b"amq.rabbitmq.reply-to." + asker.endpoint.channels[1].reply_token
    number = 0
    is_bound = False
    for _ in range(2):
        oracle = world.oracle(own)
        may_bind = oracle.can_subscribe("$queue/q") and oracle.has_all("x/a", "subscribe")
        for exchange, key, topic in (
            (b"amq.topic", b"a.b", "a/b"),
            (b"amq.topic", b"b", "b"),
            (b"x", b"a", "x/a"),
            (b"", b"q", "$queue/q"),
        ):
            before = {name: world.ready(name) for name in world.names}
            number += 1
            code = _try(peer, number, publish(key, b"x", exchange, None, number))
            allowed = oracle.can_publish(topic)
            stage.case(f"host publish {topic}", allowed, code != REFUSED)
            is_seen = exchange == b"amq.topic" and allowed
            stage.case(f"host sees {topic}", [topic] if is_seen else [], _seen(world, own))
            stage.case(f"other host sees {topic}", [], _seen(world, other))
            stored = int(allowed and (key == b"q" or (key == b"a" and is_bound and may_bind)))
            stage.case(f"host stores {topic}", stored, world.ready(own) - before[own])
            stage.case(f"other host stores {topic}", 0, world.ready(other) - before[other])
        number += 1
        code = _try(peer, number, b"", QueueDeclare(b"q", True, False, False, False, False, {}))
        stage.case("host queue", oracle.can_subscribe("$queue/q"), code != REFUSED)
        number += 1
        is_granted = _try(peer, number, b"", QueueBind(b"q", b"x", b"a", False, {})) != REFUSED
        stage.case("host binding", may_bind, is_granted)
        is_bound = is_bound or is_granted
        number += 1
        _try(peer, number, publish(address, b"x", b"", None, number))
        stage.case("reply to another host", 0, len(asker.take()))
        for name in world.names:
            _seen(world, name)
        world.change()


def _try(peer: AmqpPeer, number: int, data: bytes, method: Method | None = None) -> int:
    """The code with which a channel of its own is closed; 0: it is not."""
    peer.open_channel(number)
    peer.take()
    if method is not None:
        answers = peer.say(method, number)
    else:
        peer.receive(data)
        answers = peer.take()
    for answer in answers:
        if isinstance(answer, ChannelClose):
            peer.say(ChannelCloseOk(), number)
            return answer.reply_code
    return 0


def _seen(world: Hosts, account: str) -> list[str]:
    watcher = world.watchers[account]
    found = [message.topic.decode() for message in watcher.messages]
    watcher.messages.clear()
    return found


MORE = (
    headers_binding,
    headers_to_exchange,
    typed_alternate,
    alternate_chain,
    copies_behind_binding,
    hosts,
)
