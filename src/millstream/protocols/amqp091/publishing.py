"""From basic.publish to the broker, and the confirms of one channel.

Invariants
- Publishes of a channel are confirmed by ascending tags; what was confirmed is durable.
- A refused publish is answered with basic.nack at once, an unroutable one is returned before it is confirmed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from millstream.broker.fan_out import receivers_of, steps_of, stored_bytes_of
from millstream.broker.publish import weight_of
from millstream.broker.tasks import STEPS_PER_SLICE
from millstream.model.errors import Reason, Refused
from millstream.model.message import Message
from millstream.model.outlet import Target
from millstream.model.reserved_words import may_hold_reserved
from millstream.protocols.amqp091.chores import STEPS_PER_REJECTED, FanningOut, Pause
from millstream.protocols.amqp091.machine.events import Event, PublishReceived
from millstream.protocols.amqp091.mapping import (
    PropertyCache,
    expiry_of,
    extra_keys,
    find_reserved,
    make_message,
    user_id_of,
    without_blind_copies,
)
from millstream.protocols.amqp091.reply_to import ADDRESS_PREFIX, REPLY_TO, with_reply_address
from millstream.protocols.amqp091.to_message import DELIVERY_MODE, flags_of
from millstream.protocols.amqp091.transaction import BYTES_MAX, RECEIVERS_MAX, ROUTING_STEPS_MAX
from millstream.protocols.amqp091.wire import codes
from millstream.protocols.amqp091.wire.methods import BasicNack, BasicPublish, BasicReturn
from millstream.protocols.amqp091.wire.properties import decode_properties, delivery_mode_of, without_headers
from millstream.protocols.amqp091.wire.violation import Violation
from millstream.queues.catalog import Catalog
from millstream.routing.exchanges import COPIES_STEPS_MAX, KEYS_PER_STEP
from millstream.routing.router import Route, size_of

if TYPE_CHECKING:
    from millstream.protocols.amqp091.channel import Channel
    from millstream.protocols.amqp091.endpoint import AmqpEndpoint

SUCCESS: Final = Reason.SUCCESS
QUOTA_EXCEEDED: Final = Reason.QUOTA_EXCEEDED
UNAVAILABLE: Final = Reason.UNAVAILABLE
NO_MATCHING_SUBSCRIBERS: Final = Reason.NO_MATCHING_SUBSCRIBERS
ROUTES_MAX: Final = 4096  # that a connection remembers
TARGETS_PER_STEP: Final[i64] = 8  # of routes that are put together for a message with several keys
TARGETS_MAX: Final = 256  # of such a route; those of others it asks for again
NO_ROUTE_TEXT: Final = b"NO_ROUTE"
TRANSIENT: Final[i64] = 1
PERSISTENT: Final[i64] = 2


@final
class Place:
    """Where an exchange and a routing key lead, the right to publish there included."""

    def __init__(self, exchange: bytes, routing_key: bytes, topic: bytes, route: Route) -> None:
        self.exchange = exchange
        self.routing_key = routing_key
        self.topic = topic
        self.route = route


@final
class Facts:
    """What the broker reads from a list of properties. Publishers mostly send the same again."""

    def __init__(self, properties: bytes, user_name: bytes) -> None:
        self.properties = properties
        mode: i64 = delivery_mode_of(properties)
        if mode != PERSISTENT and mode != TRANSIENT and flags_of(properties) & DELIVERY_MODE:
            text = f"invalid message: {{delivery_mode_unknown,{int(mode)}}}"
            raise Refused(Reason.PRECONDITION_FAILED, text)
        self.guarantee: i64 = 1 if mode == PERSISTENT else 0
        self.lifetime_ns: i64 = expiry_of(properties, 0)  # 0: it does not expire
        self.keys = extra_keys(properties)
        self.has_reply_to = REPLY_TO in properties
        self.is_forged = may_hold_reserved(properties) and bool(find_reserved(properties))
        user = user_id_of(properties)
        if user is not None and user != user_name:
            shown = user.decode(errors="replace")
            real = user_name.decode(errors="replace")
            text = f"user_id property set to '{shown}' but authenticated user was '{real}'"
            raise Refused(Reason.PRECONDITION_FAILED, text)


@final
class Publisher:
    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._endpoint = channel.endpoint
        self._account = channel.account
        self._places = channel.endpoint.places
        self._last: Place | None = None
        self._facts: Facts | None = None
        self._cache = PropertyCache(channel.account.queues.catalog, channel.endpoint.views)
        self._spent: i64 = 0  # on routes, since others had their turn
        self.is_confirming = False
        self.tag: i64 = 0  # of the last publish since confirm.select
        self.last_taken: i64 = 0  # of the last one that was not refused
        self.taken: i64 = 0  # of those the endpoint has not been asked to confirm yet

    def on_publish(self, event: PublishReceived) -> bool:
        """False when it cannot be stored now and nobody is told: try again when it can."""
        if event.immediate:
            raise Violation(
                codes.NOT_IMPLEMENTED, "immediate=true", BasicPublish.class_id, BasicPublish.method_id, True
            )
        place = None if self._is_reply(event) else self._find_place(event)
        transaction = self._channel.transaction
        if transaction is not None:
            # what is wrong with it is said now, not at the commit
            if self._read(event.properties).has_reply_to:
                self._with_address(event.properties)
            transaction.add_publish(event)
            return True
        if place is None:
            self._confirm(self._reply(event, self._prepare_reply(event)), event)
            return True
        message, route = self._prepare(event, place)
        memory = self._account.memory
        if memory.is_critical and not self.is_confirming and memory.refuses(weight_of(message, route)):
            return False
        reason = self._carry_out(message, route, False)
        if reason is UNAVAILABLE and not (self.is_confirming and self._is_told()):
            return False
        rest = self._endpoint.context.broker.publishing.take_rest()
        if rest is not None:
            self._endpoint.chores.start(FanningOut(self._endpoint, self._channel, rest, event, reason))
            return True
        steps: i64 = steps_of(route)
        if steps:
            self._pace(steps)
        self._confirm(reason, event)
        return True

    def on_fanned_out(self, event: PublishReceived, reason: Reason) -> None:
        """All receivers have it."""
        self._confirm(reason, event)
        self._endpoint.answers.ask()

    def _is_told(self) -> bool:
        """Whether a publisher with confirms is told at once that its message cannot be taken, instead of waiting."""
        return self._account.store.is_stuck() or self._account.memory.is_critical

    def commit(self, events: list[PublishReceived]) -> int:
        """All of a transaction; how many of it were refused by queues that are full. What cannot be published at all is
        known before the first is."""
        prepared: list[tuple[Message, Route] | None] = []
        replies: dict[int, bytes] = {}
        exchanges = self._account.exchanges
        before: i64 = exchanges.routing_steps()
        for at, event in enumerate(events):
            if at and exchanges.routing_steps() - before > ROUTING_STEPS_MAX:
                text = "the routes of the transaction's messages take too long to find; commit more often"
                raise Refused(Reason.PRECONDITION_FAILED, text)
            if self._is_reply(event):
                replies[at] = self._prepare_reply(event)
                prepared.append(None)
            else:
                prepared.append(self._prepare(event, self._find_place(event)))
        receivers = sum(int(receivers_of(each[1])) for each in prepared if each is not None)
        if receivers > RECEIVERS_MAX:
            text = f"the transaction would reach {receivers} receivers (limit: {RECEIVERS_MAX}); commit more often"
            raise Refused(Reason.PRECONDITION_FAILED, text)
        stored = sum(int(stored_bytes_of(each[1], each[0])) for each in prepared if each is not None)
        if stored > BYTES_MAX and len(events) > 1:
            text = f"the transaction would store {stored} bytes in durable queues (limit: {BYTES_MAX}); commit more often"
            raise Refused(Reason.PRECONDITION_FAILED, text)
        catalog = self._account.queues.catalog
        mark: i64 = letter_steps_of(catalog)
        refused = 0
        try:
            for at, event in enumerate(events):
                each = prepared[at]
                if each is None:
                    reason = self._reply(event, replies[at])
                else:
                    reason = self._carry_out(each[0], each[1], True)
                if reason is not SUCCESS and reason is not NO_MATCHING_SUBSCRIBERS:
                    refused += 1
                    catalog.take_refused(letter_steps_of(catalog) - mark < ROUTING_STEPS_MAX)
                self._confirm(reason, event)
        finally:
            catalog.take_refused(True)
        return refused

    def _prepare(self, event: PublishReceived, place: Place) -> tuple[Message, Route]:
        facts = self._read(event.properties)
        properties = self._as_told(event.properties, facts)
        expires_ns: i64 = 0
        if facts.lifetime_ns:
            expires_ns = self._endpoint.context.broker.clock.now_ns + facts.lifetime_ns
        message = make_message(
            self._cache,
            event.exchange,
            event.routing_key,
            place.topic,
            properties,
            event.body,
            facts.guarantee,
            expires_ns,
            self._endpoint.connection_id,
        )
        return message, self._with_copies(place, facts) if facts.keys else place.route

    def _as_told(self, properties: bytes, facts: Facts) -> bytes:
        """What receivers are told: with an address to answer to, and without what only the broker may say."""
        if facts.has_reply_to:
            properties = self._with_address(properties)
        if facts.is_forged:
            properties = without_headers(properties, find_reserved(properties))
        return properties

    def _carry_out(self, message: Message, route: Route, is_part: bool) -> Reason:
        endpoint = self._endpoint
        account = self._account
        if route.settles:
            reason = account.queues.settle(message.topic, message, endpoint.connection_id)
        else:
            rest = self._without_full(message, route, is_part)
            reason = endpoint.context.broker.publishing.publish(
                account, rest, message, None, is_part, not is_part
            )
            if rest is not route and (reason is SUCCESS or reason is NO_MATCHING_SUBSCRIBERS):
                account.counters.dropped_queue_full += 1
                reason = QUOTA_EXCEEDED  # who could take it has it, as with RabbitMQ; the publisher is told
        if reason is not UNAVAILABLE:
            account.counters.messages_received += 1
        return reason

    def _without_full(self, message: Message, route: Route, is_part: bool) -> Route:
        """Of several queues one that is full, or cannot be made, refuses for itself alone. The same route when there is none."""
        is_refused = route.refusal is not SUCCESS and route.refusal is not UNAVAILABLE
        if is_refused and not route.targets and route.shares is None:
            return route
        if not is_refused and (not route.is_stored or len(route.targets) < 2 or route.refusal is not SUCCESS):
            return route
        if not is_part and self._account.store.refusal() is not SUCCESS:
            return route  # it will be tried again: nobody may refuse it twice
        self._account.queues.catalog.begin_letters()
        taking: list[Target] = []
        for target in route.targets:
            if not target.outlet.is_storing() or target.outlet.find_refusal(message) is SUCCESS:
                taking.append(target)
        if len(taking) == len(route.targets) and not is_refused:
            return route
        rest = Route(route.topic, route.generation)
        rest.is_by_headers = True
        rest.renames = route.renames
        rest.targets = taking
        rest.shares = route.shares
        rest.is_stored = True
        return rest

    def _read(self, properties: bytes) -> Facts:
        facts = self._facts
        if facts is None or facts.properties != properties:
            facts = self._facts = Facts(properties, self._endpoint.user_name)
        return facts

    # ------------------------------------------------------------------ where

    def _find_place(self, event: PublishReceived) -> Place:
        generation = self._account.router.generation
        last = self._last
        exchange = event.exchange
        key = event.routing_key
        if (
            last is not None
            and last.routing_key == key
            and last.exchange == exchange
            and last.route.generation == generation
        ):
            return last
        place = self._look_up(exchange, key, event.properties)
        if not place.route.is_by_headers and place.route.refusal is SUCCESS:
            self._last = place
        return place

    def _look_up(self, exchange: bytes, key: bytes, properties: bytes) -> Place:
        place = self._places.get((exchange, key))
        if place is None or place.route.generation != self._account.router.generation:
            before: i64 = self._account.exchanges.routing_steps()
            place = self._make_place(exchange, key, properties)
            self._pace(self._account.exchanges.routing_steps() - before)
            route = place.route
            if route.is_by_headers or route.refusal is not SUCCESS or size_of(route) > TARGETS_MAX:
                return place  # where it leads is found out again: it may be refused for now only
            if len(self._places) >= ROUTES_MAX:
                self._places.clear()
            self._places[(exchange, key)] = place
        return place

    def _pace(self, steps: i64) -> None:
        """Routes that were made for its messages are costly: others have their turn between them."""
        self._spent += steps
        self._endpoint.context.broker.tasks.spend(steps)
        if self._spent >= STEPS_PER_SLICE and not self._endpoint.chores.is_busy():
            self._spent = 0
            self._endpoint.chores.start(Pause())

    def _make_place(self, exchange: bytes, key: bytes, properties: bytes) -> Place:
        topic = self._find_topic(exchange, key)
        exchanges = self._account.exchanges
        principal = self._endpoint.principal
        assert principal is not None
        name = exchange.decode(errors="replace")
        headers: dict[bytes, object] | None = None
        if exchanges.needs_headers(name):
            headers = decode_properties(properties).headers
        route = exchanges.find_route(name, key, topic, headers, principal.name)
        return Place(exchange, key, topic, route)

    def _find_topic(self, exchange: bytes, key: bytes) -> bytes:
        """What a publish there is called, for somebody who may."""
        endpoint = self._endpoint
        account = self._account
        name = exchange.decode(errors="replace")
        found = account.exchanges.find(name)
        if found is None or found.name.encode() != exchange:  # one name has one spelling
            raise Refused(Reason.NOT_FOUND, f"no exchange '{name}' in vhost '{endpoint.virtual_host}'")
        if found.internal:
            text = f"cannot publish to internal exchange '{name}' in vhost '{endpoint.virtual_host}'"
            raise Refused(Reason.NOT_AUTHORIZED, text)
        topic = account.exchanges.topic_of(name, key)
        principal = endpoint.principal
        assert principal is not None
        if not account.authorizer.can_publish(principal, endpoint.connection_id, topic):
            account.counters.publishes_denied += 1
            endpoint.context.observer.denied(endpoint.connection_id, principal.name, "publish", topic)
            shown = name or "amq.default"
            text = f"write access to exchange '{shown}' in vhost '{endpoint.virtual_host}' refused for user '{principal.name}'"
            raise Refused(Reason.NOT_AUTHORIZED, text)
        return topic

    def _with_copies(self, place: Place, facts: Facts) -> Route:
        """CC and BCC name further routing keys: each receiver gets one copy."""
        exchanges = self._account.exchanges
        before: i64 = exchanges.routing_steps()
        for key in facts.keys:  # there must be the right to each
            known = self._places.get((place.exchange, key))
            if known is None or known.route.generation != self._account.router.generation:
                self._find_topic(place.exchange, key)
        exchanges.spend(len(facts.keys) // KEYS_PER_STEP)
        keys = [place.routing_key, *facts.keys]
        name = place.exchange.decode(errors="replace")
        headers = decode_properties(facts.properties).headers if exchanges.needs_headers(name) else None
        common = exchanges.find_common_route(name, keys, place.topic, headers)
        self._pace(exchanges.routing_steps() - before)
        if common is not None:
            return common
        return self._join_routes(place, keys, facts.properties, before)

    def _join_routes(self, place: Place, keys: list[bytes], properties: bytes, before: i64) -> Route:
        """Each key goes its own way. `before`: what finding routes had cost when this message came."""
        exchanges = self._account.exchanges
        joined = Route(place.topic, place.route.generation)
        joined.is_by_headers = True
        seen: dict[int, None] = {}
        receivers: i64 = 0
        for key in keys:
            route = place.route
            if key != place.routing_key:
                route = self._look_up(place.exchange, key, properties).route
            receivers += receivers_of(route)
            if exchanges.routing_steps() - before + receivers // TARGETS_PER_STEP > COPIES_STEPS_MAX:
                text = f"the routes of the message's {len(keys)} keys take too long to find; name fewer in CC and BCC"
                raise Refused(Reason.PRECONDITION_FAILED, text)
            if route.renames and not joined.renames:  # its first key there names it
                joined.topic = route.topic
                joined.renames = True
            for target in route.targets:
                _add_target(joined, target, seen)
            if route.shares is not None:
                joined.shares = route.shares if joined.shares is None else joined.shares + route.shares
            joined.is_stored = joined.is_stored or route.is_stored
            if route.refusal is not SUCCESS and joined.refusal is not UNAVAILABLE:
                joined.refusal = route.refusal
        return joined

    # --------------------------------------------------------------- reply-to

    def _with_address(self, properties: bytes) -> bytes:
        changed = with_reply_address(properties, self._channel.reply_token)
        if changed is not properties and not self._channel.reply_token:
            raise Refused(Reason.PRECONDITION_FAILED, "fast reply consumer does not exist")
        return changed

    def _is_reply(self, event: PublishReceived) -> bool:
        return not event.exchange and event.routing_key.startswith(ADDRESS_PREFIX)

    def _prepare_reply(self, event: PublishReceived) -> bytes:
        """Its properties, which are refused and changed like those of any other publish."""
        return without_blind_copies(self._as_told(event.properties, self._read(event.properties)))

    def _reply(self, event: PublishReceived, properties: bytes) -> Reason:
        """Straight to the channel that asked, if it is still there. No rule is asked: the address cannot be guessed, so who has
        it was given it with a request, and may answer that."""
        self._account.counters.messages_received += 1
        asker = self._endpoint.context.reply_addresses.find(self._account.name, event.routing_key)
        if asker is None:
            return NO_MATCHING_SUBSCRIBERS
        if asker.endpoint.is_send_buffer_full():
            return Reason.QUOTA_EXCEEDED  # it does not read: there is no queue to keep it in
        asker.deliver_reply(event.routing_key, properties, event.body)
        return SUCCESS

    # --------------------------------------------------------------- confirms

    def _confirm(self, reason: Reason, event: PublishReceived) -> None:
        channel = self._channel
        machine = self._endpoint.machine
        if reason is NO_MATCHING_SUBSCRIBERS and event.mandatory:
            method = BasicReturn(codes.NO_ROUTE, NO_ROUTE_TEXT, event.exchange, event.routing_key)
            machine.send_content(channel.number, method, without_blind_copies(event.properties), event.body)
        if not self.is_confirming:
            return
        self.tag += 1
        if reason is SUCCESS or reason is NO_MATCHING_SUBSCRIBERS:
            self.taken += 1
            self.last_taken = self.tag
            self._endpoint.answers.confirm_later(channel)
            return
        # told before any later `multiple` can cover it
        machine.send(channel.number, BasicNack(int(self.tag), False, False))


def must_wait(endpoint: AmqpEndpoint, event: Event) -> bool:
    """Whether something that has waited for the store waits on: it is behind, or takes nothing and nobody would be told."""
    store = endpoint.context.broker.store
    if store.refusal() is SUCCESS:
        return False
    if not store.is_stuck() or not isinstance(event, PublishReceived):
        return not store.is_stuck()
    channel = endpoint.channels.get(int(event.channel))
    return channel is not None and not channel.publisher.is_confirming and channel.transaction is None


def letter_steps_of(catalog: Catalog) -> i64:
    """What all dead letters have taken so far."""
    return catalog.letters * STEPS_PER_REJECTED + catalog.scheduler.letter_mark()


def _add_target(route: Route, target: Target, seen: dict[int, None]) -> None:
    mark = id(target.outlet)
    if mark not in seen:
        seen[mark] = None
        route.targets.append(target)
