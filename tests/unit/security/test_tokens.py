"""Signed tokens: only the pinned algorithm, issuer, audience and a future expiry pass."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from joserfc import jws, jwt
from joserfc.jwk import ECKey, OctKey, RSAKey

from millstream.security.tokens import (
    TOKEN_LENGTH_MAX,
    TokenFault,
    TokenKeyFault,
    TokenVerifier,
    is_token_shaped,
)

SECRET = b"0123456789abcdef0123456789abcdef"
NOW_S = 1_800_000_000
CLAIMS: dict[str, object] = {"iss": "issuer", "aud": "broker", "sub": "anna", "exp": NOW_S + 60}

RSA_PRIVATE = rsa.generate_private_key(65537, 2048)
EC_PRIVATE = ec.generate_private_key(ec.SECP256R1())


def public_pem(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def private_pem(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def sign(claims: dict[str, object], secret: bytes = SECRET, algorithm: str = "HS256") -> bytes:
    return jwt.encode({"alg": algorithm}, claims, OctKey.import_key(secret), algorithms=[algorithm]).encode()


def make_verifier() -> TokenVerifier:
    return TokenVerifier("HS256", SECRET, "issuer", "broker")


def encode_part(value: object) -> bytes:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=")


def test_a_sound_token_names_its_subject_and_its_end() -> None:
    principal = make_verifier().verify(sign(CLAIMS), NOW_S)
    assert (principal.name, principal.account, principal.kind) == ("anna", "default", "token")
    assert principal.expires_at_s == NOW_S + 60


def test_a_token_may_name_an_account() -> None:
    assert make_verifier().verify(sign({**CLAIMS, "account": "north"}), NOW_S).account == "north"


def test_public_key_signatures_are_verified() -> None:
    rsa_key = RSAKey.import_key(private_pem(RSA_PRIVATE))
    token = jwt.encode({"alg": "RS256"}, CLAIMS, rsa_key, algorithms=["RS256"]).encode()
    assert (
        TokenVerifier("RS256", public_pem(RSA_PRIVATE), "issuer", "broker").verify(token, NOW_S).name
        == "anna"
    )
    ec_key = ECKey.import_key(private_pem(EC_PRIVATE))
    token = jwt.encode({"alg": "ES256"}, CLAIMS, ec_key, algorithms=["ES256"]).encode()
    verifier = TokenVerifier("ES256", public_pem(EC_PRIVATE), "issuer", "broker")
    assert verifier.verify(token, NOW_S).name == "anna"
    other = TokenVerifier("ES256", public_pem(ec.generate_private_key(ec.SECP256R1())), "issuer", "broker")
    with pytest.raises(TokenFault):
        other.verify(token, NOW_S)


def test_expiry_may_be_a_fraction_and_ends_at_its_second() -> None:
    token = sign({**CLAIMS, "exp": NOW_S + 1.9})
    assert make_verifier().verify(token, NOW_S).expires_at_s == NOW_S + 1
    with pytest.raises(TokenFault, match="expired"):
        make_verifier().verify(token, NOW_S + 1)


@pytest.mark.parametrize("name", ["iss", "aud", "sub", "exp"])
def test_a_token_without_a_required_claim_is_refused(name: str) -> None:
    claims = {key: value for key, value in CLAIMS.items() if key != name}
    with pytest.raises(TokenFault):
        make_verifier().verify(sign(claims), NOW_S)


@pytest.mark.parametrize(
    "change",
    [
        {"iss": "other"},
        {"iss": ["issuer"]},
        {"aud": "other"},
        {"aud": []},
        {"aud": ["other"]},
        {"aud": {"broker": 1}},
        {"aud": None},
        {"exp": NOW_S},
        {"exp": NOW_S - 1},
        {"exp": str(NOW_S + 60)},
        {"exp": True},
        {"exp": None},
        {"exp": -1},
        {"exp": 1e300},
        {"exp": 10**400},
        {"nbf": NOW_S + 31},
        {"nbf": "soon"},
        {"sub": ""},
        {"sub": 7},
        {"sub": "anonymous"},
        {"sub": "a:b"},
        {"sub": "a\nb"},
        {"sub": "x" * 257},
        {"account": ""},
        {"account": None},
        {"account": 7},
    ],
)
def test_a_token_with_a_wrong_claim_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(TokenFault):
        make_verifier().verify(sign({**CLAIMS, **change}), NOW_S)


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity"])
def test_an_expiry_that_is_no_number_is_refused(text: str) -> None:
    token = sign({**CLAIMS, "exp": float(text.lower().replace("infinity", "inf"))})
    with pytest.raises(TokenFault):
        make_verifier().verify(token, NOW_S)


def test_several_audiences_and_a_clock_slightly_ahead_are_accepted() -> None:
    token = sign({**CLAIMS, "aud": ["other", "broker"], "nbf": NOW_S + 29})
    assert make_verifier().verify(token, NOW_S).name == "anna"


def test_the_header_cannot_choose_the_algorithm() -> None:
    unsigned = encode_part({"alg": "none"}) + b"." + encode_part(CLAIMS) + b"."
    long_secret = SECRET * 2  # long enough for both algorithms: only the pinning can tell them apart
    verifier = TokenVerifier("HS256", long_secret, "issuer", "broker")
    assert verifier.verify(sign(CLAIMS, long_secret), NOW_S).name == "anna"
    for token in (unsigned, sign(CLAIMS, long_secret, "HS512")):
        with pytest.raises(TokenFault):
            verifier.verify(token, NOW_S)
    # The public key used as a secret: an old trick against verifiers that believe the header.
    head = encode_part({"alg": "HS256"}) + b"." + encode_part(CLAIMS)
    pem = public_pem(RSA_PRIVATE)
    forged = head + b"." + base64.urlsafe_b64encode(hmac.new(pem, head, hashlib.sha256).digest()).rstrip(b"=")
    with pytest.raises(TokenFault):
        TokenVerifier("RS256", pem, "issuer", "broker").verify(forged, NOW_S)


def test_every_changed_byte_of_a_token_is_noticed() -> None:
    token = sign(CLAIMS)
    verifier = make_verifier()
    for position in range(len(token) - 1):  # the last character also carries padding bits
        changed = bytearray(token)
        changed[position] = ord("A") if changed[position] != ord("A") else ord("B")
        with pytest.raises(TokenFault):
            verifier.verify(bytes(changed), NOW_S)


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"..",
        b"eyJ",
        b"eyJ.eyJ.eyJ",
        b"\xff\xfe.\xff.\xff",
        encode_part([1]) + b"." + encode_part(CLAIMS) + b".AAAA",
        encode_part({"alg": ["HS256"]}) + b"." + encode_part(CLAIMS) + b".AAAA",
        encode_part({"alg": {}}) + b"." + encode_part(CLAIMS) + b".AAAA",
        encode_part({"alg": "HS256", "crit": ["x"], "x": 1}) + b"." + encode_part(CLAIMS) + b".AAAA",
        base64.urlsafe_b64encode(b"[" * 9000).rstrip(b"=") + b".e30.AAAA",
        b"x" * (TOKEN_LENGTH_MAX + 1),
    ],
)
def test_nothing_but_a_token_fault_comes_out_of_garbage(token: bytes) -> None:
    with pytest.raises(TokenFault):
        make_verifier().verify(token, NOW_S)


@pytest.mark.parametrize("claims", [[1], "text", 7, None])
def test_a_signed_payload_that_is_no_object_is_refused(claims: object) -> None:
    payload = json.dumps(claims)
    token = jws.serialize_compact({"alg": "HS256"}, payload, OctKey.import_key(SECRET), ["HS256"]).encode()
    with pytest.raises(TokenFault):
        make_verifier().verify(token, NOW_S)


@pytest.mark.filterwarnings("ignore:Key size")
def test_settings_that_would_weaken_the_check_are_refused() -> None:
    pem = public_pem(RSA_PRIVATE)
    weak = rsa.generate_private_key(65537, 1024)
    wrong_curve = ec.generate_private_key(ec.SECP384R1())
    for algorithm, key, issuer, audience in [
        ("none", SECRET, "issuer", "broker"),
        ("HS512", SECRET, "issuer", "broker"),
        ("HS256", b"short", "issuer", "broker"),
        ("HS256", pem, "issuer", "broker"),
        ("HS256", SECRET, "", "broker"),
        ("HS256", SECRET, "issuer", ""),
        ("RS256", SECRET, "issuer", "broker"),
        ("RS256", private_pem(RSA_PRIVATE), "issuer", "broker"),
        ("RS256", public_pem(weak), "issuer", "broker"),
        ("RS256", public_pem(EC_PRIVATE), "issuer", "broker"),
        ("RS256", b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", "issuer", "broker"),
        ("ES256", pem, "issuer", "broker"),
        ("ES256", public_pem(wrong_curve), "issuer", "broker"),
    ]:
        with pytest.raises(TokenKeyFault):
            TokenVerifier(algorithm, key, issuer, audience)


def test_a_token_is_told_from_a_password_by_its_shape() -> None:
    assert is_token_shaped(sign(CLAIMS))
    for password in (b"", b"secret", b"eyJ", b"eyJ.a", b"a.b.c", b"eyJ.a.b.c"):
        assert not is_token_shaped(password)
