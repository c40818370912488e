"""The crash harness finds the failpoints in the source by itself."""

from __future__ import annotations

from crash.failpoints import find_names


def test_the_failpoints_of_log_and_checkpoint_are_found() -> None:
    names = find_names()
    assert {"log.before_write", "log.after_sync", "checkpoint.before_commit", "segment.after_write"} <= set(
        names
    )
    assert names == sorted(set(names))
    assert len(names) >= 30
