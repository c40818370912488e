"""Arrow Flight beside HTTP: the same streams, rights and rows, for clients that speak it.

An order is JSON, in a command or in a ticket: `queue` and what may be asked of records over HTTP. A ticket carries no rights;
whoever brings it is asked who they are.

Invariants
- `get_flight_info` fixes the range: its tickets hold the offsets, and together they are the whole range once.
- Nothing is read for a call before the caller was admitted.
- The server binds its own socket: gRPC takes none that is open. The broker holds the port meanwhile.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyarrow import flight

from millstream.reader.arrow import schema_of
from millstream.reader.broker_link import Stream
from millstream.reader.flight_calls import CallGate, OpenHandshake, address_of, told
from millstream.reader.http import Asked, Credentials, HttpFault
from millstream.reader.queues import find_streams
from millstream.reader.records import QUERY, ReadRequest, read_batches, read_columns, read_wish
from millstream.reader.services import Reading, Services, open_stream
from millstream.runtime.transport.listeners import ListenFault

ORDER_BYTES_MAX: Final = 64 * 1024
PARTITIONS_MAX: Final = 1000
QUEUE: Final = "queue"
TICKET_FIELDS: Final = (QUEUE, *QUERY)
ORDER_FIELDS: Final = (*TICKET_FIELDS, "partitions")
CRITERIA_FIELDS: Final = ("pattern", "fresh")
GATE: Final = "gate"
WRITING: Final = "rows are written over HTTP: POST /v1/stages"


class Order(Asked):
    """What a command or a ticket asks for. `fields` are as they were written."""

    __slots__ = ("fields",)

    def __init__(self, fields: dict[str, object], known: Sequence[str]) -> None:
        for name in fields:
            if name not in known:
                raise HttpFault(400, f"{name[:40]!r} is not understood here; {', '.join(known)} is")
        super().__init__({name: write_value(name, value) for name, value in fields.items()})
        self.fields = fields

    @property
    def queue(self) -> str:
        return self.get_text(QUEUE)

    def make_ticket(self, first: int, end: int) -> flight.Ticket:
        """For a part of the range. What only decides on the range is not asked again."""
        rest = {name: value for name, value in self.fields.items() if name not in ("fresh", "partitions")}
        return flight.Ticket(json.dumps({**rest, "first": first, "end": end}).encode())


class FlightServer(flight.FlightServerBase):  # type: ignore[misc]
    """Serves as soon as it is made, in threads of gRPC. ListenFault: the address is taken."""

    def __init__(self, services: Services, host: str, port: int) -> None:
        settings = services.settings
        certificates = None
        if settings.cert_file:
            pair = flight.CertKeyPair(
                Path(settings.cert_file).read_bytes(), Path(settings.key_file).read_bytes()
            )
            certificates = [pair]
        place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._services = services
        try:
            super().__init__(
                f"{'grpc+tls' if certificates else 'grpc+tcp'}://{place}",
                auth_handler=OpenHandshake(),
                tls_certificates=certificates,
                middleware={GATE: CallGate(services.access, settings.connections_max)},
            )
        except pa.ArrowException:
            raise ListenFault(
                f"reader: cannot listen for Flight on {host} port {port}",
                "millstream serve --set reader.flight_port=0",
            ) from None

    # ---------------------------------------------------------------- looking

    def list_flights(self, context: flight.ServerCallContext, criteria: bytes) -> Iterator[flight.FlightInfo]:
        """The streams the caller may read; criteria are `pattern` and `fresh`."""
        with told():
            order = Order(read_fields(criteria) if criteria else {}, CRITERIA_FIELDS)
            pattern, is_fresh = order.find_text("pattern"), order.find_switch("fresh")
            found = find_streams(self._services, who(context), pattern, is_fresh)
            return iter([describe(stream) for stream in found])

    def get_flight_info(
        self, context: flight.ServerCallContext, descriptor: flight.FlightDescriptor
    ) -> flight.FlightInfo:
        with told():
            order = read_descriptor(descriptor)
            parts = order.find_whole("partitions", 1, 1, PARTITIONS_MAX)
            _, request = self._open(context, order)
            has_all = not request.topic_filter and "since" not in order.query and "until" not in order.query
            return flight.FlightInfo(
                schema_of(request.columns, request.layout, request.headers),
                descriptor,
                [
                    flight.FlightEndpoint(
                        order.make_ticket(first, end), []
                    )  # no location: where it was asked
                    for first, end in split(request.first, request.end, parts)
                ],
                request.end - request.first if has_all else -1,
                -1,
                ordered=True,
            )

    def get_schema(
        self, context: flight.ServerCallContext, descriptor: flight.FlightDescriptor
    ) -> flight.SchemaResult:
        with told():
            order = read_descriptor(descriptor)
            schema = schema_of(*read_columns(order))
            open_stream(self._services, who(context), order.queue, is_fresh=False)
            return flight.SchemaResult(schema)

    # ---------------------------------------------------------------- reading

    def do_get(self, context: flight.ServerCallContext, ticket: flight.Ticket) -> flight.GeneratorStream:
        with told():
            order = Order(read_fields(ticket.ticket), TICKET_FIELDS)
            reading, request = self._open(context, order)
            schema = schema_of(request.columns, request.layout, request.headers)
            return flight.GeneratorStream(schema, self._rows(reading, request))

    def _open(self, context: flight.ServerCallContext, order: Order) -> tuple[Reading, ReadRequest]:
        is_fresh = order.find_switch("fresh")
        credentials = who(context)
        caller, stream = open_stream(self._services, credentials, order.queue, is_fresh)
        reading = Reading(self._services, credentials, caller, stream)
        return reading, read_wish(order, stream, self._services.settings.rows_max)

    def _rows(self, reading: Reading, request: ReadRequest) -> Iterator[pa.RecordBatch]:
        with told():
            yield from read_batches(reading, request)

    # ---------------------------------------------------------------- refusing

    def do_put(self, context: flight.ServerCallContext, *rest: object) -> None:
        with told():
            raise HttpFault(501, WRITING)

    def do_exchange(self, context: flight.ServerCallContext, *rest: object) -> None:
        with told():
            raise HttpFault(501, WRITING)

    def do_action(self, context: flight.ServerCallContext, action: flight.Action) -> None:
        with told():
            raise HttpFault(501, "there are no actions here")

    def list_actions(self, context: flight.ServerCallContext) -> Iterator[flight.ActionType]:
        return iter(())


def who(context: flight.ServerCallContext) -> Credentials:
    """What the caller shows, and where it calls from."""
    shown: Credentials = context.get_middleware(GATE).credentials
    return Credentials(
        shown.username,
        shown.password if shown.has_password else None,
        shown.token,
        address_of(context.peer()),
    )


def describe(stream: Stream) -> flight.FlightInfo:
    """All of it, as a listing tells it."""
    ticket = Order({QUEUE: stream.name}, TICKET_FIELDS).make_ticket(stream.first, stream.end)
    return flight.FlightInfo(
        schema_of(),
        flight.FlightDescriptor.for_path(stream.name),
        [flight.FlightEndpoint(ticket, [])],
        stream.end - stream.first,
        -1,
        ordered=True,
    )


def split(first: int, end: int, parts: int) -> list[tuple[int, int]]:
    """The range in so many parts, in order, none of them empty unless all is."""
    count = end - first
    parts = max(min(parts, count), 1)
    bounds = [first + count * number // parts for number in range(parts + 1)]
    return list(itertools.pairwise(bounds))


# ------------------------------------------------------------------------ orders


def read_descriptor(descriptor: flight.FlightDescriptor) -> Order:
    """A path is the name of a queue and means everything, the newest as well; a command is an order."""
    if descriptor.descriptor_type == flight.DescriptorType.PATH:
        if len(descriptor.path) != 1:
            raise HttpFault(400, "a path has one part: the name of a queue")
        return Order({QUEUE: read_name(descriptor.path[0]), "fresh": True}, ORDER_FIELDS)
    if descriptor.descriptor_type == flight.DescriptorType.CMD:
        return Order(read_fields(descriptor.command), ORDER_FIELDS)
    raise HttpFault(400, "a flight is described by a path, the name of a queue, or by a command in JSON")


def read_name(name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError:
        raise HttpFault(400, "the name of a queue is UTF-8") from None


def read_fields(data: bytes) -> dict[str, object]:
    if len(data) > ORDER_BYTES_MAX:
        raise HttpFault(413, f"an order has at most {ORDER_BYTES_MAX} bytes")
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError):
        raise HttpFault(400, 'an order is JSON such as {"queue": "readings"}') from None
    if not isinstance(fields, dict):
        raise HttpFault(400, 'an order is a JSON object such as {"queue": "readings"}')
    return fields


def write_value(name: str, value: object) -> str:
    """As it would stand in a query of HTTP."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        value = ",".join(value)
    if not isinstance(value, str | int):
        raise HttpFault(400, f"{name} must be a text, a whole number, true, false, or a list of texts")
    text = str(value)
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise HttpFault(400, f"{name} holds half a character")
    return text
