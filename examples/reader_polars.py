"""A stream as a Polars DataFrame.

Run it with: python examples/reader_polars.py http://127.0.0.1:8090 readings
"""

from __future__ import annotations

import argparse
from urllib.parse import quote
from urllib.request import urlopen

import polars as pl
import pyarrow as pa

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("reader", help="address of the reader, as `millstream serve` prints it")
parser.add_argument("queue", help="name of a stream queue")
asked = parser.parse_args()

# The newest as well: fresh=true waits until everything confirmed so far can be read.
columns = "offset,timestamp,topic,payload"
url = f"{asked.reader}/v1/queues/{quote(asked.queue, safe='')}/records?fresh=true&columns={columns}"
with urlopen(url) as answer:
    frame = pl.DataFrame(pl.from_arrow(pa.ipc.open_stream(answer).read_all()))

value = pl.col("payload").cast(pl.String).cast(pl.Float64)
summary = frame.group_by("topic").agg(count=pl.len(), min=value.min(), mean=value.mean(), max=value.max())
for row in summary.sort("topic").iter_rows():
    print(*row)
