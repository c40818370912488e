"""What the owners of bindings, alternate and dead-letter exchanges may by the rules in force, and which rights each needs.

    a binding to a queue        subscribe to $queue/<queue>, and to all that the binding can bring
    a binding to an exchange    subscribe to <exchange>/# and to all that the binding can bring; publish to where it leads
    an alternate exchange       publish to all that can come to it
    a dead letter               publish to the topic it is published to, asked for every letter; what a queue that is made later
                                needs is the right to its topic, or to that of the queue which the key may name by then

A binding brings messages when nobody looks any more, so it needs a right to all of them, of which no part is denied: there is
no later moment at which a single message could be held back.
"""

from __future__ import annotations

from typing import Final, final

from millstream.model.errors import Refused
from millstream.model.owner import Owner
from millstream.model.queue_topic import is_queue_topic, queue_prefix
from millstream.model.routing_key import TOPIC_EXCHANGE, filter_of_binding, topic_of_publish
from millstream.queues.definition import check_name
from millstream.routing.binding import Binding
from millstream.routing.exchange import DIRECT, TOPIC
from millstream.security.acl import Authorizer
from millstream.security.authentication import Authenticator
from millstream.security.principal import Principal

ALL_QUEUES: Final = b"$queue/#"


@final
class OwnerRights:
    """Without an authenticator everybody is known."""

    def __init__(self, account: str, authorizer: Authorizer, authenticator: Authenticator | None) -> None:
        self._account = account
        self._authorizer = authorizer
        self._authenticator = authenticator

    def can_publish(self, owner: Owner, topic: bytes) -> bool:
        principal = self._find_principal(owner)
        return principal is not None and self._authorizer.can_publish(principal, owner.client_id, topic)

    def may_bind(self, owner: Owner, binding: Binding) -> bool:
        """Whether it could make this binding now."""
        principal = self._find_principal(owner)
        if principal is None:
            return False
        authorizer = self._authorizer
        source = binding.source
        client_id = owner.client_id
        brought = filter_of_source(source.name.encode(), source.kind, binding.key)
        if not authorizer.has_all(principal, client_id, brought, False):
            return False
        if binding.exchange is None:
            return authorizer.can_subscribe(principal, client_id, queue_prefix(binding.target))
        target = filter_of_exchange(binding.target.encode())
        if not authorizer.can_subscribe(principal, client_id, target):
            return False
        if source.kind == DIRECT:
            target = topic_of_publish(binding.target.encode(), binding.key)
        return authorizer.has_all(principal, client_id, target, True)

    def is_narrow(self, owner: Owner, binding: Binding) -> bool:
        """Whether this binding between exchanges may bring no other keys than its own by this right."""
        if binding.exchange is None or binding.source.kind != DIRECT:
            return False  # no key decides, or all that can come was asked for
        return not self.may_lead_to(owner, binding.target)

    def may_lead_to(self, owner: Owner, exchange: str) -> bool:
        """Whether it may let everything go to this exchange, as an alternate does."""
        principal = self._find_principal(owner)
        wanted = filter_of_exchange(exchange.encode())
        return principal is not None and self._authorizer.has_all(principal, owner.client_id, wanted, True)

    def may_dead_letter(self, owner: Owner, exchange: str, key: bytes, topic: bytes) -> bool:
        """Whether dead letters with this key, which now go to `topic`, can have the right they need."""
        queue = find_queue_topic(exchange, key)
        return self.can_publish(owner, topic) or (queue is not None and self.can_publish(owner, queue))

    def _find_principal(self, owner: Owner) -> Principal | None:
        """None: there is no such user any more."""
        principal = Principal(owner.name, self._account, owner.kind)
        authenticator = self._authenticator
        if authenticator is not None and not authenticator.is_still_valid(principal, 0):
            return None
        return principal


def filter_of_exchange(name: bytes) -> bytes:
    """Everything that is published to an exchange; to the default one, as an alternate, with the name of a queue."""
    if not name:
        return ALL_QUEUES
    if name == TOPIC_EXCHANGE:
        return b"#"
    return topic_of_publish(name, b"-")[:-1] + b"#"


def find_queue_topic(exchange: str, key: bytes) -> bytes | None:
    """The topic of the queue that a key names behind the default exchange, whether or not it is there yet."""
    if exchange or is_queue_topic(key):
        return None
    try:
        name = key.decode()
        check_name(name)
    except (UnicodeDecodeError, Refused):
        return None
    return queue_prefix(name)


def filter_of_source(name: bytes, kind: str, key: bytes) -> bytes:
    """Everything that a binding with this key can bring."""
    if kind == TOPIC:
        bound = filter_of_binding(key)
        if bound is None:
            return filter_of_exchange(name)
        if name == TOPIC_EXCHANGE:
            return bound
        return filter_of_exchange(name)[:-1] + bound
    return topic_of_publish(name, key) if kind == DIRECT else filter_of_exchange(name)
