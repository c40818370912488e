"""Who are you: what is answered at once, what is asked, what is remembered and for how long."""

from __future__ import annotations

import pytest
from joserfc import jwt
from joserfc.jwk import OctKey

from millstream.model.errors import Reason
from millstream.security.authentication import (
    CACHE_SIZE_MAX,
    CACHE_TTL_NS,
    FAILURES_MAX,
    FAILURES_WINDOW_NS,
    Authenticator,
    Credentials,
    Decision,
    Verdict,
)
from millstream.security.principal import Principal
from millstream.security.tokens import TokenVerifier
from millstream.security.users import UserTable, parse_users

# Cheap hashes from mosquitto_passwd: anna has "correct horse", caro "tr0ub4dor".
USERS_TEXT = (
    "anna:$7$101$qxQya3eNdQ5ZrU6j$ubXEjnbVePfktAWfQPUzDADcaG/MO7jIozhCW2x4afukmsGFMBd/ZgPKyPuDNnAA1t26o2vaJj5ZOVGbsCdD7g==\n"
    "caro:$6$tJNV6IhJOugpPj3s$SvLwKOTmYBm8bK+DlnOJLaIsVjox7w1HPjkFwiKsgtsNFkeaRDE912XRZhpwBTOkUSbqJ0rAUEGI+3+EHgXi0Q==:north\n"
)
USERS = parse_users(USERS_TEXT)
ANNA_ONLY = USERS.without_user("caro")
NOBODY = UserTable({})
CACHE_KEY = b"c" * 32
SECRET = b"0123456789abcdef0123456789abcdef"
NOW_S = 1_800_000_000
NOW_NS = 7_000_000_000


def make_authenticator(
    users: UserTable = USERS,
    *,
    allow_anonymous: bool = False,
    tokens: bool = False,
    certificates_as_users: bool = False,
) -> Authenticator:
    verifier = TokenVerifier("HS256", SECRET, "issuer", "broker") if tokens else None
    return Authenticator(users, allow_anonymous, "guests", verifier, certificates_as_users, CACHE_KEY)


def make_credentials(
    username: str | None = None,
    password: bytes | None = None,
    certificate_name: str | None = None,
    address: str = "10.0.0.1",
) -> Credentials:
    return Credentials("client", username, password, certificate_name, address)


def make_token(sub: str = "tom", expires_at_s: int = NOW_S + 30) -> bytes:
    claims: dict[str, object] = {"iss": "issuer", "aud": "broker", "sub": sub, "exp": expires_at_s}
    return jwt.encode({"alg": "HS256"}, claims, OctKey.import_key(SECRET)).encode()


def log_in(authenticator: Authenticator, credentials: Credentials, now_ns: int = NOW_NS) -> Decision:
    """What the runtime does: decide, and on ASK verify elsewhere and remember."""
    decision = authenticator.decide(credentials, NOW_S, now_ns)
    if decision.verdict is Verdict.ASK:
        decision = authenticator.remember(credentials, authenticator.verify(credentials, NOW_S), now_ns)
    return decision


ANNA = make_credentials("anna", b"correct horse")
CARO = make_credentials("caro", b"tr0ub4dor")


def test_a_user_with_the_right_password_becomes_a_principal_of_its_account() -> None:
    decision = log_in(make_authenticator(), CARO)
    assert decision.verdict is Verdict.ALLOWED
    assert decision.reason is Reason.SUCCESS
    assert decision.principal is not None
    assert (decision.principal.name, decision.principal.account, decision.principal.kind) == (
        "caro",
        "north",
        "user",
    )


def test_deciding_never_hashes_but_asks() -> None:
    authenticator = make_authenticator()
    for credentials in (ANNA, make_credentials("anna", b"wrong"), make_credentials("nobody", b"wrong")):
        assert authenticator.decide(credentials, NOW_S, NOW_NS).verdict is Verdict.ASK


@pytest.mark.parametrize(
    ("username", "password"),
    [
        ("anna", b"wrong"),
        ("anna", b""),
        ("anna", None),
        ("nobody", b"correct horse"),
        ("nobody", None),
        ("anonymous", b"correct horse"),
        ("anonymous", None),
        ("ANNA", b"correct horse"),
        ("a:b", b"correct horse"),
        ("x" * 257, b"correct horse"),
        ("\ud800", b"correct horse"),
        (None, b"correct horse"),
        ("", b"correct horse"),
    ],
)
def test_every_way_to_be_wrong_gets_the_same_answer(username: str | None, password: bytes | None) -> None:
    decision = log_in(make_authenticator(allow_anonymous=True), make_credentials(username, password))
    assert decision.verdict is Verdict.DENIED
    assert decision.principal is None
    assert (decision.reason, decision.text) == (Reason.BAD_CREDENTIALS, "the user name or password is wrong")


