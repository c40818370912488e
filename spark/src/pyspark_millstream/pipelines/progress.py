"""How far a pipeline came: what Spark reports of its queries, as one line of JSON after the other.

Pure but for `StatusFile`. The lag of a query is what its queues hold beyond what it has read; its end is estimated from
the pace at which that shrinks.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pyspark_millstream.offsets import HANDED

PACE_WINDOW_S = 60.0
STATUS_BYTES_MAX = 1 << 20


class Step(NamedTuple):
    """What was known of a query at one moment of this process's clock."""

    at_s: float
    rows: int
    lag: int


class QueryPace:
    """Rows, rate, lag and estimated end of one query, from Spark's reports in their order."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rows = 0
        self.lag = 0
        self.dropped = 0
        self._batch = -1
        self._rate_told = 0.0
        self._steps: deque[Step] = deque()
        self._seen = ""
        self._handed = 0

    def take(self, report: Mapping[str, object], at_s: float) -> None:
        """A report that was taken before changes nothing."""
        mark = str(report.get("timestamp"))
        if mark <= self._seen:  # moments in one form and zone: their text has their order
            return
        self._seen, self._batch = mark, whole(report.get("batchId"))
        sources = parts_of(report.get("sources"))
        fresh = self._fresh_rows(report, sources)
        self.rows += fresh
        self.lag = sum(lag_of(source) for source in sources)
        self.dropped += sum(
            whole(one.get("numRowsDroppedByWatermark")) for one in parts_of(report.get("stateOperators"))
        )
        told, counted = report.get("processedRowsPerSecond"), whole(report.get("numInputRows"))
        self._rate_told = told * fresh / counted if isinstance(told, int | float) and counted else 0.0
        self._steps.append(Step(at_s, self.rows, self.lag))
        while len(self._steps) > 2 and at_s - self._steps[0].at_s > PACE_WINDOW_S:
            self._steps.popleft()

    def _fresh_rows(self, report: Mapping[str, object], sources: Sequence[Mapping[str, object]]) -> int:
        """Of this report. Where records are handed over to the sink Spark counts ranges; the source says how many records
        there were in all."""
        handed = [count for source in sources if (count := handed_of(source)) is not None]
        if not handed:
            return whole(report.get("numInputRows"))
        before, self._handed = self._handed, sum(handed)
        return self._handed - before if self._handed >= before else self._handed

    @property
    def rate(self) -> float:
        """Rows a second, of late; of the only batch there was, what Spark says."""
        first, last = (self._steps[0], self._steps[-1]) if self._steps else (None, None)
        if first is None or last is None or last.at_s <= first.at_s:
            return self._rate_told
        return (last.rows - first.rows) / (last.at_s - first.at_s)

    @property
    def end_in_s(self) -> float | None:
        """Seconds until the lag is gone, as it shrinks now; None: it does not."""
        if not self.lag:
            return 0.0
        first, last = self._steps[0], self._steps[-1]
        shrunk = first.lag - last.lag
        return last.lag * (last.at_s - first.at_s) / shrunk if shrunk > 0 else None

    def line(self) -> dict[str, object]:
        end = self.end_in_s
        return {
            "name": self.name,
            "batch": self._batch,
            "rows": self.rows,
            "rate": round(self.rate, 1),
            "lag": self.lag,
            "dropped_late": self.dropped,
            "end_in_s": None if end is None else round(end, 1),
        }


def status_line(state: str, at: str, queries: Sequence[QueryPace]) -> dict[str, object]:
    """The whole pipeline: it is as far as the query that is farthest behind."""
    line: dict[str, object] = {"state": state, "time": at, "queries": [query.line() for query in queries]}
    if queries:
        slowest = max(queries, key=lambda query: query.lag).line()
        line |= {name: slowest[name] for name in ("rows", "rate", "lag", "end_in_s")}
    return line


def lag_of(source: Mapping[str, object]) -> int:
    """Records of all queues of a source beyond what was read; 0 where Spark does not say."""
    reached, newest = places_of(source.get("endOffset")), places_of(source.get("latestOffset"))
    return sum(max(0, offset - reached.get(place, offset)) for place, offset in newest.items())


def handed_of(source: Mapping[str, object]) -> int | None:
    """Records a source has handed over since it began to run; None: it hands rows to Spark."""
    places = places_of(source.get("latestOffset"))
    counts = [count for (_, mark), count in places.items() if mark == HANDED]
    return sum(counts) if counts else None


def places_of(offsets: object) -> dict[tuple[str, str], int]:
    """{"readings": {"0": 17}}, as JSON or parsed, by queue and partition."""
    if isinstance(offsets, str):
        try:
            offsets = json.loads(offsets)
        except ValueError:
            return {}
    places = {}
    for queue, partitions in offsets.items() if isinstance(offsets, dict) else ():
        for partition, offset in partitions.items() if isinstance(partitions, dict) else ():
            places[queue, partition] = whole(offset)
    return places


def parts_of(value: object) -> list[Mapping[str, object]]:
    return [part for part in value if isinstance(part, dict)] if isinstance(value, list) else []


def whole(value: object) -> int:
    return int(value) if isinstance(value, int | float) else 0


class StatusFile:
    """Lines of JSON, the newest last. When it is too large it begins anew: only the end matters."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def write(self, line: Mapping[str, object]) -> None:
        if self._path is None:
            return
        text = json.dumps(line, ensure_ascii=False) + "\n"
        is_full = self._path.exists() and self._path.stat().st_size > STATUS_BYTES_MAX
        if is_full:
            draft = self._path.with_suffix(".draft")
            draft.write_text(text, encoding="utf-8")
            draft.replace(self._path)
            return
        with self._path.open("a", encoding="utf-8") as file:
            file.write(text)
