"""May you? One place that every path asks: publish, subscribe, will, retained, offline and live delivery.

Deny wins over allow, allow over the default, and the default is deny as soon as there is a list. A
subscription needs one allow filter that covers all of it; a deny that covers all of it refuses it; a deny
that only overlaps it is enforced message by message, by `can_receive`, so that a wide filter can never be a
way around it. A queue hands out its records one by one to whoever is next, so there a deny of any part refuses all.

Invariants
- An empty list denies everything; only the absence of a list (None) allows everything.
- `$SYS` is for those whom a rule allows it; a default of allow does not open it. What only the broker publishes there is denied to
  everybody, with or without a list.
- The topic of a queue has one spelling (see `queue_topic`); any other is denied to everybody, with or without a list.
- What is remembered is per user, bounded, and dropped with the list; nothing is remembered per client.
"""

from __future__ import annotations

import difflib
from typing import Final, final

from millstream.model.queue_topic import SETTLING, filter_of_records, find_spelling_fault, is_queue_topic
from millstream.model.topic import SHARE_PREFIX, covers, is_for_broker_only, matches, overlaps, split_share
from millstream.security.grants import NO_RULE, Grants
from millstream.security.principal import ANONYMOUS_NAME, Principal
from millstream.security.rules import Acl, FilterTemplate, Rule, find_template_fault

PUBLISH: Final = "publish"
SUBSCRIBE: Final = "subscribe"
RECEIVE: Final = "receive"
ALL: Final = "all"

RULES_MAX: Final = 100_000
NAMES_PER_RULE_MAX: Final = 10_000
NAME_LENGTH_MAX: Final = 4096  # characters of a filter or of a name
GRANTS_MAX: Final = 2_000  # users whose rules are kept ready
_CACHED_NAME_LENGTH_MAX: Final = 1024  # longer ones work, but are not worth keeping

_DOCUMENT_KEYS: Final = ("default", "rules")
_RULE_KEYS: Final = ("allow", "deny", "topics", "users", "clients", "accounts")
_ACTIONS: Final = (PUBLISH, SUBSCRIBE, ALL)


class AclFault(Exception):
    """An access list cannot be used. `path` names the entry, such as `rules[2].topics[0]`."""

    def __init__(self, path: str, text: str) -> None:
        super().__init__(f"{path}: {text}" if path else text)
        self.path = path
        self.text = text


@final
class _Selection:
    """The rules that concern one principal: those that hold for all its clients, ready to be asked, and those
    whose filters or selectors depend on the client id. The latter are looked at as they are, so that a
    hundred thousand clients under one rule cost no memory."""

    __slots__ = ("by_client", "grants")

    def __init__(self, grants: Grants, by_client: list[Rule]) -> None:
        self.grants = grants
        self.by_client = by_client