@pytest.mark.parametrize("username", [None, ""])
def test_anonymous_is_a_named_principal_only_where_it_is_allowed(username: str | None) -> None:
    decision = log_in(make_authenticator(allow_anonymous=True), make_credentials(username))
    assert decision.verdict is Verdict.ALLOWED
    assert decision.principal is not None
    assert (decision.principal.name, decision.principal.account, decision.principal.kind) == (
        "anonymous",
        "guests",
        "anonymous",
    )
    refused = log_in(make_authenticator(), make_credentials(username))
    assert (refused.verdict, refused.reason) == (Verdict.DENIED, Reason.NOT_AUTHORIZED)


def test_where_nobody_can_be_known_a_name_makes_no_principal() -> None:
    credentials = make_credentials("admin", b"admin")
    open_decision = log_in(make_authenticator(NOBODY, allow_anonymous=True), credentials)
    assert open_decision.principal is not None
    assert open_decision.principal.kind == "anonymous"
    assert open_decision.principal.name == "anonymous"
    assert log_in(make_authenticator(NOBODY), credentials).verdict is Verdict.DENIED
    with_tokens = make_authenticator(NOBODY, allow_anonymous=True, tokens=True)
    assert log_in(with_tokens, credentials).verdict is Verdict.DENIED


def test_a_verified_password_is_remembered_for_a_minute() -> None:
    authenticator = make_authenticator()
    assert log_in(authenticator, ANNA).verdict is Verdict.ALLOWED
    last = NOW_NS + CACHE_TTL_NS - 1
    remembered = authenticator.decide(
        make_credentials("anna", b"correct horse", address="10.9.9.9"), NOW_S, last
    )
    assert remembered.verdict is Verdict.ALLOWED
    assert remembered.principal is not None
    assert remembered.principal.name == "anna"
    assert authenticator.decide(make_credentials("anna", b"correct hors"), NOW_S, last).verdict is Verdict.ASK
    assert (
        authenticator.decide(make_credentials("annac", b"orrect horse"), NOW_S, last).verdict is Verdict.ASK
    )
    assert authenticator.decide(ANNA, NOW_S, last + 1).verdict is Verdict.ASK


def test_a_denial_is_never_remembered_as_a_success() -> None:
    authenticator = make_authenticator()
    wrong = make_credentials("anna", b"wrong")
    assert log_in(authenticator, wrong).verdict is Verdict.DENIED
    assert authenticator.decide(wrong, NOW_S, NOW_NS).verdict is Verdict.ASK


def test_the_memory_of_passwords_is_bounded() -> None:
    authenticator = make_authenticator()
    principal = Principal("anna", "default", "user")
    proven = Decision(Verdict.ALLOWED, principal, Reason.SUCCESS, "", authenticator.generation)
    for number in range(CACHE_SIZE_MAX + 1):
        authenticator.remember(make_credentials("anna", str(number).encode()), proven, NOW_NS)
    oldest = authenticator.decide(make_credentials("anna", b"0"), NOW_S, NOW_NS)
    newest = authenticator.decide(make_credentials("anna", str(CACHE_SIZE_MAX).encode()), NOW_S, NOW_NS)
    assert (oldest.verdict, newest.verdict) == (Verdict.ASK, Verdict.ALLOWED)


def test_too_many_failures_are_refused_without_work_even_for_a_remembered_password() -> None:
    authenticator = make_authenticator()
    assert log_in(authenticator, ANNA).verdict is Verdict.ALLOWED
    for number in range(FAILURES_MAX):
        denied = log_in(authenticator, make_credentials("anna", b"guess %d" % number))
        assert denied.reason is Reason.BAD_CREDENTIALS
    for credentials in (make_credentials("anna", b"guess"), ANNA):
        blocked = authenticator.decide(credentials, NOW_S, NOW_NS)
        assert (blocked.verdict, blocked.reason) == (Verdict.DENIED, Reason.RATE_EXCEEDED)
    assert authenticator.is_throttled("anna", "10.0.0.1", NOW_NS)


