"""A checkpoint that holds no JSON, said in one sentence.

PySpark's process for a streaming source parses the kept offset before it hands it over, and a damaged one ends in the
parser's own words. The process belongs to this source alone; there the parser is given one that knows what it parses.
Where PySpark is built otherwise nothing is touched.
"""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Final

from pyspark_millstream.errors import CheckpointError

RUNNER: Final = "pyspark.sql.streaming.python_streaming_source_runner"


def guard_checkpoint_text() -> None:
    for module in (sys.modules.get("__main__"), sys.modules.get(RUNNER)):
        spec = getattr(module, "__spec__", None)
        if module is not None and spec is not None and spec.name == RUNNER and hasattr(module, "json"):
            module.__dict__["json"] = SimpleNamespace(loads=parse_kept, dumps=json.dumps)


def parse_kept(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        shown = text if len(text) <= 60 else text[:57] + "..."
        raise CheckpointError(
            f"the checkpoint of this query is damaged: its offset is {shown!r}",
            "Start the query with a new checkpointLocation, and startingOffsets where it should go on.",
        ) from None
