"""From start-ok to open-ok: who, by which mechanism, into which account."""

from __future__ import annotations

import pytest
from amqp091_traffic import frames_of
from amqp091_world import AmqpPeer, AmqpWorld
from fakes import HeldStore
from scramp import ScramClient  # type: ignore[import-untyped]

from millstream.broker.account_options import AccountOptions
from millstream.broker.line import Ending
from millstream.model.errors import Reason
from millstream.protocols.amqp091.wire import codes
from millstream.protocols.amqp091.wire.field_table import encode_table
from millstream.protocols.amqp091.wire.methods import (
    BasicQos,
    BasicQosOk,
    ChannelOpen,
    ChannelOpenOk,
    ConnectionBlocked,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionSecure,
    ConnectionSecureOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
    ConnectionUnblocked,
    Method,
)
from millstream.security.quota import CONNECTIONS, Bound
from millstream.security.quotas import QuotaTerms, make_quota
from millstream.security.scram_record import derive_scram_record
from millstream.security.users import User, UserTable, hash_password

HASH = hash_password("secret")
RECORD = derive_scram_record("pencil", b"salt" * 4, 4096)
USERS = UserTable(
    {
        "ann": User("ann", HASH, "default", RECORD),
        "ben": User("ben", HASH, "factory", None),
    }
)
FACTORY = {
    "factory": AccountOptions(
        0, QuotaTerms(make_quota({CONNECTIONS: Bound(1, "accounts.factory.max_connections")}))
    )
}
REFUSED = (
    b"ACCESS_REFUSED - Login was refused using authentication mechanism %b. "
    b"For details see the broker logfile."
)


def plain(name: bytes, password: bytes) -> bytes:
    return b"\x00" + name + b"\x00" + password


class CountingPeer(AmqpPeer):
    count = 0  # bytes it has sent

    def receive(self, data: bytes) -> None:
        self.count += len(data)
        super().receive(data)


def offered(peer: AmqpPeer) -> list[bytes]:
    start = peer.take()[0]
    assert isinstance(start, ConnectionStart)
    return start.mechanisms.split(b" ")


def closing(answers: list[Method]) -> tuple[int, bytes]:
    close = answers[-1]
    assert isinstance(close, ConnectionClose)
    return close.reply_code, close.reply_text


# ---------------------------------------------------------------- mechanisms


def test_each_mechanism_is_offered_only_where_it_can_work() -> None:
    assert offered(AmqpWorld().stranger()) == [b"PLAIN", b"AMQPLAIN", b"ANONYMOUS"]
    world = AmqpWorld(users=USERS, certificates=True)
    assert offered(world.stranger()) == [b"PLAIN", b"AMQPLAIN", b"SCRAM-SHA-256"]
    assert offered(world.stranger("sensor")) == [b"PLAIN", b"AMQPLAIN", b"SCRAM-SHA-256", b"EXTERNAL"]
    world.authenticator.replace_users(UserTable({"ben": User("ben", HASH, "default", None)}))
    assert offered(world.stranger()) == [b"PLAIN", b"AMQPLAIN"]


@pytest.mark.parametrize("mechanism", [b"EXTERNAL", b"ANONYMOUS", b"CRAM-MD5", b"", b"PLAIN AMQPLAIN"])
def test_a_mechanism_that_was_not_offered_is_refused(mechanism: bytes) -> None:
    peer = AmqpWorld(users=USERS).stranger()
    code, text = closing(peer.log_in(mechanism, plain(b"ann", b"secret")))
    assert code == codes.COMMAND_INVALID
    assert text == b"COMMAND_INVALID - unknown authentication mechanism '%b'" % mechanism
    assert peer.endpoint.principal is None


