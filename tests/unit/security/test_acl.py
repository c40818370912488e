"""May you: the access list, its file, and what is said about it."""

from __future__ import annotations

import pytest

from millstream.security.acl import GRANTS_MAX, AclFault, Authorizer, import_mosquitto_acl, parse_acl
from millstream.security.principal import Principal

ANNA = Principal("anna", "default", "user")
BO = Principal("bo", "north", "user")
GUEST = Principal("anonymous", "default", "anonymous")


def make_authorizer(*rules: dict[str, object], default: str = "deny") -> Authorizer:
    return Authorizer(parse_acl({"default": default, "rules": list(rules)}))


def test_without_a_list_everything_is_allowed() -> None:
    authorizer = Authorizer(None)
    assert authorizer.can_publish(ANNA, "c", b"a")
    assert authorizer.can_subscribe(ANNA, "c", b"$SYS/#")
    assert authorizer.can_receive(ANNA, "c", b"$SYS/x")
    assert authorizer.explain("publish", ANNA, "c", b"a").startswith("allowed")


@pytest.mark.parametrize("document", [None, {}, {"rules": None}, {"rules": []}, {"default": "deny"}])
def test_an_empty_list_denies_everything(document: object) -> None:
    authorizer = Authorizer(parse_acl(document))
    assert not authorizer.can_publish(ANNA, "c", b"a")
    assert not authorizer.can_subscribe(ANNA, "c", b"a")
    assert not authorizer.can_receive(ANNA, "c", b"a")


def test_a_rule_grants_only_its_action() -> None:
    authorizer = make_authorizer(
        {"allow": "publish", "topics": ["p/#"]}, {"allow": "subscribe", "topics": ["s/#"]}
    )
    assert authorizer.can_publish(ANNA, "c", b"p/x")
    assert not authorizer.can_publish(ANNA, "c", b"s/x")
    assert authorizer.can_subscribe(ANNA, "c", b"s/+")
    assert authorizer.can_receive(ANNA, "c", b"s/x")
    assert not authorizer.can_subscribe(ANNA, "c", b"p/+")
    assert not authorizer.can_receive(ANNA, "c", b"p/x")


def test_deny_wins_over_allow_wherever_it_stands() -> None:
    allow: dict[str, object] = {"allow": "all", "topics": ["#"]}
    deny: dict[str, object] = {"deny": "all", "topics": ["secret/#"]}
    for rules in ((allow, deny), (deny, allow)):
        authorizer = make_authorizer(*rules)
        assert authorizer.can_publish(ANNA, "c", b"open")
        assert not authorizer.can_publish(ANNA, "c", b"secret/x")
        assert not authorizer.can_subscribe(ANNA, "c", b"secret/x")


def test_a_wide_subscription_is_granted_and_its_denied_part_held_back_at_delivery() -> None:
    authorizer = make_authorizer(
        {"allow": "all", "topics": ["#"]}, {"deny": "subscribe", "topics": ["secret/#"]}
    )
    for filter in (b"#", b"+/+", b"+/x"):
        assert authorizer.can_subscribe(ANNA, "c", filter)
    assert authorizer.can_receive(ANNA, "c", b"open/x")
    assert not authorizer.can_receive(ANNA, "c", b"secret/x")
    assert not authorizer.can_subscribe(ANNA, "c", b"secret/+")


