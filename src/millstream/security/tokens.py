"""Who are you, by a signed token (JWT) in the password field.

Invariants
- One algorithm is pinned; the token's own header never chooses it.
- Issuer, audience, subject and expiry are required. Whatever cannot be read or checked is refused.
- The subject is the user name. A token says nothing about what it may do: rules do.
"""

from __future__ import annotations

from typing import Final, final

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, OctKey, RSAKey

from millstream.security.principal import (
    DEFAULT_ACCOUNT,
    KIND_TOKEN,
    Principal,
    find_name_fault,
    find_user_name_fault,
)

ALGORITHMS: Final = ("HS256", "RS256", "ES256")
TOKEN_LENGTH_MAX: Final = 16 * 1024
SECRET_LENGTH_MIN: Final = 32  # [RFC7518 3.2]
RSA_BITS_MIN: Final = 2048
NOT_BEFORE_LEEWAY_S: Final = 30  # an issuer's clock may run a little ahead; expiry gets no such grace
_EXPIRY_S_MAX: Final = 1 << 53  # what a float holds exactly


class TokenFault(Exception):
    """A token that proves nothing. The text is for our log; a client is only told that it was refused."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class TokenKeyFault(Exception):
    """The settings for tokens cannot be used."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


def is_token_shaped(password: bytes) -> bool:
    """Whether a password looks like a compact JWT: three parts, the first an encoded JSON object."""
    return password.startswith(b"eyJ") and password.count(b".") == 2


@final
class TokenVerifier:
    """Checks tokens of one issuer. Holds no state that changes: any thread may call it."""

    __slots__ = ("_algorithms", "_audience", "_default_account", "_issuer", "_key")

    def __init__(
        self, algorithm: str, key: bytes, issuer: str, audience: str, default_account: str = DEFAULT_ACCOUNT
    ) -> None:
        if not issuer or not audience:
            raise TokenKeyFault("tokens need an issuer and an audience; without them any token would do")
        self._key: OctKey | RSAKey | ECKey = _import_key(algorithm, key)
        self._algorithms = [algorithm]
        self._issuer = issuer
        self._audience = audience
        self._default_account = default_account

    def verify(self, token: bytes, now_s: int) -> Principal:
        """The principal the token proves; TokenFault for all else. Takes up to 1 ms: run it in a thread."""
        if len(token) > TOKEN_LENGTH_MAX:
            raise TokenFault("the token is too long")
        try:
            claims: dict[str, object] = jwt.decode(token, self._key, algorithms=self._algorithms).claims
        except (JoseError, ValueError, TypeError, KeyError, RecursionError) as error:
            raise TokenFault(f"the token is not sound: {type(error).__name__}") from None
        if claims.get("iss") != self._issuer:
            raise TokenFault("the token comes from another issuer")
        if not _names_audience(claims.get("aud"), self._audience):
            raise TokenFault("the token is meant for another audience")
        not_before = claims.get("nbf")
        if not_before is not None and _seconds(not_before, "nbf") > now_s + NOT_BEFORE_LEEWAY_S:
            raise TokenFault("the token is not valid yet")
        expires_at_s = _seconds(claims.get("exp"), "exp")
        if expires_at_s <= now_s:
            raise TokenFault("the token has expired")
        name = _text(claims.get("sub"), "sub")
        fault = find_user_name_fault(name)
        if fault is not None:
            raise TokenFault(f"the claim sub is not a user name: {fault}")
        account = self._default_account
        if "account" in claims:
            account = _text(claims.get("account"), "account")
            fault = find_name_fault(account)
            if fault is not None:
                raise TokenFault(f"the claim account is not an account name: {fault}")
        return Principal(name, account, KIND_TOKEN, expires_at_s)


def _import_key(algorithm: str, key: bytes) -> OctKey | RSAKey | ECKey:
    if algorithm not in ALGORITHMS:
        raise TokenKeyFault(f"unknown token algorithm {algorithm!r}; use one of {', '.join(ALGORITHMS)}")
    is_pem = b"-----BEGIN" in key
    if algorithm == "HS256":
        if is_pem:
            raise TokenKeyFault(
                "HS256 needs a secret, but the key is a PEM file; did you mean RS256 or ES256?"
            )
        if len(key) < SECRET_LENGTH_MIN:
            raise TokenKeyFault(f"the HS256 secret must have at least {SECRET_LENGTH_MIN} bytes")
        return OctKey.import_key(key)
    if not is_pem or b"PRIVATE KEY" in key:
        raise TokenKeyFault(f"{algorithm} needs a public key in a PEM file")
    try:
        if algorithm == "RS256":
            rsa = RSAKey.import_key(key)
            if rsa.public_key.key_size < RSA_BITS_MIN:
                raise TokenKeyFault(f"the RSA key must have at least {RSA_BITS_MIN} bits")
            return rsa
        curve = ECKey.import_key(key)
    except (JoseError, ValueError, TypeError):
        raise TokenKeyFault(f"the PEM file does not hold a public key for {algorithm}") from None
    if curve.curve_name != "P-256":
        raise TokenKeyFault("ES256 needs a key on the curve P-256")
    return curve


def _names_audience(claim: object, audience: str) -> bool:
    if isinstance(claim, list):
        return audience in claim
    return isinstance(claim, str) and claim == audience


def _text(claim: object, name: str) -> str:
    if not isinstance(claim, str):
        raise TokenFault(f"the claim {name} is missing or not a text")
    return claim


def _seconds(claim: object, name: str) -> int:
    """Whole seconds of a numeric date, which may be a fraction [RFC7519 2].

    Rounds down: never later than stated.
    """
    if isinstance(claim, bool) or not isinstance(claim, (int, float)):
        raise TokenFault(f"the claim {name} is missing or not a number")
    if not 0 <= claim < _EXPIRY_S_MAX:  # also false for NaN and infinity
        raise TokenFault(f"the claim {name} is not a date")
    return int(claim)
