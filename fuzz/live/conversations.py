"""All conversations by protocol, and how a seed and a number make one."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

from fuzz.live.amqp091 import make_amqp
from fuzz.live.http import make_reader, make_websocket
from fuzz.live.mqtt import make_mqtt
from fuzz.live.script import Ending, Script
from fuzz.live.tls import make_tls

MAKERS: dict[str, Callable[[random.Random], Script]] = {
    "mqtt": make_mqtt,
    "amqp": make_amqp,
    "websocket": make_websocket,
    "tls": make_tls,
    "reader": make_reader,
}
SHARES = {"mqtt": 42, "amqp": 36, "websocket": 14, "tls": 4, "reader": 4}  # in hundred connections


def make_numbered(seed: int, number: int, protocols: list[str]) -> Script:
    """The script of one connection; it depends on nothing else."""
    chance = random.Random(seed << 40 | number)
    protocol = chance.choices(protocols, [SHARES[name] for name in protocols])[0]
    return MAKERS[protocol](chance)


def write_script(script: Script, file: Path, **about: object) -> None:
    fields = {
        **about,
        "listener": script.listener,
        "pieces": [piece.hex() for piece in script.pieces],
        "ending": script.ending.name,
        "is_inside_tls": script.is_inside_tls,
    }
    file.write_text(json.dumps(fields, indent=1) + "\n", encoding="utf-8")


def read_script(file: Path) -> Script:
    fields = json.loads(file.read_text(encoding="utf-8"))
    pieces = [bytes.fromhex(piece) for piece in fields["pieces"]]
    return Script(fields["listener"], pieces, Ending[fields["ending"]], fields["is_inside_tls"])