def test_the_throttle_concerns_one_user_at_one_address_for_one_minute() -> None:
    authenticator = make_authenticator()
    for _ in range(FAILURES_MAX):
        log_in(authenticator, make_credentials("anna", b"guess"))
    elsewhere = make_credentials("anna", b"correct horse", address="10.0.0.2")
    assert log_in(authenticator, elsewhere).verdict is Verdict.ALLOWED
    assert log_in(authenticator, CARO).verdict is Verdict.ALLOWED
    assert log_in(authenticator, ANNA).verdict is Verdict.DENIED
    assert log_in(authenticator, ANNA, NOW_NS + FAILURES_WINDOW_NS).verdict is Verdict.ALLOWED


def test_failures_of_other_exchanges_count_as_well() -> None:
    authenticator = make_authenticator()
    for _ in range(FAILURES_MAX):
        authenticator.count_failure("anna", "10.0.0.1", NOW_NS)
        authenticator.count_failure("x" * 5000, "10.0.0.1", NOW_NS)
    assert authenticator.decide(ANNA, NOW_S, NOW_NS).reason is Reason.RATE_EXCEEDED
    assert not authenticator.is_throttled("x" * 5000, "10.0.0.1", NOW_NS)  # not worth the memory


def test_a_new_user_table_drops_what_was_remembered() -> None:
    authenticator = make_authenticator()
    assert log_in(authenticator, CARO).verdict is Verdict.ALLOWED
    before = authenticator.generation
    authenticator.replace_users(ANNA_ONLY)
    assert authenticator.generation > before
    assert log_in(authenticator, CARO).verdict is Verdict.DENIED


def test_an_answer_from_an_old_user_table_is_asked_again() -> None:
    authenticator = make_authenticator()
    stale = authenticator.verify(CARO, NOW_S)
    assert stale.verdict is Verdict.ALLOWED
    authenticator.replace_users(ANNA_ONLY)
    assert authenticator.remember(CARO, stale, NOW_NS).verdict is Verdict.ASK
    assert log_in(authenticator, CARO).verdict is Verdict.DENIED


@pytest.mark.parametrize("username", [None, "", "tom"])
def test_a_token_stands_for_its_subject(username: str | None) -> None:
    decision = log_in(make_authenticator(tokens=True), make_credentials(username, make_token()))
    assert decision.principal is not None
    assert (decision.principal.name, decision.principal.kind) == ("tom", "token")
    assert decision.principal.expires_at_s == NOW_S + 30


def test_a_token_under_another_name_is_refused() -> None:
    decision = log_in(make_authenticator(tokens=True), make_credentials("anna", make_token()))
    assert decision.verdict is Verdict.DENIED
    assert "sub" in decision.text


def test_a_remembered_token_still_ends_when_it_expires() -> None:
    authenticator = make_authenticator(tokens=True)
    credentials = make_credentials(None, make_token())
    assert log_in(authenticator, credentials).verdict is Verdict.ALLOWED
    assert authenticator.decide(credentials, NOW_S + 29, NOW_NS).verdict is Verdict.ALLOWED
    assert authenticator.decide(credentials, NOW_S + 30, NOW_NS).verdict is Verdict.ASK
    assert authenticator.verify(credentials, NOW_S + 30).verdict is Verdict.DENIED


def test_without_token_settings_a_token_is_just_a_wrong_password() -> None:
    assert log_in(make_authenticator(), make_credentials("tom", make_token())).verdict is Verdict.DENIED
    assert log_in(make_authenticator(), make_credentials(None, make_token())).verdict is Verdict.DENIED


@pytest.mark.parametrize("username", [None, "tom"])
def test_bad_tokens_do_not_lock_out_good_ones_of_the_same_address(username: str | None) -> None:
    authenticator = make_authenticator(tokens=True)
    for number in range(3 * FAILURES_MAX):
        bad = make_credentials(username, make_token(f"n{number}")[:-4] + b"AAAA")
        assert log_in(authenticator, bad).reason is Reason.BAD_CREDENTIALS
    assert log_in(authenticator, make_credentials(username, make_token())).verdict is Verdict.ALLOWED


def test_a_token_that_fails_again_and_again_is_refused_without_work() -> None:
    authenticator = make_authenticator(tokens=True)
    bad = make_credentials(None, make_token(expires_at_s=NOW_S - 1000))
    for _ in range(FAILURES_MAX):
        assert log_in(authenticator, bad).reason is Reason.BAD_CREDENTIALS
    assert authenticator.decide(bad, NOW_S, NOW_NS).reason is Reason.RATE_EXCEEDED
    elsewhere = make_credentials(None, bad.password, address="10.0.0.2")
    assert authenticator.decide(elsewhere, NOW_S, NOW_NS).reason is Reason.RATE_EXCEEDED
    later_ns = NOW_NS + FAILURES_WINDOW_NS
    assert authenticator.decide(bad, NOW_S, later_ns).verdict is Verdict.ASK


