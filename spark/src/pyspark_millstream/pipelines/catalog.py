"""The pipelines there are: those of this package by name, and files that were copied from them by path.

`python -m pyspark_millstream.pipelines.catalog` prints them as JSON.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from pyspark_millstream.errors import OptionError
from pyspark_millstream.pipelines.setting import Setting

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

NAMES = ("lake", "rollup", "alert", "audit", "replay")
PACKAGE = "pyspark_millstream.pipelines"


@dataclass(frozen=True)
class Pipeline:
    name: str
    summary: str
    settings: Mapping[str, Setting]
    build: Callable[[SparkSession, Mapping[str, str]], list[StreamingQuery] | None]
    file: Path

    def settings_from(self, given: Mapping[str, str], run_folder: str = ".") -> dict[str, str]:
        """Every setting with its value; OptionError names the first that is unknown or missing."""
        for name in given:
            if name not in self.settings:
                nearest = difflib.get_close_matches(name, self.settings, n=1)
                known = (
                    f"Did you mean `{nearest[0]}`?" if nearest else f"There are {', '.join(self.settings)}."
                )
                raise OptionError(f"{self.name} has no setting `{name}`", known)
        defaults = {name: one.default.replace("{run}", run_folder) for name, one in self.settings.items()}
        chosen = {**defaults, **given}
        for name, setting in self.settings.items():
            if setting.is_required and not chosen[name].strip():
                raise OptionError(
                    f"{self.name} needs the setting `{name}`: {setting.help}", f"Add --set {name}=…"
                )
        return chosen

    def described(self) -> dict[str, object]:
        settings = [
            {"name": name, "default": one.default, "is_required": one.is_required, "help": one.help}
            for name, one in self.settings.items()
        ]
        return {"name": self.name, "summary": self.summary, "file": str(self.file), "settings": settings}


def find(name: str) -> Pipeline:
    """A pipeline of this package, or that of a file whose path ends in .py."""
    if name.endswith(".py"):
        return _pipeline_of(_load_file(Path(name)), name)
    if name not in NAMES:
        raise OptionError(
            f"there is no pipeline `{name}`", f"There are {', '.join(NAMES)}, or give a file: ./my.py."
        )
    return _pipeline_of(importlib.import_module(f"{PACKAGE}.{name}"), name)


def parse_pairs(pairs: Iterable[str]) -> dict[str, str]:
    """`window=5 minutes` and the like, as a mapping."""
    settings = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise OptionError(f"`{pair}` is no setting", "Write NAME=VALUE.")
        settings[name.strip()] = value
    return settings


def _load_file(file: Path) -> ModuleType:
    if not file.is_file():
        raise OptionError(f"there is no file {file}", "Make one with: millstream pipeline init FOLDER")
    name = f"millstream_pipeline_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]  # executors do not have this file
    return module


def _pipeline_of(module: ModuleType, name: str) -> Pipeline:
    missing = [part for part in ("NAME", "SUMMARY", "SETTINGS", "build") if not hasattr(module, part)]
    if missing:
        raise OptionError(
            f"{name} is no pipeline: it has no {missing[0]}", "Copy one with: millstream pipeline init"
        )
    return Pipeline(module.NAME, module.SUMMARY, module.SETTINGS, module.build, Path(str(module.__file__)))


def main() -> int:
    sys.stdout.write(json.dumps([find(name).described() for name in NAMES]) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
