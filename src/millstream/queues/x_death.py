"""Dead letters that are published to an exchange, as AMQP 0.9.1 clients know them: the message with its deaths in `x-death`.

`x-death` is a user property, a list in JSON with the newest death first; the same queue and reason are counted in one
entry, which tells where the message came from, and when, of the first time (as RabbitMQ). `x-first-death-queue`,
`-reason` and `-exchange` tell of the first and never change.
"""

from __future__ import annotations

import json
from typing import Final

from mypy_extensions import i64

from millstream.model.message import Message
from millstream.model.native_properties import AMQP_091, find_address, has_carried, with_address
from millstream.model.queue_topic import split_queue_topic
from millstream.model.routing_key import TOPIC_EXCHANGE, key_of_topic, topic_of_publish
from millstream.queues.pending import Pending
from millstream.queues.publish_options import (
    DELAY,
    PRODUCER,
    SEQUENCE,
    drop_user_properties,
    encode_user_property,
    find_user_properties,
)

DEATHS: Final = b"x-death"
FIRST_QUEUE: Final = b"x-first-death-queue"
FIRST_REASON: Final = b"x-first-death-reason"
FIRST_EXCHANGE: Final = b"x-first-death-exchange"
COPIES: Final = b"CC"  # the header of AMQP with further routing keys
KEYS_MAX: Final = 1024  # such keys of one message
KEY_SIZE_MAX: Final = 255
KEYS_TEXT_MAX: Final = 2048  # bytes of them that a death tells
REJECTED: Final = "rejected"
DEATHS_MAX: Final = 100  # entries; the oldest go first
TEXT_MAX: Final = 60_000  # bytes of them: a user property holds little more
DEATH_TEXT_MAX: Final = 20_000  # of one, which is more than the broker ever writes of one
COUNT_MAX: Final = 9_007_199_254_740_992  # what JSON carries exactly everywhere

# our words for why, and those of AMQP clients; everything else was somebody's decision
_REASONS: Final[dict[str, str]] = {
    "expired": "expired",
    "overflow": "maxlen",
    "max_deliveries": "delivery_limit",
}

Death = dict[str, object]


def reason_of(reason: str) -> str:
    return _REASONS.get(reason, REJECTED)