@final
class Authorizer:
    """Answers for one access list; `replace` swaps the list, and `generation` tells others to ask again."""

    def __init__(self, acl: Acl | None) -> None:
        self._generation = 0
        self._acl: Acl | None = None
        self._selections: dict[tuple[str, str], _Selection] = {}
        self._for_all: list[Rule] = []
        self._by_user: dict[str, list[Rule]] = {}
        self._by_client: dict[str, list[Rule]] = {}
        self.replace(acl)

    @property
    def generation(self) -> int:
        return self._generation

    def replace(self, acl: Acl | None) -> None:
        self._acl = acl
        self._generation += 1
        self._selections = {}
        self._for_all = []
        self._by_user = {}
        self._by_client = {}
        if acl is None:
            return
        # A list with a rule per device must not cost a walk over all devices for each of them.
        for rule in acl.rules:
            if rule.users is not None:
                for name in rule.users:
                    self._by_user.setdefault(name, []).append(rule)
            elif rule.clients is not None and not rule.prefixes:
                for client_id in rule.clients:
                    self._by_client.setdefault(client_id, []).append(rule)
            else:
                self._for_all.append(rule)

    def can_publish(self, principal: Principal, client_id: str, topic: bytes) -> bool:
        """Also for wills, at CONNECT and when they are sent."""
        if _find_publish_fault(topic) is not None:
            return False
        acl = self._acl
        if acl is None:
            return True
        selection = self._select(principal.account, principal.name)
        if self._find_match(selection, principal, client_id, topic, on_publish=True, is_deny=True):
            return False
        if self._find_match(selection, principal, client_id, topic, on_publish=True, is_deny=False):
            return True
        return acl.default_allow and not _is_system(topic)

    def can_subscribe(self, principal: Principal, client_id: str, filter: bytes) -> bool:
        wanted = _without_share(filter)
        if find_filter_spelling_fault(wanted) is not None:
            return False
        acl = self._acl
        if acl is None:
            return True
        selection = self._select(principal.account, principal.name)
        if self._find_subscribe_deny(selection, principal, client_id, wanted):
            return False
        if self._find_cover(selection, principal, client_id, wanted, is_deny=False):
            return True
        return acl.default_allow and not _is_system(wanted)

    def can_receive(self, principal: Principal, client_id: str, topic: bytes) -> bool:
        """Asked for every topic that reaches a subscriber: live, retained or from an offline queue."""
        acl = self._acl
        if acl is None:
            return True
        selection = self._select(principal.account, principal.name)
        if self._find_match(selection, principal, client_id, topic, on_publish=False, is_deny=True):
            return False
        if self._find_match(selection, principal, client_id, topic, on_publish=False, is_deny=False):
            return True
        return acl.default_allow and not _is_system(topic)

    def has_all(self, principal: Principal, client_id: str, filter: bytes, on_publish: bool) -> bool:
        """Whether everything under `filter` is allowed and nothing of it denied: for what works on its own later
        on, such as a binding, where no single message is asked for any more."""
        if find_spelling_fault(filter) is not None:
            return False
        acl = self._acl
        if acl is None:
            return True
        selection = self._select(principal.account, principal.name)
        if selection.grants.find_set(on_publish, True).has_overlap(filter):
            return False
        for denied, _ in self._expand(selection, principal, client_id, on_publish, True):
            if overlaps(denied, filter):
                return False
        if selection.grants.find_set(on_publish, False).find_cover(filter):
            return True
        for allowed, _ in self._expand(selection, principal, client_id, on_publish, False):
            if covers(allowed, filter):
                return True
        return acl.default_allow and not _is_system(filter)

    def denies_part(self, principal: Principal, client_id: str, filter: bytes) -> bool:
        """Whether a rule denies publishing to something under `filter`, which may be one topic."""
        if self._acl is None:
            return False
        selection = self._select(principal.account, principal.name)
        if selection.grants.find_set(True, True).has_overlap(filter):
            return True
        for denied, _ in self._expand(selection, principal, client_id, True, True):
            if overlaps(denied, filter):
                return True
        return False

    def explain(self, action: str, principal: Principal, client_id: str, topic: bytes) -> str:
        """One sentence on which rule decides; `action` is publish, subscribe or receive."""
        if action not in (PUBLISH, SUBSCRIBE, RECEIVE):
            raise ValueError(f"unknown action {action!r}; use publish, subscribe or receive")
        acl = self._acl
        shown = topic.decode("utf-8", "replace")
        who = f"{principal.name!r} as client {client_id!r} in account {principal.account!r}"
        if action == SUBSCRIBE:
            topic = _without_share(topic)
        if action == SUBSCRIBE:
            fault = find_filter_spelling_fault(topic)
        else:
            fault = _find_publish_fault(topic) if action == PUBLISH else find_spelling_fault(topic)
        if fault is not None:
            return f"denied: {action} {shown!r} by {who}: {fault}"
        if acl is None:
            return f"allowed: {action} {shown!r} by {who}: there is no access list"
        selection = self._select(principal.account, principal.name)
        if action == SUBSCRIBE:
            denied = self._find_subscribe_deny(selection, principal, client_id, topic)
            allowed = self._find_cover(selection, principal, client_id, topic, is_deny=False)
        else:
            publish = action == PUBLISH
            denied = self._find_match(
                selection, principal, client_id, topic, on_publish=publish, is_deny=True
            )
            allowed = self._find_match(
                selection, principal, client_id, topic, on_publish=publish, is_deny=False
            )
        number = denied or allowed
        if number != NO_RULE:
            verdict = "denied" if denied else "allowed"
            return f"{verdict}: {action} {shown!r} by {who}: {acl.rules[number - 1].describe()}"
        if acl.default_allow and not _is_system(topic):
            return f"allowed: {action} {shown!r} by {who}: no rule concerns it and the default is allow"
        if acl.default_allow:
            return f"denied: {action} {shown!r} by {who}: no rule allows it and $SYS needs one"
        return f"denied: {action} {shown!r} by {who}: no rule allows it and the default is deny"

    def _find_subscribe_deny(
        self, selection: _Selection, principal: Principal, client_id: str, wanted: bytes
    ) -> int:
        """The number of a rule that refuses a subscription, or NO_RULE."""
        if not is_queue_topic(wanted):
            return self._find_cover(selection, principal, client_id, wanted, is_deny=True)
        records = filter_of_records(wanted)
        number = selection.grants.deny_subscribe.find_record_rule(records)
        if number:
            return number
        for filter, number in self._expand(selection, principal, client_id, False, True):
            if not filter.endswith(SETTLING) and overlaps(filter, records):
                return number
        return NO_RULE

    def _find_match(
        self,
        selection: _Selection,
        principal: Principal,
        client_id: str,
        topic: bytes,
        on_publish: bool,
        is_deny: bool,
    ) -> int:
        """The number of a rule of this kind whose filter matches `topic`, or NO_RULE."""
        number = selection.grants.find_set(on_publish, is_deny).find_match(topic)
        if number:
            return number
        for filter, number in self._expand(selection, principal, client_id, on_publish, is_deny):
            if matches(filter, topic):
                return number
        return NO_RULE

    def _find_cover(
        self, selection: _Selection, principal: Principal, client_id: str, narrow: bytes, is_deny: bool
    ) -> int:
        """The same for subscribing: a rule whose filter matches every topic that `narrow` matches."""
        number = selection.grants.find_set(False, is_deny).find_cover(narrow)
        if number:
            return number
        for filter, number in self._expand(selection, principal, client_id, False, is_deny):
            if covers(filter, narrow):
                return number
        return NO_RULE

    def _expand(
        self, selection: _Selection, principal: Principal, client_id: str, on_publish: bool, is_deny: bool
    ) -> list[tuple[bytes, int]]:
        """Filters, with their rule, of the rules of this kind that depend on the client id and concern it."""
        found: list[tuple[bytes, int]] = []
        for rule in self._rules_by_client(selection, client_id):
            if not _is_of_kind(rule, on_publish, is_deny) or not _concerns(rule, principal, client_id):
                continue
            for template in rule.filters:
                filter = template.expand(principal.name, client_id)
                if filter is not None:
                    found.append((filter, rule.number))
        return found

    def _rules_by_client(self, selection: _Selection, client_id: str) -> list[Rule]:
        own = self._by_client.get(client_id)
        return selection.by_client if own is None else selection.by_client + own

    def _select(self, account: str, user_name: str) -> _Selection:
        key = (account, user_name)
        selection = self._selections.get(key)
        if selection is not None:
            return selection
        fixed: list[Rule] = []
        by_client: list[Rule] = []
        for rule in self._for_all + self._by_user.get(user_name, []):
            if rule.concerns_principal(account, user_name):
                (by_client if rule.depends_on_client() else fixed).append(rule)
        selection = _Selection(Grants(fixed, user_name, ""), by_client)
        if len(self._selections) >= GRANTS_MAX:
            del self._selections[next(iter(self._selections))]
        if len(user_name) <= _CACHED_NAME_LENGTH_MAX:
            self._selections[key] = selection
        return selection