def test_where_nobody_can_be_known_a_guest_is_anonymous() -> None:
    world = AmqpWorld()
    for mechanism, response in (
        (b"PLAIN", plain(b"guest", b"guest")),
        (b"AMQPLAIN", encode_table({b"LOGIN": b"guest", b"PASSWORD": b"guest"})[4:]),
        (b"ANONYMOUS", b""),
    ):
        peer = world.stranger()
        assert isinstance(peer.log_in(mechanism, response)[0], ConnectionTune)
        assert peer.open() == [ConnectionOpenOk()]
        assert peer.endpoint.principal is not None
        assert peer.endpoint.principal.name == "anonymous"
        assert peer.endpoint.user_name == (b"anonymous" if mechanism == b"ANONYMOUS" else b"guest")
        assert peer.link.is_authenticated


def test_where_nobody_can_be_known_no_password_but_the_guests_is_taken_for_one() -> None:
    for name, password in ((b"guest", b"wrong"), (b"ann", b"secret"), (b"", b""), (b"guest", b"")):
        peer = AmqpWorld().stranger()
        assert closing(peer.log_in(b"PLAIN", plain(name, password)))[0] == codes.ACCESS_REFUSED


@pytest.mark.parametrize(
    ("mechanism", "response"),
    [
        (b"PLAIN", plain(b"ann", b"secret")),
        (b"PLAIN", b"ann" + plain(b"ann", b"secret")),
        (b"AMQPLAIN", encode_table({b"PASSWORD": b"secret", b"LOGIN": b"ann"})[4:]),
    ],
)
def test_a_password_is_proven(mechanism: bytes, response: bytes) -> None:
    peer = AmqpWorld(users=USERS).stranger()
    assert isinstance(peer.log_in(mechanism, response)[-1], ConnectionTune)
    assert peer.endpoint.principal is not None
    assert peer.endpoint.principal.name == "ann"


@pytest.mark.parametrize(
    ("mechanism", "response"),
    [
        (b"PLAIN", plain(b"ann", b"wrong")),
        (b"PLAIN", plain(b"nobody", b"secret")),
        (b"PLAIN", plain(b"guest", b"guest")),
        (b"PLAIN", b"other" + plain(b"ann", b"secret")),
        (b"PLAIN", b"ann"),
        (b"PLAIN", b"\x00ann\x00sec\x00ret"),
        (b"PLAIN", b"\x00\xff\x00secret"),
        (b"PLAIN", b""),
        (b"AMQPLAIN", encode_table({b"LOGIN": b"ann"})[4:]),
        (b"AMQPLAIN", encode_table({b"LOGIN": b"ann", b"PASSWORD": 5})[4:]),
        (b"AMQPLAIN", b"\x05LOGINS\xff"),
    ],
)
def test_what_proves_nothing_is_refused_without_a_word_on_why(mechanism: bytes, response: bytes) -> None:
    world = AmqpWorld(users=USERS)
    peer = world.stranger()
    assert closing(peer.log_in(mechanism, response)) == (codes.ACCESS_REFUSED, REFUSED % mechanism)
    assert peer.endpoint.principal is None
    assert not peer.link.is_authenticated
    assert world.context.endpoints() == []
    assert [line[0] for line in world.observer.lines] == ["refused"]


def test_a_client_that_does_not_understand_a_refusal_is_cut_off() -> None:
    peer = AmqpWorld(users=USERS).stranger()
    peer.take()
    assert peer.log_in(b"PLAIN", plain(b"ann", b"wrong"), {}) == []
    assert peer.link.is_closed


def test_who_guesses_too_often_is_not_listened_to_any_more() -> None:
    world = AmqpWorld(users=USERS)
    for _ in range(10):
        world.stranger().log_in(b"PLAIN", plain(b"ann", b"wrong"))
    peer = world.stranger()
    assert closing(peer.log_in(b"PLAIN", plain(b"ann", b"secret")))[0] == codes.ACCESS_REFUSED
    assert peer.link.asked == []


def test_a_certificate_is_its_own_proof_and_for_nobody_else() -> None:
    world = AmqpWorld(users=USERS, certificates=True)
    peer = world.stranger("sensor")
    assert isinstance(peer.log_in(b"EXTERNAL", b"")[0], ConnectionTune)
    assert peer.endpoint.principal is not None
    assert peer.endpoint.principal.name == "sensor"
    assert isinstance(world.stranger("sensor").log_in(b"EXTERNAL", b"sensor")[0], ConnectionTune)
    assert closing(world.stranger("sensor").log_in(b"EXTERNAL", b"ann"))[0] == codes.ACCESS_REFUSED


