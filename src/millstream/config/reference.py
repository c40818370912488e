"""Documents made from the schema: the reference page, the JSON Schema for editors, the starting file.

All are pure functions of the schema, so the committed copies can be compared with what it says today.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from millstream.config.keys import ANY_NAME, Key, KeyPath, all_keys, section_texts
from millstream.config.values import DURATION_UNITS_MS, SIZE_UNITS
from millstream.model.limits import NEVER_EXPIRES

BOUND_NAMES: Final[tuple[str, ...]] = ("minimum", "maximum")
SCHEMA_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"

PAGE_HEAD: Final = """\
# Configuration

<!-- Made by `millstream config schema --format markdown`; edit src/millstream/config/schema.py instead. -->

One file in YAML (or JSON or TOML, by its suffix), then variables, then flags; the later one wins:

```
millstream serve --config millstream.yaml
MILLSTREAM_MQTT__PORT=1884 millstream serve --config millstream.yaml
millstream serve --config millstream.yaml --set mqtt.port=1884
```

- `millstream config init` prints a file to start from, `config check` tests one, `config show` prints what is in
  effect and where it comes from, `config diff` compares two.
- An unknown key, a wrong value, a key that stands twice, a missing file, an unknown `MILLSTREAM_…` variable or a
  private file that everyone may read stops the start with exit code 2, before anything is opened.
- A variable is named after its key: `mqtt.port` is `MILLSTREAM_MQTT__PORT`. A single underscore does as well
  (`MILLSTREAM_MQTT_PORT`).
- Secrets never stand in the configuration: keys that end in `_file` name the file that holds them.
- A relative path in a file starts at the directory of that file.
- A size is a number of bytes or a text such as `64 KiB`, `1 MiB`, `10 MB`. A duration is a number in the unit of its
  key or a text such as `250ms`, `10s`, `5m`, `1h`, `7d`; `never` where a session or a will may live for ever.
- A listener beyond loopback must have authentication (`auth.password_file`, `auth.jwt`, or required client
  certificates taken as users), or `auth.allow_anonymous: true` must say that everyone may come in.
- "Live" keys take effect on reload; all others need a restart.
"""


def configuration_page() -> str:
    """The text of docs/configuration.md."""
    parts = [PAGE_HEAD]
    section: KeyPath | None = None
    for key in all_keys():
        if key.path[:-1] != section:
            section = key.path[:-1]
            parts.append(_section_head(section))
        parts.append(_row(key))
    return "".join(parts)


def _section_head(section: KeyPath) -> str:
    name = ".".join(section)
    title = f"## {name}\n\n{section_texts()[name]}\n" if section else "## Top level\n"
    return f"\n{title}\n| key | value | default | meaning |\n|---|---|---|---|\n"


def _row(key: Key) -> str:
    meaning = key.text + (" Live." if key.facts.get("live") else "")
    return f"| `{key.name}` | {_value_text(key)} | {_default_text(key)} | {_cell(meaning)} |\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _value_text(key: Key) -> str:
    if key.choices:
        text = ", ".join(f"`{choice}`" for choice in key.choices)
    else:
        text = key.kind
        unit = key.facts.get("unit")
        if key.kind in ("size", "duration"):
            text += f" ({unit})"
        minimum, maximum = key.facts.get("minimum"), key.facts.get("maximum")
        if minimum is not None or maximum is not None:
            text += f", {_number(minimum)} to {_number(maximum)}"
    return text + (", or `null`" if key.is_nullable else "")


def _number(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _default_text(key: Key) -> str:
    shown = key.facts.get("shown_default")
    if shown:
        return str(shown)
    if key.kind == "size" and isinstance(key.default, int):
        return f"`{readable_size(key.default)}`"
    return f"`{json.dumps(_plain(key.default), ensure_ascii=False)}`"


def _plain(value: object) -> object:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, tuple):
        return list(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def readable_size(size: int) -> str:
    for unit, factor in (("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024)):
        if size >= factor and size % factor == 0:
            return f"{size // factor} {unit}"
    return str(size)


def json_schema() -> dict[str, object]:
    """The JSON Schema (2020-12) of the file, for editors and other tools."""
    root = _object_schema("Configuration of Millstream.")
    for key in all_keys():
        place = root
        for depth, part in enumerate(key.path[:-1], start=1):
            place = _inner_schema(place, part, ".".join(key.path[:depth]))
        _properties(place)[key.path[-1]] = _key_schema(key)
    return {"$schema": SCHEMA_DIALECT, "title": "Millstream", **root}


def json_schema_text() -> str:
    """The text of docs/config.schema.json."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


