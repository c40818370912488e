from __future__ import annotations

from millstream.config.difference import difference, flatten
from millstream.config.keys import ANY_NAME, all_keys
from millstream.config.load import config_of
from millstream.config.schema import Config


def test_equal_configurations_do_not_differ() -> None:
    assert difference(Config(), config_of({"mqtt": {"port": 1883}})) == []


def test_a_change_tells_key_and_both_values() -> None:
    [change] = difference(Config(), config_of({"mqtt": {"port": 1884}}))
    assert (change.key, change.old, change.new, change.needs_restart) == ("mqtt.port", 1883, 1884, True)


def test_a_live_key_needs_no_restart() -> None:
    [change] = difference(Config(), config_of({"log": {"level": "debug"}}))
    assert not change.needs_restart


def test_accounts_that_come_and_go_are_changes() -> None:
    one, other = config_of({"accounts": {"a": {}}}), config_of({"accounts": {"b": {"max_connections": 3}}})
    changes = {change.key: (change.old, change.new) for change in difference(one, other)}
    assert changes["accounts.a.max_connections"] == (0, None)
    assert changes["accounts.b.max_connections"] == (None, 3)


def test_all_keys_are_compared() -> None:
    compared = set(flatten(Config()))
    assert compared == {key.path for key in all_keys() if ANY_NAME not in key.path}
