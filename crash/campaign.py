"""A campaign: load, kill, restart, again and again; then everything is drained and judged."""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from pathlib import Path
from typing import Final

from crash.broker import Broker, BrokerFault
from crash.checker import Verdict, check
from crash.driver import Driver
from crash.workload import SETTINGS, Workload

LOAD_S: Final = (0.05, 0.8)  # how long after the load began the broker dies
LONG_LOAD_S: Final = (0.5, 4.0)  # where the last second may go with it: there must be more to see
JOIN_S: Final = 30.0
STALL_S: Final = 40.0  # longer than a delivery may stay with a consumer that says nothing
LAST_COUNT: Final = 10


class Result:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.kills = 0
        self.verdicts: dict[str, Verdict] = {}  # by path
        self.faults: list[str] = []
        self.start_s: list[float] = []
        self.cuts = 0
        self.refused = 0
        self.folder = Path()


class Campaign:
    """`module` is the broker to start, `kind` how that is done; `folder` is kept only when a promise was broken.

    What was confirmed within `window_s` before the end of a broker may be gone, in order from the newest back.
    """

    def __init__(
        self,
        paths: tuple[str, ...],
        kills: int,
        seed: int,
        module: str = "millstream",
        settings: tuple[str, ...] = (),
        folder: Path | None = None,
        stall_s: float = STALL_S,
        kind: type[Broker] = Broker,
        window_s: float = 0.0,
    ) -> None:
        self._paths = paths
        self._kills = kills
        self._stall_s = stall_s
        self._window_s = window_s
        self._chance = random.Random(seed)
        self.folder = folder or Path(tempfile.mkdtemp(prefix="crash-"))
        self.broker = kind(self.folder, (*SETTINGS, *settings), module)
        self.workload = Workload(paths)
        self.driver = Driver(self.workload.clients, self.workload.journals, self._chance)
        self.result = Result(seed)

    def run(self) -> Result:
        result = self.result
        result.folder = self.folder
        try:
            for _ in range(self._kills):
                self.run_round()
            self.finish()
        except BrokerFault as fault:
            result.faults.append(str(fault))
        finally:
            self.broker.close()
            self.driver.close()
        self._judge()
        if not result.faults:
            shutil.rmtree(self.folder, ignore_errors=True)  # a child of a killed broker may still write there
        return result

    def run_round(self) -> None:
        """One life of the broker."""
        self.come_up({})
        self.driver.run_load(self._chance.uniform(*(LONG_LOAD_S if self._window_s else LOAD_S)))
        self._expect(self.broker.poll() is None, "the broker ended by itself")
        self.go_down()

    def come_up(self, environment: dict[str, str]) -> None:
        """Started, every client on its way, publishers at work."""
        driver, workload = self.driver, self.workload
        is_first = self.broker.starts == 0
        self.broker.start(environment)
        driver.connect_all(self.broker.port, is_first)
        if is_first:
            self._expect(driver.run(workload.is_ready, JOIN_S), "clients could not join")
            driver.run(lambda: False, 2 * self._window_s)  # sessions and groups are to be there for good
            for publisher in workload.publishers:
                publisher.left = -1
                driver.connect(publisher)
        self._expect(driver.run(self._is_loading_or_dead, JOIN_S), "publishers could not connect")

    def go_down(self) -> None:
        since_s = time.monotonic() - self._window_s
        self.broker.kill()
        self.driver.read_out()
        if self._window_s:
            for journal in self.workload.journals:
                journal.note_power_cut(since_s)
        self.result.kills += 1

    def finish(self) -> None:
        """Everything that was promised is fetched; then once more after a last kill, which must change nothing."""
        workload = self.workload
        workload.be_patient()
        for publisher in workload.publishers:
            publisher.left = 0
        self._drain()
        self.go_down()
        workload.add_latecomer()
        for publisher in workload.publishers:
            publisher.left = LAST_COUNT
        self._drain()
        if self.broker.stop() != 0:
            raise BrokerFault(f"the broker did not stop in order:\n{self.broker.last_lines()}")

    def _drain(self) -> None:
        self.broker.start()
        self.driver.connect_all(self.broker.port, False)
        self.driver.run(self.workload.is_complete, self._stall_s, is_stall=True)
        self._expect(self.broker.poll() is None, "the broker ended by itself")

    def _is_loading_or_dead(self) -> bool:
        return self.workload.is_loading() or self.broker.poll() is not None

    def _expect(self, is_true: bool, text: str) -> None:
        if not is_true:
            raise BrokerFault(f"{text}:\n{self.broker.last_lines()}")

    def _judge(self) -> None:
        result = self.result
        result.start_s = self.broker.start_s
        for journal in self.workload.journals:
            verdict = result.verdicts.setdefault(journal.path, Verdict(journal.path))
            verdict.add(check(journal))
            result.cuts += journal.cuts
            result.refused += journal.refused
        for verdict in result.verdicts.values():
            result.faults += verdict.faults
