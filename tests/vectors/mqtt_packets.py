"""MQTT packets as data: what goes over the wire, and what a decoder must make of it.

Shared by the unit tests and, as seeds, by the fuzzers. `VECTORS` is the whole table.
"""

from __future__ import annotations

from vectors.mqtt_handshake_packets import CONNACKS, CONNECTS
from vectors.mqtt_publish_packets import ANSWERS, PUBLISH_PROPERTIES, PUBLISHES
from vectors.mqtt_vector import (
    MALFORMED,
    PROTOCOL,
    TOO_LARGE,
    USER,
    Vector,
    bad,
    block,
    frame,
    good,
    props,
    text,
)

from millstream.protocols.mqtt.wire.packets import (
    Auth,
    Disconnect,
    PingReq,
    PingResp,
    Publish,
    SubAck,
    Subscribe,
    SubscribeEntry,
    UnsubAck,
    Unsubscribe,
)

SUBSCRIBES = [
    good(
        "SUBSCRIBE",
        4,
        frame(0x82, b"\x00\x01", text(b"a/+"), b"\x01", text(b"#"), b"\x02"),
        Subscribe(1, [SubscribeEntry(b"a/+", 1), SubscribeEntry(b"#", 2)]),
    ),
    good(
        "SUBSCRIBE again in 3.1",
        3,
        frame(0x8A, b"\x00\x01", text(b"a"), b"\x00"),
        Subscribe(1, [SubscribeEntry(b"a")]),
        canonical=False,
    ),
    good(
        "SUBSCRIBE 5 with every option",
        5,
        frame(
            0x82, b"\x00\x01", block(b"\x0b\xff\xff\xff\x7f", USER), text(b"a"), b"\x2e", text(b"b"), b"\x11"
        ),
        Subscribe(
            1,
            [SubscribeEntry(b"a", 2, True, True, 2), SubscribeEntry(b"b", 1, False, False, 1)],
            props(subscription_identifiers=[268435455], user_properties=[(b"k", b"v")]),
        ),
    ),
    good(
        "SUBSCRIBE 5 to a share",
        5,
        frame(0x82, b"\x00\x02\x00", text(b"$share/g/a"), b"\x01"),
        Subscribe(2, [SubscribeEntry(b"$share/g/a", 1)]),
    ),
    bad("SUBSCRIBE with an empty filter", 4, frame(0x82, b"\x00\x01\x00\x00\x00"), MALFORMED),
    bad(
        "SUBSCRIBE with an empty filter behind another",
        4,
        frame(0x82, b"\x00\x01", text(b"a"), b"\x00", text(b""), b"\x00"),
        MALFORMED,
    ),
    bad(
        "SUBSCRIBE 5 with an empty filter before another",
        5,
        frame(0x82, b"\x00\x01\x00", text(b""), b"\x00", text(b"a"), b"\x00"),
        MALFORMED,
    ),
    bad("SUBSCRIBE without filters", 4, b"\x82\x02\x00\x01", PROTOCOL),
    bad("SUBSCRIBE 5 without filters", 5, b"\x82\x03\x00\x01\x00", PROTOCOL),
    bad("SUBSCRIBE with packet id 0", 4, frame(0x82, b"\x00\x00", text(b"a"), b"\x00"), PROTOCOL),
    bad("SUBSCRIBE without header flags", 4, frame(0x80, b"\x00\x01", text(b"a"), b"\x00"), MALFORMED),
    bad("SUBSCRIBE with header flags 3", 5, frame(0x83, b"\x00\x01\x00", text(b"a"), b"\x00"), MALFORMED),
    bad("SUBSCRIBE QoS 3", 4, frame(0x82, b"\x00\x01", text(b"a"), b"\x03"), PROTOCOL),
    bad("SUBSCRIBE 5 QoS 3", 5, frame(0x82, b"\x00\x01\x00", text(b"a"), b"\x03"), PROTOCOL),
    bad("SUBSCRIBE 3.1.1 with MQTT 5 options", 4, frame(0x82, b"\x00\x01", text(b"a"), b"\x04"), MALFORMED),
    bad("SUBSCRIBE 5 with reserved bit 6", 5, frame(0x82, b"\x00\x01\x00", text(b"a"), b"\x40"), MALFORMED),
    bad("SUBSCRIBE 5 with reserved bit 7", 5, frame(0x82, b"\x00\x01\x00", text(b"a"), b"\x80"), MALFORMED),
    bad("SUBSCRIBE 5 with retain handling 3", 5, frame(0x82, b"\x00\x01\x00", text(b"a"), b"\x30"), PROTOCOL),
    bad(
        "SUBSCRIBE 5 no local to a share",
        5,
        frame(0x82, b"\x00\x01\x00", text(b"$share/g/a"), b"\x04"),
        PROTOCOL,
    ),
    bad("SUBSCRIBE without options", 4, frame(0x82, b"\x00\x01", text(b"a")), MALFORMED),
    bad(
        "SUBSCRIBE cut in the second filter", 4, frame(0x82, b"\x00\x01", text(b"a"), b"\x00\x00"), MALFORMED
    ),
    bad("SUBSCRIBE whose filter passes the end", 4, frame(0x82, b"\x00\x01\x00\x09a\x00"), MALFORMED),
    bad("SUBSCRIBE with a bad filter", 4, frame(0x82, b"\x00\x01", text(b"\xc3"), b"\x00"), MALFORMED),
    bad(
        "SUBSCRIBE with NUL in the filter", 5, frame(0x82, b"\x00\x01\x00", text(b"\x00"), b"\x00"), MALFORMED
    ),
    bad(
        "SUBSCRIBE 5 with identifier 0",
        5,
        frame(0x82, b"\x00\x01", block(b"\x0b\x00"), text(b"a"), b"\x00"),
        PROTOCOL,
    ),
    bad(
        "SUBSCRIBE 5 with two identifiers",
        5,
        frame(0x82, b"\x00\x01", block(b"\x0b\x01\x0b\x02"), text(b"a"), b"\x00"),
        PROTOCOL,
    ),
    bad(
        "SUBSCRIBE 5 with a reason string",
        5,
        frame(0x82, b"\x00\x01", block(b"\x1f\x00\x00"), text(b"a"), b"\x00"),
        MALFORMED,
    ),
    good("SUBACK", 4, b"\x90\x05\x00\x01\x00\x02\x80", SubAck(1, [0, 2, 0x80])),
    good(
        "SUBACK 5",
        5,
        frame(0x90, b"\x00\x01", block(b"\x1f" + text(b"no"), USER), b"\x01\x87\xa2"),
        SubAck(1, [1, 0x87, 0xA2], props(reason_string=b"no", user_properties=[(b"k", b"v")])),
    ),
    bad("SUBACK without reasons", 4, b"\x90\x02\x00\x01", PROTOCOL),
    bad("SUBACK 5 without reasons", 5, b"\x90\x03\x00\x01\x00", PROTOCOL),
    bad("SUBACK 3.1.1 with an MQTT 5 reason", 4, b"\x90\x03\x00\x01\x87", MALFORMED),
    bad("SUBACK QoS 3", 4, b"\x90\x03\x00\x01\x03", MALFORMED),
    bad("SUBACK 5 with an unknown reason", 5, b"\x90\x04\x00\x01\x00\x11", PROTOCOL),
    bad("SUBACK with packet id 0", 4, b"\x90\x03\x00\x00\x00", PROTOCOL),
    bad("SUBACK with header flags", 4, b"\x92\x03\x00\x01\x00", MALFORMED),
    good(
        "UNSUBSCRIBE",
        4,
        frame(0xA2, b"\x00\x01", text(b"a"), text(b"b/#")),
        Unsubscribe(1, [b"a", b"b/#"]),
    ),
    good(
        "UNSUBSCRIBE 5",
        5,
        frame(0xA2, b"\x00\x01", block(USER), text(b"a")),
        Unsubscribe(1, [b"a"], props(user_properties=[(b"k", b"v")])),
    ),
    good(
        "UNSUBSCRIBE again in 3.1",
        3,
        frame(0xAA, b"\x00\x01", text(b"a")),
        Unsubscribe(1, [b"a"]),
        canonical=False,
    ),
    bad(
        "UNSUBSCRIBE with an empty filter behind another",
        4,
        frame(0xA2, b"\x00\x01", text(b"a"), text(b"")),
        MALFORMED,
    ),
    bad(
        "UNSUBSCRIBE 5 with an empty filter before another",
        5,
        frame(0xA2, b"\x00\x01\x00", text(b""), text(b"a")),
        MALFORMED,
    ),
    bad("UNSUBSCRIBE without filters", 4, b"\xa2\x02\x00\x01", PROTOCOL),
    bad("UNSUBSCRIBE 5 without filters", 5, b"\xa2\x03\x00\x01\x00", PROTOCOL),
    bad("UNSUBSCRIBE with packet id 0", 4, frame(0xA2, b"\x00\x00", text(b"a")), PROTOCOL),
    bad("UNSUBSCRIBE without header flags", 4, frame(0xA0, b"\x00\x01", text(b"a")), MALFORMED),
    bad("UNSUBSCRIBE cut in a filter", 4, frame(0xA2, b"\x00\x01\x00\x02a"), MALFORMED),
    bad("UNSUBSCRIBE with NUL in the filter", 4, frame(0xA2, b"\x00\x01", text(b"a\x00")), MALFORMED),
    bad(
        "UNSUBSCRIBE 5 with an identifier",
        5,
        frame(0xA2, b"\x00\x01", block(b"\x0b\x01"), text(b"a")),
        MALFORMED,
    ),
    good("UNSUBACK", 4, b"\xb0\x02\x00\x01", UnsubAck(1, [])),
    good("UNSUBACK 5", 5, b"\xb0\x05\x00\x01\x00\x00\x11", UnsubAck(1, [0, 0x11])),
    bad("UNSUBACK 3.1.1 with reasons", 4, b"\xb0\x03\x00\x01\x00", MALFORMED),
    bad("UNSUBACK 5 without reasons", 5, b"\xb0\x03\x00\x01\x00", PROTOCOL),
    bad("UNSUBACK 5 without properties", 5, b"\xb0\x02\x00\x01", MALFORMED),
    bad("UNSUBACK 5 with an unknown reason", 5, b"\xb0\x04\x00\x01\x00\x10", PROTOCOL),
    bad("UNSUBACK with packet id 0", 4, b"\xb0\x02\x00\x00", PROTOCOL),
]

