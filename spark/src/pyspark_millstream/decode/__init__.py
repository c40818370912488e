"""Payloads to columns inside the source: JSON, Avro, Protobuf, Sparkplug B; and what becomes of rows that are neither."""

from pyspark_millstream.decode.dead_letters import bad_rows, dead_letters, write_dead_letters
from pyspark_millstream.decode.decoder import Decoder, make_decoder
from pyspark_millstream.decode.faults import DecodeOptionError
from pyspark_millstream.decode.infer import infer_ddl
from pyspark_millstream.decode.settings import settle_options

__all__ = [
    "DecodeOptionError",
    "Decoder",
    "bad_rows",
    "dead_letters",
    "infer_ddl",
    "make_decoder",
    "settle_options",
    "write_dead_letters",
]
