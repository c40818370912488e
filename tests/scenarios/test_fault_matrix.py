"""Every fault of the table, at the start, under load and after it: log lines, `$SYS`, status, what clients are told, exit codes
and messages are those of the table, and nothing that was confirmed is lost.

A part of the matrix runs here; all of it with FAULT_MATRIX=all (`./dev crash faults`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fault_world import (
    SETTINGS,
    Clients,
    FewDescriptorsBroker,
    Load,
    NoDescriptors,
    Planted,
    ReadOnlyFolder,
    ReadOnlyMount,
    RemovedFolder,
    SmallDisk,
    Trouble,
    fetch_all,
    publish_until_refused,
    wait_line,
    wait_service,
)
from service_table import BY_ITSELF, DOCUMENT, FAULTS, Fault, with_tables

from crash.broker import Broker
from crash.faulty import FULL, READ_ONLY, STALL, SYNC_ERROR

WAITS_S = 1.5  # a start that waits for its disk is looked at for so long
PATIENT = "storage.stall_timeout=30s"  # other suites may share the disk
DURING = (
    ("ENOSPC", "load"),
    ("EIO", "idle"),
    ("EMFILE", "load"),
    ("EMFILE", "idle"),
    ("stall", "load"),
    ("removed folder", "load"),
)
AT_START = ("EROFS", "EMFILE", "removed folder")
IS_WHOLE = os.environ.get("FAULT_MATRIX") == "all"
ALL_DURING = [(name, phase) for name in FAULTS for phase in ("load", "idle")]


def make_trouble(name: str, folder: Path) -> Trouble:
    planted = {"EIO": SYNC_ERROR, "EROFS": READ_ONLY, "stall": STALL}
    if name in planted:
        return Planted(folder, planted[name])
    if name == "ENOSPC":
        small = SmallDisk(folder)
        return small if small.is_mounted else Planted(folder, FULL)
    kinds = {"EMFILE": NoDescriptors, "read-only folder": ReadOnlyFolder, "removed folder": RemovedFolder}
    return kinds[name](folder)


class Stage:
    def __init__(self, name: str, folder: Path, trouble: Trouble | None = None) -> None:
        self.fault: Fault = FAULTS[name]
        self.trouble = trouble or make_trouble(name, folder)
        pace = () if name == "stall" else (PATIENT,)
        self.settings = (
            *SETTINGS,
            *pace,
        )
        self.folder = folder
        self.broker = self.make_broker(self.trouble.module)

    def make_broker(self, module: str, kind: type[Broker] = Broker) -> Broker:
        broker = kind(self.folder, self.settings, module)
        broker.data_dir = self.trouble.data_dir
        return broker

    def start(self) -> None:
        self.broker.start(self.trouble.environment)

    def close(self) -> None:
        self.broker.close()
        if isinstance(self.trouble, SmallDisk):
            self.trouble.close()


@pytest.fixture
def stages(tmp_path: Path) -> Iterator[list[Stage]]:
    made: list[Stage] = []
    yield made
    for stage in made:
        stage.close()


@pytest.mark.parametrize(("name", "phase"), ALL_DURING if IS_WHOLE else DURING)
def test_a_fault_while_the_broker_runs(stages: list[Stage], tmp_path: Path, name: str, phase: str) -> None:
    stage = Stage(name, tmp_path)
    stages.append(stage)
    fault, broker, trouble = stage.fault, stage.broker, stage.trouble
    service = fault.service
    stage.start()
    clients = Clients(broker)
    load = Load(clients)
    while len(clients.confirmed) < 60:
        time.sleep(0.01)  # threads of the test: there is no event to wait for
    if phase == "idle":
        load.stop()
    trouble.begin(broker)
    if phase == "load":
        load.wait()
        assert load.seen["mqtt5"] in (service.mqtt5_waiting, service.mqtt5)
        assert load.seen["mqtt3"] in (service.mqtt3_waiting, service.mqtt3)
        assert load.seen["amqp"] in (service.amqp_waiting, service.amqp)
    seen = clients.publish_until_refused()
    if "mqtt5_waiting" in seen:
        assert seen["mqtt5_waiting"] == service.mqtt5_waiting
    assert (seen["mqtt5"], seen["mqtt3"], seen["amqp"]) == (service.mqtt5, service.mqtt3, service.amqp)
    assert clients.publish_qos2() == service.mqtt5_qos2
    assert clients.declare() == service.declare
    assert clients.commit() == service.commit
    assert clients.publish_plain() == service.amqp_plain
    assert clients.is_live() == (service.live == "delivered")
    assert clients.has_next_record() == (service.queue == "delivered")
    assert clients.is_blocked() == (service.blocked == "connection.blocked")
    assert clients.try_connect() == service.connect
    status = clients.status()
    told = {each["condition"]: each for each in status["conditions"]}
    clients.wait_sys(*fault.conditions)
    for condition in fault.conditions:
        began = wait_line(broker, "condition_began", condition)
        assert began["advice"]
        assert began["meaning"]
        assert condition in told
    assert fault.cause in told[fault.conditions[0]]["cause"]
    assert status["status"] == ("degraded" if service.ends == BY_ITSELF else "failed")
    if phase == "idle":
        assert_stop(stage)
        trouble.end(broker)
    else:
        trouble.end(broker)
        if service.ends == BY_ITSELF:
            wait_service(broker)
            for condition in fault.conditions:
                assert "lasted_s" in wait_line(broker, "condition_ended", condition)
            assert broker.stop() == 0
        else:
            assert clients.publish(clients.mqtt5.pop(), b"kept/a") == service.mqtt5
            assert_stop(stage)
    assert_nothing_lost(stage, clients)


def test_the_document_shows_the_tables_that_are_compared() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert text == with_tables(text), "type: python tests/scenarios/service_table.py"


def assert_stop(stage: Stage) -> None:
    """SIGTERM in the middle of it: the last words are about the storage, not about a start or a port."""
    broker, fault = stage.broker, stage.fault
    assert broker.stop() == fault.stop
    said = broker.log()
    assert "The broker has stopped, and its storage had failed" in said
    assert fault.cause in said[said.index("The broker has stopped") :] or "does not answer" in said
    assert "cannot start" not in said
    assert "Traceback" not in said


def assert_nothing_lost(stage: Stage, clients: Clients) -> None:
    stage.broker.kill()
    stage.broker = stage.make_broker("millstream")
    stage.broker.starts = 10
    stage.start()
    assert fetch_all(stage.broker, clients.confirmed) == []


@pytest.mark.parametrize("name", list(FAULTS) if IS_WHOLE else AT_START)
def test_a_start_into_a_fault(stages: list[Stage], tmp_path: Path, name: str) -> None:
    mounted = ReadOnlyMount(tmp_path) if name == "EROFS" else None
    if mounted is not None and not mounted.is_mounted:
        pytest.skip("only root may mount a file system")
    stage = Stage(name, tmp_path, mounted)
    stages.append(stage)
    stage.start()
    clients = Clients(stage.broker)
    assert stage.broker.stop() == 0
    if name == "EMFILE":
        stage.broker = stage.make_broker("millstream", FewDescriptorsBroker)
        stage.broker.starts = 1
    else:
        stage.trouble.begin(stage.broker)
    broker = stage.broker
    broker.begin(stage.trouble.environment)
    wanted = stage.fault.start
    if wanted == "waits":
        time.sleep(WAITS_S)  # that it is not ready can only be seen by waiting
        assert broker.poll() is None
        assert not broker.is_ready()
        stage.trouble.end(broker)
        assert broker.wait_ready()
    elif wanted == "serves":
        assert broker.wait_ready()
        assert publish_until_refused(broker) == stage.fault.service.mqtt5
        assert wait_line(broker, "condition_began", stage.fault.conditions[0])
        stage.trouble.end(broker)
        wait_service(broker)
    else:
        assert not broker.wait_ready()
        assert f"exit {broker.poll()}" == wanted, broker.last_lines()
        said = broker.log()
        assert "The broker cannot start: " in said
        assert "next: " in said
        assert "Traceback" not in said
        if name != "EMFILE":
            stage.trouble.end(broker)
    assert_nothing_lost(stage, clients)