CONTROLS = [
    good("PINGREQ", 4, b"\xc0\x00", PingReq()),
    good("PINGREQ 5", 5, b"\xc0\x00", PingReq()),
    good("PINGRESP", 4, b"\xd0\x00", PingResp()),
    bad("PINGREQ with a body", 4, b"\xc0\x01\x00", MALFORMED),
    bad("PINGRESP with a body", 5, b"\xd0\x01\x00", MALFORMED),
    bad("PINGREQ with header flags", 4, b"\xc1\x00", MALFORMED),
    bad("PINGRESP with header flags", 4, b"\xd8\x00", MALFORMED),
    bad("PINGREQ before CONNECT", 0, b"\xc0\x00", PROTOCOL),
    good("DISCONNECT", 4, b"\xe0\x00", Disconnect()),
    good("DISCONNECT 5", 5, b"\xe0\x00", Disconnect()),
    good("DISCONNECT 5 with a reason", 5, b"\xe0\x01\x04", Disconnect(4)),
    good("DISCONNECT 5 in full without need", 5, b"\xe0\x02\x00\x00", Disconnect(), canonical=False),
    good(
        "DISCONNECT 5 with every property",
        5,
        frame(
            0xE0,
            b"\x9d",
            block(b"\x11\x00\x00\x00\x00", b"\x1c" + text(b"b:1"), b"\x1f" + text(b"moved"), USER),
        ),
        Disconnect(
            0x9D,
            props(
                session_expiry_interval=0,
                server_reference=b"b:1",
                reason_string=b"moved",
                user_properties=[(b"k", b"v")],
            ),
        ),
    ),
    bad("DISCONNECT 3.1.1 with a reason", 4, b"\xe0\x01\x00", MALFORMED),
    bad("DISCONNECT with header flags", 4, b"\xe1\x00", MALFORMED),
    bad("DISCONNECT 5 with an unknown reason", 5, b"\xe0\x01\x01", PROTOCOL),
    bad("DISCONNECT 5 with bytes left over", 5, b"\xe0\x03\x00\x00\x00", MALFORMED),
    bad("DISCONNECT 5 with properties past the end", 5, b"\xe0\x02\x00\x01", MALFORMED),
    bad("DISCONNECT 5 with a will delay", 5, frame(0xE0, b"\x00", block(b"\x18\x00\x00\x00\x01")), MALFORMED),
    bad("DISCONNECT before CONNECT", 0, b"\xe0\x00", PROTOCOL),
    good("AUTH 5 short", 5, b"\xf0\x00", Auth()),
    good(
        "AUTH 5 continue",
        5,
        frame(0xF0, b"\x18", block(b"\x15" + text(b"SCRAM-SHA-1"), b"\x16" + text(b"\x00c="))),
        Auth(0x18, props(authentication_method=b"SCRAM-SHA-1", authentication_data=b"\x00c=")),
    ),
    bad("AUTH in 3.1.1", 4, b"\xf0\x00", MALFORMED),
    bad("AUTH in 3.1", 3, b"\xf0\x00", MALFORMED),
    bad("AUTH before CONNECT", 0, b"\xf0\x00", PROTOCOL),
    bad("AUTH with header flags", 5, b"\xf1\x00", MALFORMED),
    bad("AUTH 5 with an unknown reason", 5, b"\xf0\x01\x87", PROTOCOL),
    bad("AUTH 5 with data and no method", 5, frame(0xF0, b"\x18", block(b"\x16\x00\x00")), PROTOCOL),
    bad("AUTH 5 with bytes left over", 5, b"\xf0\x03\x00\x00\x00", MALFORMED),
    bad("reserved type 0", 4, b"\x00\x00", MALFORMED),
    bad("reserved type 0 in MQTT 5", 5, b"\x00\x00", MALFORMED),
    bad("reserved type 0 before CONNECT", 0, b"\x00\x00", PROTOCOL),
]

