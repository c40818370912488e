"""Sections that are there once per name: accounts and queues."""

from __future__ import annotations

from pydantic import Field

from millstream.config.quotas import AccountQuota, UserQuota
from millstream.config.section import Section, setting
from millstream.config.values import (
    Milliseconds,
    OptionalSwitch,
    OptionalText,
    QueueKind,
    QueueOverflow,
    Seconds,
    Size,
    Switch,
    Text,
    TextList,
    Whole,
)

DAY_S = 86_400
DAY_MS = DAY_S * 1000
TIB = 1 << 40


class Account(Section):
    description: Text = setting("", "What the account is for.")
    max_connections: Whole = setting(
        0, "Connections of this account; 0 for no limit of its own.", minimum=0, maximum=10_000_000
    )
    max_ack_pending: Whole = setting(
        0, "As `mqtt.max_ack_pending`, for this account; 0 takes that value.", minimum=0, maximum=65_535
    )
    quotas: AccountQuota = Field(
        default=AccountQuota(), description="What the account as a whole may have. See docs/operations.md."
    )
    user_quotas: UserQuota = Field(
        default=UserQuota(),
        description="What each user of the account may have; null: as `user_quotas` says.",
    )


class QueueSettings(Section):
    """The fields of a queue's definition, with its defaults."""

    kind: QueueKind = setting(
        "work",
        "`work`: settled records go; `stream`: records stay and groups have cursors; `ephemeral`: in memory, gone with "
        "its last consumer.",
    )
    bindings: TextList = setting((), "Filters of ordinary topics whose messages it also takes.")
    visibility_ms: Milliseconds = setting(
        30_000,
        "A delivery not settled for so long goes to another consumer.",
        unit="milliseconds",
        minimum=100,
        maximum=7 * DAY_MS,
    )
    max_deliveries: Whole = setting(
        5,
        "A record handed out and given back so often becomes a dead letter; 0 for no limit.",
        minimum=0,
        maximum=1_000_000,
    )
    backoff_ms: Milliseconds = setting(
        100,
        "How long a failed record waits before the next attempt; doubles with each.",
        unit="milliseconds",
        minimum=0,
        maximum=DAY_MS,
    )
    backoff_max_ms: Milliseconds = setting(
        60_000, "The longest such wait.", unit="milliseconds", minimum=0, maximum=7 * DAY_MS
    )
    prefetch: Whole = setting(
        100, "Deliveries a consumer may have open at a time.", minimum=1, maximum=65_535
    )
    message_ttl_ms: Milliseconds = setting(
        0, "Older records are let go; 0 for never.", unit="milliseconds", minimum=0, maximum=3650 * DAY_MS
    )
    length_max: Whole = setting(0, "Records it may hold; 0 for no limit.", minimum=0, maximum=10**15)
    bytes_max: Size = setting(
        0, "Bytes it may hold; 0 for no limit.", unit="bytes", minimum=0, maximum=1024 * TIB
    )
    overflow: QueueOverflow = setting(
        "reject",
        "When it is full: `reject` the new one, `drop_head` the oldest, make the oldest a `dead_letter`, or "
        "`reject_dead_letter`: reject the new one and make it a dead letter. With `dead_letter_exchange` what `drop_head` "
        "drops goes there.",
    )
    bounds_ready: Switch = setting(
        False,
        "`length_max` and `bytes_max` count only what waits, not what consumers have, and only payloads.",
    )
    dead_letter: Text = setting(
        "", "The queue for dead letters; empty for `$dlq/<name>`, `off` to drop them (counted)."
    )
    dead_letter_exchange: OptionalText = setting(
        None,
        "The exchange dead letters are published to, before `dead_letter`; the empty name is the default one.",
    )
    dead_letter_key: OptionalText = setting(
        None, "The routing key of such dead letters; null keeps the one they had."
    )
    priority_max: Whole = setting(9, "The highest priority it respects.", minimum=0, maximum=255)
    single_active: Switch = setting(
        False, "One consumer of a group gets everything; the next takes over when it leaves."
    )
    retention_age_s: Seconds = setting(
        0, "A stream lets older records go; 0 for never.", unit="seconds", minimum=0, maximum=3650 * DAY_S
    )
    retention_bytes: Size = setting(
        0,
        "A stream lets the oldest records go beyond so much; 0 for never.",
        unit="bytes",
        minimum=0,
        maximum=1024 * TIB,
    )
    retention_count: Whole = setting(
        0, "A stream keeps so many records; 0 for all.", minimum=0, maximum=10**15
    )
    auto_delete: OptionalSwitch = setting(
        None, "Whether it goes with its last consumer; null: only one of kind `ephemeral` does."
    )
    expires_ms: Milliseconds = setting(
        0,
        "A queue that nobody has consumed or declared for so long goes, with all in it; 0 for never.",
        unit="milliseconds",
        minimum=0,
        maximum=3650 * DAY_MS,
    )
