"""Who are you? Answers allowed, denied or ask; slow work happens elsewhere, between two calls.

`decide` runs on the loop and never hashes. On ASK the runtime calls `verify` in a thread and brings the
answer back to `remember`, whose result is the one to act on.

Invariants
- Only the anonymous rule, a certificate the listener has checked, or a verified secret gives a principal.
- A user that does not exist costs the same time, and gets the same answer, as a wrong password.
- Passwords are kept nowhere: the memory of verified ones holds keyed digests, for a minute, and is dropped
  with the table.
- The throttle comes before that memory; else a guesser could use it as a fast oracle. It is kept per user and address
  for passwords, and per token for tokens: a whole fleet may share one address.
"""

from __future__ import annotations

import hmac
from enum import IntEnum
from typing import Final, final

from millstream.model.errors import Reason
from millstream.security.principal import (
    ANONYMOUS_NAME,
    DEFAULT_ACCOUNT,
    KIND_ANONYMOUS,
    KIND_CERTIFICATE,
    KIND_TOKEN,
    KIND_UNKNOWN,
    KIND_USER,
    Principal,
    find_user_name_fault,
)
from millstream.security.rate import FailureTable, address_key
from millstream.security.tokens import TokenFault, TokenVerifier, is_token_shaped
from millstream.security.users import UserTable, verify_password

CACHE_TTL_NS: Final = 60_000_000_000
CACHE_SIZE_MAX: Final = 10_000
CACHE_KEY_LENGTH_MIN: Final = 32
FAILURES_MAX: Final = 10
FAILURES_WINDOW_NS: Final = 60_000_000_000
FAILURE_KEYS_MAX: Final = 10_000

_WRONG: Final = "the user name or password is wrong"


class Verdict(IntEnum):
    ALLOWED = 0
    DENIED = 1
    ASK = 2  # the answer takes time: stop reading the connection and call `verify` in a thread


ALLOWED: Final = Verdict.ALLOWED
DENIED: Final = Verdict.DENIED
ASK: Final = Verdict.ASK


@final
class Credentials:
    """What a client says about itself. `certificate_name` is set only if the listener has verified it."""

    __slots__ = ("address", "certificate_name", "client_id", "password", "username")

    def __init__(
        self,
        client_id: str,
        username: str | None,
        password: bytes | None,
        certificate_name: str | None,
        address: str,
    ) -> None:
        self.client_id = client_id
        self.username = username
        self.password = password
        self.certificate_name = certificate_name
        self.address = address

    def __repr__(self) -> str:
        password = "no password" if self.password is None else "password hidden"
        shown = (
            f"{self.client_id!r}, {self.username!r}, {password}, {self.certificate_name!r}, {self.address!r}"
        )
        return f"Credentials({shown})"


@final
class Decision:
    """`principal` is set if and only if the verdict is ALLOWED. `generation`: which user table was asked."""

    __slots__ = ("generation", "principal", "reason", "text", "verdict")

    def __init__(
        self, verdict: Verdict, principal: Principal | None, reason: Reason, text: str, generation: int = 0
    ) -> None:
        self.verdict = verdict
        self.principal = principal
        self.reason = reason
        self.text = text
        self.generation = generation

    def __repr__(self) -> str:
        return f"Decision({self.verdict.name}, {self.principal!r}, {self.reason.name}, {self.text!r})"


@final
class _Verified:
    __slots__ = ("deadline_ns", "principal")

    def __init__(self, principal: Principal, deadline_ns: int) -> None:
        self.principal = principal
        self.deadline_ns = deadline_ns


