"""The list of all keys, read off the schema: what loading, the reference and the difference work with."""

from __future__ import annotations

import difflib
import typing
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from types import UnionType
from typing import Final, Literal

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from millstream.config.amqp import AmqpPolicy
from millstream.config.named import Account, QueueSettings
from millstream.config.quotas import UserQuota
from millstream.config.schema import Config
from millstream.config.section import facts_of

ANY_NAME: Final = "<name>"
ENVIRONMENT_PREFIX: Final = "MILLSTREAM_"

KeyPath = tuple[str, ...]

# sections that are there once per name
NAMED: Final[dict[KeyPath, type[BaseModel]]] = {
    ("accounts",): Account,
    ("queues",): QueueSettings,
    ("user_quotas", "users"): UserQuota,
    ("amqp", "policies"): AmqpPolicy,
}


@dataclass(frozen=True)
class Key:
    """One key of the schema. `accounts.<name>.…` stands for every account, and so on."""

    path: KeyPath
    text: str
    default: object
    kind: str
    choices: tuple[str, ...]
    is_nullable: bool
    facts: dict[str, object]

    @property
    def name(self) -> str:
        return ".".join(self.path)

    @property
    def variable(self) -> str:
        return ENVIRONMENT_PREFIX + "__".join(self.path).upper()


def to_known(path: KeyPath) -> KeyPath:
    """The path of the key in the schema: a chosen name stands for any."""
    for named in NAMED:
        if path[: len(named)] == named and len(path) > len(named) + 1:
            return (*named, ANY_NAME, *path[len(named) + 1 :])
    return path


@cache
def all_keys() -> tuple[Key, ...]:
    return tuple(_keys_of(Config, ()))


@cache
def section_texts() -> dict[str, str]:
    """The description of every section by its dotted name."""
    return dict(_sections_of(Config, ()))


def section_of(path: KeyPath) -> type[BaseModel] | None:
    """The section class at `path`, None if there is a plain key or nothing at all."""
    section: type[BaseModel] = Config
    for index, part in enumerate(path):
        named = NAMED.get(path[:index])
        if named is not None:
            section = named
            continue
        field = section.model_fields.get(part)
        if field is None:
            return None
        if path[: index + 1] in NAMED:
            if len(path) == index + 1:
                return None
            continue
        inner = field.annotation
        if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
            return None
        section = inner
    return section


def nearest_key(path: KeyPath) -> str | None:
    """The key somebody most likely meant: first among its neighbours, then anywhere by its last part."""
    wanted = path[-1].lower().replace("-", "_")
    neighbours = section_of(path[:-1])
    if neighbours is not None:
        close = difflib.get_close_matches(wanted, list(neighbours.model_fields), n=1, cutoff=0.7)
        if close:
            return ".".join((*path[:-1], close[0]))
    names = [key.name for key in all_keys()]
    same_end = [key.name for key in all_keys() if key.path[-1] == wanted]
    if same_end:
        return difflib.get_close_matches(".".join(path), same_end, n=1, cutoff=0.0)[0]
    return nearest(".".join(path).lower().replace("-", "_"), names)


def nearest(word: str, words: Iterable[str], cutoff: float = 0.6) -> str | None:
    close = difflib.get_close_matches(word, list(words), n=1, cutoff=cutoff)
    return close[0] if close else None


def _keys_of(section: type[BaseModel], path: KeyPath) -> list[Key]:
    """Plain keys first, so that each section is one run of keys."""
    plain: list[Key] = []
    nested: list[Key] = []
    for name, field in section.model_fields.items():
        inner = field.annotation
        named = NAMED.get((*path, name))
        if named is not None:
            nested += _keys_of(named, (*path, name, ANY_NAME))
        elif isinstance(inner, type) and issubclass(inner, BaseModel):
            nested += _keys_of(inner, (*path, name))
        else:
            plain.append(_key_of(section, (*path, name), field))
    return plain + nested


def _sections_of(section: type[BaseModel], path: KeyPath) -> list[tuple[str, str]]:
    texts: list[tuple[str, str]] = []
    for name, field in section.model_fields.items():
        inner = field.annotation
        if (*path, name) in NAMED:
            texts.append((".".join((*path, name, ANY_NAME)), field.description or ""))
            texts += _sections_of(NAMED[(*path, name)], (*path, name, ANY_NAME))
        elif isinstance(inner, type) and issubclass(inner, BaseModel):
            texts.append((".".join((*path, name)), field.description or ""))
            texts += _sections_of(inner, (*path, name))
    return texts


def _key_of(section: type[BaseModel], path: KeyPath, field: FieldInfo) -> Key:
    facts = facts_of(section, path[-1])
    inner = field.annotation
    members = typing.get_args(inner) if _is_union(inner) else (inner,)
    choices: tuple[str, ...] = ()
    kind = ""
    for member in members:
        if typing.get_origin(member) is Literal:
            choices = tuple(str(choice) for choice in typing.get_args(member))
            kind = "choice"
        elif member is not type(None):
            kind = _kind_of(member, str(facts.get("unit", "")))
    return Key(path, field.description or "", field.default, kind, choices, type(None) in members, facts)


def _is_union(inner: object) -> bool:
    return typing.get_origin(inner) in (UnionType, typing.Union)


def _kind_of(member: object, unit: str) -> str:
    if unit == "bytes":
        return "size"
    if unit in ("seconds", "milliseconds"):
        return "duration"
    if typing.get_origin(member) is tuple:
        return "list"
    names = {"bool": "switch", "int": "whole number", "float": "number", "str": "text", "Path": "path"}
    return names[getattr(member, "__name__", "")]
