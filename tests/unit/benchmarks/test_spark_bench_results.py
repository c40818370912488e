"""Verdicts of `bench spark` from the facts of its windows."""

from __future__ import annotations

from benchmarks.spark_suite.latency import end_offset
from benchmarks.spark_suite.measures import rows_of
from benchmarks.spark_suite.meter import Times, used_between
from benchmarks.spark_suite.publisher import BLOCK, CONNECTIONS, Blocks, late
from benchmarks.spark_suite.results import check_spark, cpu_us_of, find_ratio, rate_of, summarize
from benchmarks.spark_suite.scenarios import BY_NAME
from benchmarks.suite.results import FAILED, PASSED, REFUSED, Run

ROWS = 1_000_000.0


def window(seconds: float, jvm: float = 0.0, foreign: float = 0.0, **more: float) -> dict[str, float]:
    return {
        "seconds": seconds,
        "cores": 2.0,
        "rows": ROWS,
        "jvm_cpu_s": jvm,
        "foreign_s": foreign,
        **more,
    }


def verdicts(scenario: str, *runs: Run) -> list[str]:
    return [check.verdict for check in check_spark([BY_NAME[scenario]], list(runs))]


def pair(scenario: str, ours: dict[str, float], theirs: dict[str, float], number: int = 1) -> list[Run]:
    sides = BY_NAME[scenario].sides
    return [Run(scenario, sides[0], number, facts=ours), Run(scenario, sides[1], number, facts=theirs)]


def test_processor_time_by_row_counts_java_workers_and_reader() -> None:
    facts = window(2.0, 1.0, python_cpu_s=0.3, reader_cpu_s=0.2, broker_cpu_s=9.0)
    assert round(cpu_us_of(facts), 6) == 1.5


def test_the_rate_of_a_stream_leaves_the_first_trigger_out() -> None:
    facts = window(10.0, steady_rows=600_000.0, steady_s=1.0)
    assert rate_of(facts) == 600_000


def test_a_batch_read_that_takes_twice_the_processor_time_of_parquet_fails() -> None:
    slow = window(2.0, 2.0, python_cpu_s=0.1)
    assert verdicts("batch", *pair("batch", slow, window(1.0, 1.0))) == [FAILED, PASSED]


def test_a_batch_read_is_judged_with_the_reader_and_shown_without_it_too() -> None:
    facts = window(2.0, 1.0, python_cpu_s=0.25, reader_cpu_s=0.75)
    check = check_spark([BY_NAME["headers"]], pair("headers", facts, window(1.0, 1.0)))[0]
    assert check.measured.startswith("0.50 x; 0.80 x inside Spark")
    assert check.verdict == FAILED


def test_processor_time_is_judged_on_a_busy_machine_too() -> None:
    slow = window(2.0, 2.0, foreign=3.0)
    assert verdicts("batch", *pair("batch", slow, window(1.0, 1.0)))[0] == FAILED


def test_python_time_of_the_source_holds_the_reader() -> None:
    facts = window(2.0, 1.0, python_cpu_s=0.3, reader_cpu_s=0.3)
    assert verdicts("batch", *pair("batch", facts, window(1.0, 1.0))) == [FAILED, FAILED]


def test_a_rate_that_is_too_low_on_a_busy_machine_has_no_figure() -> None:
    assert verdicts("wire", *pair("wire", window(3.0, foreign=1.0), window(1.0))) == [REFUSED]


def test_a_peer_that_was_held_back_proves_nothing() -> None:
    assert verdicts("wire", *pair("wire", window(1.0), window(1.0, foreign=1.0))) == [REFUSED]


def test_a_rate_that_is_too_low_on_a_quiet_machine_fails() -> None:
    assert verdicts("wire", *pair("wire", window(3.0), window(1.0))) == [FAILED]


def test_a_ratio_is_taken_within_each_round() -> None:
    runs = [*pair("wire", window(1.0), window(1.0)), *pair("wire", window(9.0), window(9.0), 2)]
    ratio = find_ratio(runs, "wire", "millstream", "bare", rate_of)
    assert ratio is not None
    assert (ratio.low, ratio.value, ratio.high) == (1.0, 1.0, 1.0)


