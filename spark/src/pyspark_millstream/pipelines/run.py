"""Runs one pipeline: makes the Spark session, builds the queries, reports how far they came, and ends when told to.

python -m pyspark_millstream.pipelines.run rollup --set queues=readings

SIGTERM and SIGINT end it. What a user can do wrong is told in one sentence on standard error; exit codes are 0 done,
1 failed, 2 wrong settings.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark_millstream.errors import MillstreamSparkError, OptionError
from pyspark_millstream.pipelines.catalog import Pipeline, find, parse_pairs
from pyspark_millstream.pipelines.progress import QueryPace, StatusFile, status_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

POLL_S = 0.5
CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
}
# Where Spark tells of a fault in Python code, its sentence stands behind the name of its class.
PYTHON_FAULT = re.compile(r"(?:^|\n|\s)(?:[\w.]+\.)?(?:[A-Z]\w*(?:Error|Unreachable|Refused|Lost)): (.+)")


class EndAsked(BaseException):
    """Breaks off what runs in the main thread; nothing that catches exceptions stops it."""


class Ending:
    """Whether somebody asked for the end."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        self._breaks = False

    def ask(self, *_: object) -> None:
        self._asked.set()
        if self._breaks:
            raise EndAsked

    def listen(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self.ask)

    @contextlib.contextmanager
    def breaking(self) -> Iterator[None]:
        """Inside, the end does not wait for anything."""
        self._breaks = True
        try:
            if self.is_asked:
                raise EndAsked
            yield
        finally:
            self._breaks = False

    @property
    def is_asked(self) -> bool:
        return self._asked.is_set()

    def wait(self, seconds: float) -> bool:
        return self._asked.wait(seconds)


def make_session(name: str, master: str, conf: Mapping[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession

    import pyspark_millstream

    # Spark's Python processes must find what this one found, with the same Python.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    package = str(Path(pyspark_millstream.__file__).resolve().parents[1])
    paths = [package, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    builder = SparkSession.builder.appName(f"millstream-{name}")
    if master:
        builder = builder.master(master)
    for key, value in {**CONF, **conf}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    pyspark_millstream.register(spark)
    return spark


def run(
    pipeline: Pipeline, settings: Mapping[str, str], spark: SparkSession, status: StatusFile, end: Ending
) -> None:
    """Until the queries end by themselves, or the end is asked for."""
    status.write(status_line("running", now(), []))
    with reported_jobs(spark, status), end.breaking():
        queries = pipeline.build(spark, settings)
    if not queries:
        return
    paces = {query.id: QueryPace(query.name or query.id) for query in queries}
    last = ""
    while True:
        is_over = end.wait(POLL_S) or not any(query.isActive for query in queries)
        for query in queries:
            for report in query.recentProgress:
                paces[query.id].take(json.loads(report.json), time.monotonic())
        line = status_line("running", now(), list(paces.values()))
        if (shown := json.dumps(line["queries"])) != last:
            status.write(line)
            last = shown
        failed = next((fault for query in queries if (fault := query.exception())), None)
        if failed is not None or is_over:
            stop(queries)
            if failed is not None:
                raise failed
            return


def stop(queries: list[StreamingQuery]) -> None:
    for query in queries:
        with contextlib.suppress(Exception):  # it is over either way; why it failed was asked before
            query.stop()


@contextlib.contextmanager
def reported_jobs(spark: SparkSession, status: StatusFile) -> Iterator[None]:
    """While a batch runs: tasks done and tasks known, of the jobs under way."""
    over = threading.Event()

    def watch() -> None:
        tracker = spark.sparkContext.statusTracker()
        seen: dict[int, tuple[int, int]] = {}
        last = (0, 0)
        while not over.wait(POLL_S):
            for stage in tracker.getActiveStageIds():
                if (found := tracker.getStageInfo(stage)) is not None:
                    seen[stage] = (found.numCompletedTasks, found.numTasks)
            active = set(tracker.getActiveStageIds())
            done = sum(done if stage in active else all_ for stage, (done, all_) in seen.items())
            tasks = (done, sum(all_ for _, all_ in seen.values()))
            if tasks != last:
                last = tasks
                status.write({"state": "running", "time": now(), "tasks_done": tasks[0], "tasks": tasks[1]})

    watcher = threading.Thread(target=watch, name="reported-jobs", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


def sentence_of(error: BaseException) -> str:
    """What is wrong, in one line: our own sentence where there is one in what Spark tells."""
    if isinstance(error, MillstreamSparkError):
        return str(error)
    text = str(error).strip() or type(error).__name__
    found = PYTHON_FAULT.findall(text)
    line = found[-1] if found else text.splitlines()[0]
    return str(line).strip()


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m pyspark_millstream.pipelines.run", description="Run a pipeline."
    )
    parser.add_argument("name", help="its name, or the file of one")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a setting; may be repeated"
    )
    parser.add_argument(
        "--settings-stdin", action="store_true", help="more settings, as JSON on standard input"
    )
    parser.add_argument(
        "--conf", action="append", default=[], metavar="NAME=VALUE", help="of Spark; may be repeated"
    )
    parser.add_argument(
        "--master", default="", help="of Spark, such as local[2]; default: spark-submit's, or local[*]"
    )
    parser.add_argument(
        "--status", type=Path, default=None, metavar="FILE", help="where to write the progress"
    )
    parser.add_argument(
        "--run-folder", default=".", metavar="FOLDER", help="what {run} in a setting stands for"
    )
    parser.add_argument("--debug", action="store_true", help="show a traceback when something breaks")
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    status, end = StatusFile(arguments.status), Ending()
    end.listen()
    try:
        given = parse_pairs(arguments.set)
        if arguments.settings_stdin:
            given |= json.load(sys.stdin)
        pipeline = find(arguments.name)
        settings = pipeline.settings_from(given, arguments.run_folder)
        status.write(status_line("starting", now(), []))
        spark = make_session(pipeline.name, arguments.master, parse_pairs(arguments.conf))
        end.listen()  # Spark took SIGINT for itself
        try:
            with contextlib.suppress(EndAsked):
                run(pipeline, settings, spark, status, end)
        finally:
            spark.stop()
    except Exception as error:  # the last place that can make a sentence of it
        if arguments.debug:
            raise
        status.write({"state": "failed", "time": now(), "error": sentence_of(error)})
        sys.stderr.write(f"error: {sentence_of(error)}\n")
        return 2 if isinstance(error, OptionError) else 1
    status.write({"state": "stopped" if end.is_asked else "done", "time": now()})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
