"""Passwords, certificates, SCRAM and access rules, as clients nobody here wrote meet them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from aiomqtt_client import AiomqttClient
from foreign_client import Certificate, ForeignClient, RefusedError, Will
from links import KINDS, Link, links, marks_of
from mqttjs_client import MqttJsClient
from paho_client import PahoClient
from passwords import PASSWORDS

if TYPE_CHECKING:
    from guests import Guests

pytest_plugins = ["interop_fixtures"]

BAD_CREDENTIALS = {4: {4, 5}, 5: {0x86, 0x87}}
PACKET_ID_NOT_FOUND = 0x92
NOT_AUTHORIZED = {4: 0x80, 5: 0x87}

PLAIN = links(transports=["tcp", "ws"])
SECURE = links(transports=["tls", "wss"])
# aiomqtt waits for CONNACK until its timeout when the connection ends before it.
SECURE_THAT_NOTICE = links(
    transports=["tls", "wss"], kinds=[kind for kind in KINDS if kind is not AiomqttClient]
)


def as_user(name: str) -> dict[str, str]:
    return {"username": name, "password": PASSWORDS[name]}


def assert_goes_round(client: ForeignClient, topic: str) -> None:
    assert client.subscribe(topic, 1) == 1
    client.publish(topic, b"mine", 1)
    assert client.take_one().payload == b"mine"


@pytest.mark.parametrize("user", list(PASSWORDS))
@pytest.mark.parametrize("link", PLAIN)
def test_a_user_comes_in_with_the_password(guarded_guests: Guests, link: Link, user: str) -> None:
    client = guarded_guests.join(link, **as_user(user))
    assert_goes_round(client, f"house/{user}/here")


@pytest.mark.parametrize("fault", ["wrong password", "empty password", "unknown user", "nobody"])
@pytest.mark.parametrize("link", PLAIN)
def test_others_are_refused_with_a_reason(guarded_guests: Guests, topic: str, link: Link, fault: str) -> None:
    credentials = {
        "wrong password": {"username": link.kind.name, "password": "wrong"},
        "empty password": {"username": link.kind.name, "password": ""},
        "unknown user": {"username": f"stranger-{topic}", "password": "right"},
        "nobody": {},
    }[fault]
    with pytest.raises(RefusedError) as refused:
        guarded_guests.join(link, **credentials)
    assert refused.value.code in BAD_CREDENTIALS[link.version]


@pytest.mark.parametrize("link", SECURE)
def test_a_certificate_names_the_user(
    guarded_guests: Guests, link: Link, alice_certificate: Certificate
) -> None:
    client = guarded_guests.join(link, certificate=alice_certificate)
    assert_goes_round(client, "house/alice/certified")
    assert client.subscribe("house/bob/certified", 1) == NOT_AUTHORIZED[link.version]


@pytest.mark.parametrize("has_certificate", [False, True])
@pytest.mark.parametrize("link", SECURE_THAT_NOTICE)
def test_nobody_comes_in_without_a_certificate_of_the_authority(
    guarded_guests: Guests, link: Link, stranger_certificate: Certificate, has_certificate: bool
) -> None:
    with pytest.raises(OSError):  # TLS refuses it, each library in words of its own
        guarded_guests.join(link, certificate=stranger_certificate if has_certificate else None)


@pytest.mark.parametrize("link", PLAIN)
def test_a_forbidden_filter_is_refused_in_suback(guarded_guests: Guests, link: Link) -> None:
    client = guarded_guests.join(link, **as_user("alice"))
    for filter in ("house/bob/#", "house/+/x", "#", "$share/g/house/bob/x", "other"):
        assert client.subscribe(filter, 1) == NOT_AUTHORIZED[link.version], filter
    assert client.subscribe("$share/g/house/alice/x", 1) == 1
    assert_goes_round(client, "house/alice/still-open")


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("link", PLAIN)
def test_a_forbidden_publish_reaches_nobody(guarded_guests: Guests, link: Link, qos: int) -> None:
    observer = guarded_guests.join(Link(PahoClient, "tcp", 5), **as_user("bob"))
    observer.subscribe("news/#", 1)
    observer.subscribe("house/bob/#", 1)
    observer.subscribe("open/#", 1)
    client = guarded_guests.join(link, **as_user("alice"))
    for topic in ("news/false", "house/bob/intrusion", "open/secret/x"):
        code = client.publish(topic, b"forbidden", qos)
        if qos and link.version == 5 and client.shows_publish_reason:
            # paho overlooks the reason in PUBREC and sends PUBREL, which the broker knows nothing of
            is_overlooked = qos == 2 and link.kind is PahoClient
            assert code == (PACKET_ID_NOT_FOUND if is_overlooked else NOT_AUTHORIZED[5])
    client.publish("open/allowed", b"allowed", qos)
    assert observer.take_one().payload == b"allowed"


@pytest.mark.parametrize("link", PLAIN)
def test_a_wide_filter_is_no_way_around_a_deny(guarded_guests: Guests, link: Link) -> None:
    client = guarded_guests.join(link, **as_user("alice"))
    assert client.subscribe("open/#", 1) == 1
    assert client.subscribe("open/secret/x", 1) == NOT_AUTHORIZED[link.version]
    assert client.subscribe("open/secret/#", 1) == NOT_AUTHORIZED[link.version]


@pytest.mark.parametrize("link", links(transports=["tcp"]))
def test_a_will_to_a_forbidden_topic_is_never_sent(guarded_guests: Guests, link: Link) -> None:
    observer = guarded_guests.join(Link(PahoClient, "tcp", 5), **as_user("bob"))
    observer.subscribe("house/bob/#", 1)
    observer.subscribe("open/#", 1)
    try:
        guarded_guests.join(link, will=Will("house/bob/will", b"intrusion", 1), **as_user("alice")).cut()
    except RefusedError:
        pass  # refusing the connection is as good
    guarded_guests.join(link, will=Will("open/will", b"allowed", 1), **as_user("alice")).cut()
    assert observer.take_one().payload == b"allowed"


@pytest.mark.parametrize("link", links(transports=["tcp"]))
def test_another_user_cannot_take_a_client_id_over(guarded_guests: Guests, link: Link) -> None:
    owner = guarded_guests.join(link, clean=False, **as_user("alice"))
    owner.subscribe("house/alice/x", 1)
    with pytest.raises(RefusedError):
        guarded_guests.join(link, client_id=owner.options.client_id, **as_user("bob"))
    owner.publish("house/alice/x", b"untouched", 1)
    assert owner.take_one().payload == b"untouched"


@pytest.mark.parametrize("transport", ["tcp", "ws"])
class TestScramWithMqttJs:
    pytestmark = marks_of(MqttJsClient)

    def make(self, guests: Guests, transport: str) -> MqttJsClient:
        client = guests.make(Link(MqttJsClient, transport, 5))
        assert isinstance(client, MqttJsClient)
        return client

    @pytest.mark.parametrize("user", list(PASSWORDS))
    def test_both_sides_prove_that_they_know_the_password(
        self, guarded_guests: Guests, transport: str, user: str
    ) -> None:
        client = self.make(guarded_guests, transport)
        client.connect_with_scram(user, PASSWORDS[user])
        assert client.is_server_proven
        assert_goes_round(client, f"house/{user}/scram")

    @pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("nobody", "wonder land")])
    def test_a_wrong_proof_is_refused(
        self, guarded_guests: Guests, transport: str, user: str, password: str
    ) -> None:
        with pytest.raises(RefusedError) as refused:
            self.make(guarded_guests, transport).connect_with_scram(user, password)
        assert refused.value.code in BAD_CREDENTIALS[5]