FRAMES = [
    Vector("nothing yet", 4, b""),
    Vector("a first byte alone", 4, b"\x30"),
    Vector("a length that goes on", 4, b"\x30\x80"),
    Vector("a length that goes on for three bytes", 4, b"\x30\xff\x87\x80"),
    Vector("a PUBLISH that lacks its last byte", 4, b"\x30\x04\x00\x01a"),
    Vector("a CONNECT that has only begun", 0, b"\x10\x20\x00\x04MQ"),
    bad("a length of five bytes", 4, b"\x30\x80\x80\x80\x80\x01", MALFORMED),
    bad("a length of four bytes that go on", 4, b"\x30\xff\xff\xff\xff", MALFORMED),
    bad("a length of four bytes that go on, before CONNECT", 0, b"\x10\xff\xff\xff\x80", MALFORMED),
    bad("the largest length", 4, b"\x30\xff\xff\xff\x7f", TOO_LARGE),
    bad("one byte too large", 4, b"\x30\xfe\x0f", TOO_LARGE),
    bad("a CONNECT that is too large", 0, b"\x10\x80\x80\x01", TOO_LARGE),
    bad("a padded length in MQTT 5", 5, b"\xc0\x80\x00", MALFORMED),
    good("a padded length in 3.1.1", 4, b"\xc0\x80\x00", PingReq(), canonical=False),
    good(
        "as large as allowed",
        4,
        frame(0x30, text(b"a"), b"x" * 2042),
        Publish(b"a", b"x" * 2042),
    ),
]

VECTORS: list[Vector] = [
    *CONNECTS,
    *CONNACKS,
    *PUBLISHES,
    *PUBLISH_PROPERTIES,
    *ANSWERS,
    *SUBSCRIBES,
    *CONTROLS,
    *FRAMES,
]
