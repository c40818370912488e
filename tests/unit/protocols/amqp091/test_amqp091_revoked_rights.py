"""Bindings, alternate and dead-letter exchanges work by the right of who made them, and stop when it is gone."""

from __future__ import annotations

import pytest
from amqp091_declarations import bind, declare, declare_exchange, find
from amqp091_traffic import publish, ready
from amqp091_world import AmqpPeer, AmqpWorld
from fakes import START_NS, make_message
from logged_store import LoggedStore

from millstream.broker.conditions import RIGHTS_REVOKED
from millstream.model.limits import Limits
from millstream.model.owner import Owner
from millstream.protocols.amqp091 import declaring
from millstream.protocols.amqp091.policies import QUEUES, Policy
from millstream.protocols.amqp091.wire.field_table import FieldTable
from millstream.protocols.amqp091.wire.methods import ExchangeBind
from millstream.protocols.amqp091.wire.properties import BasicProperties
from millstream.queues.definition import WORK, Definition
from millstream.security.acl import Authorizer, parse_acl
from millstream.security.users import User, UserTable, hash_password
from millstream.storage.records import exchange_records
from millstream.storage.store import Store

HASH = hash_password("secret")
BOTH = ("ann", "ben")


def users(*names: str) -> UserTable:
    return UserTable({name: User(name, HASH, "default", None) for name in names})


def rules(ann: list[str], ben: list[str] | None = None) -> object:
    listed = [{"allow": "all", "topics": ann, "users": ["ann"]}]
    if ben:
        listed.append({"allow": "all", "topics": ben, "users": ["ben"]})
    return {"rules": listed}


class RevokedWorld(AmqpWorld):
    """Anonymous does everything; the users do what the rules say."""

    def __init__(
        self,
        ann: list[str],
        ben: list[str] | None = None,
        revoked: str = "suspend",
        store: Store | None = None,
        policies: list[Policy] | None = None,
    ) -> None:
        limits = Limits(revoked_bindings=revoked)
        super().__init__(limits, store, rules(ann, ben), users=users(*BOTH), policies=policies)

    def open(self, name: str) -> AmqpPeer:
        peer = self.client(name.encode(), b"secret")
        peer.open_channel()
        return peer

    def rule(self, ann: list[str], ben: list[str] | None = None) -> None:
        self.authorizer.replace(parse_acl(rules(ann, ben)))
        self.look_again()

    def look_again(self) -> None:
        self.account.on_rights_changed()
        self.context.on_rights_changed()
        self.settle_down()

    def send(self, topic: bytes) -> None:
        self.broker.publish_internal(self.account, make_message(topic, b"x", 1), None)
        self.settle_down()

    def is_told(self) -> bool:
        return self.broker.health.find(RIGHTS_REVOKED) is not None


EVERYTHING = ["#", "$queue/#"]


def test_a_binding_brings_nothing_while_the_right_it_was_made_under_is_gone() -> None:
    world = RevokedWorld(EVERYTHING)
    ann = world.open("ann").endpoint
    declare(ann)
    for key in (b"plant.#", b"office.#"):
        bind(ann, b"q", b"amq.topic", key)
    world.send(b"plant/a")
    assert ready(world) == 1
    world.rule(["office/#", "$queue/#"])
    for topic in (b"plant/a", b"office/a"):
        world.send(topic)
    assert ready(world) == 2
    assert world.is_told()
    assert world.account.counters.bindings_revoked == 1
    world.rule(EVERYTHING)
    world.send(b"plant/a")
    assert ready(world) == 3
    assert not world.is_told()


