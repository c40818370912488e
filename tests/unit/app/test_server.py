"""What is built from a configuration, before anything is opened. The rest is in scenarios."""

from __future__ import annotations

from pathlib import Path

from fakes import START_NS, HeldStore, World

from millstream.app.server import GC_THRESHOLDS, Millstream
from millstream.config.load import config_of
from millstream.security.quota import CONNECTIONS


def test_the_configuration_reaches_the_broker(tmp_path: Path) -> None:
    config = config_of(
        {
            "data_dir": str(tmp_path),
            "session": {"max_sessions": 7},
            "accounts": {"factory": {"max_connections": 3, "max_ack_pending": 5}},
        }
    )
    millstream = Millstream(config)
    assert millstream.broker.limits.sessions_max == 7
    assert sorted(millstream.broker.accounts) == ["default", "factory"]
    factory = millstream.broker.get_account("factory")
    assert factory.quotas.whole.quota.bounds[CONNECTIONS].value == 3
    assert factory.window_limit(65_535) == 5
    assert millstream.addresses == {}


def test_the_store_that_was_given_is_the_one_that_is_used(tmp_path: Path) -> None:
    store = HeldStore()
    world = World(store=store)
    session, _ = world.connect("c")
    world.subscribe(session, b"t")
    millstream = Millstream(config_of({"data_dir": str(tmp_path)}), store)
    millstream.broker.restore(START_NS)
    assert "c" in millstream.broker.get_account("default").sessions


def test_the_regular_look_counts_as_a_turn_of_the_loop(tmp_path: Path) -> None:
    millstream = Millstream(config_of({"data_dir": str(tmp_path)}), HeldStore())
    assert millstream.broker.turns.is_notable(1)
    millstream.look(1)
    assert not millstream.broker.turns.is_notable(1)


async def test_stopping_what_was_never_started_is_harmless(tmp_path: Path) -> None:
    await Millstream(config_of({"data_dir": str(tmp_path)})).stop()


def test_a_look_of_the_garbage_collector_covers_no_more_objects_than_fit_in_a_turn() -> None:
    """But for a full one, which comes once in very many."""
    objects, looks, rounds = GC_THRESHOLDS
    assert objects * (looks + 2) <= 150_000
    assert objects * (looks + 2) * rounds >= 40_000_000
