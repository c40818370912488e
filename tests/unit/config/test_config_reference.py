from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from millstream.config import reference
from millstream.config.keys import ANY_NAME, all_keys
from millstream.config.load import load
from millstream.config.schema import Config

DOCS = Path(__file__).parents[3] / "docs"
REMEDY = "type `millstream config schema --write docs`"


def test_the_committed_reference_is_what_the_schema_says() -> None:
    assert (DOCS / "configuration.md").read_text(encoding="utf-8") == reference.configuration_page(), REMEDY


def test_the_committed_json_schema_is_what_the_schema_says() -> None:
    assert (DOCS / "config.schema.json").read_text(encoding="utf-8") == reference.json_schema_text(), REMEDY


def test_every_key_is_described() -> None:
    for key in all_keys():
        assert key.text.endswith("."), key.name
        assert key.kind, key.name


def test_every_number_has_bounds() -> None:
    for key in all_keys():
        if key.kind in ("whole number", "number", "size", "duration"):
            assert {"minimum", "maximum"} <= set(key.facts), key.name


def test_every_default_is_inside_its_bounds() -> None:
    for key in all_keys():
        minimum, maximum = key.facts.get("minimum"), key.facts.get("maximum")
        if isinstance(key.default, int | float) and isinstance(minimum, int | float):
            assert isinstance(maximum, int | float)
            assert minimum <= key.default <= maximum, key.name


def test_the_page_has_a_row_for_every_key() -> None:
    page = reference.configuration_page()
    for key in all_keys():
        assert f"| `{key.name}` |" in page


def schema_of(path: tuple[str, ...]) -> dict[str, object]:
    place: object = reference.json_schema()
    for part in path:
        assert isinstance(place, dict)
        place = place["additionalProperties"] if part == ANY_NAME else place["properties"][part]
    assert isinstance(place, dict)
    return place


def test_the_json_schema_has_every_key_and_forbids_all_others() -> None:
    for key in all_keys():
        assert schema_of(key.path)["description"] == key.text
        section = schema_of(key.path[:-1])
        assert section["additionalProperties"] is False or key.path == ("accounts",)


@pytest.mark.parametrize(
    ("path", "text", "is_good"),
    [
        (("broker", "max_message_size"), "64 KiB", True),
        (("broker", "max_message_size"), "1mib", True),
        (("broker", "max_message_size"), "1 parsec", False),
        (("session", "max_expiry_interval"), "never", True),
        (("session", "max_expiry_interval"), "5m", True),
        (("session", "max_expiry_interval"), "soon", False),
    ],
)
def test_the_json_schema_knows_sizes_and_durations(path: tuple[str, ...], text: str, is_good: bool) -> None:
    forms = schema_of(path)["anyOf"]
    assert isinstance(forms, list)
    [pattern] = [form["pattern"] for form in forms if form["type"] == "string"]
    assert bool(re.search(pattern, text)) is is_good


def test_the_json_schema_is_json() -> None:
    assert json.loads(reference.json_schema_text()) == reference.json_schema()


def test_the_starting_file_loads_and_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(reference.starting_file())
    assert load(file).config == Config()


def test_the_starting_file_without_its_comment_signs_has_every_default(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(re.sub(r"^( *)#(?=\w+:)", r"\1", reference.starting_file(), flags=re.M))
    loaded = load(file)
    assert loaded.config.model_copy(update={"data_dir": Config().data_dir, "accounts": {}}) == Config()
    written = {path for path in loaded.origins if len(path) > 1 or path == ("data_dir",)}
    assert {key.path for key in all_keys() if ANY_NAME not in key.path} <= written
