"""The pipelines there are, their settings, and the folders made from them."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

from pyspark_millstream.errors import OptionError
from pyspark_millstream.pipelines.audit import milliseconds
from pyspark_millstream.pipelines.audit_report import page, write_report
from pyspark_millstream.pipelines.catalog import NAMES, find, parse_pairs
from pyspark_millstream.pipelines.project import FLOWS, copy_files, declare
from pyspark_millstream.pipelines.run import sentence_of
from pyspark_millstream.pipelines.topic_filter import regex_of


@pytest.mark.parametrize("name", NAMES)
def test_every_pipeline_says_what_it_is_and_what_can_be_set(name: str) -> None:
    pipeline = find(name)
    assert pipeline.name == name
    assert pipeline.summary
    assert all(setting.help for setting in pipeline.settings.values())
    assert json.dumps(pipeline.described())


def test_a_setting_that_is_not_there_is_answered_with_the_nearest() -> None:
    with pytest.raises(OptionError, match=r"no setting `windw`.*Did you mean `window`"):
        find("rollup").settings_from({"queues": "q", "windw": "1 minute"})


def test_a_setting_that_is_needed_is_asked_for() -> None:
    with pytest.raises(OptionError, match="needs the setting `queues`"):
        find("rollup").settings_from({})


def test_the_folder_of_the_run_stands_in_for_its_mark() -> None:
    settings = find("rollup").settings_from({"queues": "q"}, "runs/one")
    assert settings["checkpoint"] == "runs/one/checkpoint"
    assert find("rollup").settings_from({"queues": "q", "checkpoint": "here"})["checkpoint"] == "here"


def test_an_unknown_pipeline_is_answered_with_those_there_are() -> None:
    with pytest.raises(OptionError, match=r"no pipeline `rolup`.*lake, rollup"):
        find("rolup")
    with pytest.raises(OptionError, match="no file"):
        find("not-there.py")


def test_a_file_without_the_parts_of_a_pipeline_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.py").write_text("NAME = 'x'\n")
    with pytest.raises(OptionError, match="it has no SUMMARY"):
        find(str(tmp_path / "empty.py"))


def test_pairs_are_split_at_the_first_sign() -> None:
    assert parse_pairs(["rules=value = 3", "topic="]) == {"rules": "value = 3", "topic": ""}
    with pytest.raises(OptionError, match="is no setting"):
        parse_pairs(["rules"])


def test_a_copied_pipeline_is_a_pipeline(tmp_path: Path) -> None:
    made = copy_files(tmp_path / "plant", [find("rollup"), find("alert")])
    assert [path.name for path in made] == ["rollup.py", "alert.py"]
    assert find(str(made[0])).settings.keys() == find("rollup").settings.keys()
    with pytest.raises(OptionError, match="is there already"):
        copy_files(tmp_path / "plant", [find("rollup")])


def test_a_declared_project_has_a_definition_for_each_pipeline(tmp_path: Path) -> None:
    made = declare(tmp_path / "plant", [find(name) for name in FLOWS], {"queues": 'a "b"'})
    assert [path.name for path in made] == ["spark-pipeline.yml", *(f"{name}.py" for name in FLOWS)]
    for path in made[1:]:
        tree = ast.parse(path.read_text())
        assigned = next(node for node in tree.body if isinstance(node, ast.Assign))
        assert ast.literal_eval(assigned.value)["queues"] == 'a "b"'
    with pytest.raises(OptionError, match="replay cannot be declared"):
        declare(tmp_path / "other", [find("replay")], {})


@pytest.mark.parametrize(
    ("filter", "fits", "does_not"),
    [
        ("plant/+/t", "plant/a/t", "plant/a/b/t"),
        ("plant/#", "plant", "plants/a"),
        ("#", "a/b", "$SYS/a"),
        ("+/a", "b/a", "$b/a"),
        ("a.b/c", "a.b/c", "axb/c"),
        ("a+", None, None),
        ("a/#/b", None, None),
    ],
)
def test_a_filter_of_topics_becomes_a_regular_expression(
    filter: str, fits: str | None, does_not: str | None
) -> None:
    if fits is None or does_not is None:
        with pytest.raises(ValueError, match="no filter of topics"):
            regex_of(filter)
        return
    assert re.search(regex_of(filter), fits)
    assert not re.search(regex_of(filter), does_not)


def test_a_moment_without_a_zone_is_utc() -> None:
    assert milliseconds("1970-01-01T00:00:01") == "1000"
    assert milliseconds("1970-01-01T01:00:01+01:00") == "1000"
    with pytest.raises(ValueError, match="write it as"):
        milliseconds("yesterday")


def test_the_report_needs_nothing_beside_it_and_trusts_no_name(tmp_path: Path) -> None:
    hour = {
        "hour": "11-15 08:00",
        "messages": 10,
        "lost": 2,
        "duplicated": 0,
        "reordered": 1,
        "latency_p50_ms": 3.5,
    }
    topics = [{"queue": "q", "topic": "<script>alert(1)</script>", "messages": 10, "lost": 2}]
    write_report(tmp_path / "new" / "audit.html", "<q>", {"messages": 10, "lost": 2}, [hour, hour], topics)
    text = (tmp_path / "new" / "audit.html").read_text(encoding="utf-8")
    assert "<script>" not in text
    assert "&lt;script&gt;" in text
    assert text.count("<svg") == 3
    assert not re.search(r"""(?:src|href)=|url\(|https?://""", text)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["audit.html"]


def test_the_report_of_an_empty_range_says_so() -> None:
    assert "There was no message in this range." in page("q", {}, [], [])


def test_of_a_failure_in_spark_our_own_sentence_is_told() -> None:
    told = "[STREAM_FAILED] Query [id = 1] terminated with exception: x\n  File y\nDataLost: 3 records of q are gone.\n"
    assert sentence_of(RuntimeError(told)) == "3 records of q are gone."
    assert sentence_of(RuntimeError("first\nsecond")) == "first"
    assert (
        sentence_of(OptionError("the option uri is missing", "Say where."))
        == "the option uri is missing. Say where."
    )