@final
class Authenticator:
    def __init__(
        self,
        users: UserTable,
        allow_anonymous: bool,
        anonymous_account: str,
        tokens: TokenVerifier | None,
        certificates_as_users: bool,
        cache_key: bytes,
    ) -> None:
        if len(cache_key) < CACHE_KEY_LENGTH_MIN:
            raise ValueError(f"the cache key must have at least {CACHE_KEY_LENGTH_MIN} bytes")
        self._users = users
        self._allow_anonymous = allow_anonymous
        self._anonymous_account = anonymous_account
        self._tokens = tokens
        self._certificates_as_users = certificates_as_users
        self._cache_key = cache_key
        self._generation = 1
        self._verified: dict[bytes, _Verified] = {}
        self._failures = FailureTable(FAILURES_MAX, FAILURES_WINDOW_NS, FAILURE_KEYS_MAX)
        # Apart: a bad token costs next to nothing and must not push password failures out of the table.
        self._token_failures = FailureTable(FAILURES_MAX, FAILURES_WINDOW_NS, FAILURE_KEYS_MAX)

    @property
    def generation(self) -> int:
        """Grows with every new user table: live connections are checked again when it changes."""
        return self._generation

    @property
    def users(self) -> UserTable:
        return self._users

    def decide(self, credentials: Credentials, now_s: int, now_ns: int) -> Decision:
        """The answer if it is cheap to give, else ASK. Runs on the loop."""
        decision = self._decide_at_once(credentials, self._users, self._generation)
        if decision is not None:
            return decision
        assert credentials.password is not None
        digest = self._digest(credentials)
        if self._is_blocked(credentials, digest, now_ns):
            return self._deny(Reason.RATE_EXCEEDED, "too many failed attempts; try again in a minute")
        verified = self._verified.get(digest)
        if verified is not None:
            if now_ns < verified.deadline_ns and not _has_expired(verified.principal, now_s):
                return Decision(ALLOWED, verified.principal, Reason.SUCCESS, "", self._generation)
            del self._verified[digest]
        return Decision(ASK, None, Reason.SUCCESS, "", self._generation)

    def verify(self, credentials: Credentials, now_s: int) -> Decision:
        """The answer, whatever it costs. Runs in a thread: reads only what never changes in place."""
        generation = (
            self._generation
        )  # before the table: a swap in between makes the answer stale, never wrong
        users = self._users
        decision = self._decide_at_once(credentials, users, generation)
        if decision is not None:
            return decision
        password = credentials.password
        assert password is not None
        tokens = self._tokens
        if tokens is not None and is_token_shaped(password):
            return _verify_token(tokens, credentials.username or None, password, now_s, generation)
        name = credentials.username
        assert name is not None
        user = users.find_user(name)
        if user is None:
            seed = hmac.digest(self._cache_key, name.encode(), "sha256")
            verify_password(users.find_stand_in(seed), password)
            return Decision(DENIED, None, Reason.BAD_CREDENTIALS, _WRONG, generation)
        if not verify_password(user.password_hash, password):
            return Decision(DENIED, None, Reason.BAD_CREDENTIALS, _WRONG, generation)
        principal = Principal(user.name, user.account, KIND_USER)
        return Decision(ALLOWED, principal, Reason.SUCCESS, "", generation)

    def remember(self, credentials: Credentials, decision: Decision, now_ns: int) -> Decision:
        """Takes back what `verify` said, on the loop.

        Act on the result: it is ASK again if the users changed meanwhile.
        """
        if decision.generation != self._generation:
            return Decision(ASK, None, Reason.SUCCESS, "", self._generation)
        if credentials.password is None:
            return decision
        principal = decision.principal
        if decision.verdict is ALLOWED and principal is not None:
            if principal.kind == KIND_USER or principal.kind == KIND_TOKEN:
                self._store(self._digest(credentials), _Verified(principal, now_ns + CACHE_TTL_NS))
        elif decision.reason is Reason.BAD_CREDENTIALS:
            self._count(credentials, now_ns)
        return decision

    def replace_users(self, users: UserTable) -> None:
        self._users = users
        self._verified.clear()
        self._generation += 1

    def is_still_valid(self, principal: Principal, now_s: int) -> bool:
        """Whether a live connection of `principal` may go on: it exists, where it was, unexpired."""
        if _has_expired(principal, now_s):
            return False
        if principal.kind == KIND_UNKNOWN:
            return self._may_exist(principal.name, principal.account)
        user = self._users.find_user(principal.name)
        if principal.kind == KIND_USER:
            return user is not None and user.account == principal.account
        if principal.kind == KIND_CERTIFICATE:
            account = user.account if user is not None else DEFAULT_ACCOUNT
            return self._certificates_as_users and account == principal.account
        if principal.kind == KIND_TOKEN:
            return self._tokens is not None
        return self._allow_anonymous and principal.account == self._anonymous_account

    def _may_exist(self, name: str, account: str) -> bool:
        """Whether any login of that name would be accepted."""
        kinds = (KIND_ANONYMOUS,) if name == ANONYMOUS_NAME else (KIND_USER, KIND_CERTIFICATE, KIND_TOKEN)
        return any([self.is_still_valid(Principal(name, account, kind), 0) for kind in kinds])

    def accept_user(self, name: str) -> Decision:
        """The decision for a user who has proven the password by another exchange, such as SCRAM."""
        user = self._users.find_user(name)
        if user is None:  # removed while the exchange ran
            return self._deny(Reason.BAD_CREDENTIALS, _WRONG)
        principal = Principal(user.name, user.account, KIND_USER)
        return Decision(ALLOWED, principal, Reason.SUCCESS, "", self._generation)

    def is_throttled(self, name: str, address: str, now_ns: int) -> bool:
        """Whether `name` may not try again from `address` yet; for exchanges that do not pass `decide`."""
        return self._failures.is_blocked((name, address_key(address)), now_ns)

    def count_failure(self, name: str, address: str, now_ns: int) -> None:
        if find_user_name_fault(name) is None:  # other names exist nowhere and could be long
            self._failures.add((name, address_key(address)), now_ns)

    def _decide_at_once(self, credentials: Credentials, users: UserTable, generation: int) -> Decision | None:
        """The decision that needs neither hashing nor memory; None leaves a password to check."""
        name = credentials.username or None  # an empty name is none
        password = credentials.password
        if password is None and credentials.certificate_name is not None and self._certificates_as_users:
            return _decide_certificate(credentials.certificate_name, name, users, generation)
        has_verifier = len(users) > 0 or self._tokens is not None
        if (name is None and password is None) or not has_verifier:
            # Where nobody can be known, a name proves nothing: such a client is anonymous, not refused.
            if not self._allow_anonymous:
                return Decision(
                    DENIED, None, Reason.NOT_AUTHORIZED, "a user name and password are needed", generation
                )
            principal = Principal(ANONYMOUS_NAME, self._anonymous_account, KIND_ANONYMOUS)
            return Decision(ALLOWED, principal, Reason.SUCCESS, "", generation)
        can_be_token = self._tokens is not None and password is not None and is_token_shaped(password)
        if password is None or (name is None and not can_be_token):
            return Decision(DENIED, None, Reason.BAD_CREDENTIALS, _WRONG, generation)
        if name is not None and find_user_name_fault(name) is not None:
            return Decision(DENIED, None, Reason.BAD_CREDENTIALS, _WRONG, generation)
        return None

    def _deny(self, reason: Reason, text: str) -> Decision:
        return Decision(DENIED, None, reason, text, self._generation)

    def is_token(self, credentials: Credentials) -> bool:
        """Whether the secret is checked as a token, which is cheap, and not as a password."""
        password = credentials.password
        return self._tokens is not None and password is not None and is_token_shaped(password)

    def is_promising(self, credentials: Credentials, now_ns: int) -> bool:
        """Whether this login may be checked before others: the user exists, and has not just failed from there."""
        name = credentials.username
        if name is None or self._users.find_user(name) is None:
            return False
        return self._failures.count(_failure_key(credentials), now_ns) == 0

    def _is_blocked(self, credentials: Credentials, digest: bytes, now_ns: int) -> bool:
        if self.is_token(credentials):
            return self._token_failures.is_blocked(_token_key(digest), now_ns)
        return self._failures.is_blocked(_failure_key(credentials), now_ns)

    def _count(self, credentials: Credentials, now_ns: int) -> None:
        if self.is_token(credentials):
            self._token_failures.add(_token_key(self._digest(credentials)), now_ns)
        else:
            self._failures.add(_failure_key(credentials), now_ns)

    def _digest(self, credentials: Credentials) -> bytes:
        name = credentials.username
        password = credentials.password
        assert password is not None
        encoded = b"" if name is None else b"n" + name.encode()
        return hmac.digest(self._cache_key, len(encoded).to_bytes(4, "big") + encoded + password, "sha256")

    def _store(self, digest: bytes, verified: _Verified) -> None:
        self._verified.pop(digest, None)  # a renewed entry goes to the end: the first is always the oldest
        if len(self._verified) >= CACHE_SIZE_MAX:
            del self._verified[next(iter(self._verified))]
        self._verified[digest] = verified


