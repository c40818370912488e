"""AMQP endpoints on fake links around a real broker: methods in, methods out."""

from __future__ import annotations

from fakes import CountingEntropy, EndpointWorld, FakeLink
from librt.strings import BytesWriter

from millstream.broker.account_options import AccountOptions
from millstream.model.limits import Limits
from millstream.protocols.amqp091.context import AmqpContext
from millstream.protocols.amqp091.endpoint import AmqpEndpoint
from millstream.protocols.amqp091.policies import Policies, Policy
from millstream.protocols.amqp091.wire.codes import METHOD
from millstream.protocols.amqp091.wire.field_table import FieldTable
from millstream.protocols.amqp091.wire.frames import PROTOCOL_HEADER, write_method
from millstream.protocols.amqp091.wire.methods import (
    ChannelOpen,
    ConnectionOpen,
    ConnectionStartOk,
    ConnectionTuneOk,
    Method,
    decode_method,
)
from millstream.security.acl import Authorizer, parse_acl
from millstream.security.authentication import Verdict
from millstream.security.tokens import TokenVerifier
from millstream.security.users import UserTable
from millstream.storage.store import Store

CAPABILITIES: FieldTable = {
    b"authentication_failure_close": True,
    b"consumer_cancel_notify": True,
    b"connection.blocked": True,
}


class AmqpWorld(EndpointWorld):
    def __init__(
        self,
        limits: Limits | None = None,
        store: Store | None = None,
        rules: object = None,
        accounts: dict[str, AccountOptions] | None = None,
        users: UserTable | None = None,
        certificates: bool = False,
        policies: list[Policy] | None = None,
        tokens: TokenVerifier | None = None,
    ) -> None:
        authorizer = None if rules is None else Authorizer(parse_acl(rules))
        super().__init__(limits, store, authorizer, accounts, users, tokens, certificates)
        self.context = AmqpContext(
            self.broker,
            self.authenticator,
            self.pool,
            self.observer,
            CountingEntropy(),
            b"s" * 32,
            users is None,
            certificates,
            Policies(policies or []),
        )

    def stranger(self, certificate_name: str | None = None) -> AmqpPeer:
        return AmqpPeer(self, certificate_name)

    def client(self, user: bytes = b"guest", password: bytes = b"guest", host: bytes = b"/") -> AmqpPeer:
        peer = self.stranger()
        peer.log_in(b"PLAIN", b"\x00" + user + b"\x00" + password)
        peer.open(host)
        assert peer.endpoint.account is not None
        return peer


class AmqpPeer:
    """The client's end of one connection."""

    def __init__(self, world: AmqpWorld, certificate_name: str | None = None) -> None:
        self.world = world
        self.link = FakeLink()
        self.link.certificate_name = certificate_name
        self.endpoint = AmqpEndpoint(world.context, self.link, world.now_ns)
        self._seen = 0
        self.receive(PROTOCOL_HEADER)

    def receive(self, data: bytes) -> None:
        self.endpoint.receive_data(data, self.world.now_ns)
        self.world.settle_down()

    def say(self, method: Method, channel: int = 0) -> list[Method]:
        """What the broker answers to it."""
        self.take()
        writer = BytesWriter()
        write_method(writer, channel, method)
        self.receive(writer.getvalue())
        return self.take()

    def take(self) -> list[Method]:
        """Methods that came since the last look."""
        data = self.link.data
        methods: list[Method] = []
        while self._seen < len(data):
            size = int.from_bytes(data[self._seen + 3 : self._seen + 7], "big")
            start = self._seen + 7
            if data[self._seen] == METHOD:
                methods.append(decode_method(data, start, start + size))
            self._seen = start + size + 1
        return methods

    def log_in(
        self, mechanism: bytes, response: bytes, capabilities: FieldTable | None = None
    ) -> list[Method]:
        said: FieldTable = {b"capabilities": CAPABILITIES if capabilities is None else capabilities}
        answers = self.say(ConnectionStartOk(said, mechanism, response, b"en_US"))
        if self.link.asked:
            return answers + self.answer_asked()
        return answers

    def answer_asked(self) -> list[Method]:
        """What the thread that hashes would bring back."""
        credentials = self.link.asked.pop()
        authenticator = self.world.authenticator
        now_s = self.world.now_ns // 1_000_000_000
        decision = authenticator.verify(credentials, now_s)
        decision = authenticator.remember(credentials, decision, self.world.now_ns)
        assert decision.verdict is not Verdict.ASK
        self.endpoint.on_decision(decision, self.world.now_ns)
        self.world.settle_down()
        return self.take()

    def open(self, host: bytes = b"/") -> list[Method]:
        self.say(ConnectionTuneOk(0, 0, 0))
        return self.say(ConnectionOpen(host))

    def open_channel(self, number: int = 1) -> None:
        self.say(ChannelOpen(), number)
