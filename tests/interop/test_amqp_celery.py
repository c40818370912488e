"""Celery: a real worker process runs tasks, retries, groups, chains and a chord, and a killed one loses nothing."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from amqp_names import unique
from celery import chord, group

pytest_plugins = ["amqp_broker"]

FOLDER = Path(__file__).parent
TIMEOUT_S = 40.0


def wait_until(is_so: Callable[[], bool], complaint: Callable[[], str]) -> None:
    """Another process: there is no event to wait for."""
    deadline = time.monotonic() + TIMEOUT_S
    while not is_so():
        assert time.monotonic() < deadline, complaint()
        time.sleep(0.02)


class Worker:
    """`celery worker` with this pool; `kill` ends all its processes as a power cut would."""

    def __init__(self, folder: Path, name: str, *options: str, backend: str = "") -> None:
        self.log_file = folder / f"{name}.log"
        self.name = f"{name}@test"
        command = [
            sys.executable,
            "-m",
            "celery",
            "-A",
            "celery_tasks",
            "worker",
            "-n",
            self.name,
            "-l",
            "INFO",
        ]
        environment = {**os.environ, "PYTHONPATH": str(FOLDER)}
        if backend:
            environment["CELERY_TEST_BACKEND"] = backend
        with self.log_file.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, *options],
                cwd=FOLDER,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def log(self) -> str:
        return self.log_file.read_text(encoding="utf-8", errors="replace")

    def wait_ready(self) -> None:
        wait_until(
            lambda: " ready." in self.log() or self._process.poll() is not None,
            lambda: f"the worker is not ready:\n{self.log()}",
        )
        assert self._process.poll() is None, self.log()

    def kill(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


@pytest.fixture(scope="module")
def tasks(amqp_port: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The task module as a producer imports it."""
    folder = tmp_path_factory.mktemp("celery")
    results = tmp_path_factory.mktemp("celery_results")
    settings = {
        "CELERY_TEST_FOLDER": str(folder),
        "CELERY_TEST_PREFIX": unique("celery"),
        "CELERY_TEST_URL": f"amqp://guest:guest@127.0.0.1:{amqp_port}//",
        "CELERY_TEST_BACKEND": f"celery_results:WholeFiles+file://{results}",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(name, value)
        module = importlib.import_module("celery_tasks")
        yield module
        del sys.modules["celery_tasks"]
        with module.app.connection() as connection:
            channel = connection.channel()
            channel.queue_delete(module.PREFIX)
            channel.exchange_delete(module.PREFIX)


@pytest.fixture(scope="module")
def worker(tasks: Any) -> Iterator[Worker]:
    worker = Worker(tasks.FOLDER, "first", "--pool", "threads", "--concurrency", "4")
    try:
        worker.wait_ready()
        yield worker
    finally:
        worker.kill()


@contextmanager
def solo_worker(tasks: Any, name: str, queue: str, backend: str = "") -> Iterator[Worker]:
    """A worker of one thread on this queue, which goes with it."""
    worker = Worker(tasks.FOLDER, name, "--pool", "solo", "-Q", queue, backend=backend)
    try:
        worker.wait_ready()
        yield worker
    finally:
        worker.kill()
        with tasks.app.connection() as connection:
            connection.channel().queue_delete(queue)


def result_of(pending: Any, worker: Worker) -> Any:
    try:
        return pending.get(timeout=TIMEOUT_S, interval=0.02)
    except TimeoutError:
        pytest.fail(f"no result:\n{worker.log()}")


def test_a_task_is_done(tasks: Any, worker: Worker) -> None:
    assert result_of(tasks.add.delay(2, 3), worker) == 5


def test_a_failed_task_tells_its_error(tasks: Any, worker: Worker) -> None:
    with pytest.raises(ValueError, match="as it should"):
        result_of(tasks.fail.delay(), worker)


def test_a_task_is_tried_again_until_it_succeeds(tasks: Any) -> None:
    """One thread: a try is sent before the state of the one before is stored, and two states could pass each other."""
    queue = f"{tasks.PREFIX}-tries"
    with solo_worker(tasks, "tries", queue) as worker:
        pending = tasks.succeed_at_last.apply_async((unique("tries"),), queue=queue)
        assert result_of(pending, worker) == 2


def test_a_task_waits_for_its_time(tasks: Any, worker: Worker) -> None:
    assert result_of(tasks.add.apply_async((1, 1), countdown=0.2), worker) == 2


def test_priorities_and_expiry_are_taken(tasks: Any, worker: Worker) -> None:
    pending = [tasks.add.apply_async((number, 0), priority=number, expires=300) for number in range(10)]
    assert [result_of(one, worker) for one in pending] == list(range(10))


def test_a_chain_hands_results_on(tasks: Any, worker: Worker) -> None:
    assert result_of((tasks.add.s(1, 2) | tasks.add.s(10) | tasks.add.s(100))(), worker) == 113


def test_a_chord_joins_its_group(tasks: Any, worker: Worker) -> None:
    header = group(tasks.add.s(number, number) for number in range(20))
    assert result_of(chord(header)(tasks.total.s()), worker) == 380


def test_many_tasks_are_done_once_each(tasks: Any, worker: Worker) -> None:
    pending = group(tasks.add.s(number, 1) for number in range(100)).apply_async()
    assert result_of(pending, worker) == list(range(1, 101))


def test_results_come_back_through_the_broker(tasks: Any, worker: Worker) -> None:
    """The rpc:// backend on the side of the worker: an answer to the queue of the asker."""
    queue = f"{tasks.PREFIX}-rpc"
    with solo_worker(tasks, "rpc", queue, backend="rpc://") as rpc_worker:
        app = type(tasks.app)("asker", broker=os.environ["CELERY_TEST_URL"], backend="rpc://")
        app.conf.task_queue_max_priority = tasks.app.conf.task_queue_max_priority
        pending = [app.send_task("celery_tasks.add", (number, 1), queue=queue) for number in range(5)]
        assert [result_of(one, rpc_worker) for one in pending] == [1, 2, 3, 4, 5]
        app.close()


def test_workers_answer_and_are_told_by_remote_control(tasks: Any, worker: Worker) -> None:
    control = tasks.app.control
    assert control.ping(destination=[worker.name], timeout=TIMEOUT_S, limit=1) == [
        {worker.name: {"ok": "pong"}}
    ]
    inspected = control.inspect([worker.name], timeout=TIMEOUT_S, limit=1)
    assert "celery_tasks.add" in inspected.registered()[worker.name]


def test_events_of_workers_are_heard(tasks: Any, worker: Worker) -> None:
    heard: list[str] = []
    with tasks.app.connection() as connection:
        receiver = tasks.app.events.Receiver(
            connection, handlers={"*": lambda event: heard.append(event["type"])}
        )
        consumer = receiver.itercapture(limit=None, timeout=TIMEOUT_S, wakeup=False)
        next(consumer)  # it listens from here on
        pending = tasks.add.delay(1, 2)
        for _ in consumer:
            if "task-succeeded" in heard:
                break
    assert result_of(pending, worker) == 3


def test_a_killed_worker_gives_its_task_to_the_next(tasks: Any) -> None:
    queue = f"{tasks.PREFIX}-late"
    name = unique("late")
    options = ("--pool", "solo", "-Q", queue, "--without-mingle", "--without-gossip")
    first = Worker(tasks.FOLDER, f"{name}-a", *options)
    second: Worker | None = None
    try:
        first.wait_ready()
        pending = tasks.survive.apply_async((name,), queue=queue)
        began = tasks.FOLDER / f"{name}-began"
        wait_until(began.exists, lambda: f"the task never began:\n{first.log()}")
        first.kill()
        second = Worker(tasks.FOLDER, f"{name}-b", *options)
        second.wait_ready()
        assert result_of(pending, second) == "done by the second"
    finally:
        first.kill()
        if second is not None:
            second.kill()
        with tasks.app.connection() as connection:
            connection.channel().queue_delete(queue)
