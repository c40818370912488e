"""Every way in which something happens later, or elsewhere, by the right of somebody: the table of `docs/security.md`.

The matrix of rights (`test_rights_matrix.py`) has a case for each path of which `is_in_matrix` is true, its sibling on a broker with
a reader and a control socket (`test_rights_service.py`) for each of the others; `docs/security.md` is written from this table by
`python tests/indirect_paths.py docs/security.md`.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

BEGIN = "<!-- indirect paths: written by tests/indirect_paths.py -->"
END = "<!-- end of indirect paths -->"


@dataclass(frozen=True)
class IndirectPath:
    name: str
    set_up: str  # what one must be allowed when it is set up
    later: str  # what is asked when it acts, or when rights change
    is_in_matrix: bool = True


PATHS = (
    IndirectPath(
        "will",
        "publish to its topic, at CONNECT",
        "the same again when it is sent; a user who is gone has no right any more",
    ),
    IndirectPath(
        "subscription, shared or not",
        "subscribe to the filter, without `$share/<group>/`",
        "each topic at delivery: live, retained and queued",
    ),
    IndirectPath(
        "consumer of a queue or of its dead letters",
        "subscribe to `$queue/<name>` or `$dlq/<name>`, no part denied",
        "the same at every change of rights: an AMQP consumer is cancelled, an MQTT one gets nothing",
    ),
    IndirectPath(
        "binding of a queue",
        "subscribe to `$queue/<name>`, and to all that the binding can bring, no part denied",
        "both at every change of rights, for who made it",
    ),
    IndirectPath(
        "binding of an exchange to an exchange",
        "subscribe to `<target>/#` and to all that the binding can bring; publish to all that goes to the target; no part denied",
        "all three at every change of rights, for who made it; further keys (CC, BCC) go by it only if that one may publish all to "
        "the target, else each key goes where it would go alone",
    ),
    IndirectPath(
        "alternate exchange",
        "publish to `<alternate>/#` (the default exchange: `$queue/#`), no part denied",
        "the same at every change of rights, for who declared the exchange",
    ),
    IndirectPath(
        "dead letters with a key",
        "publish to what a publish with that exchange and key would reach now: a queue, or else a topic; behind the default exchange "
        "the right to `$queue/<key>` is enough, so that the queue may be made later, unless the key has a `/`",
        "publish to what it reaches then, for every letter, for who declared the queue",
    ),
    IndirectPath(
        "dead letters without a key",
        "publish to `<exchange>/#` (the default exchange: `$queue/#`), no part denied",
        "publish to what it reaches, for every letter, for who declared the queue",
    ),
    IndirectPath(
        "dead letters and alternate exchanges by a policy",
        "nothing: the operator wrote it",
        "nothing",
    ),
    IndirectPath(
        "further routing keys (CC, BCC)",
        "publish to each of them, when the message is published",
        "a dead letter that keeps its keys asks for each of them",
    ),
    IndirectPath(
        "transaction",
        "publish to the topic, when the message is published",
        "the same again at the commit",
    ),
    IndirectPath(
        "topic alias, and routes that a connection remembers",
        "publish to the topic",
        "the same after every change of rights",
    ),
    IndirectPath(
        "direct reply-to",
        "nothing: the address cannot be guessed, and was given to who was asked",
        "nothing",
    ),
    IndirectPath(
        "return of a mandatory message",
        "publish to its topic",
        "nothing: it goes back to who published it, when no binding that stands by a right leads anywhere",
    ),
    IndirectPath(
        "commit of a staged batch (Spark)",
        "publish to each topic, or to the queue of the batch, with no routing key of its rows denied; when they are staged and again when "
        "it is committed",
        "nothing: a batch that was decided is published to its end",
        is_in_matrix=False,
    ),
    IndirectPath(
        "read of a stream (reader, Spark)",
        "subscribe to `$queue/<name>`",
        "the same again after two seconds, also while a read goes on",
        is_in_matrix=False,
    ),
    IndirectPath(
        "command over the control socket, queue or policy of the configuration",
        "nothing: who can open the socket or write the file is the operator",
        "nothing: what is made so is the account's own",
        is_in_matrix=False,
    ),
)


def render() -> str:
    lines = [
        BEGIN,
        "",
        "| path | asked when it is set up | asked later |",
        "|---|---|---|",
        *[f"| {path.name} | {path.set_up} | {path.later} |" for path in PATHS],
        "",
        END,
    ]
    return "\n".join(lines)


def replace_table(text: str) -> str:
    head, _, rest = text.partition(BEGIN)
    return head + render() + rest.partition(END)[2]


if __name__ == "__main__":
    file = Path(sys.argv[1])
    file.write_text(replace_table(file.read_text(encoding="utf-8")), encoding="utf-8")
