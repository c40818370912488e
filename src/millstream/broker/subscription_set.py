"""The subscriptions of one session by the name its client gave them. Most have one or none: no dict for those."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from millstream.model.errors import Reason, Refused
from millstream.model.limits import Limits
from millstream.model.queue_topic import is_queue_topic
from millstream.model.topic import has_wildcard
from millstream.routing.shapes import Shapes, find_shape
from millstream.routing.subscription import Subscription
from millstream.routing.tree import TopicTree
from millstream.storage.store import StoredSubscription

SHAPE_LEVELS: Final[i64] = 64  # filters of more are counted from the first on
SHAPE_WEIGHT: Final[i64] = 4  # of those with as many at most


@final
class SubscriptionSet:
    def __init__(self) -> None:
        self._only: Subscription | None = None
        self._more: dict[bytes, Subscription] | None = None
        self._shapes: Shapes | None = None  # of the filters, once they could be too many
        self.name_bytes: i64 = 0  # of all names

    def all(self) -> list[Subscription]:
        if self._more is not None:
            return list(self._more.values())
        return [] if self._only is None else [self._only]

    def count(self) -> i64:
        if self._more is not None:
            return len(self._more)
        return 0 if self._only is None else 1

    def find(self, name: bytes) -> Subscription | None:
        if self._more is not None:
            return self._more.get(name)
        only = self._only
        return only if only is not None and only.name() == name else None

    def admit(self, subscription: Subscription, limits: Limits, tree: TopicTree) -> bool:
        """Whether there is one of that name; Refused when there is no room for another."""
        name = subscription.name()
        filter = subscription.filter
        if self.find(name) is not None:
            return True
        if self.count() >= limits.subscriptions_max:
            raise Refused(
                Reason.QUOTA_EXCEEDED,
                f"the session holds {limits.subscriptions_max} subscriptions, as many as session.max_subscriptions allows",
            )
        if self.name_bytes + len(name) > limits.subscription_bytes_max:
            raise Refused(
                Reason.QUOTA_EXCEEDED,
                f"the filters of the session would have more than {limits.subscription_bytes_max} bytes, which "
                "session.max_subscription_bytes allows",
            )
        if is_shaped(filter):
            self._admit_shape(find_shape(filter), limits, tree.shapes)
        group = subscription.group
        if group and not tree.has_room_for_group(filter, group, limits.share_groups_max):
            raise Refused(
                Reason.QUOTA_EXCEEDED,
                f"the filters of the account have {limits.share_groups_max} share groups beside the first of each, as many "
                "as broker.max_share_groups allows",
            )
        return False

    def _admit_shape(self, shape: bytes, limits: Limits, account_shapes: Shapes) -> None:
        if not self._has_room_for(shape, limits.session_shapes_max):
            raise Refused(
                Reason.QUOTA_EXCEEDED,
                f"the filters of the session have wildcards in {limits.session_shapes_max} different ways, as many as "
                "session.max_filter_shapes allows",
            )
        if not account_shapes.has_room_for(shape, limits.shapes_max):
            raise Refused(
                Reason.QUOTA_EXCEEDED,
                f"the filters of the account have wildcards in {limits.shapes_max} different ways, as many as "
                "broker.max_filter_shapes allows",
            )

    def _has_room_for(self, shape: bytes, weight_max: i64) -> bool:
        shapes = self._shapes
        if shapes is None:
            if (self.count() + 1) * SHAPE_WEIGHT <= weight_max and len(shape) <= SHAPE_LEVELS:
                return True  # whatever they are
            shapes = self._shapes = Shapes()
            for subscription in self.all():
                if is_shaped(subscription.filter):
                    shapes.add(find_shape(subscription.filter))
        return shapes.has_room_for(shape, weight_max)

    def put(self, name: bytes, subscription: Subscription) -> None:
        if self.find(name) is None:
            self.name_bytes += len(name)
            if self._shapes is not None and is_shaped(subscription.filter):
                self._shapes.add(find_shape(subscription.filter))
        only = self._only
        if self._more is not None:
            self._more[name] = subscription
        elif only is None or only.name() == name:
            self._only = subscription
        else:
            self._more = {only.name(): only, name: subscription}
            self._only = None

    def clear(self) -> None:
        self._only = None
        self._more = None
        self._shapes = None
        self.name_bytes = 0

    def remove(self, name: bytes) -> Subscription | None:
        more = self._more
        if more is not None:
            found = more.pop(name, None)
            if len(more) == 0:
                self._more = None
        else:
            found = self.find(name)
            if found is not None:
                self._only = None
        if found is not None:
            self.name_bytes -= len(name)
            if self._shapes is not None and is_shaped(found.filter):
                self._shapes.remove(find_shape(found.filter))
        return found


def is_shaped(filter: bytes) -> bool:
    """Whether it is matched against topics, and has wildcards."""
    return has_wildcard(filter) and not is_queue_topic(filter)


def to_stored(subscription: Subscription, group: bytes, terms: int) -> StoredSubscription:
    """As the store keeps it; `group` and `terms` are those of a consumer of a queue."""
    return StoredSubscription(
        subscription.name(),
        int(subscription.guarantee),
        subscription.no_local,
        subscription.retain_as_published,
        int(subscription.identifier),
        group,
        terms,
    )
