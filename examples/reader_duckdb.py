"""SQL over a stream with DuckDB, batch by batch: the stream may be longer than the memory.

Run it with: python examples/reader_duckdb.py http://127.0.0.1:8090 readings
"""

from __future__ import annotations

import argparse
from urllib.parse import quote
from urllib.request import urlopen

import duckdb
import pyarrow as pa

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("reader", help="address of the reader, as `millstream serve` prints it")
parser.add_argument("queue", help="name of a stream queue")
asked = parser.parse_args()

SUMMARY = """
    SELECT topic, count(*), min(value), avg(value), max(value)
    FROM (SELECT topic, CAST(decode(payload) AS DOUBLE) AS value FROM records)
    GROUP BY topic ORDER BY topic
"""

# The newest as well: fresh=true waits until everything confirmed so far can be read.
url = f"{asked.reader}/v1/queues/{quote(asked.queue, safe='')}/records?fresh=true&columns=topic,payload"
with urlopen(url) as answer:
    batches = pa.ipc.open_stream(answer)
    table = duckdb.connect()
    table.register("records", pa.RecordBatchReader.from_batches(batches.schema, batches))
    for row in table.sql(SUMMARY).fetchall():
        print(*row)
