"""The routes by which writers leave rows and commit them: nothing is visible before the commit, all of it after.

A stage is durable when it is answered. What is left behind by a writer that went away is removed by the broker, a day later.
"""

from __future__ import annotations

import io
import os
import secrets
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa

from millstream.reader.access import KEY, WRITE, Caller, keys_of, queue_topic
from millstream.reader.broker_link import BrokerLink
from millstream.reader.http import JSON_BYTES_MAX, Answer, Body, HttpFault, Request, Route
from millstream.reader.services import Services
from millstream.reader.stage_rows import HINT, RowDefaults, RowLimits, RowMaker
from millstream.storage.disk import DiskFault, DiskFile
from millstream.storage.stages.format import (
    FOLDER,
    ID_LENGTH,
    UNFINISHED_SUFFIX,
    StageHeader,
    StageWriter,
    is_stage_id,
    stage_name,
)

QUERY_LENGTH_MAX: Final = 200
BATCH_MAX: Final = (1 << 62) - 1
PARTITION_MAX: Final = (1 << 31) - 1
LIMITS_S: Final = 10.0  # how long the limits of the broker are taken as they were
READ_BUFFER: Final = 1024 * 1024
BUSY_S: Final = 5
UNDER_WAY: Final = 202
DRAIN_BYTES: Final = 64 * 1024 * 1024
TARGET_NAMES: Final = ("queue", "topics", "topic", "qos", "retain", "content_type")


class _Target:
    """Whose rows they are, where they go, and what is true of those that do not say otherwise. `has_free_keys`: they go to a queue
    of which no routing key is denied."""

    def __init__(
        self, caller: Caller, query: str, batch: int, defaults: RowDefaults, has_free_keys: bool
    ) -> None:
        self.caller = caller
        self.query = query
        self.batch = batch
        self.defaults = defaults
        self.has_free_keys = has_free_keys


