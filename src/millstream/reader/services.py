"""What routes are made of, and the first question of most of them: which stream, and may the caller read it."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.reader.access import READ, Access, Caller, queue_topic
from millstream.reader.broker_link import BrokerLink, Stream
from millstream.reader.http import Credentials, Request
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


def open_stream(
    services: Services, credentials: Credentials, name: str, is_fresh: bool
) -> tuple[Caller, Stream]:
    caller = services.access.admit(credentials, READ, [queue_topic(name)])
    if is_fresh:
        services.link.seal(caller.account, name)
    return caller, services.link.get_stream(caller.account, name)
