from __future__ import annotations

import platform

from millstream.runtime.memory.allocator import keep_freed_memory


def test_glibc_takes_the_settings_and_taking_them_twice_is_harmless() -> None:
    has_glibc = platform.libc_ver()[0] == "glibc"
    assert keep_freed_memory() == has_glibc
    assert keep_freed_memory() == has_glibc
