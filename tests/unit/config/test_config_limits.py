from __future__ import annotations

from dataclasses import fields

import pytest

from millstream.config.keys import Key, all_keys
from millstream.config.limits import to_limits
from millstream.config.load import config_of
from millstream.config.schema import Config
from millstream.model.limits import Limits


def test_the_defaults_of_the_configuration_are_the_defaults_of_the_limits() -> None:
    assert to_limits(Config()) == Limits()


def other_value(key: Key) -> object:
    """A legal value that differs from the default."""
    if key.choices:
        return next(choice for choice in key.choices if choice != str(key.default))
    if isinstance(key.default, bool):
        return not key.default
    minimum, maximum = key.facts.get("minimum"), key.facts.get("maximum")
    if isinstance(key.default, int | float):
        assert isinstance(minimum, int | float)
        assert isinstance(maximum, int | float)
        return key.default + 1 if key.default < maximum else key.default - 1
    assert isinstance(minimum, int | float)
    return minimum


def nested(path: tuple[str, ...], value: object) -> dict[str, object]:
    values: object = value
    for part in reversed(path):
        values = {part: values}
    assert isinstance(values, dict)
    return values


def test_every_limit_is_reached_by_some_key() -> None:
    reached: set[str] = set()
    defaults = Limits()
    for key in all_keys():
        is_of_limits = key.path[0] in ("mqtt", "amqp", "broker", "session", "ratelimit")
        if key.name != "auth.revoked_bindings" and (not is_of_limits or {"tls", "policies"} & set(key.path)):
            continue
        if key.kind in ("text", "path") or key.path[-1] in ("host", "port", "enabled"):
            continue
        values = nested(key.path, other_value(key))
        if key.path[0] == "ratelimit":
            values["ratelimit"]["enabled"] = True  # type: ignore[index]
        limits = to_limits(Config.model_validate(values))
        changed = {
            field.name
            for field in fields(Limits)
            if getattr(limits, field.name) != getattr(defaults, field.name)
        }
        assert changed, f"{key.name} changes no limit"
        reached |= changed
    assert reached == {field.name for field in fields(Limits)}


def test_rates_are_off_unless_enabled() -> None:
    off = to_limits(config_of({"ratelimit": {"message": {"rate": 5, "burst": 7}}}))
    on = to_limits(config_of({"ratelimit": {"enabled": True, "message": {"rate": 5, "burst": 7}}}))
    assert (off.message_rate, on.message_rate, on.message_burst) == (0.0, 5.0, 7)


def test_the_packet_size_follows_the_message_size_unless_it_is_set() -> None:
    follows = to_limits(config_of({"broker": {"max_message_size": "8 MiB"}}))
    fixed = to_limits(
        config_of({"broker": {"max_message_size": "8 MiB"}, "mqtt": {"max_packet_size": "9 MiB"}})
    )
    assert follows.packet_size_max == 8 * 1024**2 + 64 * 1024
    assert fixed.packet_size_max == 9 * 1024**2


def test_the_default_expiry_is_cut_to_the_longest_one() -> None:
    limits = to_limits(config_of({"session": {"max_expiry_interval": "1h"}}))
    assert (limits.session_expiry_default_s, limits.session_expiry_s_max) == (3600, 3600)


@pytest.mark.parametrize(("written", "milliseconds"), [("250ms", 250), (10, 10_000), (0.05, 50)])
def test_time_outs_become_milliseconds(written: object, milliseconds: int) -> None:
    assert to_limits(config_of({"mqtt": {"handshake_timeout": written}})).handshake_timeout_ms == milliseconds


def test_an_amqp_body_has_the_default_limit_of_rabbitmq() -> None:
    assert to_limits(config_of({})).amqp_body_size_max == 16 * 1024 * 1024
