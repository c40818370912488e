"""Access lists against an oracle: path x rule x wildcard x name, thousands of generated cases, all equal.

The oracle knows nothing of levels being covered: it lists every topic of a small world and compares sets.
The same through connections of each version: test_acl_matrix_versions.py.
"""

from __future__ import annotations

import functools
import itertools
import random
import re

import pytest

from millstream.security.acl import Authorizer, parse_acl
from millstream.security.principal import Principal

SEEDS = range(24)
LISTS_PER_SEED = 25
CASES_PER_LIST = 16

# Each path a message or a filter can take, and what the oracle must ask for it.
PATHS = {
    "publish": "publish",
    "will at connect": "publish",
    "will when sent": "publish",
    "retained publish": "publish",
    "subscribe": "subscribe",
    "shared subscribe": "subscribe",
    "live delivery": "receive",
    "retained delivery": "receive",
    "offline replay": "receive",
}
NAMES = ["anna", "bo", "a", "+", "a/b", "$SYS", "b#"]
CLIENT_IDS = ["c1", "c2", "gate-1", "#", "+", "b", "a/b", "$SYS", ""]
ACCOUNTS = ["one", "two"]
# `other` stands in no filter, and topics go a level deeper than filters: sets compare as in an endless world.
LEVELS = ["a", "b", "", "c1", "anna", "other"]
WORLD = [
    "/".join(levels)
    for depth in (1, 2, 3, 4)
    for first in (*LEVELS, "$SYS")
    for levels in itertools.product([first], *[LEVELS] * (depth - 1))
    if levels != ("",)
]
# It cannot be published to, but by its levels `/#` has it: a rule must have it too, or the filter is refused.
EMPTY_TOPIC = ""


# --- the oracle


@functools.cache
def topics_of(filter: str) -> frozenset[str]:
    parts = [r"[^/]*" if level == "+" else re.escape(level) for level in filter.split("/")]
    expression = "/".join(parts)
    if filter == "#":
        expression = ".*"
    elif filter.endswith("/#"):
        expression = "/".join(parts[:-1]) + "(/.*)?"
    found = [topic for topic in (EMPTY_TOPIC, *WORLD) if re.fullmatch(expression, topic)]
    return frozenset(topic for topic in found if not (topic[:1] == "$" and filter[0] in "+#"))


def oracle(document: dict[str, object], action: str, who: Principal, client_id: str, asked: str) -> bool:
    if action == "publish" and asked.startswith("$SYS/") and not asked.startswith("$SYS/broker/connection/"):
        return False  # the broker's own to write, whatever the rules say
    verb = "publish" if action == "publish" else "subscribe"
    wanted = topics_of(asked) if action == "subscribe" else frozenset([asked])
    found = set()
    for rule in document["rules"]:  # type: ignore[attr-defined]
        permission = "deny" if "deny" in rule else "allow"
        clients = rule.get("clients", ["*"])
        if rule[permission] not in (verb, "all") or who.name not in rule.get("users", [who.name]):
            continue
        if who.account not in rule.get("accounts", [who.account]):
            continue
        if not any(client_id == c or (c[-1] == "*" and client_id.startswith(c[:-1])) for c in clients):
            continue
        for template in rule["topics"]:
            used = [client_id] * ("%c" in template) + [who.name] * ("%u" in template)
            if any(name == "" or set(name) & set("+#/") for name in used):
                continue
            filter = template.replace("%c", client_id).replace("%u", who.name)
            if filter[0] == "$" != template[0]:
                continue
            if wanted <= topics_of(filter):
                found.add(permission)
    if found:
        return "deny" not in found
    return document["default"] == "allow" and asked.split("/")[0] != "$SYS"


# --- the cases


def make_filter(chance: random.Random, placeholders: bool) -> str:
    words = ["a", "b", "", "c1", "anna", "+", "+"] + ["%c", "%u"] * placeholders
    levels = [chance.choice(words) for _ in range(chance.randint(1, 3))]
    if chance.random() < 0.1:
        levels[0] = "$SYS"
    if chance.random() < 0.4:
        levels[-1] = "#"
    return "/".join(levels) or "a"