def make_letter(
    queue: str,
    pending: Pending,
    reason: str,
    exchange: str,
    key: str | None,
    wall_ns: i64,
    wall_offset_ns: i64,
) -> tuple[bytes, Message]:
    """(the key it is published with, the letter); without a `key` it keeps its own, and those of its copies."""
    message = pending.message
    old_exchange, old_key = find_place(message)
    old_keys = [old_key, *further_keys(message)]
    new_key = old_key if key is None else key.encode()
    death: Death = {
        "queue": queue,
        "reason": reason_of(reason),
        "count": 1,
        "exchange": old_exchange.decode(errors="replace"),
        "routing-keys": _show_keys(old_keys),
        "time": int(wall_ns // 1_000_000_000),
    }
    if message.expires_ns:
        lived_ns: i64 = message.expires_ns + wall_offset_ns - pending.time_wall_ns
        death["original-expiration"] = str(max(0, lived_ns // 1_000_000))
    block = with_address(message.properties, exchange.encode(), new_key)
    dropped = (PRODUCER, SEQUENCE, DELAY) if key is None else (PRODUCER, SEQUENCE, DELAY, COPIES)
    properties = _with_death(drop_user_properties(block, dropped), death)
    topic = topic_of_publish(exchange.encode(), new_key)
    return new_key, Message(
        topic, message.payload, message.guarantee, False, properties, 0, message.publisher
    )


def find_place(message: Message) -> tuple[bytes, bytes]:
    """(exchange, routing key) it was published to, or would have been by an AMQP client."""
    address = find_address(message.properties)
    if address is not None:
        return address
    place = split_queue_topic(message.topic)
    if place is not None:
        return b"", place[0].encode()
    return TOPIC_EXCHANGE, key_of_topic(message.topic)


def further_keys(message: Message) -> list[bytes]:
    """Those an AMQP publisher asked copies for. Who got blind copies is not known any more."""
    block = message.properties
    if not has_carried(block) or block[3] != AMQP_091 or COPIES not in block:
        return []  # such a word of an MQTT publisher says nothing to a queue
    for name, value, _, _ in find_user_properties(block):
        if name == COPIES:
            try:
                found = json.loads(value)
            except (ValueError, RecursionError):
                return []
            if not isinstance(found, list):
                return []
            keys = [key.encode(errors="replace") for key in found if isinstance(key, str)]
            return [key for key in keys if len(key) <= KEY_SIZE_MAX][:KEYS_MAX]
    return []


def _show_keys(keys: list[bytes]) -> list[object]:
    """As many as leave room for the deaths before: without those a letter could go round for ever."""
    shown: list[object] = []
    size = 0
    for key in keys:
        size += len(key)
        if size > KEYS_TEXT_MAX:
            break
        shown.append(key.decode(errors="replace"))
    return shown


def read_deaths(properties: bytes) -> list[Death]:
    """Newest first; what is not such a list (a client may have written it) is no death."""
    for name, value, _, _ in find_user_properties(properties):
        if name == DEATHS:
            try:
                found = json.loads(value)
            except (ValueError, RecursionError):
                return []
            if not isinstance(found, list):
                return []
            return [entry for entry in found if isinstance(entry, dict)]
    return []


def find_cycle(letter: Message) -> dict[str, None]:
    """The queues in which a letter has been since somebody rejected it: in those it would go round for ever."""
    queues: dict[str, None] = {}
    for death in read_deaths(letter.properties):
        if death.get("reason") == REJECTED:
            break
        queue = death.get("queue")
        if isinstance(queue, str):
            queues[queue] = None
    return queues


def is_cycle(queue: str, letter: Message) -> bool:
    return queue in find_cycle(letter)


def _merge(deaths: list[Death]) -> list[Death]:
    """One entry for a queue and a reason, as RabbitMQ does with what clients send: the newest, which counts for all of them if
    it does not say how often it happened."""
    merged: list[Death] = []
    numbers: dict[tuple[str, str], int] = {}
    for death in deaths:
        place = (str(death.get("queue")), str(death.get("reason")))
        if place not in numbers:
            merged.append(death)
        numbers[place] = numbers.get(place, 0) + 1
    for death in merged:
        if not _is_count(death.get("count")):
            death["count"] = numbers[(str(death.get("queue")), str(death.get("reason")))]
    return merged


def _is_count(count: object) -> bool:
    return isinstance(count, int) and not isinstance(count, bool) and 0 < count < COUNT_MAX


def _with_death(properties: bytes, death: Death) -> bytes:
    deaths = _merge([entry for entry in [_bound(each) for each in read_deaths(properties)] if entry])
    is_first = not deaths
    for at, entry in enumerate(deaths):
        if entry.get("queue") == death["queue"] and entry.get("reason") == death["reason"]:
            count = entry.get("count")
            entry["count"] = count + 1 if isinstance(count, int) else 2
            death = entry  # which tells of its first time
            del deaths[at]
            break
    deaths.insert(0, death)
    del deaths[DEATHS_MAX:]
    texts: list[str] = []
    size = 2
    for entry in deaths:
        text = _write(entry)
        size += len(text) + 1
        if size > TEXT_MAX:
            break
        texts.append(text)
    properties = drop_user_properties(properties, (DEATHS,))
    if is_first:
        properties = drop_user_properties(properties, (FIRST_QUEUE, FIRST_REASON, FIRST_EXCHANGE))
        properties += encode_user_property(FIRST_QUEUE, str(death["queue"]).encode())
        properties += encode_user_property(FIRST_REASON, str(death["reason"]).encode())
        properties += encode_user_property(FIRST_EXCHANGE, str(death["exchange"]).encode())
    return properties + encode_user_property(DEATHS, f"[{','.join(texts)}]".encode())


def _bound(death: Death) -> Death:
    """The same, unless a client has written more of it than any death has: then where, why and how often, if that can be said."""
    try:
        if len(_write(death)) <= DEATH_TEXT_MAX:
            return death
    except RecursionError:
        pass  # deeper than it can be written
    queue, reason, count = death.get("queue"), death.get("reason"), death.get("count")
    if not isinstance(queue, str) or not isinstance(reason, str) or len(queue) + len(reason) > KEYS_TEXT_MAX:
        return {}
    return {"queue": queue, "reason": reason, "count": count if _is_count(count) else 1}


def _write(death: Death) -> str:
    return json.dumps(death, separators=(",", ":"))
