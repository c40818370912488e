"""The shape STYLE asks of the source tree, checked on the tree itself."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "millstream"
FILES = sorted(SOURCE.rglob("*.py"))

FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 60

# What may be longer, and why. Keep it short: a long function usually misses a word.
LONG_FILES: dict[str, str] = {}
LONG_FUNCTIONS: dict[str, str] = {}

BANNED_MODULE_NAMES = {"utils", "util", "helpers", "helper", "common", "base", "misc"}

# Names that were replaced by the words of the field, and what to write instead.
RETIRED_NAMES = {
    "Agenda": "Scheduler",
    "AlikeReceived": "PublishBatchReceived",
    "Burst": "MessageBatch",
    "Desk": "AdminContext",
    "Directions": "PublishOptions",
    "Footprint": "QueueSize",
    "Getters": "WaitingGets",
    "Gone": "SettledBytes",
    "Holds": "PendingDeliveries",
    "Returned": "RedeliveryQueue",
    "Rounds": "GroupRounds",
    "Span": "ReadAhead",
    "Specials": "DelayedMessages",
    "Tail": "Memtable",
    "Transit": "UnsyncedRecords",
    "Turns": "ConsumerRotation",
    "Wish": "ConsumeRequest, ReadRequest",
    "agenda": "scheduler",
    "bury": "dead_letter",
    "carry_amqp": "encode_native_properties",
    "come_back": "reschedule",
    "footprint": "size",
    "is_brimming": "is_outbox_full",
    "is_sated": "is_prefetch_exhausted",
    "is_stuffed": "is_send_buffer_full",
    "unsure": "maybe_delivered_below",
    "wish": "request, commit",
}

# Only these may see the outside world (STYLE section 3).
OUTER_NAMES = {
    "__main__",
    "admin",
    "app",
    "batches",
    "cli",
    "client",
    "commands",
    "config",
    "maintenance",
    "reader",
    "runtime",
}
IMPURE_MODULES = {"asyncio", "os", "random", "socket", "ssl", "threading", "time"}
IMPURE_KIN = {
    "concurrent",
    "multiprocessing",
    "secrets",
    "select",
    "selectors",
    "signal",
    "subprocess",
    "uuid",
}
IMPURE_ALLOWED = {
    "security/users.py: secrets": "the salt of a new password must not be foreseeable; no simulated run adds users",
}

# A folder of somebody's machine, written into a file that travels. Documented defaults are not meant.
MACHINE_PATH = re.compile(r"/(?:home|Users|root|tmp|work)/[A-Za-z0-9_.-]")
SHIPPED = (
    "src",
    "spark",
    "tests",
    "fuzz",
    "simulation",
    "crash",
    "benchmarks",
    "examples",
    "docs",
    "changes",
    ".ci",
)
CODE_SUFFIXES = {".py", ".js", ".mjs", ".rb", ".c", ".h", ".sh", ""}
SHIPPED_SUFFIXES = CODE_SUFFIXES | {".md", ".toml", ".yaml", ".yml", ".json"}


def name_of(file: Path) -> str:
    return file.relative_to(SOURCE).as_posix()


def top_name(file: Path) -> str:
    return file.relative_to(SOURCE).parts[0].removesuffix(".py")


def tree_of(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"), filename=str(file))


def functions_of(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """(qualified name, lines) of every function; the docstring is not counted: it explains, it does not do."""

    def visit(node: ast.AST, prefix: str) -> Iterator[tuple[str, int]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (child.end_lineno or child.lineno) - child.lineno + 1
                first = child.body[0]
                if ast.get_docstring(child) is not None:
                    lines -= (first.end_lineno or first.lineno) - first.lineno + 1
                yield prefix + child.name, lines
                yield from visit(child, f"{prefix}{child.name}.")
            elif isinstance(child, ast.ClassDef):
                yield from visit(child, f"{prefix}{child.name}.")
            else:
                yield from visit(child, prefix)

    return visit(tree, "")


def imports_of(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: relative import; write the whole name"
            module = node.module or ""
            yield from (f"{module}.{alias.name}" for alias in node.names)


def test_no_file_is_longer_than_a_reader_can_hold() -> None:
    too_long = {
        name_of(file): count
        for file in FILES
        if (count := len(file.read_text(encoding="utf-8").splitlines())) > FILE_LINES_MAX
        and name_of(file) not in LONG_FILES
    }
    assert not too_long


def names_in(tree: ast.Module) -> Iterator[str]:
    """Every name that the code gives or uses; prose is not meant."""
    for node in ast.walk(tree):
        for field in ("id", "attr", "name", "arg"):
            value = getattr(node, field, None)
            if isinstance(value, str):
                yield value


def test_no_name_is_one_that_was_replaced_by_the_word_of_the_field() -> None:
    found = {
        f"{name_of(file)}: {name} (write {RETIRED_NAMES[name]})"
        for file in FILES
        for name in names_in(ast.parse(file.read_text(encoding="utf-8")))
        if name in RETIRED_NAMES
    }
    assert not found


def test_no_function_is_longer_than_a_screen() -> None:
    too_long = {
        f"{name_of(file)}:{name}": lines
        for file in FILES
        for name, lines in functions_of(tree_of(file))
        if lines > FUNCTION_LINES_MAX and f"{name_of(file)}:{name}" not in LONG_FUNCTIONS
    }
    assert not too_long


def test_the_lists_of_exceptions_name_only_what_still_needs_one() -> None:
    lines = {name_of(file): len(file.read_text(encoding="utf-8").splitlines()) for file in FILES}
    functions = {
        f"{name_of(file)}:{name}": count for file in FILES for name, count in functions_of(tree_of(file))
    }
    stale = [name for name in LONG_FILES if lines.get(name, 0) <= FILE_LINES_MAX]
    stale += [name for name in LONG_FUNCTIONS if functions.get(name, 0) <= FUNCTION_LINES_MAX]
    assert not stale


@pytest.mark.parametrize("file", [f for f in FILES if f.name == "__init__.py"], ids=name_of)
def test_a_package_file_holds_a_docstring_and_nothing_else(file: Path) -> None:
    tree = tree_of(file)
    assert ast.get_docstring(tree)
    assert len(tree.body) == 1


def test_every_module_says_what_it_is_for() -> None:
    silent = [name_of(file) for file in FILES if not ast.get_docstring(tree_of(file))]
    assert not silent


def test_every_folder_of_modules_is_a_package() -> None:
    missing = {name_of(file.parent) for file in FILES if not (file.parent / "__init__.py").exists()}
    assert not missing


def test_no_module_has_a_name_that_says_nothing() -> None:
    vague = [
        name_of(file)
        for file in FILES
        if BANNED_MODULE_NAMES & {part.removesuffix(".py") for part in file.relative_to(SOURCE).parts}
    ]
    assert not vague


def test_the_core_imports_nothing_that_has_a_clock_chance_or_a_socket() -> None:
    impure = {
        f"{name_of(file)}: {name.partition('.')[0]}"
        for file in FILES
        if top_name(file) not in OUTER_NAMES
        for name in imports_of(tree_of(file))
        if name.partition(".")[0] in IMPURE_MODULES | IMPURE_KIN
    }
    assert impure == set(IMPURE_ALLOWED)


def test_machines_and_wire_formats_import_the_model_and_their_own_protocol_only() -> None:
    strangers = set()
    for file in FILES:
        parts = file.relative_to(SOURCE).parts
        if parts[0] != "protocols" or len(parts) < 4 or parts[2] not in ("machine", "wire"):
            continue
        own = f"millstream.protocols.{parts[1]}"
        allowed = ("millstream.model.", f"{own}.wire.", f"{own}.machine.")
        strangers |= {
            f"{name_of(file)}: {name}"
            for name in imports_of(tree_of(file))
            if name.startswith("millstream.") and not f"{name}.".startswith(allowed)
        }
    assert not strangers


def test_the_import_contract_names_every_pure_package() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        contracts = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    pure = next(contract for contract in contracts if contract["name"].startswith("The core is pure"))
    expected = {f"millstream.{top_name(file)}" for file in FILES} - {"millstream.__init__"}
    expected -= {f"millstream.{name}" for name in OUTER_NAMES}
    assert set(pure["source_modules"]) == expected
    assert set(pure["forbidden_modules"]) == IMPURE_MODULES


def shipped_files() -> Iterator[Path]:
    for path in ROOT.iterdir():
        if path.is_file() and path.suffix in SHIPPED_SUFFIXES and path.name != ".git":  # of a worktree
            yield path
    for name in SHIPPED:
        for path in (ROOT / name).rglob("*"):
            generated = {"node_modules", "__pycache__", ".build"} & set(path.parts)
            if path.is_file() and path.suffix in SHIPPED_SUFFIXES and not generated:
                yield path


def test_no_file_names_a_folder_of_one_machine() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in shipped_files()
        if path != Path(__file__)
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1)
        if MACHINE_PATH.search(line)
    ]
    assert not found


def test_test_files_have_names_of_their_own() -> None:
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))
