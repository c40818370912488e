"""What an MQTT subscriber wants of a queue, read from its version, its client id and its user properties.

consumer-group    the group to join; without it: the client id, of a 3.1.1 client up to its first `-`
x-stream-offset   where a new group of a stream begins: first, last, next, a number, timestamp=<unix time>
settlement        `puback`: to have received it is enough; `explicit`: only $ack, $nack and $reject settle
auto-commit       `false`: a stream is committed by $commit alone
"""

from __future__ import annotations

from millstream.broker.queue_access import ConsumeRequest
from millstream.broker.session import Session
from millstream.model.errors import Reason, Refused
from millstream.protocols.mqtt.wire.properties import Properties

GROUP_LENGTH_MAX = 256


def make_wish(
    version: int,
    session: Session,
    share: bytes,
    guarantee: int,
    identifier: int,
    properties: Properties | None,
) -> ConsumeRequest:
    words: dict[bytes, bytes] = {}
    if properties is not None:
        words = dict(properties.user_properties)
    client_id = session.key.client_id
    group = client_id if version == 5 else client_id.partition("-")[0] or client_id
    group = group.replace("%", "%25").replace("@", "%40")  # @ stands before the filter of a group
    if share:
        group = share.decode()
    elif b"consumer-group" in words:
        group = words[b"consumer-group"].decode()
    if not group or len(group) > GROUP_LENGTH_MAX or "@" in group:
        raise Refused(Reason.FILTER_INVALID, "a group is named by 1 to 256 characters without @")
    settlement = words.get(b"settlement", b"")
    is_asked = settlement == b"explicit" or words.get(b"auto-commit") == b"false"
    # a 3.1.1 client has no other way to answer; a 5 client says so in words
    is_explicit = guarantee > 0 and (is_asked or (version == 5 and settlement != b"puback"))
    start = words.get(b"x-stream-offset", words.get(b"offset", b""))
    return ConsumeRequest(group, guarantee, identifier, is_explicit, is_asked, start)
