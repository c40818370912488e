"""The conditions an operator is told of, with what they mean and what to do: the one source of logs, `$SYS` and documents."""

from __future__ import annotations

from typing import Final, final

NOTICE: Final = 1  # worth a line; the broker serves everybody
DEGRADED: Final = 2  # part of the service is refused or slower until the condition ends
FAILED: Final = 3  # nothing can be made durable until a restart

SEVERITY_NAMES: Final = {NOTICE: "notice", DEGRADED: "degraded", FAILED: "failed"}


@final
class Condition:
    """`meaning` and `advice` are sentences for the operator; `counts` says what is counted while it holds."""

    def __init__(self, name: str, severity: int, meaning: str, advice: str, counts: str = "") -> None:
        self.name = name
        self.severity = severity
        self.meaning = meaning
        self.advice = advice
        self.counts = counts


STORAGE_FULL: Final = Condition(
    "storage_full",
    DEGRADED,
    "The file system of data_dir has no room. What must be stored is refused; everything else is served.",
    "make room on the file system of data_dir, or raise its quota; service returns by itself",
    "publishes refused",
)
STORAGE_STALLED: Final = Condition(
    "storage_stalled",
    DEGRADED,
    "A write or sync of the log has not returned for storage.stall_timeout. What must be stored is refused.",
    "look for what keeps the disk busy (iostat -x 1); service returns by itself; storage.stall_timeout sets the limit",
    "publishes refused",
)
STORAGE_BEHIND: Final = Condition(
    "storage_behind",
    DEGRADED,
    "More than 64 MiB wait to be written to the log. What must be stored is refused until they are written.",
    "the disk is slower than the publishers; limit them (ratelimit.message.rate) or use a faster disk",
    "publishes refused",
)
LOG_NOT_WRITABLE: Final = Condition(
    "log_not_writable",
    DEGRADED,
    "The log cannot be written for another reason than room (read-only, no permission, an I/O error, no descriptor). "
    "What must be stored is refused; the broker tries again four times a second.",
    "remove the cause that is named; service returns by itself",
    "publishes refused",
)
STORAGE_FAILED: Final = Condition(
    "storage_failed",
    FAILED,
    "A sync of the log failed or the log's files were removed. Nothing is confirmed any more until a restart.",
    "repair the disk, then restart the broker; millstream storage verify tells what is there",
    "publishes refused",
)
STORAGE_DAMAGED: Final = Condition(
    "storage_damaged",
    DEGRADED,
    "Part of what is stored cannot be read: its checksum is wrong, or a file is missing. It is left out.",
    "stop the broker, then: millstream storage verify",
    "more ranges damaged",
)
STORAGE_UNREADABLE: Final = Condition(
    "storage_unreadable",
    DEGRADED,
    "Stored records of queues cannot be read now. Their consumers wait; the broker tries again every second.",
    "remove the cause that is named; delivery goes on by itself",
    "reads failed",
)
CHECKPOINT_FAILING: Final = Condition(
    "checkpoint_failing",
    DEGRADED,
    "The log cannot be folded into the state. Nothing is lost; the log grows and the next start takes longer.",
    "remove the cause that is named; the broker tries again by itself",
    "attempts failed",
)
DESCRIPTORS_EXHAUSTED: Final = Condition(
    "descriptors_exhausted",
    DEGRADED,
    "The process or the system has no file descriptor left. New connections wait until one is free; those that exist are served. "
    "What needs a new file of the log is refused.",
    "raise LimitNOFILE (ulimit -n, or fs.file-max for the system) above mqtt.max_connections, or lower that key, and restart",
)
CONNECTIONS_FULL: Final = Condition(
    "connections_full",
    DEGRADED,
    "As many connections as mqtt.max_connections or the limit of file descriptors allows. New ones are closed at once.",
    "raise mqtt.max_connections (and LimitNOFILE with it), or find who connects so often",
    "connections refused",
)
HANDSHAKES_FULL: Final = Condition(
    "handshakes_full",
    DEGRADED,
    "As many connections that have not logged in as mqtt.max_unauthenticated or "
    "mqtt.max_unauthenticated_per_address allows: more of them are closed at once. Or as many TLS handshakes as "
    "mqtt.max_tls_handshakes allows: those that stall are closed for others.",
    "find who opens connections without logging in; the cause names an address and the key of the limit",
    "connections refused",
)
CONNECTION_RATE: Final = Condition(
    "connection_rate_exceeded",
    NOTICE,
    "An address connects faster than ratelimit.connection.rate allows. Its connections are closed at once.",
    "the cause names an address; raise ratelimit.connection.rate if it may",
    "connections refused",
)
LOGINS_BUSY: Final = Condition(
    "logins_busy",
    DEGRADED,
    "More logins wait for their password to be checked than the broker keeps. Others are told to try again.",
    "find who logs in so often, or spread the clients' reconnects; the cause names the limit and its key",
    "logins refused",
)
LOGINS_UNCHECKED: Final = Condition(
    "logins_unchecked",
    DEGRADED,
    "Credentials could not be checked because the check itself failed. Those logins are refused.",
    "the cause is a fault of the broker: please report it",
    "logins refused",
)
USERS_STALE: Final = Condition(
    "users_stale",
    DEGRADED,
    "The file of auth.password_file cannot be used as it is now. The users read before stay in force.",
    "correct the file: millstream config check",
)
RULES_STALE: Final = Condition(
    "rules_stale",
    DEGRADED,
    "The file of auth.acl_file cannot be used as it is now. The rules read before stay in force.",
    "correct the file: millstream config check",
)
RIGHTS_REVOKED: Final = Condition(
    "rights_revoked",
    NOTICE,
    "A binding, an alternate exchange or a dead-letter exchange was made under a right that is gone. It brings nothing "
    "until the right is back; with auth.revoked_bindings: remove, bindings are removed.",
    "give the right back (auth.acl_file), or remove what is named: millstream exchange unbind, millstream queue delete",
    "bindings removed",
)
CONFIG_STALE: Final = Condition(
    "config_stale",
    NOTICE,
    "The configuration was refused at the last SIGHUP. The one read before stays in force.",
    "correct it (millstream config check), then send SIGHUP again",
)
CONTROL_DOWN: Final = Condition(
    "control_down",
    DEGRADED,
    "The control socket cannot be opened. Commands such as millstream queue and millstream status do not work.",
    "remove the cause that is named, then restart the broker",
)
READER_DOWN: Final = Condition(
    "reader_down",
    DEGRADED,
    "The reader's process does not run. Streams are not served over HTTP and Flight; the broker starts it again.",
    "the cause says how it ended; its own log lines stand before",
    "ends",
)
LIMIT_REACHED: Final = Condition(
    "limit_reached",
    NOTICE,
    "A client asks for more than a limit of the configuration allows (sessions, subscriptions, queues, bindings, retained "
    "messages). What it asks for is refused; everything else is served.",
    "the cause names the limit and the first client; raise the limit if that client may have more",
    "operations refused",
)
LISTENER_FAILING: Final = Condition(
    "listener_failing",
    DEGRADED,
    "A listener cannot accept connections for another reason than descriptors. The broker tries again twice a second.",
    "remove the cause that is named; service returns by itself",
    "attempts failed",
)
CLIENT_BUSY: Final = Condition(
    "client_busy",
    NOTICE,
    "The broker has little time left, and a client or an address takes much of it, or an address opens or abandons very many connections, or "
    "subscribes to and leaves very many filters. Everybody is served in turn, and slower.",
    "the cause names the client; limit it (ratelimit.enabled with ratelimit.message.rate, ratelimit.connection.rate, ratelimit.subscribe.rate) "
    "if it may not",
    "times named",
)
PUBLISHERS_SLOWED: Final = Condition(
    "publishers_slowed",
    NOTICE,
    "Clients publish faster than a subscriber or the consumers of a queue take it, most of the time, or more than there is memory "
    "for. They are not read until there is room again; nothing is lost.",
    "the cause names a publisher and what it waits for; add consumers, or limit the publishers (ratelimit.message.rate); "
    "broker.queue_backlog_messages and session.send_queue_high_bytes set how much may wait",
    "times named",
)
CLIENT_NOT_READING: Final = Condition(
    "client_not_reading",
    NOTICE,
    "A client asks for more than it reads: answers, messages that come back to it, single messages of queues. It is not read "
    "until it has read what it was sent; everybody else is served.",
    "the cause names the first such client: look why it does not read its connection; session.max_send_queue_bytes sets how much "
    "may wait for it",
    "times named",
)
LOOP_SLOW: Final = Condition(
    "loop_slow",
    NOTICE,
    "Turns of the event loop take long: clients wait that much longer for every answer. Either the broker does not get the processor, or "
    "something it does takes longer than it should.",
    "look for other processes on the machine; if it is idle otherwise, report the cause with what the clients did",
    "long turns",
)
MEMORY_HIGH: Final = Condition(
    "memory_high",
    DEGRADED,
    "Memory is above the first watermark. Publishers are slowed and caches given back.",
    "find the largest queues and sessions (millstream queue list), or raise memory.limit",
)
MEMORY_CRITICAL: Final = Condition(
    "memory_critical",
    DEGRADED,
    "Memory is above the second watermark. The largest offenders are dropped or disconnected.",
    "find the largest queues and sessions (millstream queue list), or raise memory.limit",
    "offenders dropped",
)

