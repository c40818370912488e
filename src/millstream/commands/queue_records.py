"""`millstream queue peek | move | publish | consume`: the records in queues."""

from __future__ import annotations

import base64
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Final, cast

import typer

from millstream.commands.outcome import CommandFailed, ExitCode
from millstream.commands.output import Output, OutputOption, print_line, print_result
from millstream.commands.payload import (
    FileOption,
    LinesOption,
    MessageArgument,
    PropertyOption,
    parse_properties,
    read_payload,
)
from millstream.commands.queue_control import AccountOption, Caller, NameArgument, find_place
from millstream.commands.settings import ConfigOption, SetOption

if TYPE_CHECKING:
    import io

CHUNK: Final = 64 * 1024
BATCH_MAX: Final = 256
TAKE_AT_ONCE: Final = 32
WAIT_MS: Final = 10_000

PEEK_EXAMPLES = """\b
Examples:
  millstream queue peek orders
  millstream queue peek readings --offset 1200 --count 50 -o json
  millstream queue peek '$dlq/orders' --properties
"""
MOVE_EXAMPLES = """\b
Examples:
  millstream queue move '$dlq/orders' orders
  millstream queue move orders orders-later --count 1000
"""
PUBLISH_EXAMPLES = """\b
Examples:
  millstream queue publish orders '{"id": 7}'
  millstream queue publish orders --file order.json --key eu/berlin --property priority=5
  millstream queue publish orders 'remind me' --property delay-ms=60000
  millstream queue publish readings --lines < readings.txt
"""
CONSUME_EXAMPLES = """\b
Examples:
  millstream queue consume orders --count 1
  millstream queue consume readings --group audit --from first --timeout 5 -o json
  millstream queue consume orders --key 'eu/#' --group europe
  millstream queue consume orders --count 10 --no-settle
"""


def peek(
    name: NameArgument,
    offset: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Begin there. Default: the oldest record.")
    ] = None,
    count: Annotated[int, typer.Option("--count", "-n", min=1, metavar="N", help="So many records.")] = 10,
    properties: Annotated[bool, typer.Option("--properties", help="Print user properties too.")] = False,
    account: AccountOption = "default",
    config: ConfigOption = None,
    set_: SetOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Look at records without taking them. With -o json every record is one line."""
    wanted = count
    printer = _Printer(output, properties=properties)
    with find_place(config, set_, account).open() as caller:
        while wanted > 0:
            start: dict[str, object] = {} if offset is None else {"offset": offset}
            page = caller.call("queue.peek", None, name=name, count=min(wanted, 1000), **start)
            for record in _records(page):
                printer.print(record)
                wanted -= 1
            if not page["more"]:
                return
            offset = int(str(page["next_offset"]))


def move(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="Queue to take from.")],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="Queue to put into.")],
    count: Annotated[
        int, typer.Option("--count", "-n", min=0, metavar="N", help="So many records, oldest first; 0: all.")
    ] = 0,
    account: AccountOption = "default",
    config: ConfigOption = None,
    set_: SetOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Move records to another queue, such as dead letters back to where they came from.

    Each is safe in the new queue before it leaves the old one. What a consumer has in hand stays with it.
    """
    place = find_place(config, set_, account)
    with _bar("moving", is_shown=output is Output.TABLE and sys.stderr.isatty()) as on_progress:
        result = place.call("queue.move", on_progress, source=source, target=target, count=count)
    left = f"; {result['handed_out']} are with consumers and stay" if result["handed_out"] else ""
    print_result(result, f"{result['moved']} records are moved from {source} to {target}{left}.", output)