def test_a_binding_is_removed_where_the_operator_wants_it_so() -> None:
    store = LoggedStore()
    world = RevokedWorld(EVERYTHING, revoked="remove", store=store)
    ann = world.open("ann").endpoint
    declare(ann)
    bind(ann, b"q", b"amq.topic", b"plant.#")
    bind(ann, b"q", b"amq.topic", b"office.#")
    world.rule(["office/#", "$queue/#"])
    assert [one.key for one in world.account.exchanges.bindings_of_queue(find(world))] == [b"office.#"]
    assert world.is_told()
    world.rule(EVERYTHING)
    world.send(b"plant/a")
    assert ready(world) == 0
    again = RevokedWorld(EVERYTHING, store=store)
    again.broker.restore(START_NS)
    assert again.account.exchanges.binding_count() == 1


def test_the_right_to_the_queue_counts_as_much_as_that_to_the_messages() -> None:
    world = RevokedWorld(EVERYTHING)
    declare(world.open("ann").endpoint)
    bind(world.open("ann").endpoint, b"q", b"amq.topic", b"plant.#")
    world.rule(["plant/#", "$queue/other"])
    world.send(b"plant/a")
    assert ready(world) == 0


def test_a_removed_user_leaves_no_binding_behind_that_works() -> None:
    world = RevokedWorld(EVERYTHING, EVERYTHING)
    ann, ben = world.open("ann").endpoint, world.open("ben").endpoint
    declare(ann)
    bind(ann, b"q", b"amq.topic", b"plant.#")
    bind(ben, b"q", b"amq.topic", b"office.#")
    world.authenticator.replace_users(users("ben"))
    world.look_again()
    for topic in (b"plant/a", b"office/a"):
        world.send(topic)
    assert ready(world) == 1
    world.authenticator.replace_users(users(*BOTH))
    world.look_again()
    world.send(b"plant/a")
    assert ready(world) == 2


def test_a_binding_that_several_have_made_stands_while_one_of_them_has_the_right() -> None:
    store = LoggedStore()
    world = RevokedWorld(EVERYTHING, EVERYTHING, store=store)
    ann, ben = world.open("ann").endpoint, world.open("ben").endpoint
    declare(ann)
    for endpoint in (ann, ben, ann):
        bind(endpoint, b"q", b"amq.topic", b"plant.#")
    world.rule(["$queue/#"], EVERYTHING)
    world.send(b"plant/a")
    assert ready(world) == 1
    world.rule(["$queue/#"], ["$queue/#"])
    world.send(b"plant/a")
    assert ready(world) == 1
    again = RevokedWorld(["$queue/#"], EVERYTHING, store=store)
    again.broker.restore(START_NS)
    again.account.review_rights()
    again.send(b"plant/a")
    assert ready(again) == 2


def test_who_makes_a_suspended_binding_again_and_may_makes_it_work() -> None:
    world = RevokedWorld(EVERYTHING, EVERYTHING)
    declare(world.open("ann").endpoint)
    bind(world.open("ann").endpoint, b"q", b"amq.topic", b"plant.#")
    world.rule(["$queue/#"], EVERYTHING)
    world.send(b"plant/a")
    assert ready(world) == 0
    bind(world.open("ben").endpoint, b"q", b"amq.topic", b"plant.#")
    world.send(b"plant/a")
    assert ready(world) == 1


@pytest.mark.parametrize("with_checkpoint", [False, True])
def test_owners_survive_a_restart_and_rights_are_looked_at_before_anybody_is_served(
    with_checkpoint: bool,
) -> None:
    store = LoggedStore(with_checkpoint)
    world = RevokedWorld(EVERYTHING, store=store)
    ann = world.open("ann").endpoint
    declare(ann)
    declare(ann, b"r")
    bind(ann, b"q", b"amq.topic", b"plant.#")
    declare_exchange(ann, b"x", b"fanout", arguments={b"alternate-exchange": b"amq.topic"})
    declaring.bind_exchange(ann, ExchangeBind(b"amq.topic", b"amq.direct", b"plant.b", False, {}))
    world.account.exchanges.bind_queue(find(world, "r"), "amq.topic", b"plant.#", {})
    for number in range(60):  # so that a checkpoint has files to fold
        declare_exchange(ann, b"filler-%d" % number)
        world.account.exchanges.delete(f"filler-{number}", False)
    again = RevokedWorld(["$queue/#", "x/#"], store=store)
    again.broker.restore(START_NS)
    again.account.review_rights()
    again.send(b"plant/a")
    assert (ready(again), ready(again, "r")) == (0, 1)
    exchange = again.account.exchanges.get("x")
    assert exchange.owner is not None
    assert (exchange.owner.name, exchange.owner.kind) == ("ann", "user")
    assert exchange.find_alternate() is None
    owner = find(again).definition.owner
    assert owner is not None
    assert owner.name == "ann"
    assert again.is_told()
    assert [one.is_suspended for one in again.account.exchanges.get("amq.direct").bindings.values()] == [True]
    again.rule(EVERYTHING)
    again.send(b"plant/a")
    assert (ready(again), ready(again, "r")) == (1, 2)
    assert exchange.find_alternate() == "amq.topic"


