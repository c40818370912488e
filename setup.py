"""Compiles the core with mypyc. All other settings stand in pyproject.toml.

The same source runs interpreted: MILLSTREAM_NO_COMPILE=1 builds a pure Python wheel, and so does a machine without
a C compiler. `millstream serve` says at start which one it is.
`python setup.py list-compiled` prints the files that are compiled, one a line (`./dev` hashes them).
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from pathlib import Path

from setuptools import setup

PACKAGE = Path("src/millstream")

# The pure layers of ARCHITECTURE.md, whole; and of the rest what is on the path of every byte and batch, or reads whole files.
COMPILED_PACKAGES = ("model", "routing", "security", "storage", "queues", "broker", "cluster", "protocols")
COMPILED_FILES = (
    "maintenance/backup_check.py",
    "maintenance/backup_manifest.py",
    "maintenance/backup_plan.py",
    "runtime/transport/address_counts.py",
    "runtime/transport/deadlines.py",
    "runtime/disk/files.py",
    "runtime/disk/failpoints.py",
    "runtime/disk/folder_watch.py",
    "runtime/transport/gate.py",
    "runtime/transport/intake.py",
    "runtime/disk/kernel_sync.py",
    "runtime/disk/log_thread.py",
    "runtime/loop/clock.py",
    "runtime/loop/short_timer.py",
    "runtime/transport/tcp.py",
    "runtime/transport/link.py",
    "runtime/transport/growth.py",
    "runtime/transport/receive_buffer.py",
    "runtime/loop/turn.py",
    "runtime/loop/wakeup.py",
)

# What stays interpreted, and why.
EXCLUDED: dict[str, str] = {}

# One C file for the whole group: calls between our modules become direct C calls the compiler may inline.
GROUP_NAME = "millstream"
OPTIMISATION = "3"

# Strictness is `./dev check`'s business; a wheel must also build where the libraries are not installed.
MYPY_OPTIONS = ["--config-file=", "--ignore-missing-imports", "--python-version=3.11"]


def compiled_files() -> list[str]:
    """Every file to compile, sorted, so that two builds of one tree are equal."""
    found = [file for name in COMPILED_PACKAGES for file in (PACKAGE / name).rglob("*.py")]
    found += [PACKAGE / name for name in COMPILED_FILES if (PACKAGE / name).exists()]
    kept = {
        file.as_posix()
        for file in found
        # __init__.py holds a docstring and nothing else: nothing to compile.
        if file.name != "__init__.py" and file.relative_to(PACKAGE).as_posix() not in EXCLUDED
    }
    return sorted(kept)


def can_compile() -> bool:
    compiler = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    has_headers = (Path(sysconfig.get_path("include")) / "Python.h").exists()
    return has_headers and shutil.which(compiler.split()[0]) is not None


def extensions() -> list[object]:
    if os.environ.get("MILLSTREAM_NO_COMPILE") == "1":
        return []
    if not can_compile():
        sys.stderr.write("no C compiler with Python headers: building millstream interpreted\n")
        return []
    from mypyc.build import mypycify

    os.environ.setdefault("MYPYPATH", "src")
    made = mypycify(
        [*MYPY_OPTIONS, *compiled_files()],
        opt_level=OPTIMISATION,
        debug_level="0",
        group_name=GROUP_NAME,
        strip_asserts=False,
    )
    for extension in made:
        # Without them every function could be replaced by another library's: none is inlined and each call takes a detour.
        extension.extra_compile_args += ["-fvisibility=hidden", "-fno-semantic-interposition"]
        # In a file of 750 000 lines, looking for misleading indentation is half of gcc's work.
        extension.extra_compile_args.append("-Wno-misleading-indentation")
    return list(made)


if __name__ == "__main__":
    if sys.argv[1:] == ["list-compiled"]:
        sys.stdout.write("\n".join(compiled_files()) + "\n")
    else:
        setup(ext_modules=extensions())
