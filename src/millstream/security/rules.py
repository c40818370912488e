"""The rules of an access list: whom one concerns, what it allows or denies, and on which filters.

Invariants
- `%c` and `%u` stand for one literal piece of text. A client id or user name that is empty or contains `+`,
  `#`, `/` or NUL never makes such a filter match, and none can turn a filter into one of the `$` topics.
- A filter about queues is written as their topics are: there is one spelling. A name put in place of `%c` or `%u` is too.
- Rules never change once made.
"""

from __future__ import annotations

from typing import Final, final

from millstream.model.queue_topic import find_spelling_fault, is_queue_topic
from millstream.model.topic import SHARE_PREFIX, find_filter_fault

FILTER_LENGTH_MAX: Final = 4096
FILTER_LEVELS_MAX: Final = 128

_LITERAL: Final = 0
_CLIENT: Final = 1
_USER: Final = 2
_CLIENT_SAMPLE: Final = "\ue000"  # any name will do
_USER_SAMPLE: Final = "\ue001"


@final
class FilterTemplate:
    """A filter that may contain `%c`, `%u` and `%%`.

    Made only of text in which `find_template_fault` finds nothing.
    """

    __slots__ = ("_is_quoted", "_kinds", "_pieces", "needs_client", "needs_user", "source")

    def __init__(self, source: str) -> None:
        split = _split_template(source)
        if split is None:
            raise ValueError("a template with a fault")
        self.source = source
        self._kinds, self._pieces = split
        self._is_quoted = is_queue_topic(source.encode("utf-8", "surrogatepass"))
        self.needs_client = _CLIENT in self._kinds
        self.needs_user = _USER in self._kinds

    def expand(self, user_name: str, client_id: str) -> bytes | None:
        """The filter for one client, or None if its names could mean more than themselves."""
        if self.needs_client and not is_plain(client_id):
            return None
        if self.needs_user and not is_plain(user_name):
            return None
        text = ""
        for kind, piece in zip(self._kinds, self._pieces, strict=True):
            if kind == _LITERAL:
                text += piece
                continue
            name = client_id if kind == _CLIENT else user_name
            if self._is_quoted and text.count("/") == 1:  # in the level that is the name of a queue
                name = name.replace("%", "%25")
            text += name
        if text.startswith("$") and not self.source.startswith("$"):
            return None  # a client called $SYS
        return text.encode("utf-8", "surrogatepass")


def is_plain(name: str) -> bool:
    """Whether a name, put into a filter, stands for exactly one level's text."""
    return bool(name) and "/" not in name and "+" not in name and "#" not in name and "\0" not in name


def find_template_fault(source: str) -> str | None:
    """Why `source` cannot be a filter of a rule, or None if it can."""
    split = _split_template(source)
    if split is None:
        return "a % must be followed by c (client id), u (user name) or % (a percent sign)"
    kinds, pieces = split
    stands = {_LITERAL: "", _CLIENT: _CLIENT_SAMPLE, _USER: _USER_SAMPLE}
    sample = "".join([stands[kind] or piece for kind, piece in zip(kinds, pieces, strict=True)])
    try:
        filter = sample.encode()
    except UnicodeEncodeError:
        return "not well-formed UTF-8"
    if filter.startswith(SHARE_PREFIX):
        return "write the filter without $share/<group>/; it is checked for shared subscriptions too"
    if source.startswith("$"):
        first = _split_template(source.split("/", 1)[0])
        if first is not None and (_CLIENT in first[0] or _USER in first[0]):
            return "%c and %u cannot stand in a first level that begins with $"
    fault = find_spelling_fault(filter)
    if fault is not None:
        fault = fault.replace("%", "%%")  # as it is written in a rule
        return fault.replace(_CLIENT_SAMPLE, "%c").replace(_USER_SAMPLE, "%u")
    return find_filter_fault(filter, FILTER_LENGTH_MAX, FILTER_LEVELS_MAX)


def _split_template(source: str) -> tuple[list[int], list[str]] | None:
    """(kinds, texts) of the pieces of a template, or None if a percent sign has no meaning."""
    kinds: list[int] = []
    pieces: list[str] = []
    literal = ""
    position = 0
    while True:
        percent = source.find("%", position)
        if percent < 0:
            break
        literal += source[position:percent]
        mark = source[percent + 1 : percent + 2]
        if mark == "%":
            literal += "%"
        elif mark == "c" or mark == "u":
            kinds += [_LITERAL, _CLIENT if mark == "c" else _USER]
            pieces += [literal, ""]
            literal = ""
        else:
            return None
        position = percent + 2
    kinds.append(_LITERAL)
    pieces.append(literal + source[position:])
    return kinds, pieces


@final
class Rule:
    """One entry of an access list. A selector that is None concerns everybody."""

    __slots__ = (
        "accounts",
        "clients",
        "filters",
        "is_deny",
        "number",
        "on_publish",
        "on_subscribe",
        "prefixes",
        "users",
    )

    def __init__(
        self,
        number: int,
        is_deny: bool,
        on_publish: bool,
        on_subscribe: bool,
        filters: list[FilterTemplate],
        users: dict[str, None] | None,
        clients: dict[str, None] | None,
        prefixes: list[str],
        accounts: dict[str, None] | None,
    ) -> None:
        self.number = number
        self.is_deny = is_deny
        self.on_publish = on_publish
        self.on_subscribe = on_subscribe
        self.filters = filters
        self.users = users
        self.clients = clients  # exact ids; `prefixes` concerns more of them and is empty if this is None
        self.prefixes = prefixes
        self.accounts = accounts

    def concerns_principal(self, account: str, user_name: str) -> bool:
        return (self.accounts is None or account in self.accounts) and (
            self.users is None or user_name in self.users
        )

    def concerns_client(self, client_id: str) -> bool:
        if self.clients is None or client_id in self.clients:
            return True
        for prefix in self.prefixes:  # noqa: SIM110 a generator would be slower here
            if client_id.startswith(prefix):
                return True
        return False

    def depends_on_client(self) -> bool:
        if self.clients is not None:
            return True
        for template in self.filters:  # noqa: SIM110
            if template.needs_client:
                return True
        return False

    def describe(self) -> str:
        action = (
            "all" if self.on_publish and self.on_subscribe else "publish" if self.on_publish else "subscribe"
        )
        verb = "deny" if self.is_deny else "allow"
        return f"rules[{self.number - 1}] ({verb} {action})"  # counted as AclFault counts


@final
class Acl:
    """All rules and what holds where none applies."""

    __slots__ = ("default_allow", "rules")

    def __init__(self, rules: list[Rule], default_allow: bool) -> None:
        self.rules = rules
        self.default_allow = default_allow