def test_what_an_older_release_has_written_is_the_accounts_own() -> None:
    store = LoggedStore()
    world = RevokedWorld(EVERYTHING, store=store)
    declare(world.open("ann").endpoint)
    identity = exchange_records.encode_identity(False, "q", b"plant.#", {})
    body = exchange_records.encode_binding("default", "amq.topic", identity)
    store.exchange_fact(exchange_records.BINDING_SAVED, body)
    again = RevokedWorld(["nothing"], store=store)
    again.broker.restore(START_NS)
    again.account.review_rights()
    again.send(b"plant/a")
    assert ready(again) == 1
    assert not again.is_told()


def test_an_alternate_exchange_is_left_out_while_the_right_to_it_is_gone() -> None:
    world = RevokedWorld(EVERYTHING, EVERYTHING)
    ann, ben = world.open("ann").endpoint, world.open("ben")
    declare_exchange(ann, b"x", b"fanout", arguments={b"alternate-exchange": b"rest"})
    declare_exchange(ben.endpoint, b"rest", b"fanout")
    declare(ben.endpoint)
    bind(ben.endpoint, b"q", b"rest", b"")
    ben.receive(publish(b"k", exchange=b"x"))
    assert ready(world) == 1
    world.rule(["x/#", "$queue/#"], EVERYTHING)
    ben.receive(publish(b"k", exchange=b"x"))
    assert ready(world) == 1
    assert world.is_told()
    world.rule(EVERYTHING, EVERYTHING)
    ben.receive(publish(b"k", exchange=b"x"))
    assert ready(world) == 2


def dead(key: bytes | None, exchange: bytes = b"") -> FieldTable:
    arguments: FieldTable = {b"x-dead-letter-exchange": exchange, b"x-max-length": 1}
    if key is not None:
        arguments[b"x-dead-letter-routing-key"] = key
    return arguments


def overflow(peer: AmqpPeer) -> None:
    """Leaves one more dead letter of the queue."""
    peer.receive(publish(b"$queue/q"))


@pytest.mark.parametrize("key", [b"later", b"$queue/later"])
def test_every_dead_letter_asks_for_the_right_of_who_declared_its_queue(key: bytes) -> None:
    world = RevokedWorld(EVERYTHING)
    ann = world.open("ann")
    declare(ann.endpoint, b"later")
    declare(ann.endpoint, arguments=dead(key))
    overflow(ann)
    overflow(ann)
    assert ready(world, "later") == 1
    world.rule(["$queue/q"])
    overflow(ann)
    assert ready(world, "later") == 1
    assert world.account.counters.dead_letters_denied == 1
    assert world.is_told()
    world.rule(EVERYTHING)
    overflow(ann)
    assert ready(world, "later") == 2


