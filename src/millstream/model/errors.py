"""What can go wrong, by whose fault it is. Each protocol's mapping turns these into its own codes."""

from __future__ import annotations

from enum import IntEnum


class Reason(IntEnum):
    """Why an operation was refused, in words every protocol can translate."""

    SUCCESS = 0
    NO_MATCHING_SUBSCRIBERS = 1
    NO_SUBSCRIPTION_EXISTED = 2
    UNSPECIFIED = 3
    NOT_AUTHORIZED = 4
    BAD_CREDENTIALS = 5
    TOPIC_INVALID = 6
    FILTER_INVALID = 7
    TOO_LARGE = 8
    QUOTA_EXCEEDED = 9
    RATE_EXCEEDED = 10
    GUARANTEE_NOT_SUPPORTED = 11
    UNAVAILABLE = 12
    SERVER_BUSY = 13
    SHARED_NOT_ALLOWED = 14
    CLIENT_ID_INVALID = 15
    IN_USE = 16
    NOT_FOUND = 17
    PRECONDITION_FAILED = 18  # it is there, and is something else than was said
    LOCKED = 19  # it belongs to another connection alone


class Refused(Exception):
    """One operation is not granted; the connection lives. `is_reported`: the operator was told by who refused it."""

    def __init__(self, reason: Reason, text: str, is_reported: bool = False) -> None:
        super().__init__(text)
        self.reason = reason
        self.text = text
        self.is_reported = is_reported


class Unavailable(Exception):
    """The operation may succeed later: no owner, disk full. Never a silent success."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text
