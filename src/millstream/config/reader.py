"""The section of the configuration on the reader: streams as Arrow batches over HTTP and Flight, from a process of its own."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from millstream.config.section import Section, setting
from millstream.config.values import Milliseconds, OptionalPath, OptionalWhole, Size, Switch, Text, Whole

MIB: Final = 1024 * 1024
GIB: Final = 1024 * MIB


class ReaderTls(Section):
    cert_file: OptionalPath = setting(
        None,
        "Certificate chain of the reader in PEM form. With it and `key_file` the reader speaks HTTPS only.",
        is_input_file=True,
    )
    key_file: OptionalPath = setting(
        None,
        "Private key of the certificate in PEM form, not encrypted and not readable by everyone.",
        needs_private=True,
    )


class Reader(Section):
    enabled: Switch = setting(
        default=False,
        text="Start the reader beside the broker. It needs pyarrow (`pip install 'millstream[reader]'`).",
    )
    host: Text = setting("127.0.0.1", "Address to listen on. Beyond loopback, authentication must be set up.")
    port: Whole = setting(
        8090,
        "Port of the reader. 0 lets the system choose a free port, which is printed at start.",
        minimum=0,
        maximum=65_535,
    )
    flight_port: OptionalWhole = setting(
        None,
        "Port for Arrow Flight beside HTTP, on the same address. null: no Flight. 0 lets the system choose a free port, "
        "which is printed at start.",
        minimum=0,
        maximum=65_535,
    )
    tls: ReaderTls = Field(default=ReaderTls(), description="HTTPS instead of HTTP, and TLS for Flight.")
    connections_max: Whole = setting(
        64,
        "Connections served at the same time, and calls of Flight; more are told to come back (503).",
        minimum=1,
        maximum=10_000,
    )
    nice: Whole = setting(
        10,
        "How far the reader steps back when processors are short, as `nice` counts it: 0 takes as much as the broker, 19 "
        "next to nothing. With processors to spare it changes nothing.",
        minimum=0,
        maximum=19,
    )
    seal_interval_ms: Milliseconds = setting(
        200,
        "Those who want the newest records (`fresh=true`) within so long share one run of the checkpoint.",
        unit="milliseconds",
        minimum=0,
        maximum=60_000,
    )
    rows_max: Whole = setting(
        100_000, "Most rows a client may ask for in one batch.", minimum=1, maximum=1_048_576
    )
    stage_bytes_max: Size = setting(
        4 * GIB,
        "Bytes of rows that may be staged for a commit at the same time; more are told to come back.",
        unit="bytes",
        minimum=MIB,
        maximum=1024 * GIB,
    )