# --------------------------------------------------------------------- SCRAM


def challenge(answers: list[Method]) -> str:
    assert len(answers) == 1
    secure = answers[0]
    assert isinstance(secure, ConnectionSecure)
    return secure.challenge.decode()


@pytest.mark.parametrize("waits", [False, True])
def test_scram_proves_both_sides(waits: bool) -> None:
    client = ScramClient(["SCRAM-SHA-256"], "ann", "pencil")
    peer = AmqpWorld(users=USERS).stranger()
    first = client.get_client_first().encode()
    answers = peer.log_in(b"SCRAM-SHA-256", b"" if waits else first)
    if waits:
        assert challenge(answers) == ""
        answers = peer.say(ConnectionSecureOk(first))
    client.set_server_first(challenge(answers))
    answers = peer.say(ConnectionSecureOk(client.get_client_final().encode()))
    client.set_server_final(challenge(answers))
    assert peer.endpoint.principal is None
    assert isinstance(peer.say(ConnectionSecureOk(b""))[0], ConnectionTune)
    assert peer.endpoint.principal is not None
    assert peer.endpoint.principal.name == "ann"
    assert peer.open() == [ConnectionOpenOk()]


def test_scram_that_is_not_begun_by_who_is_asked_to_is_refused() -> None:
    """Else a client could send for as long as a handshake may take, and all of it would be kept."""
    peer = AmqpWorld(users=USERS).stranger()
    assert challenge(peer.log_in(b"SCRAM-SHA-256", b"")) == ""
    many = frames_of(*[ConnectionSecureOk(b"") for _ in range(1000)], channel=0)
    for _ in range(10):
        peer.receive(many)
    assert closing(peer.take()) == (codes.ACCESS_REFUSED, REFUSED % b"SCRAM-SHA-256")
    assert peer.endpoint.machine.kept_bytes() == 0


def test_scram_with_a_wrong_password_is_refused() -> None:
    client = ScramClient(["SCRAM-SHA-256"], "ann", "pen")
    peer = AmqpWorld(users=USERS).stranger()
    client.set_server_first(challenge(peer.log_in(b"SCRAM-SHA-256", client.get_client_first().encode())))
    answers = peer.say(ConnectionSecureOk(client.get_client_final().encode()))
    assert closing(answers) == (codes.ACCESS_REFUSED, REFUSED % b"SCRAM-SHA-256")


def test_scram_does_not_outlive_the_users_it_began_with() -> None:
    world = AmqpWorld(users=USERS)
    client = ScramClient(["SCRAM-SHA-256"], "ann", "pencil")
    peer = world.stranger()
    client.set_server_first(challenge(peer.log_in(b"SCRAM-SHA-256", client.get_client_first().encode())))
    world.authenticator.replace_users(USERS)
    answers = peer.say(ConnectionSecureOk(client.get_client_final().encode()))
    assert closing(answers)[0] == codes.ACCESS_REFUSED


# ------------------------------------------------------------------- accounts


def test_a_virtual_host_is_the_account_of_who_asks_for_it() -> None:
    world = AmqpWorld(users=USERS, accounts=FACTORY)
    for host in (b"/", b"", b"factory"):
        peer = world.client(b"ben", b"secret", host)
        assert peer.endpoint.account is world.broker.get_account("factory")
        assert peer.endpoint.virtual_host == host.decode() or host == b""
        peer.say(ConnectionClose(200, b"", 0, 0))


@pytest.mark.parametrize("host", [b"default", b"nosuch", b"Factory"])
def test_any_other_virtual_host_is_not_found(host: bytes) -> None:
    world = AmqpWorld(users=USERS, accounts=FACTORY)
    peer = world.stranger()
    peer.log_in(b"PLAIN", plain(b"ben", b"secret"))
    assert closing(peer.open(host)) == (codes.NOT_ALLOWED, b"NOT_ALLOWED - vhost %b not found" % host)
    assert peer.endpoint.account is None