def publish(
    name: NameArgument,
    message: MessageArgument = None,
    file: FileOption = None,
    lines: LinesOption = False,
    key: Annotated[str, typer.Option("--key", metavar="KEY", help="Routing key: what filters look at.")] = "",
    property_: PropertyOption = None,
    content_type: Annotated[str | None, typer.Option(metavar="TYPE", help="Content type.")] = None,
    expiry: Annotated[
        int, typer.Option(min=0, metavar="SECONDS", help="Forget the message after so long; 0: never.")
    ] = 0,
    account: AccountOption = "default",
    config: ConfigOption = None,
    set_: SetOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Put messages into a queue; they are on disk when this returns."""
    if (message is not None) + (file is not None) + lines != 1:
        raise CommandFailed(
            ExitCode.USAGE, "Give one of MESSAGE, --file and --lines.", "millstream queue publish --help"
        )
    terms = _terms(key, property_ or [], content_type, expiry)
    if lines:
        batches = _batches()
    elif file is not None:
        batches = iter([[read_payload(file)]])
    else:
        batches = iter([[(message or "").encode("utf-8", "surrogateescape")]])
    offsets: list[object] = []
    published = 0
    with find_place(config, set_, account).open() as caller:
        for batch in batches:
            messages = [{**terms, "payload_base64": base64.b64encode(payload).decode()} for payload in batch]
            answer = caller.call("queue.publish", None, name=name, messages=messages)["offsets"]
            assert isinstance(answer, list)
            offsets = (offsets + answer)[-1000:]
            published += len(answer)
    sentence = f"{published} messages are in {name}." if published != 1 else f"1 message is in {name}."
    print_result({"published": published, "offsets": offsets}, sentence, output)


def consume(
    name: NameArgument,
    count: Annotated[
        int, typer.Option("--count", "-n", min=0, metavar="N", help="Stop after so many records; 0: never.")
    ] = 0,
    timeout: Annotated[
        float,
        typer.Option(
            min=0,
            metavar="SECONDS",
            help="Stop when nothing came for so long; 0: never. Exit code 1 if --count is short.",
        ),
    ] = 0,
    group: Annotated[
        str,
        typer.Option(
            "--group", "-g", metavar="GROUP", help="Group to read in. Default: the only one there is."
        ),
    ] = "",
    key: Annotated[
        str, typer.Option("--key", metavar="FILTER", help="Only records with such routing keys.")
    ] = "",
    from_: Annotated[
        str,
        typer.Option(
            "--from", metavar="PLACE", help="Where a new group of a stream begins: see `queue seek`."
        ),
    ] = "",
    no_settle: Annotated[
        bool,
        typer.Option("--no-settle", help="Print them and give them back; it does not count as an attempt."),
    ] = False,
    properties: Annotated[bool, typer.Option("--properties", help="Print user properties too.")] = False,
    account: AccountOption = "default",
    config: ConfigOption = None,
    set_: SetOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Take records out of a queue and print them; each is settled after it was printed.

    With -o json every record is one line.
    """
    terms: dict[str, object] = {"name": name, "group": group, "filter": key, "from": from_}
    printer = _Printer(output, properties=properties)
    with find_place(config, set_, account).open() as caller:
        try:
            short = _consume(caller, terms, printer, count, timeout, settles=not no_settle)
        except KeyboardInterrupt:
            return  # the way such a command usually ends
    if short:
        raise CommandFailed(ExitCode.FAILED, f"Only {count - short} records came within {timeout:g} seconds.")


def _consume(
    caller: Caller,
    terms: dict[str, object],
    printer: _Printer,
    count: int,
    timeout_s: float,
    *,
    settles: bool,
) -> int:
    """How many of `count` did not come."""
    left = count
    deadline = time.monotonic() + timeout_s
    while True:
        wait_ms = WAIT_MS
        if timeout_s:
            wait_ms = min(WAIT_MS, max(0, int((deadline - time.monotonic()) * 1000)))
        at_once = min(left, TAKE_AT_ONCE) if count else TAKE_AT_ONCE
        found = _records(caller.call("queue.take", None, count=at_once, wait_ms=wait_ms, **terms))
        for record in found:
            printer.print(record)
        if found and settles:
            caller.call(
                "queue.settle", None, outcome="accepted", offsets=[record["offset"] for record in found]
            )
        left -= len(found)
        if count and left <= 0:
            return 0
        if found:
            deadline = time.monotonic() + timeout_s
        elif timeout_s and time.monotonic() >= deadline:
            return max(0, left) if count else 0


class _Printer:
    def __init__(self, output: Output, *, properties: bool) -> None:
        self._output = output
        self._properties = properties

    def print(self, record: dict[str, object]) -> None:
        if self._output is Output.JSON:
            print_line(record)
            return
        payload = base64.b64decode(str(record["payload_base64"]))
        head = f"{record['offset']} {record['topic']} ".encode()
        sys.stdout.buffer.write(head + payload + b"\n")
        pairs = record["properties"]
        if self._properties and isinstance(pairs, list):
            for name, value in pairs:
                sys.stdout.buffer.write(f"    {name}: {value}\n".encode())
        sys.stdout.buffer.flush()


def _records(page: dict[str, object]) -> list[dict[str, object]]:
    found = page["records"]
    assert isinstance(found, list)
    return found


def _terms(key: str, pairs: list[str], content_type: str | None, expiry_s: int) -> dict[str, object]:
    terms: dict[str, object] = {"key": key, "properties": parse_properties(pairs), "expiry_s": expiry_s}
    if content_type is not None:
        terms["content_type"] = content_type
    return terms


def _batches() -> Iterator[list[bytes]]:
    """Lines of standard input as they come: what is there at once goes in one request."""
    source = cast("io.BufferedIOBase", sys.stdin.buffer)
    rest = b""
    while chunk := source.read1(CHUNK):
        *whole, rest = (rest + chunk).split(b"\n")
        yield from _split(whole)
    if rest:
        yield [rest.rstrip(b"\r")]


def _split(found: list[bytes]) -> Iterator[list[bytes]]:
    for at in range(0, len(found), BATCH_MAX):
        yield [line.rstrip(b"\r") for line in found[at : at + BATCH_MAX]]


@contextmanager
def _bar(what: str, *, is_shown: bool) -> Iterator[Callable[[dict[str, object]], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not is_shown, transient=True) as progress:
        bar = progress.add_task(what, total=None)

        def on_progress(told: dict[str, object]) -> None:
            progress.update(bar, completed=int(str(told["done"])), total=int(str(told["total"])))

        yield on_progress
