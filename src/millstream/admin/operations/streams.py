"""What the reader asks of the broker: which streams there are, that they be sealed, who may read and write, commits.

Every answer is small and costs the loop little: records themselves never pass here. Passwords are checked in the threads of
the verifier.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

import structlog

from millstream.admin.context import AdminContext, read_list, read_text, read_whole
from millstream.broker.conditions import CLIENT_BUSY
from millstream.model.errors import Reason, Unavailable
from millstream.model.topic import find_filter_fault, find_topic_fault
from millstream.protocols.mqtt.queueing import GROUP_LENGTH_MAX
from millstream.queues.definition import NUMBER_MAX
from millstream.queues.queue import Queue
from millstream.runtime.control.server import ControlRefusal, Conversation, Fields
from millstream.security.authentication import Credentials, Decision, Verdict
from millstream.security.principal import Principal

PAGE_MAX: Final = 1000
TOPICS_MAX: Final = 1000
SECRET_MAX: Final = 16 * 1024
SEAL_S: Final = 30.0
ADDRESS_MAX: Final = 64
TEXT_MAX: Final = 200
BUSY: Final = (Reason.SERVER_BUSY, Reason.RATE_EXCEEDED, Reason.UNAVAILABLE)

Seal = Callable[[], Awaitable[None]]
Decide = Callable[[Credentials], Awaitable[Decision]]


class StreamOperations:
    """`seal` brings everything durable into segments, at most once in `seal_interval_s`; None: nothing is on disk.
    `decide` knows who somebody is."""

    def __init__(
        self, context: AdminContext, seal: Seal | None, decide: Decide, seal_interval_s: float = 0.0
    ) -> None:
        self._context = context
        self._seal = seal
        self._decide = decide
        self._interval_s = seal_interval_s
        self._sealed_s = -seal_interval_s  # when it was begun last

    # ------------------------------------------------------------------- look

    async def list_streams(self, fields: Fields, conversation: Conversation) -> object:
        """A page in order of names: those after `after`."""
        self._context.begin()
        queues = self._context.get_account(fields).queues.catalog.queues
        after = read_text(fields, "after", "")
        limit = read_whole(fields, "limit", PAGE_MAX, 1, PAGE_MAX)
        names = (queue.name for queue in queues.values() if queue.name > after and is_readable(queue))
        found = heapq.nsmallest(limit + 1, names)
        return {"streams": [view(queues[name]) for name in found[:limit]], "more": len(found) > limit}

    async def show(self, fields: Fields, conversation: Conversation) -> object:
        """`stream` is None for what cannot be read; `error` and `hint` say why."""
        self._context.begin()
        name = read_text(fields, "name")
        queue = self._context.get_account(fields).queues.catalog.find(name)
        if queue is None:
            return {"stream": None, "error": f"there is no queue {name!r}", "hint": "millstream queue list"}
        if not is_readable(queue):
            text = f"{name!r} is a {queue.definition.kind} queue; only streams can be read"
            return {"stream": None, "error": text, "hint": f"millstream queue show '{name}'"}
        return {"stream": view(queue)}

    # ------------------------------------------------------------------- seal

    async def seal(self, fields: Fields, conversation: Conversation) -> object:
        """Bring what is durable now into segments: of one stream, or of all in the account."""
        self._context.begin()
        waiting = self._waiting(fields)
        if waiting:
            if self._seal is None:
                raise Unavailable("storage.durability is memory: streams are not on disk")
            loop = asyncio.get_running_loop()
            try:
                async with asyncio.timeout(SEAL_S):
                    wait_s = self._sealed_s + self._interval_s - loop.time()
                    if wait_s > 0:
                        await asyncio.sleep(wait_s)  # whoever comes meanwhile shares what follows
                    self._sealed_s = loop.time()
                    await self._seal()
            except TimeoutError:
                raise Unavailable(
                    f"the log could not be folded within {SEAL_S:.0f} seconds; a backup, or a slow disk, may hold it up"
                ) from None
        return {"sealed": waiting}

    def _waiting(self, fields: Fields) -> int:
        """How many streams have durable records that are not in segments."""
        catalog = self._context.get_account(fields).queues.catalog
        if "name" in fields:
            queue = catalog.find(read_text(fields, "name"))
            return int(queue is not None and is_waiting(queue))
        return sum(is_waiting(queue) for queue in catalog.queues.values())

    # ------------------------------------------------------------------- tell

    async def tell_busy(self, fields: Fields, conversation: Conversation) -> object:
        """An address keeps the reader busy: said here, where there are a log and counters."""
        address, text = read_text(fields, "address")[:ADDRESS_MAX], read_text(fields, "text")[:TEXT_MAX]
        self._context.broker.health.report(CLIENT_BUSY, f"{address}: {text}")
        structlog.get_logger("millstream").warning("client_busy", client_id="", address=address, text=text)
        return {}

    # ----------------------------------------------------------------- commit

    async def commit(self, fields: Fields, conversation: Conversation) -> object:
        """A group has done everything below `offset`; it never goes back."""
        context = self._context
        context.begin_change()
        queue = context.get_queue(fields)
        if not is_readable(queue):
            raise ControlRefusal(
                f"{queue.name!r} is a {queue.definition.kind} queue; only groups of streams are moved",
                f"millstream queue show '{queue.name}'",
            )
        title = read_text(fields, "group")
        if not title or len(title) > GROUP_LENGTH_MAX or "@" in title or not title.isprintable():
            raise ControlRefusal(
                f"a group is named by 1 to {GROUP_LENGTH_MAX} printable characters without @"
            )
        offset = read_whole(fields, "offset", -1, 0, NUMBER_MAX)
        if offset > queue.next:
            raise ControlRefusal(f"{queue.name!r} ends at offset {queue.next}; {offset} is behind it")
        group = queue.get_group(title, b"")
        if offset > group.committed:
            group.commit(offset - 1)
        await context.wait_durable()
        return {"committed": int(group.committed)}

    # ------------------------------------------------------------------ admit

    async def admit(self, fields: Fields, conversation: Conversation) -> object:
        """Who somebody is, and which of some topics they may not read (subscribe to) or write (publish to). `key`: a queue may
        be written, and which of these topics or filters behind it are denied, in part or whole."""
        action = read_text(fields, "action")
        if action not in ("read", "write", "key"):
            raise ControlRefusal(f"action is read, write or key, not {action!r}")
        topics = [read_topic(topic) for topic in read_list(fields, "topics", TOPICS_MAX)]
        decision = await self._decide(read_credentials(fields))
        principal = decision.principal
        if decision.verdict is not Verdict.ALLOWED or principal is None:
            is_busy = decision.reason in BUSY
            text = decision.text if is_busy else "the credentials were not accepted"
            if decision.reason is Reason.NOT_AUTHORIZED:
                text = decision.text  # nothing was shown that could be guessed at
            return {"known": False, "busy": is_busy, "error": text}
        if principal.account not in self._context.broker.accounts:
            return {
                "known": False,
                "busy": False,
                "error": f"the account {principal.account!r} is not configured",
            }
        refused = list(self._refused(principal, action, topics))
        return {"known": True, "account": principal.account, "name": principal.name, "refused": refused}

    def _refused(self, principal: Principal, action: str, topics: list[str]) -> Iterator[str]:
        authorizer = self._context.broker.authorizer
        limits = self._context.broker.limits
        for topic in topics:
            name = topic.encode()
            if action == "read":
                fault = find_filter_fault(name, limits.topic_length_max, limits.topic_levels_max)
                is_allowed = fault is None and authorizer.can_subscribe(principal, "", name)
            elif action == "key":
                fault = find_filter_fault(name, limits.topic_length_max, limits.topic_levels_max)
                is_allowed = fault is None and not authorizer.denies_part(principal, "", name)
            else:
                fault = find_topic_fault(name, limits.topic_length_max, limits.topic_levels_max)
                is_allowed = fault is None and authorizer.can_publish(principal, "", name)
            if not is_allowed:
                yield topic


def is_readable(queue: Queue) -> bool:
    return bool(queue.is_stream)


def is_waiting(queue: Queue) -> bool:
    return is_readable(queue) and queue.visible > queue.sealed()


def view(queue: Queue) -> dict[str, object]:
    """`end` is one past the last record in segments, `next` one past the last there is."""
    first, end = int(queue.first), int(queue.sealed())
    return {
        "name": queue.name,
        "number": int(queue.number),
        "first": first,
        "end": end,
        "next": int(queue.next),
        "records": end - first,
        "bytes": int(queue.size.bytes),
    }


def read_topic(value: object) -> str:
    return read_text({"topic": value}, "topic")


def read_credentials(fields: Fields) -> Credentials:
    """A token is shown as MQTT clients do: in the place of the password, with or without a name."""
    username = read_text(fields, "username", "")
    token = read_text(fields, "token", "")
    password = token or (read_text(fields, "password") if "password" in fields else "")
    if len(password) > SECRET_MAX or len(username) > SECRET_MAX:
        raise ControlRefusal(f"credentials have at most {SECRET_MAX} characters")
    has_password = bool(token) or "password" in fields
    return Credentials(
        "",
        username or None,
        password.encode() if has_password else None,
        None,
        read_text(fields, "address", ""),
    )
