"""The section `amqp`: its policies as the broker gets them, and what is refused."""

from __future__ import annotations

import pytest

from millstream.config.faults import ConfigFault
from millstream.config.load import config_of, load
from millstream.config.policies import to_policies


def policies_of(**policies: object) -> dict[str, object]:
    return {"amqp": {"policies": policies}}


def test_a_policy_becomes_arguments() -> None:
    config = config_of(
        policies_of(
            logs={
                "pattern": "^logs",
                "message_ttl": "5s",
                "max_length_bytes": "1 MiB",
                "overflow": "drop-head",
            },
            main={"pattern": "^logs", "priority": 5, "apply_to": "exchanges", "alternate_exchange": "lost"},
        )
    )
    policies = to_policies(config)
    queues = policies.find("queues", "logs.a")
    assert queues is not None
    assert queues.arguments == {
        "x-message-ttl": 5000,
        "x-max-length-bytes": 1024 * 1024,
        "x-overflow": "drop-head",
    }
    assert policies.find("queues", "my.logs") is None
    assert policies.find_alternate("logs") == "lost"


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        ({"message_ttl": 5}, r"amqp\.policies\.p\.pattern must be a regular expression"),
        ({"pattern": "(", "message_ttl": 5}, r"amqp\.policies\.p\.pattern is no regular expression"),
        ({"pattern": "(a+)+", "message_ttl": 5}, "must not repeat a group"),
        ({"pattern": "a"}, r"amqp\.policies\.p says nothing"),
        ({"pattern": "a", "max_age": "1w"}, r"amqp\.policies\.p\.max_age must be a number and one of"),
        ({"pattern": "a", "overflow": "reject"}, "must be one of drop-head"),
        ({"pattern": "a", "expires": 0}, "must be at least 1 milliseconds"),
        ({"pattern": "a", "message-ttl": 5}, "is not a known key"),
    ],
)
def test_a_policy_that_cannot_be_meant_is_refused(policy: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigFault, match=text):
        config_of(policies_of(p=policy))


def test_policies_can_be_set_by_flag_and_variable() -> None:
    loaded = load(
        environment={"MILLSTREAM_AMQP__POLICIES__LOGS__MAX_LENGTH": "7"},
        overrides=["amqp.policies.logs.pattern=^logs"],
    )
    assert loaded.config.amqp.policies["logs"].max_length == 7
    with pytest.raises(ConfigFault, match="is a section"):
        load(overrides=["amqp.policies=5"])
