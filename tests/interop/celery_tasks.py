"""The Celery application of test_amqp_celery.py; its worker is a process of its own, told by the environment where to work."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from celery import Celery

FOLDER = Path(os.environ["CELERY_TEST_FOLDER"])
PREFIX = os.environ["CELERY_TEST_PREFIX"]
WAIT_S = 60.0

app = Celery("interop", broker=os.environ["CELERY_TEST_URL"], backend=os.environ["CELERY_TEST_BACKEND"])
app.conf.update(
    task_default_queue=PREFIX,
    task_default_exchange=PREFIX,
    event_queue_prefix=PREFIX,
    control_exchange=f"{PREFIX}-control",
    worker_send_task_events=True,
    task_send_sent_event=True,
    task_queue_max_priority=9,
    worker_prefetch_multiplier=1,
    broker_connection_retry_on_startup=False,
    broker_transport_options={"confirm_publish": True},
    result_chord_retry_interval=0.05,
    result_expires=600,
)


@app.task
def add(x: int, y: int) -> int:
    return x + y


@app.task
def total(numbers: list[int]) -> int:
    return sum(numbers)


@app.task
def fail() -> None:
    raise ValueError("as it should")


@app.task(bind=True, max_retries=3)
def succeed_at_last(self: Any, name: str) -> int:
    """Fails twice."""
    file = FOLDER / name
    with file.open("a", encoding="utf-8") as tries:
        tries.write("x")
    if file.stat().st_size < 3:
        raise self.retry(countdown=0)
    return int(self.request.retries)


@app.task(acks_late=True, reject_on_worker_lost=True)
def survive(name: str) -> str:
    """The first worker hangs here until it is killed; the second goes through."""
    began = FOLDER / f"{name}-began"
    is_second = began.exists()
    began.write_text(str(os.getpid()), encoding="utf-8")
    deadline = time.monotonic() + WAIT_S
    while not is_second and time.monotonic() < deadline:
        time.sleep(0.05)
    return "done by the second"
