"""Clients of Flight for the scenarios: connected, waited for, closed."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from conftest import BrokerProcess
from pyarrow import flight
from reader_world import SETTINGS, WAIT_S

FLIGHT_SETTINGS = (*SETTINGS, "reader.flight_port=0")


@contextlib.contextmanager
def flying(port: int, **options: Any) -> Iterator[flight.FlightClient]:
    scheme = "grpc+tls" if options else "grpc+tcp"
    with flight.FlightClient(f"{scheme}://127.0.0.1:{port}", **options) as client:
        yield client


@contextlib.contextmanager
def connected(broker: BrokerProcess) -> Iterator[flight.FlightClient]:
    """When the reader is up: its port is known before it listens."""
    with flying(broker.ports["flight"]) as client:
        client.wait_for_available(timeout=int(WAIT_S))
        yield client


def command(**fields: object) -> flight.FlightDescriptor:
    return flight.FlightDescriptor.for_command(json.dumps(fields).encode())


def ticket(**fields: object) -> flight.Ticket:
    return flight.Ticket(json.dumps(fields).encode())


def shown(header: tuple[bytes, bytes]) -> flight.FlightCallOptions:
    return flight.FlightCallOptions(headers=[header], timeout=WAIT_S)


def fetch(client: flight.FlightClient, info: flight.FlightInfo, *options: Any) -> pa.Table:
    """All endpoints of a flight, in their order."""
    return pa.concat_tables(
        [client.do_get(endpoint.ticket, *options).read_all() for endpoint in info.endpoints]
    )


def told(error: flight.FlightError) -> dict[str, Any]:
    """What a refusal says to programs."""
    fields: dict[str, Any] = json.loads(error.extra_info)
    return fields
