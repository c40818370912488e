"""From `amqp.policies` to what the broker works with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from millstream.config.amqp import AmqpPolicy
from millstream.config.keys import KeyPath
from millstream.config.schema import Config
from millstream.protocols.amqp091.policies import Policies, Policy, find_argument_fault, find_pattern_fault

# the key of a policy, the argument of queue.declare it stands for
ARGUMENTS: Final = {
    "message_ttl": "x-message-ttl",
    "expires": "x-expires",
    "max_length": "x-max-length",
    "max_length_bytes": "x-max-length-bytes",
    "overflow": "x-overflow",
    "dead_letter_exchange": "x-dead-letter-exchange",
    "dead_letter_routing_key": "x-dead-letter-routing-key",
    "max_age": "x-max-age",
    "delivery_limit": "x-delivery-limit",
}


def to_policies(config: Config) -> Policies:
    return Policies([_to_policy(name, settings) for name, settings in config.amqp.policies.items()])


def _to_policy(name: str, settings: AmqpPolicy) -> Policy:
    return Policy(
        name,
        settings.pattern,
        settings.apply_to,
        settings.priority,
        _arguments_of(settings),
        settings.alternate_exchange,
    )


def _arguments_of(settings: AmqpPolicy) -> dict[str, object]:
    values = {argument: getattr(settings, key) for key, argument in ARGUMENTS.items()}
    return {argument: value for argument, value in values.items() if value is not None}


def find_broken_policies(config: Config) -> Iterator[tuple[KeyPath, str]]:
    for name, settings in config.amqp.policies.items():
        path = ("amqp", "policies", name)
        fault = find_pattern_fault(settings.pattern)
        if fault is not None:
            yield (*path, "pattern"), fault
        arguments = _arguments_of(settings)
        for key, argument in ARGUMENTS.items():
            fault = None if argument not in arguments else find_argument_fault(argument, arguments[argument])
            if fault is not None:
                yield (*path, key), fault
        if not arguments and settings.alternate_exchange is None:
            yield path, "says nothing; give it one of " + ", ".join([*ARGUMENTS, "alternate_exchange"])
