"""The sections of the configuration on how much accounts and users may have, and what becomes of them in the broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pydantic import Field

from millstream.config.section import Section, setting
from millstream.config.values import OptionalRate, OptionalSize, OptionalWhole, Rate, Size, Whole
from millstream.security.quota import BYTES, CONNECTIONS, QUEUES, SESSIONS, SUBSCRIPTIONS, Bound, Quota
from millstream.security.quotas import QuotaTerms, make_quota

if TYPE_CHECKING:
    from millstream.config.schema import Config

TIB: Final = 1 << 40
MANY: Final = 100_000_000
QUEUES_MAX: Final = 100_000  # of an account, unless it says otherwise
SHARE: Final = 80  # percent of what all users have together that one may have, where there are several
NAMES: Final = {
    SESSIONS: "max_sessions",
    CONNECTIONS: "max_connections",
    QUEUES: "max_queues",
    SUBSCRIPTIONS: "max_subscriptions",
    BYTES: "max_bytes",
}


class AccountQuota(Section):
    max_sessions: Whole = setting(
        0,
        "MQTT sessions of the account, connected or not; 0 for no limit of its own.",
        minimum=0,
        maximum=MANY,
    )
    max_queues: Whole = setting(QUEUES_MAX, "Queues of the account.", minimum=1, maximum=MANY)
    max_subscriptions: Whole = setting(
        0,
        "MQTT subscriptions, AMQP bindings and AMQP consumers of the account; 0 for no limit of its own.",
        minimum=0,
        maximum=MANY,
    )
    max_bytes: Size = setting(
        0,
        "Bytes stored in the account: records of queues, messages that wait for sessions, retained messages. Looked at up to "
        "20 times a second. Beyond it, what would have to be stored is refused. 0 for no limit of its own.",
        unit="bytes",
        minimum=0,
        maximum=1024 * TIB,
    )
    publish_rate: Rate = setting(
        0.0,
        "Publishes per second of all clients of the account together; who is faster is read more slowly. 0 for no limit.",
        minimum=0,
        maximum=1e9,
    )
    publish_burst: Whole = setting(1000, "Publishes at once.", minimum=1, maximum=1_000_000_000)


class UserQuota(Section):
    """What is null here is as the next wider one says: a user's own, its account's, that of every user."""

    max_sessions: OptionalWhole = setting(
        None, "MQTT sessions of one user, connected or not; 0 for no limit.", minimum=0, maximum=MANY
    )
    max_connections: OptionalWhole = setting(
        None, "Connections of one user; 0 for no limit.", minimum=0, maximum=MANY
    )
    max_queues: OptionalWhole = setting(
        None, "Queues one user has made; 0 for no limit.", minimum=0, maximum=MANY
    )
    max_subscriptions: OptionalWhole = setting(
        None,
        "MQTT subscriptions, AMQP consumers and AMQP bindings that one user makes; 0 for no limit.",
        minimum=0,
        maximum=MANY,
    )
    max_bytes: OptionalSize = setting(
        None,
        "Bytes stored for one user: records of the queues it has made, messages that wait for its sessions, retained messages it "
        "has published since the start. Looked at up to 20 times a second. Beyond it, what would have to be stored is refused. "
        "0 for no limit.",
        unit="bytes",
        minimum=0,
        maximum=1024 * TIB,
    )
    publish_rate: OptionalRate = setting(
        None,
        "Publishes per second of all clients of one user together; who is faster is read more slowly. 0 for no limit.",
        minimum=0,
        maximum=1e9,
    )
    publish_burst: OptionalWhole = setting(None, "Publishes at once.", minimum=1, maximum=1_000_000_000)


class UserQuotas(UserQuota):
    users: dict[str, UserQuota] = Field(
        default={}, description="What single users may have, by name; null: as every user of their account."
    )


USER_QUOTAS_TEXT: Final = (
    "What every user may have, unless its account (`accounts.<name>.user_quotas`) or its own entry "
    f"(`user_quotas.users.<name>`) says otherwise. Where users are configured, null means {SHARE} % of `session.max_sessions`, of "
    f"`mqtt.max_connections` and of the {QUEUES_MAX:,} queues of an account, so that one user leaves room for others; anything "
    "else, and everything where all clients are anonymous, is not limited."
)


def to_terms(config: Config, account: str) -> QuotaTerms:
    """Of one account, which need not stand in the configuration."""
    settings = config.accounts.get(account)
    place = f"accounts.{account}"
    whole: dict[int, Bound] = {QUEUES: Bound(QUEUES_MAX, f"{place}.quotas.max_queues")}
    layers: list[tuple[str, UserQuota]] = [("user_quotas", config.user_quotas)]
    rate, burst = 0.0, 1
    if settings is not None:
        for kind, name in NAMES.items():
            if kind != CONNECTIONS:
                whole[kind] = Bound(getattr(settings.quotas, name), f"{place}.quotas.{name}")
        whole[CONNECTIONS] = Bound(settings.max_connections, f"{place}.max_connections")
        rate, burst = settings.quotas.publish_rate, settings.quotas.publish_burst
        layers.insert(0, (f"{place}.user_quotas", settings.user_quotas))
    shares = _shares(config)
    users = {
        name: _to_quota([(f"user_quotas.users.{name}", quota), *layers], shares)
        for name, quota in config.user_quotas.users.items()
    }
    return QuotaTerms(make_quota(whole, rate, burst), _to_quota(layers, shares), users)


def _shares(config: Config) -> dict[int, int]:
    """What one user may have where nothing is said. Where nobody has a name there is only one user."""
    auth = config.auth
    if auth.password_file is None and not auth.jwt.is_enabled and not auth.certificates_as_users:
        return {}
    totals = {
        SESSIONS: config.session.max_sessions,
        CONNECTIONS: config.mqtt.max_connections,
        QUEUES: QUEUES_MAX,
    }
    return {kind: (total * SHARE + 99) // 100 for kind, total in totals.items()}


def _to_quota(layers: list[tuple[str, UserQuota]], shares: dict[int, int]) -> Quota:
    """The first layer that says something holds."""
    bounds: dict[int, Bound] = {}
    for kind, name in NAMES.items():
        bounds[kind] = Bound(shares.get(kind, 0), f"user_quotas.{name}")
        for place, quota in reversed(layers):
            value = getattr(quota, name)
            if value is not None:
                bounds[kind] = Bound(value, f"{place}.{name}")
    rates = [quota.publish_rate for _, quota in layers if quota.publish_rate is not None]
    bursts = [quota.publish_burst for _, quota in layers if quota.publish_burst is not None]
    return make_quota(bounds, rates[0] if rates else 0.0, bursts[0] if bursts else 1000)