def test_all_of_a_filter_is_granted_only_if_no_part_of_it_is_denied() -> None:
    assert Authorizer(None).has_all(ANNA, "c", b"#", on_publish=True)
    authorizer = make_authorizer(
        {"allow": "all", "topics": ["a/#", "own/%c/#"]},
        {"deny": "subscribe", "topics": ["a/secret", "a/+/door", "own/%c/secret/#"]},
        {"deny": "publish", "topics": ["+/b"]},
    )
    for filter, receives, publishes in (
        (b"a/x", True, True),
        (b"a/x/window/#", True, True),
        (b"a/#", False, False),
        (b"a/secret/#", False, True),
        (b"a/x/+", False, True),
        (b"a/+", False, False),
        (b"own/c/x", True, True),
        (b"own/c/#", False, True),
        (b"own/d/x", False, False),
        (b"other", False, False),
    ):
        assert authorizer.has_all(ANNA, "c", filter, on_publish=False) is receives, filter
        assert authorizer.has_all(ANNA, "c", filter, on_publish=True) is publishes, filter
    opened = make_authorizer({"deny": "all", "topics": ["a/#"]}, default="allow")
    assert opened.has_all(ANNA, "c", b"b/#", on_publish=False)
    assert not opened.has_all(ANNA, "c", b"#", on_publish=False)
    assert not opened.has_all(ANNA, "c", b"$SYS/#", on_publish=False)


def test_a_subscription_wider_than_what_is_allowed_is_refused() -> None:
    authorizer = make_authorizer({"allow": "subscribe", "topics": ["a/+"]})
    for filter in (b"#", b"+/b", b"a/#", b"a/+/c", b"a"):
        assert not authorizer.can_subscribe(ANNA, "c", filter)
    assert authorizer.can_subscribe(ANNA, "c", b"a/+")
    assert authorizer.can_subscribe(ANNA, "c", b"a/b")


def test_a_share_prefix_left_on_is_no_way_around_a_rule() -> None:
    authorizer = make_authorizer({"deny": "subscribe", "topics": ["secret/#"]}, default="allow")
    assert not authorizer.can_subscribe(ANNA, "c", b"$share/g/secret/#")
    assert authorizer.can_subscribe(ANNA, "c", b"$share/g/open/#")
    assert not authorizer.can_subscribe(ANNA, "c", b"$share/g")
    assert not authorizer.can_subscribe(ANNA, "c", b"$share/+/open")
    assert authorizer.explain("subscribe", ANNA, "c", b"$share/g").startswith("denied")


def test_the_default_does_not_open_the_system_topics() -> None:
    authorizer = make_authorizer(default="allow")
    assert authorizer.can_subscribe(ANNA, "c", b"#")
    assert authorizer.can_receive(ANNA, "c", b"a")
    for topic in (b"$SYS", b"$SYS/broker/uptime"):
        assert not authorizer.can_receive(ANNA, "c", topic)
        assert not authorizer.can_publish(ANNA, "c", topic)
        assert not authorizer.can_subscribe(ANNA, "c", topic)
    assert not authorizer.can_subscribe(ANNA, "c", b"$SYS/#")
    assert authorizer.can_publish(ANNA, "c", b"$SYSTEM")
    reader = make_authorizer({"allow": "subscribe", "topics": ["$SYS/#"]}, default="allow")
    assert reader.can_subscribe(ANNA, "c", b"$SYS/#")
    assert reader.can_receive(ANNA, "c", b"$SYS/broker/uptime")


def test_a_rule_for_all_topics_does_not_open_the_system_topics() -> None:
    authorizer = make_authorizer({"allow": "all", "topics": ["#", "+/#", "+/broker"]})
    assert not authorizer.can_receive(ANNA, "c", b"$SYS/broker")
    assert not authorizer.can_subscribe(ANNA, "c", b"$SYS/#")


@pytest.mark.parametrize("rules", [None, [{"allow": "all", "topics": ["$SYS/#"]}]])
def test_nobody_publishes_what_only_the_broker_says_and_the_check_says_so(rules: list[object] | None) -> None:
    authorizer = Authorizer(None if rules is None else parse_acl({"rules": rules}))
    assert not authorizer.can_publish(ANNA, "c", b"$SYS/broker/uptime")
    assert authorizer.explain("publish", ANNA, "c", b"$SYS/broker/uptime").startswith("denied")
    assert authorizer.can_publish(ANNA, "c", b"$SYS/broker/connection/b/state")
    assert authorizer.explain("publish", ANNA, "c", b"$SYS/broker/connection/b/state").startswith("allowed")
    assert authorizer.explain("receive", ANNA, "c", b"$SYS/broker/uptime").startswith("allowed")


