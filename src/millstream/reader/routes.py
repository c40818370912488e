"""Everything that can be asked of the reader. A part of it is a module with `make_routes(services)`."""

from __future__ import annotations

from millstream.reader import queues, records, staging
from millstream.reader.http import Route
from millstream.reader.services import Services


def make_all_routes(services: Services) -> list[Route]:
    return [
        *queues.make_routes(services),
        *records.make_routes(services),
        *staging.make_routes(services),
    ]
