"""The way from the reader to its broker: a few connections to the control socket, shared by all threads.

All operations asked for here can be repeated: a connection that turns out dead costs one more try on a new one.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from millstream.reader.http import Credentials, HttpFault
from millstream.runtime.control.client import SOCKET_NAME, ControlClient, ControlEnd, ControlError

CONNECTIONS_MAX: Final = 8
WAIT_S: Final = 30.0
ANSWER_S: Final = 60.0
RETRY_AFTER_S: Final = 1
PAGE: Final = 1000


@dataclass(frozen=True)
class Stream:
    """A stream queue as it stands: records `first` to `end` (without it) are in segments."""

    name: str
    number: int
    first: int
    end: int
    bytes: int

    def to_fields(self) -> dict[str, object]:
        return {
            "name": self.name,
            "first": self.first,
            "end": self.end,
            "records": self.end - self.first,
            "bytes": self.bytes,
        }


class _Run:
    """One sealing that several callers wait for."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.fault: HttpFault | None = None


class BrokerLink:
    def __init__(self, data_dir: Path) -> None:
        self._path = data_dir / SOCKET_NAME
        self._free: list[ControlClient] = []
        self._slots = threading.BoundedSemaphore(CONNECTIONS_MAX)
        self._lock = threading.Lock()
        self._runs: dict[tuple[str, str | None], _Run] = {}  # that have not been asked for yet

    # ------------------------------------------------------------------ calls

    def call(self, operation: str, fields: dict[str, object], refused_status: int = 400) -> dict[str, object]:
        """What the broker answers; HttpFault 503 when it is away, `refused_status` when it says no."""
        if not self._slots.acquire(timeout=WAIT_S):
            raise HttpFault(503, "the reader is too busy", retry_after_s=RETRY_AFTER_S)
        try:
            answer = self._call(operation, fields)
        except ControlError as error:
            if error.end is ControlEnd.REFUSED:
                is_later = refused_status == 503
                raise HttpFault(
                    refused_status, error.text, error.hint, retry_after_s=RETRY_AFTER_S if is_later else 0
                ) from None
            raise HttpFault(503, "the broker is away", retry_after_s=RETRY_AFTER_S) from None
        finally:
            self._slots.release()
        return answer if isinstance(answer, dict) else {}

    def _call(self, operation: str, fields: dict[str, object]) -> object:
        with self._lock:
            client = self._free.pop() if self._free else None
        if client is not None:
            try:
                answer = client.call(operation, fields)
            except ControlError as error:
                if error.end is ControlEnd.REFUSED:
                    self._put_back(client)
                    raise
                client.close()  # it may have stood idle for too long, or the broker was restarted
            else:
                self._put_back(client)
                return answer
        client = ControlClient(self._path, ANSWER_S)
        try:
            answer = client.call(operation, fields)
        except ControlError as error:
            if error.end is ControlEnd.REFUSED:
                self._put_back(client)
            else:
                client.close()
            raise
        self._put_back(client)
        return answer

    def _put_back(self, client: ControlClient) -> None:
        with self._lock:
            self._free.append(client)

    # ---------------------------------------------------------------- streams

    def get_stream(self, account: str, name: str) -> Stream:
        """HttpFault 404 when there is none of that name that can be read."""
        answer = self.call("stream.show", {"account": account, "name": name})
        fields = answer.get("stream")
        if not isinstance(fields, dict):
            raise HttpFault(404, str(answer.get("error")), str(answer.get("hint") or ""))
        return make_stream(fields)

    def streams(self, account: str) -> Iterator[list[Stream]]:
        """All of an account, page by page."""
        after = ""
        while True:
            answer = self.call("stream.list", {"account": account, "after": after, "limit": PAGE})
            page = answer.get("streams")
            found = [make_stream(fields) for fields in page] if isinstance(page, list) else []
            if found:
                yield found
                after = found[-1].name
            if not answer.get("more") or not found:
                return

    def seal(self, account: str, name: str | None = None) -> None:
        """Until everything that was durable at the time of this call is in segments. Who comes before the broker has been
        asked shares the question."""
        key = (account, name)
        with self._lock:
            run = self._runs.get(key)
            is_own = run is None
            if run is None:
                run = self._runs[key] = _Run()
        if is_own:
            self._seal(run, key)
        elif not run.done.wait(2 * ANSWER_S):
            raise HttpFault(503, "the newest records could not be made readable", retry_after_s=RETRY_AFTER_S)
        if run.fault is not None:
            raise run.fault

    def _seal(self, run: _Run, key: tuple[str, str | None]) -> None:
        account, name = key
        fields: dict[str, object] = (
            {"account": account} if name is None else {"account": account, "name": name}
        )
        with self._lock:
            del self._runs[key]  # whoever comes now may have something newer
        try:
            self.call("stream.seal", fields, refused_status=503)
        except HttpFault as fault:
            run.fault = fault
        finally:
            run.done.set()

    def commit(self, account: str, name: str, group: str, offset: int) -> int:
        fields: dict[str, object] = {"account": account, "name": name, "group": group, "offset": offset}
        committed = self.call("stream.commit", fields).get("committed")
        return committed if isinstance(committed, int) else 0

    def tell_busy(self, address: str, text: str) -> None:
        """An address keeps the reader busy."""
        self.call("stream.busy", {"address": address, "text": text})

    def admit(self, credentials: Credentials, action: str, topics: list[str]) -> dict[str, object]:
        fields: dict[str, object] = {**credentials.to_fields(), "action": action, "topics": topics}
        return self.call("stream.admit", fields, refused_status=401)


def make_stream(fields: dict[str, object]) -> Stream:
    numbers = [fields.get(name) for name in ("number", "first", "end", "bytes")]
    number, first, end, size = [value if isinstance(value, int) else 0 for value in numbers]
    return Stream(str(fields.get("name")), number, first, end, size)
