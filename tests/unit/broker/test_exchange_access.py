"""Exchanges as clients use them: declared, bound, removed, and what survives of them."""

from __future__ import annotations

import pytest
from fakes import START_NS, World, make_message
from logged_store import LoggedStore

from millstream.broker.exchange_access import ExchangeAccess
from millstream.model.errors import Reason, Refused
from millstream.model.routing_key import topic_of_publish
from millstream.queues.definition import EPHEMERAL, WORK, Definition
from millstream.queues.queue import Queue
from millstream.routing.subscription import Subscription


class Rabbit(World):
    """A world whose exchanges are spoken to."""

    @property
    def access(self) -> ExchangeAccess:
        return self.account.exchanges

    def queue(self, name: str, kind: str = WORK) -> Queue:
        return self.account.queues.catalog.declare(name, Definition(kind))

    def exchange(self, name: str, kind: str = "direct", **arguments: object) -> None:
        named = {key.replace("_", "-"): value for key, value in arguments.items()}
        self.access.declare(name, kind, True, False, False, named)

    def reached(
        self, exchange: str, key: bytes = b"", headers: dict[bytes, object] | None = None
    ) -> list[str]:
        topic = topic_of_publish(exchange.encode(), key)
        route = self.access.find_route(exchange, key, topic, headers, "")
        return sorted(target.outlet.name for target in route.targets if isinstance(target.outlet, Queue))

    def refusal(self, reason: Reason) -> pytest.RaisesExc[Refused]:
        return pytest.raises(Refused, check=lambda refused: refused.reason is reason)


@pytest.fixture
def world() -> Rabbit:
    return Rabbit()


def test_a_queue_is_reached_by_its_name_through_the_default_exchange(world: Rabbit) -> None:
    assert world.reached("", b"q") == []
    world.queue("q")
    assert world.reached("", b"q") == ["q"]


def test_a_key_that_names_no_queue_is_a_topic(world: Rabbit) -> None:
    session, _ = world.connect("c")
    world.broker.subscribe(session, Subscription(session, b"a/b", b"", 0, False, False, 0))
    (target,) = world.access.find_route("", b"a.b", b"a/b", None, "").targets
    assert target.outlet is session


def test_bindings_are_idempotent_and_go_one_by_one(world: Rabbit) -> None:
    queue = world.queue("q")
    world.exchange("x")
    for _ in range(2):
        world.access.bind_queue(queue, "x", b"k", {})
    world.access.bind_queue(queue, "x", b"l", {})
    assert len(world.access.bindings_of_queue(queue)) == 2
    assert world.reached("x", b"k") == world.reached("x", b"l") == ["q"]
    assert world.access.unbind_queue(queue, "x", b"k", {})
    assert not world.access.unbind_queue(queue, "x", b"k", {})
    assert world.reached("x", b"k") == []
    assert world.reached("x", b"l") == ["q"]


def test_a_removed_queue_takes_its_bindings_along(world: Rabbit) -> None:
    queue = world.queue("q")
    world.exchange("x", "fanout")
    world.access.bind_queue(queue, "x", b"", {})
    world.account.queues.catalog.delete(queue)
    world.queue("q")
    assert world.reached("x") == []
    assert world.access.binding_count() == 0


def test_a_redeclaration_must_be_the_same(world: Rabbit) -> None:
    world.exchange("x", "direct", alternate_exchange="other")
    world.exchange("x", "direct", alternate_exchange="other")
    with pytest.raises(Refused) as caught:
        world.exchange("x", "fanout", alternate_exchange="other")
    text = "inequivalent arg 'type' for exchange 'x' in vhost '/': received 'fanout' but current is 'direct'"
    assert (caught.value.reason, caught.value.text) == (Reason.PRECONDITION_FAILED, text)
    with pytest.raises(Refused, match=r"inequivalent arg 'durable'.*received 'false' but current is 'true'"):
        world.access.declare("x", "direct", False, False, False, {"alternate-exchange": "other"})
    with pytest.raises(Refused, match="received none but current is the value 'other' of type 'longstr'"):
        world.exchange("x", "direct")