def _is_of_kind(rule: Rule, on_publish: bool, is_deny: bool) -> bool:
    return rule.is_deny == is_deny and (rule.on_publish if on_publish else rule.on_subscribe)


def _concerns(rule: Rule, principal: Principal, client_id: str) -> bool:
    return rule.concerns_client(client_id) and rule.concerns_principal(principal.account, principal.name)


def _is_system(topic: bytes) -> bool:
    return topic == b"$SYS" or topic.startswith(b"$SYS/")


def _without_share(filter: bytes) -> bytes:
    """Callers take the share prefix off; one that forgets must not slip past the rules."""
    share = split_share(filter)
    return filter if share is None else share[1]


def _find_publish_fault(topic: bytes) -> str | None:
    """Why nobody can publish to a topic, whatever the rules say; None if somebody can."""
    if is_for_broker_only(topic):
        return "only the broker publishes there"
    return find_spelling_fault(topic)


def find_filter_spelling_fault(filter: bytes) -> str | None:
    """Why a filter, without its share prefix, is none that can be asked for; None if it can."""
    if not filter or filter.startswith(SHARE_PREFIX):
        return "not a shared subscription the broker knows"
    return find_spelling_fault(filter)


def parse_acl(document: object) -> Acl:
    """The access list a file stands for, after YAML.

    Raises AclFault; an empty file is a list that denies everything.
    """
    if document is None:
        return Acl([], default_allow=False)
    entries = _expect_mapping(document, "", _DOCUMENT_KEYS)
    default = entries.get("default", "deny")
    if default not in ("allow", "deny"):
        raise AclFault("default", "expected allow or deny")
    listed = entries.get("rules")
    if listed is None:
        listed = []
    if not isinstance(listed, list):
        raise AclFault("rules", "expected a list of rules, each with allow or deny and topics")
    if len(listed) > RULES_MAX:
        raise AclFault("rules", f"more than {RULES_MAX} rules; use %u and %c to say the same in fewer")
    rules = [_parse_rule(entry, index) for index, entry in enumerate(listed)]
    return Acl(rules, default == "allow")


