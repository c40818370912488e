"""Who a caller is and what it may: asked of the broker, remembered for a moment.

Invariants
- A right that was taken away is gone here after at most `REMEMBERED_S`.
- Only what was allowed or denied to a proven identity is remembered; a wrong password is asked anew every time, so that the
  broker counts it.
- Secrets are not kept: the memory knows callers by a keyed digest.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from millstream.model.queue_topic import queue_prefix
from millstream.reader.broker_link import BrokerLink
from millstream.reader.http import Credentials, HttpFault

REMEMBERED_S: Final = 2.0
CALLERS_MAX: Final = 1000
TOPICS_MAX: Final = 1000  # in one question, and remembered of one caller
READ: Final = "read"
WRITE: Final = "write"
KEY: Final = "key"  # of a row for a queue that may be written: only what is denied is refused


@dataclass(frozen=True)
class Caller:
    account: str
    name: str


@dataclass
class _Known:
    caller: Caller
    until_s: float
    answers: dict[tuple[str, str], bool] = field(default_factory=dict)  # (action, topic) -> allowed


def keys_of(name: str) -> str:
    """Every routing key of a queue."""
    return f"{queue_topic(name)}/#"


def queue_topic(name: str) -> str:
    """The topic whose rights are those of a queue."""
    return queue_prefix(name).decode()


class Access:
    def __init__(self, link: BrokerLink, clock: Callable[[], float] = time.monotonic) -> None:
        self._link = link
        self._clock = clock
        self._key = secrets.token_bytes(32)
        self._lock = threading.Lock()
        self._known: dict[bytes, _Known] = {}

    def identify(self, credentials: Credentials) -> Caller:
        """HttpFault 401: nobody we know."""
        return self._ask(credentials, READ, ()).caller

    def admit(self, credentials: Credentials, action: str, topics: Sequence[str]) -> Caller:
        """HttpFault 401 or 403 unless the caller may do that with every one of the topics."""
        known = self._ask(credentials, action, topics)
        for topic in topics:
            if not known.answers[action, topic]:
                verb = "subscribe" if action == READ else "publish"
                name = known.caller.name
                hint = f"millstream acl check {name} {verb} '{topic}'"
                raise HttpFault(403, f"{name!r} may not {verb} to {topic!r}", hint)
        return known.caller

    def choose(self, credentials: Credentials, action: str, topics: Sequence[str]) -> list[bool]:
        """For each topic whether the caller may."""
        known = self._ask(credentials, action, topics)
        return [known.answers[action, topic] for topic in topics]

    def _ask(self, credentials: Credentials, action: str, topics: Sequence[str]) -> _Known:
        digest = self._digest(credentials)
        now_s = self._clock()
        with self._lock:
            known = self._known.get(digest)
            if known is not None and now_s < known.until_s:
                if all((action, topic) in known.answers for topic in topics):
                    credentials.is_proven = True
                    return known
        fresh: _Known | None = None
        for at in range(0, max(len(topics), 1), TOPICS_MAX):
            part = list(dict.fromkeys(topics[at : at + TOPICS_MAX]))
            answer = self._link.admit(credentials, action, part)
            caller = read_caller(answer)
            refused = answer.get("refused")
            denied = set(refused) if isinstance(refused, list) else set(part)
            if fresh is None or fresh.caller != caller:
                fresh = _Known(caller, now_s + REMEMBERED_S)
            fresh.answers.update({(action, topic): topic not in denied for topic in part})
        assert fresh is not None
        credentials.is_proven = True
        self._remember(digest, fresh, now_s)
        return fresh

    def _remember(self, digest: bytes, fresh: _Known, now_s: float) -> None:
        """What was known of the same caller stays as long as it was to stay, and no longer."""
        if len(fresh.answers) > TOPICS_MAX:
            return
        with self._lock:
            before = self._known.pop(digest, None)
            if before is not None and before.caller == fresh.caller and now_s < before.until_s:
                if len(before.answers) + len(fresh.answers) <= TOPICS_MAX:
                    fresh = _Known(fresh.caller, before.until_s, {**before.answers, **fresh.answers})
            while len(self._known) >= CALLERS_MAX:
                del self._known[next(iter(self._known))]
            self._known[digest] = fresh

    def _digest(self, credentials: Credentials) -> bytes:
        shown = json.dumps(credentials.to_fields(), sort_keys=True).encode()
        return hashlib.blake2b(shown, key=self._key, digest_size=32).digest()


def read_caller(answer: dict[str, object]) -> Caller:
    if answer.get("known") is True:
        return Caller(str(answer.get("account")), str(answer.get("name")))
    text = str(answer.get("error") or "the credentials were not accepted")
    if answer.get("busy"):
        raise HttpFault(503, text, retry_after_s=5)
    raise HttpFault(401, text, "curl --user NAME:PASSWORD URL")
