"""How a generator is asked and answers: one job as JSON on standard input, one line of JSON on standard output."""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Callable

from benchmarks.load.frames import FrameFault
from benchmarks.load.job import Result


def print_answer(core: int, measure: Callable[[], Result], module: str | None) -> int:
    """Measures, pinned to the core where one is named; `module` is the file that tells whether it is compiled."""
    if core >= 0:
        os.sched_setaffinity(0, {core})
    gc.disable()
    try:
        answer = json.loads(measure().to_json())
    except (FrameFault, OSError) as fault:
        print(json.dumps({"fault": f"{fault}" or type(fault).__name__}))
        return 1
    answer["is_compiled"] = not str(module).endswith(".py")
    print(json.dumps(answer))
    return 0