def test_rules_select_by_user_client_and_account() -> None:
    authorizer = make_authorizer(
        {"allow": "all", "topics": ["user"], "users": ["anna", "anonymous"]},
        {"allow": "all", "topics": ["client"], "clients": ["c1", "gate-*"]},
        {"allow": "all", "topics": ["exact"], "clients": ["c1"]},
        {"allow": "all", "topics": ["account"], "accounts": ["north"]},
        {"allow": "all", "topics": ["both"], "users": ["anna"], "clients": ["c1"], "accounts": ["default"]},
    )

    def granted(principal: Principal, client_id: str) -> str:
        topics = ("user", "client", "exact", "account", "both")
        return " ".join(
            [topic for topic in topics if authorizer.can_publish(principal, client_id, topic.encode())]
        )

    assert granted(ANNA, "c1") == "user client exact both"
    assert granted(ANNA, "c2") == "user"
    assert granted(ANNA, "gate-7") == "user client"
    assert granted(ANNA, "gate") == "user"
    assert granted(BO, "c1") == "client exact account"
    assert granted(GUEST, "c2") == "user"


def test_placeholders_stand_for_the_client_and_the_user() -> None:
    authorizer = make_authorizer({"allow": "all", "topics": ["d/%c/+", "u/%u-%c", "100%%"]})
    assert authorizer.can_publish(ANNA, "c1", b"d/c1/x")
    assert not authorizer.can_publish(ANNA, "c2", b"d/c1/x")
    assert authorizer.can_publish(ANNA, "c1", b"u/anna-c1")
    assert not authorizer.can_publish(BO, "c1", b"u/anna-c1")
    assert authorizer.can_publish(ANNA, "c1", b"100%")
    assert not authorizer.can_publish(ANNA, "c1", b"d/%c/x")


@pytest.mark.parametrize("name", ["+", "#", "c1/x", "a+", "/", "c\0", ""])
def test_a_name_with_a_special_character_fits_no_placeholder(name: str) -> None:
    authorizer = make_authorizer({"allow": "all", "topics": ["d/%c", "d/%c/#", "u/%u/#"]})
    principal = Principal(name, "default", "user")
    for topic in (b"d/x", b"d/c1/x", b"d/+", b"d/#", b"d/", b"d/a+", b"d/c\0", f"d/{name}".encode()):
        assert not authorizer.can_publish(ANNA, name, topic)
        assert not authorizer.can_receive(ANNA, name, topic)
        assert not authorizer.can_subscribe(ANNA, name, topic)
    for topic in (b"u/x", b"u/", f"u/{name}".encode(), f"u/{name}/x".encode()):
        assert not authorizer.can_publish(principal, "c", topic)


def test_no_name_can_turn_a_rule_into_one_for_the_system_topics() -> None:
    authorizer = make_authorizer({"allow": "all", "topics": ["%c/#", "%u/#", "x/%c"]})
    assert not authorizer.can_subscribe(ANNA, "$SYS", b"$SYS/#")
    assert not authorizer.can_receive(Principal("$SYS", "default", "user"), "c", b"$SYS/x")
    assert authorizer.can_publish(ANNA, "$SYS", b"x/$SYS")
    assert authorizer.can_publish(ANNA, "c", b"anna/x")


def test_a_new_list_holds_at_once_and_is_announced() -> None:
    authorizer = make_authorizer({"allow": "all", "topics": ["%c/#"]})
    before = authorizer.generation
    assert authorizer.can_receive(ANNA, "c", b"c/x")
    authorizer.replace(parse_acl({"rules": [{"allow": "all", "topics": ["d/#"]}]}))
    assert authorizer.generation == before + 1
    assert not authorizer.can_receive(ANNA, "c", b"c/x")
    assert authorizer.can_receive(ANNA, "c", b"d/x")
    authorizer.replace(None)
    assert authorizer.can_receive(ANNA, "c", b"c/x")


