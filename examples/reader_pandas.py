"""A stream as a pandas DataFrame.

Run it with: python examples/reader_pandas.py http://127.0.0.1:8090 readings
"""

from __future__ import annotations

import argparse
from urllib.parse import quote
from urllib.request import urlopen

import pyarrow as pa

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("reader", help="address of the reader, as `millstream serve` prints it")
parser.add_argument("queue", help="name of a stream queue")
asked = parser.parse_args()

# The newest as well: fresh=true waits until everything confirmed so far can be read.
columns = "offset,timestamp,topic,payload"
url = f"{asked.reader}/v1/queues/{quote(asked.queue, safe='')}/records?fresh=true&columns={columns}"
with urlopen(url) as answer:
    frame = pa.ipc.open_stream(answer).read_pandas()

frame["value"] = frame["payload"].str.decode("utf-8").astype(float)
print(frame.groupby("topic")["value"].agg(["count", "min", "mean", "max"]).to_string())
