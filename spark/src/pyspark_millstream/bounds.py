"""From "earliest", "latest", numbers and times to offsets, by what the reader says is in each queue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark_millstream.client import QueueState, ReaderClient
from pyspark_millstream.errors import DataLost, MillstreamSparkError, OptionError
from pyspark_millstream.offsets import Place
from pyspark_millstream.option_values import EARLIEST_MARK, LATEST_MARK, Bound, BoundKind
from pyspark_millstream.options import SourceOptions

FIRST_ANSWER_S: Final = 5.0  # somebody sits before the screen: do not try for a minute what was mistyped
STATE_ALONE_MAX: Final = 1


def find_states(
    client: ReaderClient, options: SourceOptions, is_fresh: bool, patience_s: float | None = None
) -> dict[str, QueueState]:
    """The queues to read, by name. A queue that was named and is not there is an error."""
    if len(options.queues) == STATE_ALONE_MAX:
        state = client.queue(options.queues[0], is_fresh, patience_s)
        return {options.queues[0]: state}
    states = {
        state.name: state for state in client.queues(is_fresh, patience_s) if options.matches(state.name)
    }
    for name in options.queues:
        if name not in states:
            states[name] = client.queue(name, False, patience_s)  # says whether it is missing or forbidden
    if not states and options.pattern:
        raise MillstreamSparkError(
            f'no stream queue that this user may read fits the queuePattern "{options.pattern}"',
            'Look with "millstream queue list", or make one: millstream queue create readings --kind stream.',
        )
    return states


def find_batch_states(client: ReaderClient, options: SourceOptions) -> dict[str, QueueState]:
    """The newest counts, unless both ends are offsets that can be read already: then the broker need not do anything."""
    bounds = [bound for bound in (options.start, options.end) if bound is not None]
    if options.end is not None and all(_is_settled(bound) for bound in bounds):
        states = find_states(client, options, is_fresh=False)
        ends = [
            offset <= states[queue].end
            for bound in bounds
            for queue, offset in bound.numbers
            if queue in states
        ]
        if all(ends):
            return states
    return find_states(client, options, is_fresh=True)


def _is_settled(bound: Bound) -> bool:
    """Whether it means the same however many records there are."""
    if bound.kind is BoundKind.OFFSETS:
        return all(offset != LATEST_MARK for _, offset in bound.numbers)
    return bound.kind is BoundKind.EARLIEST


def start_place(
    client: ReaderClient, options: SourceOptions, states: Mapping[str, QueueState], default: BoundKind
) -> Place:
    bound = options.start or Bound(default, "startingOffsets")
    check_named(bound, options, states)
    place: Place = {}
    for queue, state in states.items():
        if bound.kind is BoundKind.TIMESTAMPS:
            place[queue] = _start_by_time(client, options, bound, state)
        else:
            place[queue] = _by_number(bound, state)
            if place[queue] > state.end:
                raise _beyond("starts", bound, place[queue], state)
    return place


def end_place(client: ReaderClient, options: SourceOptions, states: Mapping[str, QueueState]) -> Place:
    bound = options.end or Bound(BoundKind.LATEST, "endingOffsets")
    check_named(bound, options, states)
    place: Place = {}
    for queue, state in states.items():
        if bound.kind is BoundKind.TIMESTAMPS:
            milliseconds = bound.number_of(queue)
            assert milliseconds is not None  # check_named
            place[queue] = min(client.offset_at(queue, milliseconds * 1_000_000), state.end)
            continue
        place[queue] = _by_number(bound, state)
        if place[queue] > state.end:
            raise _beyond("ends", bound, place[queue], state)
    return place


def check_named(bound: Bound, options: SourceOptions, states: Mapping[str, QueueState]) -> None:
    """As with Spark's Kafka source, JSON must speak of every queue, and of none that is not read."""
    if bound.everywhere is not None or not bound.numbers:
        return
    named = {queue for queue, _ in bound.numbers}
    strange = sorted(named - set(states))
    if strange:
        raise OptionError(
            f'the option {bound.option} speaks of "{strange[0]}", which is not read',
            "Take it out, or add the queue.",
        )
    missing = sorted(set(states) - named)
    if missing:
        raise OptionError(
            f'the option {bound.option} says nothing of "{missing[0]}"',
            f"Add it: {EARLIEST_MARK} is its earliest record, {LATEST_MARK} its latest.",
        )


def check_kept(options: SourceOptions, start: Place, states: Mapping[str, QueueState]) -> dict[str, int]:
    """Records that should be read and are gone, by queue. With failOnDataLoss they are an error."""
    lost: dict[str, int] = {}
    for queue in sorted(start):
        state = states.get(queue)
        if state is None:
            if options.fails_on_loss:
                raise _lost(
                    f'the queue "{queue}" is gone, and with it what came from offset {start[queue]} on'
                )
        elif start[queue] < state.first:
            if options.fails_on_loss:
                raise trimmed(queue, start[queue], state.first)
            lost[queue] = state.first - start[queue]
        elif start[queue] > state.end and options.fails_on_loss:
            raise _lost(
                f'the queue "{queue}" ends at offset {state.end} and this query has read up to {start[queue]}: '
                f"it was made anew or restored from a backup"
            )
    return lost


def trimmed(queue: str, first: int, lowest: int) -> DataLost:
    return _lost(
        f'{lowest - first} records of the queue "{queue}", offsets {first} to {lowest - 1}, '
        f"were removed by retention before they were read"
    )


def _lost(text: str) -> DataLost:
    return DataLost(text, 'To go on with what is there: .option("failOnDataLoss", "false").')


def _beyond(verb: str, bound: Bound, offset: int, state: QueueState) -> OptionError:
    return OptionError(
        f'the option {bound.option} {verb} "{state.name}" at {offset}; the queue ends at {state.end}',
        f"Give latest, or a number up to {state.end}.",
    )


def _start_by_time(client: ReaderClient, options: SourceOptions, bound: Bound, state: QueueState) -> int:
    milliseconds = bound.number_of(state.name)
    assert milliseconds is not None  # check_named
    offset = client.offset_at(state.name, milliseconds * 1_000_000)
    if offset >= state.end and not options.is_late_start_allowed:
        raise OptionError(
            f'the queue "{state.name}" has no record at or after the {bound.option} {milliseconds}',
            'To start at its end then: .option("startingOffsetsByTimestampStrategy", "latest").',
        )
    return min(offset, state.end)


def _by_number(bound: Bound, state: QueueState) -> int:
    if bound.kind is BoundKind.EARLIEST:
        return state.first
    if bound.kind is BoundKind.LATEST:
        return state.end
    offset = bound.number_of(state.name)
    assert offset is not None  # check_named
    if offset == EARLIEST_MARK:
        return state.first
    return state.end if offset == LATEST_MARK else offset
