"""Makes a folder to start from: copies of ready-made pipelines, or a Spark Declarative Pipelines project of them.

python -m pyspark_millstream.pipelines.project FOLDER rollup alert [--sdp] [--set queues=readings]

Prints what it made as JSON. Nothing that is there is written over.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark_millstream.errors import OptionError
from pyspark_millstream.pipelines.catalog import NAMES, Pipeline, find, parse_pairs
from pyspark_millstream.pipelines.run import sentence_of

SPEC = """name: {name}
storage: {storage}
libraries:
  - glob:
      include: transformations/**
configuration:
  spark.sql.session.timeZone: UTC
  spark.sql.streaming.stateStore.providerClass: org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider
"""
HEAD = '''"""{name}: {summary}.

Part of a Spark Declarative Pipelines project: a run takes what is there and ends; the next one goes on from there.
"""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from pyspark_millstream.pipelines import {name}

SETTINGS = {settings}

spark = SparkSession.active()

'''
SINK = """
dp.create_sink(
    "{name}_topics",
    "millstream",
    {{"uri": SETTINGS["uri"], "topicColumn": "topic", "contentType": "application/json"{more}}},
)


@dp.append_flow(target="{name}_topics")
def {name}_messages() -> DataFrame:
    return {name}.messages(spark.readStream.table("{table}"), SETTINGS)
"""
ROLLUP = """
@dp.table
def rollup_windows() -> DataFrame:
    return rollup.transform(rollup.read(spark, "windows", SETTINGS), SETTINGS)

"""
ALERT = """
@dp.table
def alerts() -> DataFrame:
    return alert.broken_rules(alert.read(spark, "rules", SETTINGS), SETTINGS)

"""
AUDIT = """
@dp.materialized_view
def audit_hours() -> DataFrame:
    return audit.transform(audit.read(spark, SETTINGS), SETTINGS)
"""
FLOWS = {
    # Not retained: a declared flow cannot put the windows of a device in order, and the last one would stay.
    "rollup": ROLLUP + SINK.format(name="rollup", table="rollup_windows", more=""),
    "alert": ALERT + SINK.format(name="alert", table="alerts", more=', "qos": SETTINGS["qos"]'),
    "audit": AUDIT,
}
RUN_DECLARED = "spark-pipelines --conf spark.sql.catalogImplementation=hive run"


def copy_files(folder: Path, pipelines: list[Pipeline]) -> list[Path]:
    """Each pipeline as it is, to be changed and run by its path."""
    targets = [(pipeline.file, folder / pipeline.file.name) for pipeline in pipelines]
    _refuse_what_is_there([target for _, target in targets])
    folder.mkdir(parents=True, exist_ok=True)
    return [Path(shutil.copyfile(source, target)) for source, target in targets]


def declare(folder: Path, pipelines: list[Pipeline], given: Mapping[str, str]) -> list[Path]:
    """A project for `spark-pipelines run`."""
    written = {folder / "spark-pipeline.yml": _spec(folder)}
    for pipeline in pipelines:
        if pipeline.name not in FLOWS:
            raise OptionError(
                f"{pipeline.name} cannot be declared as a project: it is no table",
                f"Choose of {', '.join(FLOWS)}.",
            )
        written[folder / "transformations" / f"{pipeline.name}.py"] = _definition(pipeline, given)
    _refuse_what_is_there(list(written))
    for path, text in written.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return list(written)


def _spec(folder: Path) -> str:
    storage = json.dumps((folder.resolve() / "storage").as_uri())  # JSON is YAML, and quotes what must be
    return SPEC.format(name=json.dumps(folder.resolve().name), storage=storage)


def _definition(pipeline: Pipeline, given: Mapping[str, str]) -> str:
    own = {name: value for name, value in given.items() if name in pipeline.settings}
    left_out = ("checkpoint", "trigger")  # the project keeps and decides these
    settings = {name: one.default for name, one in pipeline.settings.items() if name not in left_out} | own
    if pipeline.name == "alert" and not settings["rules"]:
        settings["rules"] = "value > 80"
    if not settings["queues"]:
        settings["queues"] = "readings"
    lines = "".join(f"    {json.dumps(name)}: {json.dumps(value)},\n" for name, value in settings.items())
    head = HEAD.format(name=pipeline.name, summary=pipeline.summary, settings=f"{{\n{lines}}}")
    return head + FLOWS[pipeline.name]


def _refuse_what_is_there(paths: list[Path]) -> None:
    for path in paths:
        if path.exists():
            raise OptionError(f"{path} is there already", "Give another folder, or remove it first.")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m pyspark_millstream.pipelines.project")
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--sdp", action="store_true", help="a Spark Declarative Pipelines project")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a setting, for --sdp"
    )
    arguments = parser.parse_args()
    try:
        pipelines = [find(name) for name in arguments.names or (FLOWS if arguments.sdp else NAMES)]
        if arguments.sdp:
            made = declare(arguments.folder, pipelines, parse_pairs(arguments.set))
            following = f"cd {arguments.folder} && {RUN_DECLARED}"
        else:
            made = copy_files(arguments.folder, pipelines)
            following = f"millstream pipeline run {made[0]} --set queues=readings"
    except (OptionError, OSError) as error:
        sys.stderr.write(f"error: {sentence_of(error)}\n")
        return 2
    sys.stdout.write(json.dumps({"made": [str(path) for path in made], "next": following}) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