def test_what_is_predeclared_stays_as_it_is(world: Rabbit) -> None:
    world.access.declare("amq.topic", "topic", True, False, False, {})
    with world.refusal(Reason.NOT_AUTHORIZED):
        world.exchange("amq.mine")
    with world.refusal(Reason.NOT_AUTHORIZED):
        world.access.delete("amq.topic", False)
    with world.refusal(Reason.NOT_AUTHORIZED):
        world.access.delete("", False)
    with world.refusal(Reason.NOT_AUTHORIZED):
        world.access.bind_queue(world.queue("q"), "", b"k", {})
    with world.refusal(Reason.UNSPECIFIED):
        world.exchange("x", "x-unknown")


def test_what_is_missing_is_not_found(world: Rabbit) -> None:
    queue = world.queue("q")
    assert not world.access.delete("x", False)
    with pytest.raises(Refused, match="no exchange 'x' in vhost '/'") as caught:
        world.reached("x", b"k")
    assert caught.value.reason is Reason.NOT_FOUND
    with world.refusal(Reason.NOT_FOUND):
        world.access.bind_queue(queue, "x", b"k", {})
    with world.refusal(Reason.NOT_FOUND):
        world.access.bind_exchange("x", "amq.direct", b"k", {})
    with world.refusal(Reason.NOT_FOUND):
        world.access.unbind_queue(queue, "x", b"k", {})


def test_an_exchange_in_use_is_kept_when_asked(world: Rabbit) -> None:
    world.exchange("x")
    world.access.bind_queue(world.queue("q"), "x", b"k", {})
    with pytest.raises(Refused, match="exchange 'x' in vhost '/' in use"):
        world.access.delete("x", True)
    assert world.access.delete("x", False)
    assert world.access.find("x") is None
    assert world.access.binding_count() == 0


def test_exchanges_that_delete_themselves_go_with_the_last_binding_in_a_row(world: Rabbit) -> None:
    queue = world.queue("q")
    for name in ("first", "second"):
        world.access.declare(name, "fanout", True, True, False, {})
    world.access.bind_exchange("second", "first", b"", {})
    world.access.bind_queue(queue, "second", b"", {})
    assert world.reached("first") == ["q"]
    world.account.queues.catalog.delete(queue)
    assert world.access.find("first") is world.access.find("second") is None


def test_an_alternate_takes_what_matched_nothing(world: Rabbit) -> None:
    world.exchange("x", "direct", alternate_exchange="rest")
    world.access.bind_queue(world.queue("q"), "x", b"k", {})
    assert world.reached("x", b"other") == []
    world.exchange("rest", "fanout")
    world.access.bind_queue(world.queue("rest"), "rest", b"", {})
    assert world.reached("x", b"other") == ["rest"]
    assert world.reached("x", b"k") == ["q"]


def test_headers_decide_for_each_message_anew(world: Rabbit) -> None:
    world.access.bind_queue(world.queue("q"), "amq.headers", b"", {"x-match": "any", "a": "1", "b": 2})
    assert world.access.needs_headers("amq.headers")
    assert not world.access.needs_headers("amq.direct")
    assert world.reached("amq.headers", b"", {b"b": 2}) == ["q"]
    assert world.reached("amq.headers", b"", {b"b": 3}) == []
    assert world.access.find_route("amq.headers", b"", b"t", {}, "").is_by_headers
    with world.refusal(Reason.PRECONDITION_FAILED):
        world.access.bind_queue(world.queue("q"), "amq.headers", b"", {"x-match": "most"})


def test_routes_are_remembered_until_something_changes(world: Rabbit) -> None:
    world.exchange("x")
    world.queue("q")
    find = world.access.find_route
    first = find("x", b"k", b"x/k", None, "")
    assert find("x", b"k", b"x/k", None, "") is first
    world.access.bind_queue(world.account.queues.catalog.get("q"), "x", b"k", {})
    assert first.generation != world.account.router.generation
    assert world.reached("x", b"k") == ["q"]


def test_amq_topic_is_the_topic_space(world: Rabbit) -> None:
    session, _ = world.connect("c")
    world.broker.subscribe(session, Subscription(session, b"a/+", b"", 0, False, False, 0))
    world.access.bind_queue(world.queue("q"), "amq.topic", b"#.b", {})
    by_amqp = world.access.find_route("amq.topic", b"a.b", b"a/b", None, "")
    by_mqtt = world.account.find_route(b"a/b", "")
    assert by_amqp is by_mqtt
    assert len(by_mqtt.targets) == 2


