"""One process of attackers: `attacker NAME STEP`, the target as JSON on standard input, facts as JSON on standard output."""

from __future__ import annotations

import json
import os
import sys
import traceback

from benchmarks.attack_suite.attack import Facts
from benchmarks.attack_suite.table import ATTACKS
from benchmarks.attack_suite.target import Target


def main() -> int:
    name, step = sys.argv[1:]
    attack = ATTACKS[name]
    target = Target(**json.loads(sys.stdin.readline()))
    facts: Facts = {}
    fault = ""
    if step == "run":
        print("ready", flush=True)
        sys.stdin.readline()  # the word to begin, the same moment for all processes
    target = target.started()
    try:
        if step == "run":
            facts = attack.run(target)
            target.rest(target.seconds)  # what is open stays open till the end
        else:
            chosen = attack.prepare if step == "prepare" else attack.clean
            assert chosen is not None
            chosen(target)
    except Exception:  # noqa: BLE001 - whatever ends an attacker is told, also that the broker closed its connection
        fault = traceback.format_exc().strip().splitlines()[-1]
        if os.environ.get("ATTACK_TRACEBACKS"):
            traceback.print_exc()
    print(json.dumps({"facts": facts, "fault": fault}), flush=True)
    os._exit(0)  # thousands of sockets are closed faster by the kernel


if __name__ == "__main__":
    sys.exit(main())
