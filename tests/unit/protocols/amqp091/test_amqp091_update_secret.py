"""connection.update-secret: a new token for a connection that outlives its first one."""

from __future__ import annotations

from amqp091_world import AmqpPeer, AmqpWorld
from joserfc import jwt
from joserfc.jwk import OctKey

from millstream.protocols.amqp091.wire import codes
from millstream.protocols.amqp091.wire.methods import (
    ConnectionClose,
    ConnectionUpdateSecret,
    ConnectionUpdateSecretOk,
    Method,
)
from millstream.security.tokens import TokenVerifier
from millstream.security.users import User, UserTable, hash_password

KEY = b"0123456789abcdef0123456789abcdef"
FIRST_END_S = 5_000_000
USERS = UserTable({"ann": User("ann", hash_password("secret"), "default", None)})


def sign(end_s: int, name: str = "robot", account: str = "default") -> bytes:
    claims = {"iss": "issuer", "aud": "broker", "sub": name, "exp": end_s, "account": account}
    return jwt.encode({"alg": "HS256"}, claims, OctKey.import_key(KEY), algorithms=["HS256"]).encode()


def update(peer: AmqpPeer, secret: bytes) -> list[Method]:
    answers = peer.say(ConnectionUpdateSecret(secret, b"the old one ends"))
    return answers + peer.answer_asked() if peer.link.asked else answers


def connect_with_token() -> tuple[AmqpWorld, AmqpPeer]:
    world = AmqpWorld(users=USERS, tokens=TokenVerifier("HS256", KEY, "issuer", "broker"))
    return world, world.client(b"robot", sign(FIRST_END_S))


def test_a_connection_lives_as_long_as_its_newest_token() -> None:
    world, peer = connect_with_token()
    assert update(peer, sign(FIRST_END_S + 60)) == [ConnectionUpdateSecretOk()]
    world.context.end_invalid(FIRST_END_S + 30)
    world.settle_down()
    assert peer.take() == []
    world.context.end_invalid(FIRST_END_S + 60)
    world.settle_down()
    assert isinstance(peer.take()[0], ConnectionClose)


def test_a_token_that_proves_nothing_or_somebody_else_ends_the_connection() -> None:
    later_s = FIRST_END_S + 60
    for secret in (b"", b"secret", sign(later_s)[:-2], sign(later_s, "ann"), sign(later_s, account="other")):
        peer = connect_with_token()[1]
        close = update(peer, secret)[-1]
        assert isinstance(close, ConnectionClose)
        assert (close.reply_code, close.failed_method_id) == (codes.NOT_ALLOWED, 70)
        assert close.reply_text.endswith(b"New secret was refused by one of the backends")


def test_two_tokens_at_once_are_one_too_many() -> None:
    _, peer = connect_with_token()
    assert peer.say(ConnectionUpdateSecret(sign(FIRST_END_S + 60), b"")) == []
    assert isinstance(peer.say(ConnectionUpdateSecret(sign(FIRST_END_S + 90), b""))[-1], ConnectionClose)


def test_who_came_with_a_password_has_nothing_to_renew() -> None:
    world = AmqpWorld(users=USERS)
    peer = world.client(b"ann", b"secret")
    before = peer.endpoint.principal
    assert update(peer, b"whatever") == [ConnectionUpdateSecretOk()]
    assert peer.endpoint.principal is before
