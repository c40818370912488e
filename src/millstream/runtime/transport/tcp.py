"""TCP and TLS, for every protocol: reads go to the endpoint as they come."""

from __future__ import annotations

from typing import final

from millstream.runtime.transport.link import TransportLink


@final
class TcpConnection(TransportLink):
    def data_received(self, data: bytes) -> None:
        endpoint = self.endpoint
        if endpoint is None:
            return
        try:
            self.receive(endpoint, data, self.gate.clock.read_ns())
        except Exception as fault:  # noqa: BLE001 our bug ends this connection, not the broker
            self.on_fault(fault)