def test_a_slower_confirm_beside_spark_than_beside_a_foreign_load_fails() -> None:
    ours = window(1.0, throughput_rate=95.0, answer_p99_us=130.0)
    theirs = window(1.0, throughput_rate=100.0, answer_p99_us=100.0)
    assert verdicts("interference", *pair("interference", ours, theirs)) == [PASSED, FAILED]


def test_a_side_that_could_not_run_is_a_failure_with_its_reason() -> None:
    fault = Run("stream", "millstream", 1, fault="the broker is away")
    checks = check_spark([BY_NAME["stream"]], [fault])
    assert [(check.measured, check.verdict) for check in checks] == [("the broker is away", FAILED)]
    assert summarize("stream", "millstream", [fault]).fault == "the broker is away"


class Seen(Times):
    """What a look at the processes could have seen: (part, own seconds, seconds of ended children) by process."""

    def __init__(self, **processes: tuple[str, float, float]) -> None:
        self.parts = {int(pid[1:]): part for pid, (part, _, _) in processes.items()}
        self.own = {int(pid[1:]): own for pid, (_, own, _) in processes.items()}
        self.ended = {int(pid[1:]): ended for pid, (_, _, ended) in processes.items()}


def test_a_worker_that_ends_takes_nothing_off_and_adds_only_what_it_used() -> None:
    before = Seen(p1=("jvm", 10.0, 0.0), p2=("python", 5.0, 0.0), p3=("python", 7.0, 0.0))
    inherited = used_between(before, Seen(p1=("jvm", 11.0, 0.0), p2=("python", 6.0, 7.5)))
    assert (inherited["jvm"], inherited["python"]) == (1.0, 1.5)
    lost = used_between(before, Seen(p1=("jvm", 11.0, 0.0), p2=("python", 6.0, 0.0)))
    assert lost["python"] == 1.0


def test_blocks_of_the_publisher_differ_in_their_payloads_only() -> None:
    blocks = Blocks("long", BLOCK, 1)
    one, other = bytes(blocks.take()), bytes(blocks.take())
    stride = len(one) // BLOCK
    assert one != other
    assert [one[at : at + stride - 100] for at in range(0, len(one), stride)] == [
        other[at : at + stride - 100] for at in range(0, len(other), stride)
    ]


def test_no_two_connections_of_the_publisher_send_the_same_payloads() -> None:
    sent = [Blocks("long", BLOCK, 1, lane).take() for lane in range(CONNECTIONS)]
    stride = len(sent[0]) // BLOCK
    payloads = {block[at - 100 : at] for block in sent for at in range(stride, len(block) + 1, stride)}
    assert len(payloads) == CONNECTIONS * BLOCK


def test_a_publisher_that_falls_behind_its_rate_says_how_far() -> None:
    assert round(late([0, 10_000_000, 520_000_000]), 3) == 0.5


def test_the_end_of_a_micro_batch_is_read_from_its_progress() -> None:
    assert end_offset({"sources": [{"endOffset": '{"timd": {"0": 7}}'}]}) == 7
    assert end_offset({"sources": [{"endOffset": None}]}) == 0


def test_rows_of_a_stream_are_counted_by_offsets_and_of_files_as_spark_does() -> None:
    ends = [{"long": {"0": 1_500}}, {"long": {"0": 1_700}}]
    handed = [{"numInputRows": 2, "sources": [{"endOffset": end}]} for end in ends]
    assert rows_of(handed, 1_000) == [500, 200]
    assert rows_of([{"numInputRows": 7, "sources": [{"endOffset": {"logOffset": 0}}]}], 0) == [7]


def test_each_way_to_the_lake_is_judged_against_sparks_own_sink() -> None:
    sides = {
        "handed-parquet": 1.0,
        "handed-delta": 1.9,
        "lake-parquet": 2.1,
        "lake-delta": 3.0,
        "parquet": 2.0,
    }
    runs = [Run("lake", side, 1, facts=window(seconds)) for side, seconds in sides.items()]
    assert verdicts("lake", *runs) == [PASSED, PASSED, FAILED, FAILED]
