"""`millstream pipeline …`: the ready-made pipelines on Spark, each in a process of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from millstream.commands import pipeline_runs
from millstream.commands.outcome import CommandFailed, ExitCode
from millstream.commands.output import Output, OutputOption, print_json, print_line, print_rows
from millstream.commands.pipeline_runs import Run
from millstream.commands.settings import ConfigOption, load_settings

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

STOP_TIMEOUT_S: Final = 60.0

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Run the ready-made pipelines on Spark: lake, rollup, alert, audit, replay. They need Java and millstream-spark.",
)

LIST_EXAMPLES = """\b
Examples:
  millstream pipeline list
  millstream pipeline list rollup
  millstream pipeline list -o json
"""
INIT_EXAMPLES = """\b
Examples:
  millstream pipeline init plant
  millstream pipeline init plant rollup alert
  millstream pipeline init plant rollup --sdp --set queues=readings
"""
RUN_EXAMPLES = """\b
Examples:
  millstream pipeline run rollup --set queues=readings --set window='5 minutes'
  millstream pipeline run alert --set queues=readings --set rules='value > 80' --detach
  millstream pipeline run audit --set queues=readings --set since=2026-11-15T08:00
  millstream pipeline run plant/rollup.py --set queues=readings --master 'local[4]' -o json
"""
STATUS_EXAMPLES = """\b
Examples:
  millstream pipeline status
  millstream pipeline status rollup -o json
"""
STOP_EXAMPLES = """\b
Examples:
  millstream pipeline stop rollup
  millstream pipeline stop --all
"""

PairsOption = Annotated[
    list[str] | None,
    typer.Option("--set", "-s", metavar="NAME=VALUE", help="A setting of the pipeline. May be repeated."),
]
RunDirOption = Annotated[
    Path | None,
    typer.Option(
        "--run-dir",
        metavar="FOLDER",
        help="Where the folders of the runs are; else XDG_STATE_HOME, or ~/.local/state, with /millstream/pipelines.",
    ),
]
TimeoutOption = Annotated[
    float, typer.Option("--timeout", min=0, metavar="SECONDS", help="How long to wait for the end.")
]
SETTING_COLUMNS = ("setting", "default", "help")
RUN_COLUMNS = ("name", "pipeline", "state", "rows", "rate", "lag", "end_in", "pid", "error")


@app.command("list", epilog=LIST_EXAMPLES)
def list_pipelines(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Show its settings.")] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the pipelines there are, or the settings of one."""
    found: Any = pipeline_runs.call(pipeline_runs.CATALOG)
    if name is None:
        print_rows(found, ("name", "summary"), output)
        return
    chosen = [one for one in found if one["name"] == name]
    if not chosen:
        names = ", ".join(one["name"] for one in found)
        raise CommandFailed(
            ExitCode.USAGE, f"There is no pipeline {name}; there are {names}.", "millstream pipeline list"
        )
    if output is Output.JSON:
        print_json(chosen[0])
        return
    rows = [
        {
            "setting": one["name"],
            "default": "(needed)" if one["is_required"] else one["default"],
            "help": one["help"],
        }
        for one in chosen[0]["settings"]
    ]
    print_rows(rows, SETTING_COLUMNS, output)