def test_more_clients_than_are_remembered_still_get_right_answers() -> None:
    authorizer = make_authorizer({"allow": "publish", "topics": ["%c"]})
    for _ in range(2):
        for number in range(GRANTS_MAX + 100):
            assert authorizer.can_publish(ANNA, str(number), str(number).encode())
            assert not authorizer.can_publish(ANNA, str(number), b"other")
    long_id = "x" * 60_000
    assert authorizer.can_publish(ANNA, long_id, long_id.encode())


def test_an_explanation_names_the_entry_that_decided() -> None:
    authorizer = make_authorizer(
        {"allow": "all", "topics": ["#"]},
        {"deny": "publish", "topics": ["secret/#"], "users": ["anna"]},
        {"allow": "subscribe", "topics": ["$SYS/#"], "users": ["bo"]},
    )
    denied = authorizer.explain("publish", ANNA, "c", b"secret/x")
    assert denied.startswith("denied: publish 'secret/x' by 'anna'")
    assert "rules[1] (deny publish)" in denied
    assert "rules[0] (allow all)" in authorizer.explain("publish", BO, "c", b"secret/x")
    assert "rules[2] (allow subscribe)" in authorizer.explain("subscribe", BO, "c", b"$SYS/#")
    assert "default is deny" in authorizer.explain("receive", ANNA, "c", b"$SYS/x")
    assert "$SYS" in make_authorizer(default="allow").explain("receive", ANNA, "c", b"$SYS/x")
    assert "default is allow" in make_authorizer(default="allow").explain("receive", ANNA, "c", b"x")
    with pytest.raises(ValueError, match="unknown action"):
        authorizer.explain("read", ANNA, "c", b"x")


@pytest.mark.parametrize(
    ("document", "path", "word"),
    [
        ([], "", "mapping"),
        ("text", "", "mapping"),
        ({"defualt": "deny"}, "", "did you mean 'default'"),
        ({1: 2}, "", "unknown key"),
        ({"default": "yes"}, "default", "allow or deny"),
        ({"default": True}, "default", "allow or deny"),
        ({"default": None}, "default", "allow or deny"),
        ({"rules": {}}, "rules", "list"),
        ({"rules": ["x"]}, "rules[0]", "mapping"),
        ({"rules": [None]}, "rules[0]", "mapping"),
        ({"rules": [{"topics": ["a"]}]}, "rules[0]", "either allow or deny"),
        ({"rules": [{"allow": "all", "deny": "all", "topics": ["a"]}]}, "rules[0]", "either"),
        ({"rules": [{"allow": "all"}]}, "rules[0]", "needs topics"),
        ({"rules": [{"allow": "publsh", "topics": ["a"]}]}, "rules[0].allow", "did you mean 'publish'"),
        ({"rules": [{"deny": ["all"], "topics": ["a"]}]}, "rules[0].deny", "expected publish"),
        ({"rules": [{"allow": "all", "topic": ["a"]}]}, "rules[0]", "did you mean 'topics'"),
        ({"rules": [{"allow": "all", "topics": []}]}, "rules[0].topics", "at least one"),
        ({"rules": [{"allow": "all", "topics": None}]}, "rules[0].topics", "at least one"),
        ({"rules": [{"allow": "all", "topics": {"a": 1}}]}, "rules[0].topics", "list"),
        ({"rules": [{"allow": "all", "topics": ["a", ""]}]}, "rules[0].topics[1]", "between 1"),
        ({"rules": [{"allow": "all", "topics": ["a", "b#"]}]}, "rules[0].topics[1]", "#"),
        ({"rules": [{"allow": "all", "topics": ["a/%c+"]}]}, "rules[0].topics[0]", "whole level"),
        ({"rules": [{"allow": "all", "topics": ["a/%d"]}]}, "rules[0].topics[0]", "%"),
        ({"rules": [{"allow": "all", "topics": ["a/%"]}]}, "rules[0].topics[0]", "%"),
        ({"rules": [{"allow": "all", "topics": ["$%c/x"]}]}, "rules[0].topics[0]", "begins with $"),
        ({"rules": [{"allow": "all", "topics": ["$share/g/a"]}]}, "rules[0].topics[0]", "$share"),
        ({"rules": [{"allow": "all", "topics": ["\ud800"]}]}, "rules[0].topics[0]", "UTF-8"),
        ({"rules": [{"allow": "all", "topics": ["a\0"]}]}, "rules[0].topics[0]", "NUL"),
        ({"rules": [{"allow": "all", "topics": ["a"], "users": []}]}, "rules[0].users", "at least one"),
        ({"rules": [{"allow": "all", "topics": ["a"], "users": [True]}]}, "rules[0].users[0]", "quotes"),
        ({"rules": [{"allow": "all", "topics": ["a"], "accounts": [7]}]}, "rules[0].accounts[0]", "quotes"),
        (
            {"rules": [{"allow": "all", "topics": ["a"], "clients": ["a*b"]}]},
            "rules[0].clients[0]",
            "at the end",
        ),
    ],
)
def test_a_faulty_list_is_refused_with_the_entry_and_what_to_do(
    document: object, path: str, word: str
) -> None:
    with pytest.raises(AclFault) as caught:
        parse_acl(document)
    assert caught.value.path == path
    assert word in caught.value.text
    assert str(caught.value) == (f"{path}: {caught.value.text}" if path else caught.value.text)