def test_a_dead_letter_does_not_become_a_publish_to_a_topic_when_its_queue_is_gone() -> None:
    world = RevokedWorld(["$queue/#"], EVERYTHING)
    ann = world.open("ann")
    session, line = world.connect("listener", user="ben")
    world.subscribe(session, b"#", 1)
    declare(ann.endpoint, b"later")
    declare(ann.endpoint, arguments=dead(b"later"))
    world.account.queues.catalog.delete(find(world, "later"))
    overflow(ann)
    overflow(ann)
    world.settle_down()
    assert line.payloads() == []
    assert world.account.counters.dead_letters_denied == 1


def test_a_dead_letter_without_a_key_reaches_topics_only_by_the_right_to_them() -> None:
    world = RevokedWorld(["$queue/#", "office/#"], EVERYTHING)
    ann = world.open("ann")
    session, line = world.connect("listener", user="ben")
    world.subscribe(session, b"#", 1)
    declare(ann.endpoint, arguments=dead(None))
    for key in ("plant.a", "office.a"):
        world.account.exchanges.bind_queue(find(world), "amq.topic", key.encode(), {})
    for topic in (b"plant/a", b"office/a", b"plant/a"):
        world.send(topic)
    topics = [delivery.message.topic for delivery in line.deliveries]
    assert sorted(topics) == [b"office/a"] * 2 + [b"plant/a"] * 2  # one of them a letter
    assert world.account.counters.dead_letters_denied == 1


def test_dead_letters_by_a_policy_are_the_operators() -> None:
    arguments: dict[str, object] = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "later"}
    policy = Policy("letters", "^q$", QUEUES, 0, arguments, None)
    world = RevokedWorld(["$queue/q"], policies=[policy])
    world.account.queues.catalog.declare("later", Definition(WORK))
    ann = world.open("ann")
    declare(ann.endpoint, arguments={b"x-max-length": 1})
    overflow(ann)
    overflow(ann)
    assert ready(world, "later") == 1


def test_rules_of_a_later_moment_replace_a_look_that_is_under_way() -> None:
    world = RevokedWorld(EVERYTHING)
    ann = world.open("ann").endpoint
    declare(ann)
    for number in range(500):
        bind(ann, b"q", b"amq.topic", b"plant.%d" % number)
    world.authorizer.replace(parse_acl(rules(["$queue/#"])))
    world.account.on_rights_changed()
    world.broker.tasks.work_off()
    assert world.broker.tasks.count() > 0 or world.is_told()
    world.rule(EVERYTHING)
    assert not world.is_told()
    world.send(b"plant/7")
    assert ready(world) == 1


def test_an_owner_beside_fifteen_others_is_kept_and_no_more() -> None:
    owners: list[Owner] = []
    for number in range(40):
        exchange_records.add_owner(owners, Owner(f"user-{number % 20}", "user", "c"))
    assert [owner.name for owner in owners] == [f"user-{number}" for number in range(4, 20)]


def test_an_authorizer_that_has_no_list_gives_every_owner_every_right() -> None:
    world = RevokedWorld(EVERYTHING)
    assert isinstance(world.authorizer, Authorizer)
    declare(world.open("ann").endpoint)
    bind(world.open("ann").endpoint, b"q", b"amq.topic", b"plant.#")
    world.authorizer.replace(None)
    world.look_again()
    world.send(b"plant/a")
    assert ready(world) == 1


class CopiesWorld(RevokedWorld):
    """Everything of the exchange `x` is ann's; behind `y`, where she may send some keys, stand the queues `a` and `b`."""

    def __init__(self, keys: list[str], store: Store | None = None) -> None:
        super().__init__(EVERYTHING, store=store)
        self.allow(keys)

    def allow(self, keys: list[str]) -> None:
        self.authorizer.replace(parse_acl(self._rules(keys)))
        self.look_again()

    def _rules(self, keys: list[str]) -> object:
        written = [f"y/{key}" for key in keys]
        return {
            "rules": [
                {"allow": "all", "topics": ["x/#", "$queue/#"]},
                {"allow": "subscribe", "topics": ["y/#"]},
                {"allow": "publish", "topics": written, "users": ["ann"]},
            ]
        }

    def make_all(self) -> AmqpPeer:
        access = self.account.exchanges
        for name in ("x", "y"):
            access.declare(name, "direct", True, False, False, {})
        for name in ("a", "b"):
            queue = self.account.queues.catalog.declare(name, Definition(WORK))
            access.bind_queue(queue, "y", name.encode(), {})
        ann = self.open("ann")
        declaring.bind_exchange(ann.endpoint, ExchangeBind(b"y", b"x", b"a", False, {}))
        return ann

    def sent(self, peer: AmqpPeer, word: bytes = b"CC") -> tuple[int, int]:
        """How much came to the queues by one publish with two keys."""
        before = ready(self, "a"), ready(self, "b")
        peer.receive(publish(b"a", b"x", b"x", BasicProperties(headers={word: [b"b"]})))
        return ready(self, "a") - before[0], ready(self, "b") - before[1]


