"""Settings for queues and exchanges by a pattern of their names, as RabbitMQ's policies.

Of all policies that fit a name one counts: that of the highest priority. Where a declaration has arguments of its own, the
smaller number counts, and otherwise the argument.

Invariants
- A pattern is matched in a bounded time whatever a client calls its queue: only single characters may be repeated, and
  few times over.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Final, final

from millstream.broker.account import Account
from millstream.model.errors import Refused
from millstream.protocols.amqp091.queue_arguments import OVERFLOWS, apply, find_age_s, keep_known
from millstream.queues.definition import Definition, decode_definition
from millstream.queues.queue import Queue

QUEUES: Final = "queues"
EXCHANGES: Final = "exchanges"
PATTERN_LENGTH_MAX: Final = 255
APPLIED: Final = "x-policy"  # kept with the arguments of a queue: the name of the policy it has
REPEATS_MAX: Final = 2  # to fail takes steps as the third power of the length of a name: some 10 ms at most

_REPEATS: Final = "*+?{"
_SMALLER: Final = (
    "x-message-ttl",
    "x-expires",
    "x-max-length",
    "x-max-length-bytes",
    "x-delivery-limit",
)


@final
class Policy:
    """`arguments` are those of queue.declare, `alternate` is for exchanges."""

    def __init__(
        self,
        name: str,
        pattern: str,
        target: str,
        priority: int,
        arguments: dict[str, object],
        alternate: str | None,
    ) -> None:
        self.name = name
        self.target = target
        self.priority = priority
        self.arguments = arguments
        self.alternate = alternate
        self._pattern = re.compile(pattern)

    def fits(self, target: str, name: str) -> bool:
        return self.target in (target, "all") and self._pattern.search(name) is not None

    def says_the_same(self, other: Policy) -> bool:
        """About the queues it fits; it may fit others than before."""
        return self.name == other.name and self.arguments == other.arguments


def find_pattern_fault(pattern: str) -> str | None:
    """Why names cannot be matched with it, as the end of a sentence; None if they can."""
    if not pattern or len(pattern) > PATTERN_LENGTH_MAX:
        return f"must be a regular expression of 1 to {PATTERN_LENGTH_MAX} characters"
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        return f"is no regular expression: {error}"
    bare = _without_classes(pattern)
    if "(?" in bare or re.search(r"\\[1-9]", pattern):
        return "must not look around nor back: only plain groups are taken"
    if re.search(r"\)[*+?{]", bare):
        return "must not repeat a group: only single characters can be repeated"
    if sum(bare.count(sign) for sign in _REPEATS) > REPEATS_MAX:
        return f"must not repeat more than {REPEATS_MAX} times"
    return None


def _without_classes(pattern: str) -> str:
    """With one letter in place of every escape and every set of characters: what is left says how it is built."""
    return re.sub(r"\[\^?\]?[^\]]*\]", "x", re.sub(r"\\.", "x", pattern))


def find_argument_fault(name: str, value: object) -> str | None:
    if name == "x-max-age" and find_age_s(str(value)) < 0:
        return "must be a number and one of Y, M, D, h, m, s"
    if name == "x-overflow" and value not in OVERFLOWS:
        return f"must be one of {', '.join(OVERFLOWS)}"
    return None


@final
class Policies:
    def __init__(self, policies: list[Policy]) -> None:
        self._policies = sorted(policies, key=_rank)

    def find(self, target: str, name: str) -> Policy | None:
        for policy in self._policies:
            if policy.fits(target, name):
                return policy
        return None

    def shape(self, name: str, definition: Definition) -> None:
        """Give a definition what the policy for this name says beside its own arguments; take away what one said
        that is no more."""
        policy = self.find(QUEUES, name)
        had_one = definition.arguments.pop(APPLIED, None) is not None
        if policy is not None:
            apply(definition, combine(definition, policy.arguments))
            definition.arguments[APPLIED] = policy.name
        elif had_one:
            apply(definition, definition.arguments)

    def find_alternate(self, name: str) -> str | None:
        policy = self.find(EXCHANGES, name)
        return None if policy is None else policy.alternate

    def replace(self, others: Policies) -> Policies:
        """Hold those from now on; gives what it held."""
        before = Policies(self._policies)
        self._policies = others._policies
        return before

    def agrees(self, other: Policies, name: str) -> bool:
        """Whether both say the same about a queue."""
        mine, its = self.find(QUEUES, name), other.find(QUEUES, name)
        if mine is None or its is None:
            return mine is its
        return mine.says_the_same(its)

    def apply_to_all(self, account: Account, kept: list[str]) -> None:
        """At start: what clients declared before these policies. `kept` are queues that are configured one by one."""
        for queue in list(account.queues.catalog.queues.values()):
            if queue.name not in kept:
                self.apply_to_queue(queue)
        for exchange in account.exchanges.all():
            account.exchanges.set_alternate(exchange, self.find_alternate(exchange.name))

    def apply_to_queue(self, queue: Queue) -> None:
        if not is_of_amqp(queue):
            return
        definition = decode_definition(queue.definition.encode())
        self.shape(queue.name, definition)
        with suppress(Refused):  # it stays what it was
            queue.catalog.declare(queue.name, definition)


def is_of_amqp(queue: Queue) -> bool:
    return queue.definition.bounds_ready


def combine(definition: Definition, wanted: dict[str, object]) -> dict[str, object]:
    """The arguments that count, of those that this kind of queue can have."""
    combined = dict(definition.arguments)
    for name, value in keep_known(definition, wanted).items():
        own = combined.get(name)
        if own is None:
            combined[name] = value
        elif name in _SMALLER and isinstance(own, int) and isinstance(value, int):
            combined[name] = min(own, value) if own >= 0 else value
    return combined


def _rank(policy: Policy) -> tuple[int, str]:
    return -policy.priority, policy.name