class StageRoutes:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._link = BrokerLink(
            Path(services.settings.data_dir)
        )  # a commit may take long: readers have their own
        self._folder = Path(services.settings.data_dir) / FOLDER
        self._lock = threading.Lock()
        self._unfinished: dict[str, int] = {}  # stage: bytes written so far
        self._whole_bytes = 0  # of stages that are finished, as last looked at
        self._limits: RowLimits | None = None
        self._limits_until_s = 0.0

    def routes(self) -> list[Route]:
        names = ("query", "batch", "partition", "attempt", "check", *TARGET_NAMES)
        return [
            Route("POST", "/v1/stages", self.stage, names, self._services.settings.stage_bytes_max),
            Route("DELETE", "/v1/stages", self.drop, ("query", "batch", "stage")),
            Route("POST", "/v1/commits", self.commit, body_bytes_max=JSON_BYTES_MAX),
        ]

    # ------------------------------------------------------------------ stage

    def stage(self, request: Request) -> Answer:
        """`check=true` keeps nothing: it says whether these rows would be taken."""
        try:
            return self._stage(request)
        except HttpFault:
            drain(request.body)  # a client that is still sending would not see the refusal
            raise

    def _stage(self, request: Request) -> Answer:
        target = self._read_target(request)
        defaults = target.defaults
        header = StageHeader(
            target.caller.account,
            target.caller.name,
            target.query,
            defaults.queue,
            target.batch,
            request.find_whole("partition", 0, 0, PARTITION_MAX),
            request.find_whole("attempt", 0, 0, BATCH_MAX),
        )
        writer = StageWriter(header)
        limits = self._get_limits()
        if defaults.qos > limits.guarantee_max:
            raise HttpFault(400, f"qos must be from 0 to {limits.guarantee_max}, not {defaults.qos}")

        def admit(topics: Sequence[str]) -> None:
            if not target.has_free_keys:
                self._services.access.admit(request.credentials, KEY if defaults.queue else WRITE, topics)

        try:
            stream = pa.ipc.open_stream(io.BufferedReader(request.body, READ_BUFFER))
            maker = RowMaker(stream.schema, defaults, limits, writer, admit)
            if request.find_switch("check"):
                for batch in stream:
                    maker.add(batch)
                    writer.take()
                return Answer({"stage": "", "rows": int(writer.rows), "bytes": 0})
            return self._write(stream, maker, writer)
        except (pa.ArrowException, OSError, EOFError) as error:  # Arrow says OSError where a stream is cut
            first = str(error).splitlines()[0][:200]
            raise HttpFault(400, f"the body is no Arrow stream that can be read: {first}", HINT) from None
        except DiskFault as fault:
            raise HttpFault(503, f"the rows cannot be written: {fault.text}", retry_after_s=BUSY_S) from None

    def _write(self, stream: pa.RecordBatchReader, maker: RowMaker, writer: StageWriter) -> Answer:
        disk = self._services.disk
        stage = secrets.token_hex(ID_LENGTH // 2)
        unfinished = f"{FOLDER}/{stage}{UNFINISHED_SUFFIX}"
        self._admit_size(stage, 0)
        disk.make_folder(FOLDER)
        file = disk.create(unfinished, 0)
        is_done = False
        size = 0
        try:
            for batch in stream:
                maker.add(batch)
                size = self._append(file, stage, size, writer.take())
            size = self._append(file, stage, size, writer.finish())
            file.sync()
            disk.rename(unfinished, stage_name(stage))
            disk.sync_folder(FOLDER)
            is_done = True
        finally:
            file.close()
            with self._lock:
                self._unfinished.pop(stage, None)
            if not is_done:
                disk.remove(unfinished)
        return Answer({"stage": stage, "rows": int(writer.rows), "bytes": size})

    def _append(self, file: DiskFile, stage: str, size: int, parts: list[bytes]) -> int:
        data = b"".join(parts)
        if data:
            self._admit_size(stage, size + len(data))
            file.write_at(size, data)
        return size + len(data)

    def _admit_size(self, stage: str, size: int) -> None:
        """Back-pressure: rows that wait for their commit must not fill the disk."""
        bytes_max = self._services.settings.stage_bytes_max
        if size > bytes_max:
            raise HttpFault(
                413, f"a stage must not have more than {bytes_max} bytes (reader.stage_bytes_max)"
            )
        with self._lock:
            if (
                size == 0 or size >> 26 != self._unfinished.get(stage, 0) >> 26
            ):  # now and then: others write too
                self._whole_bytes = _size_of(self._folder)
            self._unfinished[stage] = size
            total = self._whole_bytes + sum(self._unfinished.values())
        if total > bytes_max:
            text = (
                f"as many bytes as may be are staged and not committed ({bytes_max}, reader.stage_bytes_max)"
            )
            raise HttpFault(503, text, "millstream config show reader", retry_after_s=BUSY_S)

    def _read_target(self, request: Request) -> _Target:
        query = check_query(request.get_text("query"))
        queue = request.find_text("queue")
        is_topics = request.find_switch("topics") or "topic" in request.query
        if bool(queue) == is_topics:
            raise HttpFault(
                400, "rows go to a queue (queue=NAME) or to topics (topics=true), one of them", HINT
            )
        defaults = RowDefaults(
            queue,
            request.find_text("topic"),
            request.find_whole("qos", 1, 0, 2),
            request.find_switch("retain"),
            request.find_text("content_type"),
        )
        access = self._services.access
        has_free_keys = False
        if queue:
            caller = access.admit(request.credentials, WRITE, [queue_topic(queue)])
            self._link.call("queue.show", {"account": caller.account, "name": queue}, refused_status=404)
            (has_free_keys,) = access.choose(request.credentials, KEY, [keys_of(queue)])
        else:
            fixed = [defaults.topic] if defaults.topic else []
            caller = access.admit(request.credentials, WRITE, fixed)
        return _Target(caller, query, request.get_whole("batch", 0, BATCH_MAX), defaults, has_free_keys)

    def _get_limits(self) -> RowLimits:
        now_s = time.monotonic()
        limits = self._limits
        if limits is None or now_s >= self._limits_until_s:
            answer = self._link.call("stage.limits", {})
            numbers = {name: value for name, value in answer.items() if isinstance(value, int)}
            limits = self._limits = RowLimits(**numbers)
            self._limits_until_s = now_s + LIMITS_S
        return limits

    # ----------------------------------------------------------- commit, drop

    def commit(self, request: Request) -> Answer:
        caller = self._services.access.identify(request.credentials)  # before anything is waited for
        fields = request.read_json()
        queue = fields.get("queue", "")
        if not isinstance(queue, str) or bool(queue) == (fields.get("topics") is True):
            raise HttpFault(400, 'a commit names its "queue", or says "topics": true')
        commit = {
            "account": caller.account,
            "user": caller.name,
            "query": check_query(fields.get("query")),
            "batch": fields.get("batch"),
            "stages": fields.get("stages"),
            "queue": queue,
            "single": fields.get("single", False),
        }
        answer = self._link.call("stage.commit", commit)
        status = answer.get("refused")
        if status == UNDER_WAY:
            return Answer({"error": answer.get("error"), "hint": "", "rows": answer.get("rows")}, UNDER_WAY)
        if isinstance(status, int):
            retry = answer.get("retry_after_s")
            raise HttpFault(
                status,
                str(answer.get("error")),
                str(answer.get("hint") or ""),
                retry_after_s=retry if isinstance(retry, int) else 0,
            )
        return Answer({"committed": answer.get("committed"), "was_committed": answer.get("was_committed")})

    def drop(self, request: Request) -> Answer:
        caller = self._services.access.identify(request.credentials)
        commit: dict[str, object] = {
            "account": caller.account,
            "user": caller.name,
            "query": check_query(request.get_text("query")),
            "batch": request.get_whole("batch", 0, BATCH_MAX),
        }
        stage = request.find_text("stage")
        if stage:
            if not is_stage_id(stage):
                raise HttpFault(400, f"{stage[:40]!r} is no stage")
            commit["stages"] = [stage]
        return Answer({"dropped": self._link.call("stage.drop", commit).get("dropped")})


def check_query(name: object) -> str:
    if not isinstance(name, str) or not 0 < len(name) <= QUERY_LENGTH_MAX or not name.isprintable():
        raise HttpFault(400, f"query must be a name of 1 to {QUERY_LENGTH_MAX} printable characters")
    return name


def drain(body: Body) -> None:
    """Read away what is left of a body, up to a bound."""
    try:
        body.discard(DRAIN_BYTES)
    except (HttpFault, OSError):
        return  # then it cannot be helped


def _size_of(folder: Path) -> int:
    """Bytes of whole stages."""
    size = 0
    if folder.is_dir():
        with os.scandir(folder) as entries:
            for entry in entries:
                if not entry.name.endswith(UNFINISHED_SUFFIX):
                    try:
                        size += entry.stat().st_size
                    except FileNotFoundError:
                        continue  # committed meanwhile
    return size


def make_routes(services: Services) -> list[Route]:
    return StageRoutes(services).routes()
