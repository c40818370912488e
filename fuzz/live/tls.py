"""Conversations with a TLS listener: greetings that are changed, and some MQTT behind a handshake that is finished."""

from __future__ import annotations

import random

from fuzz.live import mqtt
from fuzz.live.script import Script, change_packet, make_script

# A ClientHello as OpenSSL sends it, with a fixed random: a greeting that is not the same every time could not be repeated.
CLIENT_HELLO = bytes.fromhex(
    "1603010200010001fc030300e0661e23abd6a04c8638d42f2cd2e89734172df9cb84bf6c0c1502509ed56a20d5b02144"
    "7f04671d58ab9044eefe3c38cc6fe48cd7f966ca9f626211bd21bec90010130213031301c02cc030c02bc02f00ff0100"
    "01a30000000e000c0000096c6f63616c686f7374000b000403000102000a00160014001d0017001e0019001801000101"
    "010201030104002300000016000000170000000d002a0028040305030603080708080809080a080b0804080508060401"
    "05010601030303010302040205020602002b00050403040303002d00020101003300260024001d0020cb9bdd11cd3bda"
    "f9bcc6d90eb98bf9902bfd503438dd2439d7e8ce8657d4b873001500f800000000000000000000000000000000000000"
    "000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"
    "000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"
    "000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"
    "000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"
    "00000000000000000000000000000000000000000000000000000000000000000000000000"
)
OTHERS = (
    b"\x15\x03\x01\x00\x02\x02\x28",
    b"\x14\x03\x03\x00\x01\x01",
    b"\x17\x03\x03\x00\x05hello",
    b"\x16\x03\x01\x40\x00",
)
FINISHED_SHARE = 0.15  # a whole handshake costs more than all the rest


def make_any(chance: random.Random) -> bytes:
    return chance.choice((CLIENT_HELLO, *OTHERS, mqtt.make_connect(chance, 5), chance.randbytes(40)))


def make_tls(chance: random.Random) -> Script:
    if chance.random() < FINISHED_SHARE:
        connect, packets = mqtt.make_conversation(chance)
        return make_script(chance, "mqtt_tls", [connect], packets, mqtt.make_any, is_inside_tls=True)
    hello = CLIENT_HELLO
    if chance.random() < 0.6:
        hello = change_packet(chance, hello)
    packets = [make_any(chance) for _ in range(chance.randrange(3))]
    return make_script(chance, "mqtt_tls", [hello], packets, make_any)