def test_a_single_name_may_stand_without_a_list() -> None:
    authorizer = make_authorizer({"allow": "publish", "topics": "a/#", "users": "anna"})
    assert authorizer.can_publish(ANNA, "c", b"a/x")
    assert not authorizer.can_publish(BO, "c", b"a/x")


MOSQUITTO_ACL = """\
# for clients without a name
topic read public/#

user anna
topic sensors/100%/value
topic write commands/#
topic deny  commands/reset
user bo
topic readwrite #

pattern read status/%u/%c
pattern write 50%/%c
"""


def test_a_mosquitto_file_keeps_its_meaning() -> None:
    authorizer = Authorizer(parse_acl(import_mosquitto_acl(MOSQUITTO_ACL)))
    assert authorizer.can_subscribe(GUEST, "c", b"public/#")
    assert not authorizer.can_publish(GUEST, "c", b"public/x")
    assert not authorizer.can_subscribe(ANNA, "c", b"public/#")
    assert authorizer.can_publish(ANNA, "c", b"sensors/100%/value")
    assert authorizer.can_subscribe(ANNA, "c", b"sensors/100%/value")
    assert authorizer.can_publish(ANNA, "c", b"commands/start")
    assert not authorizer.can_subscribe(ANNA, "c", b"commands/start")
    assert not authorizer.can_publish(ANNA, "c", b"commands/reset")
    assert authorizer.can_publish(BO, "c", b"anything")
    assert authorizer.can_subscribe(ANNA, "c1", b"status/anna/c1")
    assert not authorizer.can_subscribe(ANNA, "c1", b"status/anna/c2")
    assert authorizer.can_publish(ANNA, "c1", b"50%/c1")


@pytest.mark.parametrize("text", ["", "# nothing\n", "user anna\n"])
def test_a_mosquitto_file_without_topics_denies_everything(text: str) -> None:
    assert not Authorizer(parse_acl(import_mosquitto_acl(text))).can_publish(ANNA, "c", b"a")


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("topic", "expected user"),
        ("allow a", "expected user"),
        ("topic see a", "read, write"),
        ("topic read a#", "#"),
        ("pattern read %c+", "whole level"),
        ("user anonymous", "reserved"),
    ],
)
def test_a_faulty_mosquitto_line_is_named(line: str, word: str) -> None:
    with pytest.raises(AclFault, match="line 2") as caught:
        import_mosquitto_acl(f"user anna\n{line}\n")
    assert word in caught.value.text