@pytest.mark.parametrize("key", [b"a/b", b"50%", b"$x", b"", b"a.+", b"\x00"])
def test_keys_that_no_topic_can_hold_are_matched_as_they_are(world: Rabbit, key: bytes) -> None:
    for name, bound in (("same", key), ("all", b"#"), ("other", b"a.b")):
        world.access.bind_queue(world.queue(name), "amq.topic", bound, {})
    assert world.reached("amq.topic", key) == ["all", "same"]


def test_an_exchange_bound_to_amq_topic_reaches_subscribers(world: Rabbit) -> None:
    world.exchange("x", "fanout")
    world.access.bind_exchange("amq.topic", "x", b"", {})
    kept = world.access.find_route("x", b"a.b", b"x/a/b", None, "")
    assert kept.targets == []
    session, _ = world.connect("c")
    world.broker.subscribe(session, Subscription(session, b"a/b", b"", 0, False, False, 0))
    assert kept.generation != world.account.router.generation
    assert [target.outlet for target in world.access.find_route("x", b"a.b", b"x/a/b", None, "").targets] == [
        session
    ]


def test_a_dead_letter_reaches_whom_a_publish_would(world: Rabbit) -> None:
    queue = world.queue("q")
    world.exchange("x")
    world.access.bind_queue(queue, "x", b"k", {})
    letter = make_message(b"t", b"payload")
    post = world.account.queues.catalog.exchanges
    assert post is not None
    assert post.post("x", b"k", letter, None, "")
    assert not post.post("x", b"other", letter, None, "")
    assert not post.post("missing", b"k", letter, None, "")
    assert queue.depth() == 1


# ------------------------------------------------------------------- restart


@pytest.mark.parametrize("with_checkpoint", [False, True])
def test_what_is_durable_survives_and_nothing_else(with_checkpoint: bool) -> None:
    store = LoggedStore(with_checkpoint)
    world = Rabbit(store=store)
    durable, passing = world.queue("durable"), world.queue("passing", EPHEMERAL)
    world.exchange("x", "topic", alternate_exchange="rest")
    world.exchange("rest", "fanout")
    world.access.declare("gone", "direct", False, False, False, {})
    world.access.bind_queue(durable, "x", b"#.k", {"note": "ä"})
    world.access.bind_queue(passing, "x", b"#.k", {})
    world.access.bind_queue(durable, "gone", b"k", {})
    world.access.bind_queue(durable, "amq.topic", b"a.b", {})
    world.access.bind_exchange("rest", "amq.direct", b"k", {})
    world.access.bind_queue(durable, "rest", b"", {})
    world.access.bind_queue(durable, "rest", b"twice", {})
    world.access.unbind_queue(durable, "rest", b"twice", {})
    for number in range(100):  # so that a checkpoint has files to fold
        world.exchange(f"filler-{number}")
        world.access.delete(f"filler-{number}", False)

    again = Rabbit(store=store)
    again.broker.restore(START_NS)
    assert again.access.find("gone") is None
    assert again.access.binding_count() == 4
    found = again.access.find("x")
    assert found is not None
    assert (found.kind, found.durable, found.alternate) == ("topic", True, "rest")
    assert again.reached("x", b"a.k") == again.reached("x", b"z") == ["durable"]
    assert again.reached("amq.topic", b"a.b") == again.reached("amq.direct", b"k") == ["durable"]
    assert not [exchange for exchange in again.access.all() if exchange.name.startswith("filler")]


def test_a_binding_whose_queue_is_gone_does_not_come_back_with_a_queue_of_that_name() -> None:
    store = LoggedStore()
    world = Rabbit(store=store)
    queue = world.queue("q")
    world.access.bind_queue(queue, "amq.direct", b"k", {})
    world.account.queues.catalog.exchanges = None  # it dies before it could tell of the bindings
    world.account.queues.catalog.delete(queue)
    second = Rabbit(store=store)
    second.broker.restore(START_NS)
    second.queue("q")
    third = Rabbit(store=store)
    third.broker.restore(START_NS)
    assert third.account.queues.catalog.find("q") is not None
    assert third.reached("amq.direct", b"k") == []
