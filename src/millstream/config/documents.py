"""Reads one configuration file, in YAML, JSON or TOML by its suffix, and remembers the line of every key.

Invariants
- A file is bounded in bytes, nodes and depth before it is believed.
- A key that stands twice in one mapping is a fault; nothing is overwritten in silence.
"""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import yaml

from millstream.config.bounded_file import read_bounded
from millstream.config.faults import ConfigFault, Fault, Origin, show_value
from millstream.config.keys import KeyPath

FILE_SIZE_MAX: Final = 1024 * 1024
NODES_MAX: Final = 50_000
DEPTH_MAX: Final = 16


_TOML_HEADER: Final = re.compile(r"\s*\[([^\[\]]+)\]\s*(?:#.*)?$")
_TOML_KEY: Final = re.compile(r"""\s*([A-Za-z0-9_.\-"' ]+?)\s*=""")
_TOML_PLACE: Final = re.compile(r"\s*\(at line (\d+), column \d+\)")


@dataclass
class Document:
    """The values of a file and the line on which each key stands."""

    file: str
    values: dict[str, object] = field(default_factory=dict)
    lines: dict[KeyPath, int] = field(default_factory=dict)

    def origin(self, path: KeyPath) -> Origin:
        line = self.lines.get(path)
        return Origin(self.file if line is None else f"{self.file}:{line}", self.file, line)


def read_document(path: Path) -> Document:
    name = str(path)
    text = _read_text(path)
    match path.suffix.lower():
        case ".yaml" | ".yml":
            return _read_yaml(name, text)
        case ".json":
            return _read_json(name, text)
        case ".toml":
            return _read_toml(name, text)
    raise _refusal(name, None, "", "the name must end in .yaml, .yml, .json or .toml")


def _refusal(file: str, line: int | None, key: str, text: str, value: str | None = None) -> ConfigFault:
    origin = Origin(file if line is None else f"{file}:{line}", file, line)
    return ConfigFault([Fault(origin, key, value, text)])


def _read_text(path: Path) -> str:
    name = str(path)
    try:
        raw = read_bounded(path, FILE_SIZE_MAX)
    except FileNotFoundError:
        raise _refusal(
            name, None, "", "there is no such file; make one with `millstream config init > millstream.yaml`"
        ) from None
    except OSError as error:
        raise _refusal(name, None, "", f"the file cannot be read: {error.strerror}") from None
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise _refusal(name, line, "", "the file is not UTF-8") from None


class _YamlReader:
    """Turns composed nodes into plain values, noting lines and refusing what YAML would let pass."""

    def __init__(self, file: str) -> None:
        self.document = Document(file)
        self.faults: list[Fault] = []
        self._nodes = 0
        self._constructor = yaml.constructor.SafeConstructor()

    def read(self, node: yaml.Node, path: KeyPath) -> object:
        self._nodes += 1
        line = node.start_mark.line + 1
        if self._nodes > NODES_MAX or len(path) > DEPTH_MAX:
            raise _refusal(self.document.file, line, ".".join(path[:4]), "is too large or nested too deeply")
        if isinstance(node, yaml.MappingNode):
            return self.read_mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return self._read_sequence(node, path)
        return self._read_scalar(node, path, line)

    def _read_sequence(self, node: yaml.SequenceNode, path: KeyPath) -> list[object]:
        values: list[object] = []
        for index, item in enumerate(node.value):
            inner = (*path, str(index))
            self.document.lines[inner] = item.start_mark.line + 1
            values.append(self.read(item, inner))
        return values

    def _read_scalar(self, node: yaml.Node, path: KeyPath, line: int) -> object:
        try:
            value: object = self._constructor.construct_object(node)
        except (yaml.YAMLError, ValueError):
            raise _refusal(
                self.document.file, line, ".".join(path), "has a YAML tag or value that is not supported"
            ) from None
        plain = value is None or isinstance(value, bool | int | float | str)
        return value if plain else str(node.value)  # a date is text to us

    def read_mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, object]:
        values: dict[str, object] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise _refusal(self.document.file, line, ".".join(path), "has a key that is not plain text")
            inner = (*path, str(key_node.value))
            if inner[-1] in values:
                first = self.document.lines[inner]
                origin = Origin(f"{self.document.file}:{line}", self.document.file, line)
                shown = show_value(value_node.value) if isinstance(value_node, yaml.ScalarNode) else None
                text = f"stands here a second time; the first is on line {first}"
                self.faults.append(Fault(origin, ".".join(inner), shown, text))
                continue
            self.document.lines[inner] = line
            values[inner[-1]] = self.read(value_node, inner)
        return values


def _read_yaml(file: str, text: str) -> Document:
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = None if error.problem_mark is None else error.problem_mark.line + 1
        raise _refusal(file, line, "", f"this is not YAML: {error.problem}") from None
    except (yaml.YAMLError, RecursionError):
        raise _refusal(file, None, "", "this is not YAML that can be read") from None
    reader = _YamlReader(file)
    if node is None:
        return reader.document
    if not isinstance(node, yaml.MappingNode):
        raise _refusal(file, node.start_mark.line + 1, "", "the file must hold keys such as `mqtt:`")
    reader.document.values = reader.read_mapping(node, ())
    if reader.faults:
        raise ConfigFault(reader.faults)
    return reader.document


def _read_json(file: str, text: str) -> Document:
    try:
        values = json.loads(text)
    except json.JSONDecodeError as error:
        raise _refusal(file, error.lineno, "", f"this is not JSON: {error.msg}") from None
    except RecursionError:
        raise _refusal(file, None, "", "is nested too deeply") from None
    if not isinstance(values, dict):
        raise _refusal(file, 1, "", 'the file must hold an object such as {"mqtt": {}}')
    # Valid JSON holds tabs only between tokens, where YAML wants spaces; so its lines can be taken from YAML.
    places = _read_yaml(file, text.replace("\t", " "))
    return Document(file, values, places.lines)


def _read_toml(file: str, text: str) -> Document:
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = _TOML_PLACE.search(str(error))
        reason = _TOML_PLACE.sub("", str(error))
        raise _refusal(file, int(place[1]) if place else None, "", f"this is not TOML: {reason}") from None
    except RecursionError:
        raise _refusal(file, None, "", "is nested too deeply") from None
    lines: dict[KeyPath, int] = {}
    table: KeyPath = ()
    for number, line in enumerate(text.splitlines(), start=1):
        header = _TOML_HEADER.match(line)
        key = _TOML_KEY.match(line)
        if header is not None:
            table = _toml_path(header[1])
            _note_line(lines, table, number)
        elif key is not None:
            _note_line(lines, table + _toml_path(key[1]), number)
    return Document(file, values, lines)


def _toml_path(text: str) -> KeyPath:
    return tuple(part.strip().strip("\"'") for part in text.split("."))


def _note_line(lines: dict[KeyPath, int], path: KeyPath, number: int) -> None:
    for length in range(1, len(path) + 1):
        lines.setdefault(path[:length], number)
