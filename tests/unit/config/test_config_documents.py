from __future__ import annotations

from pathlib import Path

import pytest

from millstream.config.documents import FILE_SIZE_MAX, read_document
from millstream.config.faults import ConfigFault
from millstream.config.load import load


def written(tmp_path: Path, name: str, text: str | bytes) -> Path:
    file = tmp_path / name
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return file


def refused_line(file: Path) -> int | None:
    with pytest.raises(ConfigFault) as caught:
        read_document(file)
    return caught.value.faults[0].origin.line


SAME = {
    "a.yaml": "mqtt:\n  port: 5\n  tls:\n    port: 6\nwebsocket:\n  allowed_origins: ['*']\n",
    "a.json": '{"mqtt": {\n\t"port": 5,\n "tls":\n {"port": 6}},\n"websocket": {"allowed_origins": ["*"]}}',
    "a.toml": "[mqtt]\nport = 5\n[mqtt.tls]\nport = 6\n[websocket]\nallowed_origins = ['*']\n",
}


@pytest.mark.parametrize("name", SAME)
def test_the_three_forms_of_a_file_mean_the_same(tmp_path: Path, name: str) -> None:
    config = load(written(tmp_path, name, SAME[name])).config
    assert (config.mqtt.port, config.mqtt.tls.port, config.websocket.allowed_origins) == (5, 6, ("*",))


@pytest.mark.parametrize(("name", "line"), [("a.yaml", 4), ("a.json", 4), ("a.toml", 4)])
def test_every_form_knows_the_line_of_a_key(tmp_path: Path, name: str, line: int) -> None:
    file = written(tmp_path, name, SAME[name].replace("6", "99999"))
    with pytest.raises(ConfigFault) as caught:
        load(file)
    [fault] = caught.value.faults
    assert (fault.key, fault.origin.line, fault.value) == ("mqtt.tls.port", line, "99999")


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("a.yaml", "a: 1\nb: 2\na: 3\n", 3),
        ("a.yaml", "a: {b: 1, b: 2}\n", 1),
        ("a.json", '{"a": 1,\n"a": 2}', 2),
        ("a.toml", "a = 1\na = 2\n", 2),
    ],
)
def test_a_key_that_stands_twice_is_refused_with_its_line(
    tmp_path: Path, name: str, text: str, line: int
) -> None:
    assert refused_line(written(tmp_path, name, text)) == line


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [("a.yaml", "a:\n  - b\n c\n", 3), ("a.json", '{\n"a": }', 2), ("a.toml", "a = 1\nb == 2\n", 2)],
)
def test_a_file_that_cannot_be_parsed_is_refused_with_the_line(
    tmp_path: Path, name: str, text: str, line: int
) -> None:
    assert refused_line(written(tmp_path, name, text)) == line


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.ini", "x"),
        ("a", "x"),
        ("a.yaml", b"\xff\xfe"),
        ("a.yaml", "- 1"),
        ("a.yaml", "just text"),
        ("a.json", "[1]"),
        ("a.yaml", b"#" * (FILE_SIZE_MAX + 1)),
        ("a.yaml", "? [a, b]\n: 1\n"),
        ("a.yaml", "a: !!python/object/apply:os.getcwd []\nb: !x 1\n"),
        ("a.yaml", "a: &x [*x]\n"),
        ("a.yaml", "a: 1\n---\nb: 2\n"),
        ("a.yaml", "{" * 2000),
        ("a.json", "[" * 100_000),
        ("a.yaml", "a: " + "{b: " * 50 + "1" + "}" * 50),
    ],
    ids=[
        "unknown suffix",
        "no suffix",
        "not UTF-8",
        "a list",
        "a text",
        "a JSON list",
        "too large",
        "a key that is a list",
        "a foreign tag",
        "a list in itself",
        "two documents",
        "open braces",
        "deep JSON",
        "deep YAML",
    ],
)
def test_what_is_no_configuration_is_refused_without_a_traceback(
    tmp_path: Path, name: str, text: str | bytes
) -> None:
    refused_line(written(tmp_path, name, text))


def test_a_few_lines_cannot_become_a_billion_values(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    refused_line(written(tmp_path, "a.yaml", "\n".join(lines)))


def test_a_byte_order_mark_is_no_part_of_the_first_key(tmp_path: Path) -> None:
    assert read_document(written(tmp_path, "a.yaml", b"\xef\xbb\xbfmqtt: {}\n")).values == {"mqtt": {}}


def test_an_empty_file_is_an_empty_configuration(tmp_path: Path) -> None:
    assert read_document(written(tmp_path, "a.yaml", "# nothing\n")).values == {}


def test_a_directory_is_not_a_file(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").mkdir()
    refused_line(tmp_path / "a.yaml")