def _parse_rule(entry: object, index: int) -> Rule:
    path = f"rules[{index}]"
    fields = _expect_mapping(entry, path, _RULE_KEYS)
    is_deny = "deny" in fields
    if is_deny == ("allow" in fields):
        raise AclFault(path, "a rule has either allow or deny, with publish, subscribe or all")
    verb = "deny" if is_deny else "allow"
    action = fields[verb]
    if not isinstance(action, str) or action not in _ACTIONS:
        raise AclFault(f"{path}.{verb}", f"expected publish, subscribe or all{_nearest(action, _ACTIONS)}")
    if "topics" not in fields:
        raise AclFault(path, "a rule needs topics; write `topics: ['#']` for all of them")
    filters: list[FilterTemplate] = []
    for position, source in enumerate(_expect_names(fields, "topics", path)):
        fault = find_template_fault(source)
        if fault is not None:
            raise AclFault(f"{path}.topics[{position}]", fault)
        filters.append(FilterTemplate(source))
    clients: dict[str, None] | None = None
    prefixes: list[str] = []
    if "clients" in fields:
        clients = {}
        for position, name in enumerate(_expect_names(fields, "clients", path)):
            if "*" in name[:-1]:
                raise AclFault(f"{path}.clients[{position}]", "a * can only stand at the end")
            if name.endswith("*"):
                prefixes.append(name[:-1])
            else:
                clients[name] = None
    return Rule(
        index + 1,
        is_deny,
        action != SUBSCRIBE,
        action != PUBLISH,
        filters,
        dict.fromkeys(_expect_names(fields, "users", path)) if "users" in fields else None,
        clients,
        prefixes,
        dict.fromkeys(_expect_names(fields, "accounts", path)) if "accounts" in fields else None,
    )