def test_bad_tokens_do_not_push_password_failures_out() -> None:
    authenticator = make_authenticator(tokens=True)
    for _ in range(FAILURES_MAX):
        log_in(authenticator, make_credentials("anna", b"guess"))
    refused = Decision(Verdict.DENIED, None, Reason.BAD_CREDENTIALS, "", authenticator.generation)
    for number in range(20_000):
        authenticator.remember(make_credentials(f"t{number}", b"eyJ.a.b"), refused, NOW_NS)
    assert log_in(authenticator, ANNA).reason is Reason.RATE_EXCEEDED


@pytest.mark.parametrize("username", [None, "", "caro"])
def test_a_certificate_can_stand_for_a_user(username: str | None) -> None:
    authenticator = make_authenticator(certificates_as_users=True)
    decision = authenticator.decide(make_credentials(username, None, "caro"), NOW_S, NOW_NS)
    assert decision.verdict is Verdict.ALLOWED
    assert decision.principal is not None
    assert (decision.principal.name, decision.principal.account, decision.principal.kind) == (
        "caro",
        "north",
        "certificate",
    )


@pytest.mark.parametrize(
    ("username", "password", "certificate_name"),
    [
        ("anna", None, "caro"),
        ("caro", b"wrong", "caro"),
        (None, None, "anonymous"),
        (None, None, ""),
        (None, None, "a\nb"),
    ],
)
def test_a_certificate_proves_no_other_name(
    username: str, password: bytes | None, certificate_name: str
) -> None:
    authenticator = make_authenticator(certificates_as_users=True)
    decision = log_in(authenticator, make_credentials(username, password, certificate_name))
    assert decision.verdict is Verdict.DENIED


def test_a_certificate_is_nobody_unless_the_listener_says_so() -> None:
    assert log_in(make_authenticator(), make_credentials(None, None, "caro")).verdict is Verdict.DENIED


def test_a_certificate_does_not_replace_a_password_that_is_given() -> None:
    authenticator = make_authenticator(certificates_as_users=True)
    decision = log_in(authenticator, make_credentials("anna", b"correct horse", "caro"))
    assert decision.principal is not None
    assert (decision.principal.name, decision.principal.kind) == ("anna", "user")


def test_live_principals_lose_their_validity_with_what_gave_it() -> None:
    authenticator = make_authenticator(allow_anonymous=True, tokens=True, certificates_as_users=True)
    caro = Principal("caro", "north", "user")
    device = Principal("device", "default", "certificate")
    caro_certificate = Principal("caro", "north", "certificate")
    token = Principal("tom", "default", "token", NOW_S + 30)
    guest = Principal("anonymous", "guests", "anonymous")
    for principal in (caro, device, caro_certificate, token, guest):
        assert authenticator.is_still_valid(principal, NOW_S)
    assert not authenticator.is_still_valid(token, NOW_S + 30)
    assert not authenticator.is_still_valid(Principal("caro", "south", "user"), NOW_S)
    assert not authenticator.is_still_valid(Principal("anonymous", "north", "anonymous"), NOW_S)
    authenticator.replace_users(ANNA_ONLY)
    assert not authenticator.is_still_valid(caro, NOW_S)
    assert not authenticator.is_still_valid(caro_certificate, NOW_S)
    assert authenticator.is_still_valid(device, NOW_S)
    strict = make_authenticator()
    for principal in (device, token, guest):
        assert not strict.is_still_valid(principal, NOW_S)


def test_a_user_proven_by_another_exchange_is_accepted_while_it_exists() -> None:
    authenticator = make_authenticator()
    accepted = authenticator.accept_user("caro")
    assert accepted.principal is not None
    assert accepted.principal.account == "north"
    authenticator.replace_users(ANNA_ONLY)
    assert authenticator.accept_user("caro").verdict is Verdict.DENIED
    assert authenticator.users is ANNA_ONLY


def test_a_password_never_shows_in_a_repr() -> None:
    credentials = make_credentials("anna", b"CANARY-xyz")
    assert "CANARY" not in repr(credentials)
    assert "CANARY" not in repr(log_in(make_authenticator(), credentials))


def test_a_short_cache_key_is_a_bug_of_ours() -> None:
    with pytest.raises(ValueError, match="cache key"):
        Authenticator(USERS, False, "guests", None, False, b"short")
