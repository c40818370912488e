"""What routes are made of, and the first question of most of them: which stream, and may the caller read it."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.reader.access import READ, Access, Caller, queue_topic
from millstream.reader.broker_link import BrokerLink, Stream
from millstream.reader.http import Credentials, HttpFault, Request
from millstream.reader.settings import ReaderSettings
from millstream.storage.disk import Disk


@dataclass(frozen=True)
class Services:
    settings: ReaderSettings
    link: BrokerLink
    access: Access
    disk: Disk


def find_stream(services: Services, request: Request, is_fresh: bool = False) -> tuple[Caller, Stream]:
    """The stream that the path names, if the caller may read it; HttpFault 401, 403 or 404."""
    return open_stream(services, request.credentials, request.parts[0], is_fresh)


class Reading:
    """A stream as somebody reads it who may: that is asked again while it goes on."""

    def __init__(self, services: Services, credentials: Credentials, caller: Caller, stream: Stream) -> None:
        self.disk = services.disk
        self.stream = stream
        self._access = services.access
        self._credentials = credentials
        self._caller = caller

    def check(self) -> None:
        """HttpFault when the caller may not go on. Costs a look into memory, and every two seconds a question to the broker."""
        caller = self._access.admit(self._credentials, READ, [queue_topic(self.stream.name)])
        if caller != self._caller:
            raise HttpFault(403, f"{self._caller.name!r} is now in another account")


def open_stream(
    services: Services, credentials: Credentials, name: str, is_fresh: bool
) -> tuple[Caller, Stream]:
    caller = services.access.admit(credentials, READ, [queue_topic(name)])
    if is_fresh:
        services.link.seal(caller.account, name)
    return caller, services.link.get_stream(caller.account, name)