def _object_schema(text: str) -> dict[str, object]:
    # A section without keys in it is null in YAML; loading takes it as empty.
    properties: dict[str, object] = {}
    return {
        "type": ["object", "null"],
        "description": text,
        "properties": properties,
        "additionalProperties": False,
    }


def _properties(place: dict[str, object]) -> dict[str, dict[str, object]]:
    properties = place["properties"]
    assert isinstance(properties, dict)
    return properties


def _inner_schema(place: dict[str, object], part: str, name: str) -> dict[str, object]:
    texts = section_texts()
    if part == ANY_NAME:
        inner = place["additionalProperties"]
        if not isinstance(inner, dict):
            inner = _object_schema("One account.")
            place["additionalProperties"] = inner
        return inner
    properties = _properties(place)
    if part not in properties:
        properties[part] = _object_schema(texts.get(name, texts.get(f"{name}.{ANY_NAME}", "")))
    return properties[part]


def _key_schema(key: Key) -> dict[str, object]:
    schema: dict[str, object] = {"description": key.text, "default": _plain(key.default)}
    if key.choices:
        numbers = key.path[-1] == "max_qos"
        choices: list[object] = [int(choice) if numbers else choice for choice in key.choices]
        if key.path[-1] == "inflight_overflow":
            choices += [0, 1]
        if key.is_nullable:
            choices.append(None)
        return {**schema, "enum": choices}
    forms = _value_forms(key)
    if key.is_nullable:
        forms.append({"type": "null"})
    return {**schema, **forms[0]} if len(forms) == 1 else {**schema, "anyOf": forms}


def _value_forms(key: Key) -> list[dict[str, object]]:
    bounds: dict[str, object] = {name: key.facts[name] for name in BOUND_NAMES if name in key.facts}
    if key.kind == "size":
        return [{"type": "integer", **bounds}, {"type": "string", "pattern": _pattern(SIZE_UNITS)}]
    if key.kind == "duration":
        number = "number" if isinstance(key.default, float) else "integer"
        pattern = _pattern(DURATION_UNITS_MS, also="never")
        return [{"type": number, **bounds}, {"type": "string", "pattern": pattern}]
    if key.kind == "list":
        return [{"type": "array", "items": {"type": "string"}}]
    names = {
        "switch": "boolean",
        "whole number": "integer",
        "number": "number",
        "text": "string",
        "path": "string",
    }
    return [{"type": names[key.kind], **bounds}]


def _pattern(units: dict[str, int], also: str = "") -> str:
    words = "|".join("".join(f"[{letter}{letter.upper()}]" for letter in unit) for unit in units if unit)
    quantity = rf"\d+(\.\d+)? ?({words})?"
    return f"^({quantity}|{also})$" if also else f"^{quantity}$"


def starting_file() -> str:
    """A YAML file with every key at its default, commented out, as `millstream config init` prints it."""
    lines = ["# Configuration of Millstream. Every key is at its default; take away the # to change one.", ""]
    section: KeyPath | None = None
    for key in all_keys():
        if ANY_NAME in key.path:
            continue
        if key.path[:-1] != section:
            section = key.path[:-1]
            lines += _section_lines(section)
        indent = "  " * len(section)
        lines.append(f"{indent}# {key.text}")
        lines.append(f"{indent}#{key.path[-1]}: {_default_written(key)}")
    lines += [
        "",
        "# Isolated topic spaces. The account `default` always exists.",
        "#accounts:",
        "#  plant: {}",
        "",
        "# Queues that are there from the start.",
        "#queues:",
        "#  orders: {kind: work, max_deliveries: 3}",
    ]
    return "\n".join(lines) + "\n"


def _default_written(key: Key) -> str:
    if key.kind == "duration" and key.default == NEVER_EXPIRES:
        return "never"
    if key.kind == "size" and isinstance(key.default, int):
        return readable_size(key.default)
    return json.dumps(_plain(key.default), ensure_ascii=False)


def _section_lines(section: KeyPath) -> list[str]:
    if not section:
        return []
    text = section_texts()[".".join(section)]
    indent = "  " * (len(section) - 1)
    return ["", f"{indent}# {text}", f"{indent}{section[-1]}:"]
