"""Answers about queues: which streams there are, where they begin and end, where a time lies, what a group has done."""

from __future__ import annotations

import threading
from typing import Final

import pyarrow
import pyarrow.compute

from millstream.reader.access import READ, queue_topic
from millstream.reader.broker_link import Stream
from millstream.reader.http import JSON_BYTES_MAX, Answer, Credentials, HttpFault, Request, Route
from millstream.reader.services import Services, find_stream
from millstream.storage.disk import DiskFault
from millstream.storage.segments.reader import SegmentReader
from millstream.version import VERSION

PATTERN_MAX: Final = 1000
TIME_MAX: Final = (1 << 63) - 1


class QueueRoutes:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._segments = SegmentReader(services.disk)
        self._segments_lock = threading.Lock()  # a reader of segments belongs to one thread at a time

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/v1/health", self.health),
            Route("GET", "/v1/queues", self.list_queues, query=("fresh", "pattern")),
            Route("GET", "/v1/queues/*", self.show, query=("fresh",)),
            Route("GET", "/v1/queues/*/offset", self.find_offset, query=("timestamp", "fresh")),
            Route("POST", "/v1/queues/*/groups/*", self.commit, body_bytes_max=JSON_BYTES_MAX),
        ]

    def health(self, request: Request) -> Answer:
        return Answer({"status": "ok", "version": VERSION})

    def list_queues(self, request: Request) -> Answer:
        """The streams the caller may read."""
        pattern, is_fresh = request.find_text("pattern"), request.find_switch("fresh")
        found = find_streams(self._services, request.credentials, pattern, is_fresh)
        return Answer({"queues": [stream.to_fields() for stream in found]})

    def show(self, request: Request) -> Answer:
        _, stream = find_stream(self._services, request, request.find_switch("fresh"))
        return Answer(stream.to_fields())

    def find_offset(self, request: Request) -> Answer:
        """Of the first record at or after a time; the end if there is none."""
        wall_ns = request.get_whole("timestamp", 0, TIME_MAX)
        _, stream = find_stream(self._services, request, request.find_switch("fresh"))
        try:
            with self._segments_lock:
                found = int(self._segments.find_time(stream.number, wall_ns))
        except DiskFault as fault:
            raise HttpFault(503, f"the segments cannot be read: {fault.text}", retry_after_s=1) from None
        offset = stream.end if found < 0 else min(max(found, stream.first), stream.end)
        return Answer({"offset": offset})

    def commit(self, request: Request) -> Answer:
        caller, stream = find_stream(self._services, request)  # before a body is waited for
        offset = request.read_json().get("offset")
        if not isinstance(offset, int) or isinstance(offset, bool) or offset < 0:
            raise HttpFault(400, "offset must be a whole number: one past the last record that was done")
        committed = self._services.link.commit(caller.account, stream.name, request.parts[1], offset)
        return Answer({"committed": committed})


def find_streams(services: Services, credentials: Credentials, pattern: str, is_fresh: bool) -> list[Stream]:
    """Those the caller may read."""
    if len(pattern) > PATTERN_MAX:
        raise HttpFault(400, f"a pattern has at most {PATTERN_MAX} characters")
    match_names([""], pattern)
    caller = services.access.identify(credentials)
    if is_fresh:
        services.link.seal(caller.account)
    found: list[Stream] = []
    for page in services.link.streams(caller.account):
        streams = choose_matching(page, pattern) if pattern else page
        topics = [queue_topic(stream.name) for stream in streams]
        allowed = services.access.choose(credentials, READ, topics)
        found.extend(stream for stream, may in zip(streams, allowed, strict=True) if may)
    return found


def choose_matching(streams: list[Stream], pattern: str) -> list[Stream]:
    matching = match_names([stream.name for stream in streams], pattern)
    return [stream for stream, does in zip(streams, matching, strict=True) if does]


def match_names(names: list[str], pattern: str) -> list[bool]:
    """Whether each matches as a whole. The expressions are RE2's: no pattern can take long."""
    try:
        matches = pyarrow.compute.match_substring_regex(pyarrow.array(names), rf"\A(?:{pattern})\z")
    except pyarrow.ArrowInvalid:
        raise HttpFault(400, f"{pattern[:100]!r} is no regular expression (RE2)") from None
    return [bool(does) for does in matches.to_pylist()]


def make_routes(services: Services) -> list[Route]:
    return QueueRoutes(services).routes()
