"""Stream queues of a millstream broker as Spark tables: `spark.read.format("millstream")`.

Spark looks in every top-level module whose name begins with `pyspark_` for `DefaultSource`.
"""

from pyspark_millstream.errors import MillstreamSparkError
from pyspark_millstream.source import MillstreamSource as DefaultSource
from pyspark_millstream.source import register

__all__ = ["DefaultSource", "MillstreamSparkError", "register"]