def make_document(chance: random.Random) -> dict[str, object]:
    rules = []
    for _ in range(chance.randint(0, 6)):
        rule: dict[str, object] = {
            chance.choice(["allow", "allow", "deny"]): chance.choice(["publish", "subscribe", "all"]),
            "topics": [make_filter(chance, placeholders=True) for _ in range(chance.randint(1, 3))],
        }
        if chance.random() < 0.3:
            rule["users"] = chance.sample(NAMES, 3)
        if chance.random() < 0.3:
            rule["clients"] = [*chance.sample(CLIENT_IDS[:-1], 3), *chance.choice([[], ["gate-*"], ["*"]])]
        if chance.random() < 0.2:
            rule["accounts"] = [chance.choice(ACCOUNTS)]
        rules.append(rule)
    return {"default": chance.choice(["deny", "deny", "allow"]), "rules": rules}


def ask(authorizer: Authorizer, path: str, who: Principal, client_id: str, asked: str) -> bool:
    if PATHS[path] == "publish":
        return authorizer.can_publish(who, client_id, asked.encode())
    if PATHS[path] == "receive":
        return authorizer.can_receive(who, client_id, asked.encode())
    prefix = b"$share/group/" if path == "shared subscribe" else b""
    return authorizer.can_subscribe(who, client_id, prefix + asked.encode())


@pytest.mark.parametrize("seed", SEEDS)
def test_every_path_decides_as_the_oracle(seed: int) -> None:
    chance = random.Random(seed)
    authorizer = Authorizer(None)  # one for all lists: what it remembers must go with each of them
    answers = []
    for _ in range(LISTS_PER_SEED):
        document = make_document(chance)
        authorizer.replace(parse_acl(document))
        for _ in range(CASES_PER_LIST):
            path = chance.choice(list(PATHS))
            who = Principal(chance.choice(NAMES), chance.choice(ACCOUNTS), "user")
            client_id = chance.choice(CLIENT_IDS)
            is_filter = PATHS[path] == "subscribe"
            asked = make_filter(chance, placeholders=False) if is_filter else chance.choice(WORLD)
            expected = oracle(document, PATHS[path], who, client_id, asked)
            case = (path, document, who, client_id, asked)
            assert ask(authorizer, path, who, client_id, asked) is expected, case
            assert ask(authorizer, path, who, client_id, asked) is expected, ("asked again", case)
            told = authorizer.explain(PATHS[path], who, client_id, asked.encode())
            assert told.startswith("allowed:" if expected else "denied:"), (told, case)
            answers.append(expected)
    assert len(answers) == LISTS_PER_SEED * CASES_PER_LIST
    assert 0.1 < sum(answers) / len(answers) < 0.9  # a matrix of one colour proves nothing


@pytest.mark.parametrize("seed", SEEDS)
def test_a_granted_subscription_delivers_exactly_what_is_not_denied(seed: int) -> None:
    """Whatever is subscribed to, each topic of it arrives if and only if it could be read by its own name."""
    chance = random.Random(1000 + seed)
    for _ in range(LISTS_PER_SEED):
        document = make_document(chance)
        authorizer = Authorizer(parse_acl(document))
        who = Principal(chance.choice(NAMES), chance.choice(ACCOUNTS), "user")
        client_id = chance.choice(CLIENT_IDS)
        filter = make_filter(chance, placeholders=False)
        granted = authorizer.can_subscribe(who, client_id, filter.encode())
        denies = "deny" in [key for rule in document["rules"] for key in rule]  # type: ignore[attr-defined]
        for topic in sorted(topics_of(filter) - {EMPTY_TOPIC})[::37]:
            readable = authorizer.can_receive(who, client_id, topic.encode())
            assert readable is oracle(document, "receive", who, client_id, topic)
            assert readable is authorizer.can_subscribe(who, client_id, topic.encode())
            assert readable or not granted or denies, (document, who, client_id, filter, topic)
