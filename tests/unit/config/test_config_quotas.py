"""Quotas in the configuration: of an account, of each user, of users by name, and the share that one user has by default."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.config.quotas import to_terms
from millstream.config.schema import Config
from millstream.security.quota import BYTES, CONNECTIONS, KINDS, QUEUES, SESSIONS, SUBSCRIPTIONS, Quota

USERS = {"auth": {"password_file": "users"}}


def bounds(quota: Quota) -> list[tuple[int, str]]:
    return [(bound.value, bound.key) for bound in quota.bounds]


def values(quota: Quota) -> list[int]:
    return [bound.value for bound in quota.bounds]


def terms(account: str = "default", **sections: Any) -> Any:
    return to_terms(Config(**sections), account)


def test_where_all_are_anonymous_nothing_is_bounded_but_the_queues_of_an_account() -> None:
    found = terms()
    assert values(found.user) == [0] * len(KINDS)
    assert found.account.bounds[QUEUES].value == 100_000
    assert found.account.bounds[QUEUES].key == "accounts.default.quotas.max_queues"
    assert (found.user.rate, found.account.rate) == (0, 0)


@pytest.mark.parametrize(
    "auth",
    [
        {"password_file": "users"},
        {"certificates_as_users": True},
        {"jwt": {"algorithm": "HS256"}},
    ],
)
def test_where_there_are_users_one_of_them_leaves_a_fifth_to_others(auth: dict[str, Any]) -> None:
    found = terms(auth=auth, session={"max_sessions": 1000}, mqtt={"max_connections": 7})
    assert values(found.user) == [800, 6, 80_000, 0, 0]
    assert found.user.bounds[SESSIONS].key == "user_quotas.max_sessions"


def test_the_narrowest_that_says_something_holds() -> None:
    found = terms(
        "plant",
        **USERS,
        user_quotas={
            "max_sessions": 10,
            "max_subscriptions": 20,
            "publish_rate": 5,
            "users": {"ann": {"max_sessions": 0, "publish_rate": 50, "publish_burst": 9}},
        },
        accounts={"plant": {"user_quotas": {"max_queues": 30, "max_sessions": 11}}},
    )
    assert bounds(found.user)[SESSIONS] == (11, "accounts.plant.user_quotas.max_sessions")
    assert bounds(found.user)[QUEUES] == (30, "accounts.plant.user_quotas.max_queues")
    assert bounds(found.user)[SUBSCRIPTIONS] == (20, "user_quotas.max_subscriptions")
    assert (found.user.rate, found.user.burst) == (5, 1000)
    ann = found.users["ann"]
    assert bounds(ann)[SESSIONS] == (0, "user_quotas.users.ann.max_sessions")
    assert bounds(ann)[QUEUES] == (30, "accounts.plant.user_quotas.max_queues")
    assert (ann.rate, ann.burst) == (50, 9)


def test_an_account_as_a_whole_is_bounded() -> None:
    quotas = {
        "max_sessions": 1,
        "max_queues": 2,
        "max_subscriptions": 3,
        "max_bytes": "1 MiB",
        "publish_rate": 4,
    }
    found = terms("plant", accounts={"plant": {"max_connections": 5, "quotas": quotas}})
    assert values(found.account) == [1, 5, 2, 3, 1024 * 1024]
    assert found.account.bounds[CONNECTIONS].key == "accounts.plant.max_connections"
    assert found.account.bounds[BYTES].key == "accounts.plant.quotas.max_bytes"
    assert found.account.rate == 4