def _expect_mapping(value: object, path: str, keys: tuple[str, ...]) -> dict[str, object]:
    if not isinstance(value, dict):
        raise AclFault(path, f"expected a mapping with {', '.join(keys)}")
    fields: dict[str, object] = {}
    for key, entry in value.items():
        if not isinstance(key, str) or key not in keys:
            raise AclFault(
                path, f"unknown key {str(key)[:64]!r}{_nearest(key, keys)}; valid: {', '.join(keys)}"
            )
        fields[key] = entry
    return fields


def _expect_names(fields: dict[str, object], key: str, path: str) -> list[str]:
    """A list of texts; one text alone will do. Empty is refused: it would concern nobody, or everybody."""
    value = fields[key]
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list) or not listed:
        raise AclFault(
            f"{path}.{key}", "expected a list with at least one entry; leave the key out for everybody"
        )
    if len(listed) > NAMES_PER_RULE_MAX:
        raise AclFault(f"{path}.{key}", f"more than {NAMES_PER_RULE_MAX} entries; split the rule")
    names: list[str] = []
    for position, name in enumerate(listed):
        if not isinstance(name, str):
            raise AclFault(f"{path}.{key}[{position}]", "expected a text; put it into quotes")
        if not name or len(name) > NAME_LENGTH_MAX:
            raise AclFault(
                f"{path}.{key}[{position}]", f"expected between 1 and {NAME_LENGTH_MAX} characters"
            )
        names.append(name)
    return names


def _nearest(value: object, valid: tuple[str, ...]) -> str:
    close = difflib.get_close_matches(str(value)[:64], valid, n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else ""


def import_mosquitto_acl(text: str) -> dict[str, object]:
    """The document for a mosquitto ACL file. Raises AclFault that names the line.

    Topics before the first `user` line are for anonymous clients, as there. One thing differs: mosquitto
    grants any subscription and filters what arrives; here a subscription wider than its rules is refused.
    """
    rules: list[object] = []
    user_name = ANONYMOUS_NAME
    number = 0
    for raw in text.removeprefix("\ufeff").split("\n"):
        number += 1
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        path = f"line {number}"
        word, _, rest = line.partition(" ")
        rest = rest.strip()
        if not rest:
            raise AclFault(path, "expected user, topic or pattern, and then a name or a filter")
        if word == "user":
            if rest == ANONYMOUS_NAME:
                raise AclFault(path, f"the name {ANONYMOUS_NAME} is reserved; rename that user")
            user_name = rest
        elif word == "topic":
            rules.append(_import_line(rest.replace("%", "%%"), path, user_name))
        elif word == "pattern":
            escaped = rest.replace("%", "%%").replace("%%c", "%c").replace("%%u", "%u")
            rules.append(_import_line(escaped, path, None))
        else:
            raise AclFault(path, "expected user, topic or pattern")
    return {"default": "deny", "rules": rules}


def _import_line(rest: str, path: str, user_name: str | None) -> dict[str, object]:
    """One rule from `[read|write|readwrite|deny] filter`."""
    access, space, filter = rest.partition(" ")
    if not space:
        access, filter = "readwrite", rest
    action = {"read": SUBSCRIBE, "write": PUBLISH, "readwrite": ALL, "deny": ALL}.get(access)
    if action is None:
        raise AclFault(path, "expected read, write, readwrite or deny before the filter")
    filter = filter.strip()
    fault = find_template_fault(filter)
    if fault is not None:
        raise AclFault(path, fault)
    rule: dict[str, object] = {"deny" if access == "deny" else "allow": action, "topics": [filter]}
    if user_name is not None:
        rule["users"] = [user_name]
    return rule