def _failure_key(credentials: Credentials) -> tuple[str, str]:
    return credentials.username or "", address_key(credentials.address)


def _token_key(digest: bytes) -> tuple[str, str]:
    """A signature cannot be guessed: what is refused is the token that failed, not others from its address."""
    return "", digest.hex()


def _has_expired(principal: Principal, now_s: int) -> bool:
    return principal.expires_at_s != 0 and now_s >= principal.expires_at_s


def _decide_certificate(
    certificate_name: str, name: str | None, users: UserTable, generation: int
) -> Decision:
    if find_user_name_fault(certificate_name) is not None:
        return Decision(
            DENIED,
            None,
            Reason.NOT_AUTHORIZED,
            "the name in the certificate cannot be a user name",
            generation,
        )
    if name is not None and name != certificate_name:
        return Decision(
            DENIED,
            None,
            Reason.NOT_AUTHORIZED,
            "the user name differs from the certificate's; leave it out",
            generation,
        )
    user = users.find_user(certificate_name)
    account = user.account if user is not None else DEFAULT_ACCOUNT
    principal = Principal(certificate_name, account, KIND_CERTIFICATE)
    return Decision(ALLOWED, principal, Reason.SUCCESS, "", generation)


def _verify_token(
    tokens: TokenVerifier, name: str | None, token: bytes, now_s: int, generation: int
) -> Decision:
    try:
        principal = tokens.verify(token, now_s)
    except TokenFault as fault:
        return Decision(DENIED, None, Reason.BAD_CREDENTIALS, fault.text, generation)
    if name is not None and name != principal.name:
        text = "the user name differs from the token's sub; leave it out"
        return Decision(DENIED, None, Reason.BAD_CREDENTIALS, text, generation)
    return Decision(ALLOWED, principal, Reason.SUCCESS, "", generation)
