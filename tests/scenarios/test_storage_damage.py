"""Whatever happens to a file of the data directory: it is found and named, no wrong payload comes out, and a repair works.

A sample of `./dev crash damage`: the files of each kind, and one harm of each."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from campaign_apart import run_apart

CASES = 9


def run_sample(seed: int, folder: Path) -> list[str]:
    from crash.damage_harm import kind_of
    from crash.damage_run import Campaign  # imports a broker as a whole: only where it is forked

    campaign = Campaign(folder, seed, fills_log=False)
    campaign.prepare()
    chosen = {}
    for case in campaign.choose(1000):
        is_worth = kind_of(case.name) not in ("lock", "checkpoint.lock", "backup.lock")
        if is_worth and len(chosen) < CASES:
            chosen.setdefault((kind_of(case.name), case.harm), case)
    verdicts = campaign.run(list(chosen.values()), 2)
    assert len(verdicts) == CASES
    return [f"{verdict.case.title()}: {text}" for verdict in verdicts for text in verdict.broken]


@pytest.mark.timeout(300)
def test_damage_of_any_file_is_named_by_start_and_verify_and_brings_no_wrong_payload(tmp_path: Path) -> None:
    seed = random.randrange(1 << 31)
    assert run_apart(run_sample, seed, tmp_path) == [], f"seed {seed}"