def test_an_account_has_no_more_connections_than_it_may() -> None:
    world = AmqpWorld(users=USERS, accounts=FACTORY)
    first = world.client(b"ben", b"secret")
    second = world.stranger()
    second.log_in(b"PLAIN", plain(b"ben", b"secret"))
    code, text = closing(second.open())
    assert code == codes.NOT_ALLOWED
    assert b"connection limit is reached" in text
    second.say(ConnectionCloseOk())
    account = world.broker.get_account("factory")
    assert account.connected == 1
    assert first.say(ConnectionClose(200, b"", 0, 0)) == [ConnectionCloseOk()]
    assert account.connected == 0
    world.client(b"ben", b"secret")
    assert account.connected == 1


# ------------------------------------------------------------- all connections


def test_at_the_end_everybody_is_told_also_who_has_not_opened_yet() -> None:
    world = AmqpWorld()
    opened = world.client()
    tuning = world.stranger()
    tuning.log_in(b"ANONYMOUS", b"")
    opened.take()
    tuning.take()
    world.context.end_all(Ending.SHUTTING_DOWN)
    world.settle_down()
    for peer in (opened, tuning):
        code, text = closing(peer.take())
        assert code == codes.CONNECTION_FORCED
        assert text.startswith(b"CONNECTION_FORCED - ")
        peer.say(ConnectionCloseOk())
        assert peer.link.is_closed
    assert world.context.endpoints() == []
    assert world.account.connected == 0


def test_a_connection_of_a_user_who_is_gone_is_ended() -> None:
    world = AmqpWorld(users=USERS)
    peer = world.client(b"ann", b"secret")
    peer.take()
    world.context.end_invalid(0)
    world.settle_down()
    assert peer.take() == []
    world.authenticator.replace_users(UserTable({}))
    world.context.end_invalid(0)
    world.settle_down()
    assert closing(peer.take())[0] == codes.ACCESS_REFUSED


class FullStore(HeldStore):
    is_full = False

    def refusal(self) -> Reason:
        return Reason.UNAVAILABLE if self.is_full else Reason.SUCCESS


def test_clients_that_understand_it_are_told_when_nothing_can_be_stored() -> None:
    store = FullStore()
    world = AmqpWorld(store=store)
    peer = world.client()
    silent = world.stranger()
    silent.log_in(b"ANONYMOUS", b"", {})
    silent.open()
    for each in (peer, silent):
        each.take()
    store.is_full = True
    for _ in range(2):
        world.context.on_tick(world.now_ns)
    world.settle_down()
    assert [type(method) for method in peer.take()] == [ConnectionBlocked]
    late = world.client()
    store.is_full = False
    world.context.on_tick(world.now_ns)
    world.settle_down()
    assert peer.take() == [ConnectionUnblocked()]
    assert late.take()[-1] == ConnectionUnblocked()
    assert silent.take() == []


def test_what_a_hasty_client_sends_behind_its_login_is_not_forgotten() -> None:
    peer = AmqpWorld().stranger()
    peer.take()
    said = ConnectionStartOk({}, b"PLAIN", plain(b"guest", b"guest"), b"en_US")
    peer.receive(
        frames_of(said, ConnectionTuneOk(0, 0, 0), ConnectionOpen(b"/"), channel=0)
        + frames_of(ChannelOpen(), BasicQos(0, 1, False))
    )
    answers = [type(answer) for answer in peer.take()]
    assert answers == [ConnectionTune, ConnectionOpenOk, ChannelOpenOk, BasicQosOk]


def test_bytes_are_counted_from_the_first_one_on() -> None:
    world = AmqpWorld()
    peer = CountingPeer(world)
    peer.log_in(b"PLAIN", plain(b"guest", b"guest"))
    assert world.account.counters.bytes_received == 0  # it is not known yet whose they are
    peer.open()
    peer.open_channel()
    assert world.account.counters.bytes_received == peer.count