# ------------------------------------------------------------- names of queues

QUEUES: dict[str, object] = {"allow": "all", "topics": ["$queue/#"]}
SPELLINGS = [b"$queue/secre%74", b"$queue/%73ecret", b"$queue/secret%", b"$queue/$dlq/x", b"$queue/a%2fb"]


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("listed", [True, False])
def test_a_queue_has_one_spelling_and_any_other_is_denied_to_everybody(spelling: bytes, listed: bool) -> None:
    authorizer = make_authorizer(QUEUES, {"allow": "all", "topics": ["$dlq/#"]})
    if not listed:
        authorizer.replace(None)
    for filter in (spelling, spelling + b"/key", b"$share/g/" + spelling, spelling + b"/$ack"):
        assert not authorizer.can_subscribe(ANNA, "c", filter)
        assert "write $" in authorizer.explain("subscribe", ANNA, "c", filter)
    assert not authorizer.can_publish(ANNA, "c", spelling)
    assert authorizer.explain("publish", ANNA, "c", spelling).startswith("denied")


@pytest.mark.parametrize(
    ("source", "canonical"),
    [
        ("$queue/secre%%74", "$queue/secret"),
        ("$queue/a%%2fb", "$queue/a%%2Fb"),
        ("$queue/$dlq/#", "$dlq/#"),
        ("$queue/$dlq/%u/%c", "$dlq/%u/%c"),
        ("$queue/%u%%41/#", "$queue/%uA/#"),
        ("$dlq/50%%", "$dlq/50%%25"),
    ],
)
def test_a_rule_in_another_spelling_is_refused_and_the_right_one_named(source: str, canonical: str) -> None:
    with pytest.raises(AclFault) as caught:
        make_authorizer({"deny": "all", "topics": ["ok", source]})
    assert caught.value.path == "rules[0].topics[1]"
    assert f"write {canonical}" in caught.value.text
    make_authorizer({"deny": "all", "topics": [canonical]})


def test_a_user_name_with_a_percent_sign_names_its_own_queue_and_no_other() -> None:
    authorizer = make_authorizer({"allow": "all", "topics": ["$queue/%u/#", "own/%u"]})
    odd = Principal("a%2Fb", "default", "user")
    assert authorizer.can_subscribe(odd, "c", b"$queue/a%252Fb")
    assert not authorizer.can_subscribe(odd, "c", b"$queue/a%2Fb")
    assert authorizer.can_publish(odd, "c", b"own/a%2Fb")


def test_a_deny_of_some_records_of_a_queue_refuses_the_queue() -> None:
    """A queue hands each record to whoever is next: none of them can be held back from one reader."""
    authorizer = make_authorizer(
        QUEUES,
        {"deny": "subscribe", "topics": ["$queue/orders/eu/#"]},
        {"deny": "all", "topics": ["$queue/jobs/$reject", "$queue/%c/mine"]},
    )
    for filter in (b"$queue/orders", b"$queue/orders/#", b"$queue/orders/+/x", b"$queue/orders/eu"):
        assert not authorizer.can_subscribe(ANNA, "c", filter)
        assert "rules[1]" in authorizer.explain("subscribe", ANNA, "c", filter)
    assert authorizer.can_subscribe(ANNA, "c", b"$queue/orders/us/#")
    assert authorizer.can_publish(ANNA, "c", b"$queue/orders")
    assert authorizer.can_subscribe(ANNA, "c", b"$queue/jobs")  # an answer is no record
    assert not authorizer.can_publish(ANNA, "c", b"$queue/jobs/$reject")
    assert not authorizer.can_subscribe(ANNA, "jobs", b"$queue/jobs")


def test_a_share_of_a_share_is_none() -> None:
    authorizer = make_authorizer({"allow": "all", "topics": ["x"]})
    assert not authorizer.can_subscribe(ANNA, "c", b"$share/a/$share/b/x")
