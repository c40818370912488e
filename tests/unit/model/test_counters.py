from __future__ import annotations

from millstream.model.counters import Counters


def test_the_snapshot_names_every_counter_with_its_own_value() -> None:
    counters = Counters()
    names = sorted(counters.snapshot())
    for number, name in enumerate(names, 1):
        setattr(counters, name, number)
    assert counters.snapshot() == {name: number for number, name in enumerate(names, 1)}
    public = {name for name in dir(counters) if not name.startswith("_") and name != "snapshot"}
    assert public == set(names)
