"""`python -m millstream.reader.run BROKER`: the reader process. Its settings come as one line of JSON on standard input.

It lives as long as that input is open and the process BROKER is there: the next broker needs its port.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Final

import structlog

from millstream.reader.access import Access
from millstream.reader.broker_link import BrokerLink
from millstream.reader.server import HttpServer
from millstream.reader.services import Services
from millstream.reader.settings import ReaderSettings, decode_settings
from millstream.runtime.disk.files import RealDisk
from millstream.runtime.logs import configure_logs
from millstream.runtime.processes.die_with_parent import die_with_parent
from millstream.runtime.transport.listeners import ListenFault, make_tls_context

CANNOT_START: Final = 3


def main() -> int:
    die_with_parent(int(sys.argv[1]))
    settings = decode_settings(sys.stdin.readline())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to both; the broker decides
    configure_logs(settings.log_level, settings.log_format)
    log = structlog.get_logger("millstream.reader")
    try:
        services = make_services(settings)
        server = make_server(services)
        flight = make_flight(services) if settings.flight_port else None
    except ImportError as error:
        log.error("reader_needs_pyarrow", reason=str(error), next="pip install 'millstream[reader]'")
        return CANNOT_START
    except ListenFault as fault:
        log.error("reader_cannot_listen", reason=str(fault), next=fault.hint)
        return CANNOT_START
    # With the threads made from here on: those who publish shall not feel who reads a long backlog.
    os.nice(settings.nice)
    threading.Thread(target=server.run, name="accept", daemon=True).start()
    log.info("reader_ready", has_flight=flight is not None)
    while sys.stdin.readline():
        pass
    os._exit(0)  # the broker is gone: no answer under way could be finished


def make_services(settings: ReaderSettings) -> Services:
    folder = Path(settings.data_dir)
    link = BrokerLink(folder)
    return Services(settings, link, Access(link), RealDisk(folder))


def make_server(services: Services) -> HttpServer:
    from millstream.reader.routes import make_all_routes

    settings = services.settings
    tls = None
    if settings.cert_file:
        tls = make_tls_context(Path(settings.cert_file), Path(settings.key_file), None, False)
    listening = socket.socket(fileno=settings.descriptor)
    listening.setblocking(True)
    return HttpServer(
        listening,
        make_all_routes(services),
        settings.connections_max,
        tls,
        settings.is_loopback,
        services.link.tell_busy,
    )


def make_flight(services: Services) -> object:
    """It serves as long as it is held."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # what it would print is said in our own words
    from millstream.reader.flight import FlightServer

    return FlightServer(services, services.settings.flight_host, services.settings.flight_port)


if __name__ == "__main__":
    sys.exit(main())