@pytest.mark.parametrize("word", [b"CC", b"BCC"])
def test_further_keys_pass_a_binding_between_exchanges_only_by_the_right_of_who_made_it(word: bytes) -> None:
    world = CopiesWorld(["a"])
    world.make_all()
    ben = world.open("ben")  # he may publish to x alone
    assert world.sent(ben, word) == (1, 0)
    world.allow(["#"])
    assert world.sent(ben, word) == (1, 1)  # as with RabbitMQ
    world.allow(["a"])
    assert world.sent(ben, word) == (1, 0)


def test_further_keys_pass_a_binding_that_was_made_by_a_right_to_them_all() -> None:
    world = CopiesWorld(["#"])
    world.make_all()
    assert world.sent(world.open("ben")) == (1, 1)


def test_further_keys_stand_before_a_narrow_binding_after_a_restart_too() -> None:
    store = LoggedStore()
    first = CopiesWorld(["a"], store)
    first.make_all()
    again = CopiesWorld(["a"], store)
    again.broker.restore(START_NS)
    again.account.review_rights()
    for name in ("a", "b"):
        again.account.exchanges.bind_queue(find(again, name), "y", name.encode(), {})
    assert again.sent(again.open("ben")) == (1, 0)
    again.allow(["#"])
    assert again.sent(again.open("ben")) == (1, 1)


def test_a_binding_that_another_makes_again_passes_no_more_keys_than_that_one_may_send() -> None:
    """Its first owner had the right to all of them, and has lost it."""
    world = CopiesWorld(["#"])
    world.make_all()
    listed = [
        {"allow": "all", "topics": ["x/#", "$queue/#"]},
        {"allow": "subscribe", "topics": ["y/#"]},
        {"allow": "publish", "topics": ["y/a"], "users": ["ben"]},
    ]
    world.authorizer.replace(parse_acl({"rules": listed}))
    world.look_again()
    ben = world.open("ben")
    assert world.sent(ben) == (0, 0)
    declaring.bind_exchange(ben.endpoint, ExchangeBind(b"y", b"x", b"a", False, {}))
    assert world.sent(ben) == (1, 0)


def test_a_binding_outlives_a_change_of_login_if_it_was_made_again_by_the_new_one() -> None:
    """As docs/security.md says of going over from passwords to certificates."""
    world = AmqpWorld(rules=rules(EVERYTHING), users=users("ann"), certificates=True)
    queue = world.account.queues.catalog.declare("q", Definition(WORK))
    access = world.account.exchanges
    for key in (b"again", b"taken.over", b"lost"):
        access.bind_queue(queue, "amq.topic", key, {}, Owner("ann", "user", "c"))
    access.bind_queue(queue, "amq.topic", b"again", {}, Owner("ann", "certificate", "c"))
    access.bind_queue(queue, "amq.topic", b"taken.over", {})  # by the operator
    world.authenticator.replace_users(users("ben"))
    world.account.on_rights_changed()
    world.settle_down()
    suspended = [binding.key for binding in access.bindings_of_queue(queue) if binding.is_suspended]
    assert suspended == [b"lost"]