QUOTA_REACHED: Final = Condition(
    "quota_reached",
    NOTICE,
    "A user or an account has as much as its quota allows. More of it is refused; everything else is served.",
    "find out what it needs it for; the cause names the key that raises the quota",
    "refused",
)

CONDITIONS: Final = (
    STORAGE_FULL,
    STORAGE_STALLED,
    STORAGE_BEHIND,
    LOG_NOT_WRITABLE,
    STORAGE_FAILED,
    STORAGE_DAMAGED,
    STORAGE_UNREADABLE,
    CHECKPOINT_FAILING,
    DESCRIPTORS_EXHAUSTED,
    CONNECTIONS_FULL,
    HANDSHAKES_FULL,
    CONNECTION_RATE,
    LOGINS_BUSY,
    LOGINS_UNCHECKED,
    USERS_STALE,
    RULES_STALE,
    RIGHTS_REVOKED,
    CONFIG_STALE,
    CONTROL_DOWN,
    READER_DOWN,
    LIMIT_REACHED,
    LISTENER_FAILING,
    CLIENT_BUSY,
    PUBLISHERS_SLOWED,
    CLIENT_NOT_READING,
    LOOP_SLOW,
    MEMORY_HIGH,
    MEMORY_CRITICAL,
    QUOTA_REACHED,
)
