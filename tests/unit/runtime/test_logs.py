from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator

import pytest
import structlog

from millstream.runtime.logs import EVENTS_REMEMBERED_MAX, Logs, RepeatLimit, configure_logs


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_is_json_where_nobody_looks_on() -> None:
    stream = io.StringIO()
    configure_logs("info", "auto", stream=stream)
    structlog.get_logger("millstream").info("listening", host="127.0.0.1", port=1883)
    [line] = lines(stream)
    assert (line["event"], line["level"], line["host"], line["port"]) == (
        "listening",
        "info",
        "127.0.0.1",
        1883,
    )
    assert str(line["time"]).endswith("Z")


def test_a_terminal_gets_text() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    configure_logs("info", "auto", stream=stream)
    structlog.get_logger().warning("client_refused", client="a b")
    assert "client_refused" in stream.getvalue()
    assert 'client="a b"' in stream.getvalue()
    assert "\x1b[33m" in stream.getvalue()


def test_lines_below_the_level_are_not_written_and_the_level_can_change() -> None:
    stream = io.StringIO()
    logs = configure_logs("warning", "json", stream=stream)
    log = structlog.get_logger().bind(listener="mqtt")
    log.info("one")
    logs.set_level("debug")
    log.debug("two")
    logs.set_level("error")
    log.warning("three")
    assert [line["event"] for line in lines(stream)] == ["two"]


@pytest.mark.parametrize("form", ["json", "text"])
def test_secrets_are_redacted_wherever_they_stand(form: str) -> None:
    stream = io.StringIO()
    configure_logs("info", form, stream=stream)
    structlog.get_logger().info(
        "connect",
        password="CANARY",
        client_secret=b"CANARY",
        access_token=["CANARY"],
        nested={"Authorization": "CANARY", "list": [{"passwd": "CANARY"}]},
        url="mqtt://alice:CANARY@broker.example/x",
        has_password=True,
    )
    text = stream.getvalue()
    assert "CANARY" not in text
    assert "***" in text
    assert "alice" in text


@pytest.mark.parametrize("form", ["json", "text"])
def test_a_value_cannot_forge_a_line(form: str) -> None:
    stream = io.StringIO()
    configure_logs("info", form, stream=stream)
    structlog.get_logger().info("connect", client='x\n{"event": "forged"}\r\x1b[31m', raw=b"\n\xff")
    assert stream.getvalue().count("\n") == 1
    assert "\x1b" not in stream.getvalue()
    assert "\r" not in stream.getvalue()


def test_repeated_events_are_limited_and_counted() -> None:
    now = [0.0]
    stream = io.StringIO()
    repeats = RepeatLimit(10, 2, clock=lambda: now[0])
    Logs("info", as_json=True, stream=stream, repeats=repeats).install()
    log = structlog.get_logger()
    for _ in range(5):
        log.info("refused")
        log.info("other")
        now[0] += 1
    now[0] = 11
    log.info("refused")
    now[0] = 30
    log.info("refused")
    written = [line for line in lines(stream) if line["event"] == "refused"]
    assert [line.get("left_out") for line in written] == [None, None, 3, None]


def test_lines_below_the_level_do_not_use_up_the_limit() -> None:
    stream = io.StringIO()
    repeats = RepeatLimit(10, 1, clock=lambda: 0.0)
    Logs("info", as_json=True, stream=stream, repeats=repeats).install()
    structlog.get_logger().debug("event")
    structlog.get_logger().info("event")
    assert len(lines(stream)) == 1


def test_an_interval_of_zero_writes_all() -> None:
    stream = io.StringIO()
    configure_logs("info", "json", repeat_interval_s=0, repeat_burst=1, stream=stream)
    for _ in range(50):
        structlog.get_logger().info("refused")
    assert len(lines(stream)) == 50


def test_the_memory_of_repeated_events_is_bounded() -> None:
    repeats = RepeatLimit(10, 1, clock=lambda: 0.0)
    for number in range(EVENTS_REMEMBERED_MAX + 100):
        repeats(None, "info", {"event": f"event {number}"})
    assert len(repeats._windows) == EVENTS_REMEMBERED_MAX


def test_an_exception_is_one_sentence_unless_somebody_is_debugging() -> None:
    stream = io.StringIO()
    logs = configure_logs("info", "json", stream=stream)
    for level in ("info", "debug"):
        logs.set_level(level)
        try:
            raise ValueError("no such thing")
        except ValueError:
            structlog.get_logger().exception("broken")
    short, long = lines(stream)
    assert short["error"] == "ValueError: no such thing"
    assert "exception" not in short
    assert re.fullmatch(r"test_logs\.py:\d+ test_an_exception_is_one_sentence\w+", str(short["where"]))
    assert "Traceback" in str(long["exception"])


def test_an_exception_object_can_be_handed_over() -> None:
    stream = io.StringIO()
    configure_logs("info", "json", stream=stream)
    structlog.get_logger().error("broken", exc_info=OSError("disk"))
    [line] = lines(stream)
    assert line["error"] == "OSError: disk"
    assert "where" not in line, "it was never raised"


def test_what_libraries_say_has_the_same_form() -> None:
    stream = io.StringIO()
    configure_logs("info", "json", stream=stream)
    logging.getLogger("asyncio").error("task %s failed", 7)
    logging.getLogger("asyncio").info("chatter")
    [line] = lines(stream)
    assert (line["event"], line["library"], line["text"]) == ("library_message", "asyncio", "task 7 failed")


def test_a_log_that_cannot_be_written_does_not_stop_the_work() -> None:
    class Gone(io.StringIO):
        def write(self, _text: str) -> int:
            raise BrokenPipeError

    configure_logs("info", "json", stream=Gone())
    structlog.get_logger().info("ready")
    closed = io.StringIO()
    configure_logs("info", "json", stream=closed)
    closed.close()
    structlog.get_logger().info("ready")