@app.command(epilog=INIT_EXAMPLES)
def init(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder to make; it may be there.")],
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Which; else all.")] = None,
    sdp: Annotated[bool, typer.Option("--sdp", help="Make a Spark Declarative Pipelines project.")] = False,
    set_: PairsOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Copy pipelines into a folder, to be changed there and run by their path."""
    arguments = [str(folder), *(names or ()), *(["--sdp"] if sdp else [])]
    for pair in set_ or ():
        arguments += ["--set", pair]
    made: Any = pipeline_runs.call(pipeline_runs.PROJECT, *arguments)
    if output is Output.JSON:
        print_json(made)
        return
    for path in made["made"]:
        print(path)
    print(f"next: {made['next']}")


@app.command(epilog=RUN_EXAMPLES)
def run(
    pipeline: Annotated[
        str, typer.Argument(metavar="NAME", help="As `pipeline list` has it, or a file of one.")
    ],
    set_: PairsOption = None,
    name: Annotated[
        str | None,
        typer.Option("--name", "-n", metavar="RUN", help="Name of the run; else that of the pipeline."),
    ] = None,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Leave it running and return at once.")
    ] = False,
    master: Annotated[str, typer.Option(metavar="URL", help="Spark master.")] = "local[*]",
    conf: Annotated[
        list[str] | None,
        typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark. May be repeated."),
    ] = None,
    config: ConfigOption = None,
    run_dir: RunDirOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Run a pipeline until it is done or stopped, and show how far it is. Ctrl-C stops it."""
    settings = parse_pairs(set_ or [])
    if config is not None:
        settings.setdefault("uri", reader_uri(config))
    options = ["--master", master]
    for pair in conf or ():
        options += ["--conf", pair]
    runs = run_dir or pipeline_runs.default_folder()
    started, process = pipeline_runs.start(runs, name or Path(pipeline).stem, pipeline, settings, options)
    if detach:
        print_json(started.described()) if output is Output.JSON else print(
            f"{started.name} is starting as process {started.pid}.\nnext: millstream pipeline status {started.name}"
        )
        return
    with _stopped_by_signals(started):
        _show(started, process, output)
    _conclude(started, process, output)


@app.command(epilog=STATUS_EXAMPLES)
def status(
    name: Annotated[str | None, typer.Argument(metavar="[RUN]", help="Only this run.")] = None,
    run_dir: RunDirOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show the runs there are and were: state, rows, rate, lag and estimated end."""
    runs = run_dir or pipeline_runs.default_folder()
    found = [pipeline_runs.get_run(runs, name)] if name else pipeline_runs.all_runs(runs)
    rows = [one.described() for one in found]
    if output is not Output.JSON:
        rows = [{**row, "end_in": in_words(row.get("end_in_s"))} for row in rows]
    print_rows(rows, RUN_COLUMNS, output)


@app.command(epilog=STOP_EXAMPLES)
def stop(
    name: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="Run, as `pipeline status` shows it.")
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="All that are running.")] = False,
    timeout: TimeoutOption = STOP_TIMEOUT_S,
    force: Annotated[bool, typer.Option("--force", help="Kill what has not ended in time.")] = False,
    run_dir: RunDirOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Stop runs. They go on from there when started again: nothing is lost, nothing is done twice."""
    if (name is None) != all_:
        raise CommandFailed(ExitCode.USAGE, "Name a run, or give --all.", "millstream pipeline status")
    runs = run_dir or pipeline_runs.default_folder()
    wanted = [pipeline_runs.get_run(runs, name)] if name else pipeline_runs.all_runs(runs)
    running = [one for one in wanted if one.is_running]
    for one in running:
        pipeline_runs.ask_to_stop(one)
    for one in running:
        if not pipeline_runs.wait_end(one, timeout):
            if not force:
                raise CommandFailed(
                    ExitCode.FAILED,
                    f"{one.name} has not ended in {timeout:g} s.",
                    f"millstream pipeline stop {one.name} --force",
                )
            pipeline_runs.kill(one)
    if output is Output.JSON:
        print_json([one.described() for one in wanted])
        return
    for one in wanted:
        print(f"{one.name} is stopped." if one in running else f"{one.name} was not running.")


def parse_pairs(pairs: list[str]) -> dict[str, str]:
    settings = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise CommandFailed(
                ExitCode.USAGE, f"{pair}: write NAME=VALUE.", "millstream pipeline run --help"
            )
        settings[name.strip()] = value
    return settings


def reader_uri(config: Path) -> str:
    """Where the broker of a configuration serves its streams."""
    reader = load_settings(config, [], checks_files=False).config.reader
    if not reader.enabled:
        raise CommandFailed(
            ExitCode.USAGE,
            f"The broker of {config} serves no streams: reader.enabled is false.",
            f"millstream serve --config {config} --set reader.enabled=true",
        )
    scheme = "https" if reader.tls.cert_file is not None else "http"
    host = f"[{reader.host}]" if ":" in reader.host else reader.host
    return f"{scheme}://{host}:{reader.port}"


def in_words(seconds: object) -> str:
    if not isinstance(seconds, int | float):
        return "-"
    return "now" if seconds <= 0 else str(timedelta(seconds=round(seconds)))


@contextmanager
def _stopped_by_signals(run: Run) -> Iterator[None]:
    """Ctrl-C and SIGTERM for this command end the pipeline; its end is then shown like any other."""

    def pass_on(*_: object) -> None:
        pipeline_runs.ask_to_stop(run)

    before = {number: signal.signal(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _show(run: Run, process: subprocess.Popen[bytes], output: Output) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[figures]}"),
        TimeElapsedColumn(),
    )
    is_shown = output is Output.TABLE and sys.stderr.isatty()
    with Progress(*columns, console=Console(stderr=True), disable=not is_shown, transient=True) as progress:
        bar = progress.add_task(run.name, total=None, figures="starting Spark")
        for line in pipeline_runs.follow(run, process):
            if output is Output.JSON:
                print_line({"name": run.name, **line})
            _move(progress, bar, line)


def _move(progress: Progress, bar: TaskID, line: dict[str, object]) -> None:
    if "tasks" in line:
        figures = f"{line['tasks_done']} of {line['tasks']} tasks"
        progress.update(
            bar, completed=_number(line["tasks_done"]), total=_number(line["tasks"]), figures=figures
        )
    elif "rows" in line:
        rows, lag = _number(line["rows"]), _number(line["lag"])
        figures = f"{rows:,.0f} rows  {_number(line['rate']):,.0f}/s  lag {lag:,.0f}  end {in_words(line['end_in_s'])}"
        progress.update(bar, completed=rows, total=rows + lag, figures=figures)
    elif line.get("state") == "running":
        progress.update(bar, figures="waiting for the first batch")


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _conclude(run: Run, process: subprocess.Popen[bytes], output: Output) -> None:
    ended = run.last_status()
    if process.returncode:
        sentence = str(
            ended.get("error") or f"{run.name} ended with code {process.returncode} and did not say why."
        )
        code = ExitCode.USAGE if process.returncode == ExitCode.USAGE else ExitCode.FAILED
        raise CommandFailed(code, sentence, f"tail {run.log_file}")
    if output is Output.TABLE:
        rows = f"{_number(ended['rows']):,.0f} rows" if "rows" in ended else "all"
        print(f"{run.name} is {ended.get('state', 'done')}: {rows} taken.")
