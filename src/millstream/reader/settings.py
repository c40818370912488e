"""What the broker tells the reader when it starts it: one line of JSON, without secrets."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class ReaderSettings:
    """`descriptor` is the socket that listens already; the broker keeps it when the reader dies. The port of Flight is one
    the broker keeps free for it."""

    descriptor: int
    data_dir: str
    is_loopback: bool
    connections_max: int
    rows_max: int
    stage_bytes_max: int
    nice: int
    cert_file: str
    key_file: str
    flight_host: str
    flight_port: int  # 0: no Flight
    log_level: str
    log_format: str

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"


def decode_settings(line: str) -> ReaderSettings:
    return ReaderSettings(**json.loads(line))
