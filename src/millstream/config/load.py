"""From file, variables and flags to one checked `Config`, strictly.

Precedence: flags over variables over the file over defaults. Whatever is wrong is refused before anything
is opened, all faults at once, each with the place it was written at. Relative paths written in the file
start at the directory of the file; all others at the working directory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from millstream.config.contents import find_content_faults
from millstream.config.documents import Document, read_document
from millstream.config.environment import read_environment
from millstream.config.faults import ConfigFault, Fault, Origin, show_value
from millstream.config.input_files import find_file_fault
from millstream.config.keys import (
    ANY_NAME,
    NAMED,
    Key,
    KeyPath,
    all_keys,
    nearest,
    nearest_key,
    section_of,
    to_known,
)
from millstream.config.rules import find_broken_rules
from millstream.config.schema import Config


@dataclass(frozen=True)
class Loaded:
    """A configuration and where each of its values was written; a key without an origin has its default."""

    config: Config
    origins: Mapping[KeyPath, Origin]
    file: Path | None


class _Layers:
    """The values gathered so far, the later layer over the earlier one."""

    def __init__(self) -> None:
        self.values: dict[str, object] = {}
        self.origins: dict[KeyPath, Origin] = {}
        self.faults: list[Fault] = []

    def add_document(self, document: Document) -> None:
        self._add_mapping(document, document.values, ())

    def _add_mapping(self, document: Document, values: Mapping[str, object], path: KeyPath) -> None:
        for name, value in values.items():
            inner = (*path, name)
            is_section = inner in NAMED or section_of(inner) is not None
            if is_section and (value is None or isinstance(value, dict)):
                self.section_at(inner)  # `mqtt:` with nothing below it is an empty section
                self._add_mapping(document, value or {}, inner)
                self.origins[inner] = document.origin(inner)
            else:
                self.put(inner, value, document.origin(inner))

    def section_at(self, path: KeyPath) -> dict[str, object] | None:
        section = self.values
        for part in path:
            inner = section.setdefault(part, {})
            if not isinstance(inner, dict):
                return None  # the file has a plain value here, which is a fault of its own
            section = inner
        return section

    def put(self, path: KeyPath, value: object, origin: Origin) -> None:
        section = self.section_at(path[:-1])
        if section is not None:
            section[path[-1]] = value
            self.origins[path] = origin

    def find(self, path: KeyPath) -> object:
        value: object = self.values
        for part in path:
            if not isinstance(value, dict) or part not in value:
                return None
            value = value[part]
        return value

    def origin_of(self, path: KeyPath) -> Origin:
        for length in range(len(path), 0, -1):
            if path[:length] in self.origins:
                return self.origins[path[:length]]
        return Origin("configuration")

    def fail(self, path: KeyPath, text: str, value: object, suggestion: str | None = None) -> None:
        shown = None if isinstance(value, dict | list) else show_value(value)
        self.faults.append(Fault(self.origin_of(path), ".".join(path), shown, text, suggestion))


def load(
    file: Path | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    overrides: Sequence[str] = (),
    is_optional: bool = False,
    checks_files: bool = True,
) -> Loaded:
    """Reads and checks everything; raises ConfigFault with all that is wrong.

    `overrides` are texts such as `mqtt.port=0`. An optional file may be missing, not wrong.
    """
    layers = _Layers()
    if file is not None and not (is_optional and not file.exists()):
        layers.add_document(read_document(file))
    else:
        file = None
    settings, faults = read_environment(environment or {})
    layers.faults += faults
    for path, (text, origin) in settings.items():
        layers.put(path, _from_text(path, text), origin)
    for override in overrides:
        _add_override(layers, override)
    _resolve_paths(layers, file)
    return Loaded(_check(layers, checks_files=checks_files), layers.origins, file)


def config_of(values: Mapping[str, object]) -> Config:
    """A checked configuration from nested values, for embedding: `config_of({"mqtt": {"port": 0}})`."""
    layers = _Layers()
    layers.add_document(Document("configuration", dict(values)))
    return _check(layers, checks_files=True)


def _find_key(path: KeyPath) -> Key | None:
    return next((key for key in all_keys() if key.path == to_known(path)), None)


def _from_text(path: KeyPath, text: str) -> object:
    key = _find_key(path)
    if key is not None and key.kind == "list" and text.strip().startswith("["):
        try:
            value: object = yaml.safe_load(text)
        except (yaml.YAMLError, RecursionError):
            return text
        return value
    return text


def _add_override(layers: _Layers, override: str) -> None:
    name, equals, text = override.partition("=")
    origin = Origin(f"--set {override}")
    path = tuple(name.strip().split("."))
    if not equals:
        layers.faults.append(
            Fault(origin, "", None, "a setting is written key=value, such as mqtt.port=1884")
        )
    elif _find_key(path) is not None and ANY_NAME not in path:
        layers.put(path, _from_text(path, text), origin)
    elif section_of(path) is not None or path in NAMED:
        layers.faults.append(Fault(origin, name, None, "is a section; name one of the keys in it"))
    else:
        suggestion = nearest_key(path)
        layers.faults.append(Fault(origin, name, show_value(text), "is not a known key", suggestion))


def _resolve_paths(layers: _Layers, file: Path | None) -> None:
    for key in all_keys():
        value = layers.find(key.path)
        written_in_file = layers.origin_of(key.path).file is not None
        if key.kind == "path" and isinstance(value, str) and value and file is not None and written_in_file:
            section = layers.section_at(key.path[:-1])
            if section is not None and value.strip().lower() != "null":
                section[key.path[-1]] = str(file.parent / value)


def _check(layers: _Layers, *, checks_files: bool) -> Config:
    config: Config | None = None
    try:
        config = Config.model_validate(layers.values)
    except ValidationError as error:
        for details in error.errors(include_url=False):
            _add_fault(layers, details)
    if checks_files:
        _check_files(layers)
    if config is not None and not layers.faults:
        for path, text in find_broken_rules(config):
            layers.fail(path, text, layers.find(path))
    if config is not None and not layers.faults and checks_files:
        for path, text in find_content_faults(config):
            layers.fail(path, text, layers.find(path))
    if layers.faults or config is None:
        raise ConfigFault(sorted(layers.faults, key=_place))
    return config


def _place(fault: Fault) -> tuple[str, int]:
    return fault.origin.file or "~", fault.origin.line or 0


def _check_files(layers: _Layers) -> None:
    for key in all_keys():
        value = layers.find(key.path)
        if (
            key.facts.get("is_input_file")
            and isinstance(value, str)
            and value.strip().lower() not in ("", "null")
        ):
            fault = find_file_fault(key, Path(value))
            if fault is not None:
                layers.fail(key.path, fault, value)


def _add_fault(layers: _Layers, details: ErrorDetails) -> None:
    path = tuple(str(part) for part in details["loc"])
    value = details["input"]
    match details["type"]:
        case "extra_forbidden":
            layers.fail(path, "is not a known key", value, nearest_key(path))
        case "model_type" | "dict_type":
            layers.fail(path, "is a section and must hold keys", value)
        case "literal_error":
            key = _find_key(path)
            choices = key.choices if key is not None else ()
            suggestion = nearest(str(value), choices)
            layers.fail(path, f"must be one of {', '.join(choices)}", value, suggestion)
        case _:
            layers.fail(path, details["msg"].removeprefix("Value error, "), value)
