"""Valid input for the targets of AMQP 0-9-1, made by hypothesis."""

from __future__ import annotations

from amqp091_targets import choose
from hypothesis import strategies as st
from test_amqp091_codec import methods, property_sets, publish_frames, tables
from vectors.amqp091_vector import frame

from millstream.protocols.amqp091.wire.field_table import encode_table
from millstream.protocols.amqp091.wire.methods import encode_method
from millstream.protocols.amqp091.wire.properties import encode_properties

method_frames = methods.map(lambda method: frame(1, 1, encode_method(method)))

octets = st.integers(0, 255).map(lambda octet: bytes([octet]))
any_frames = st.builds(
    lambda channel, method: frame(1, channel, encode_method(method)), st.integers(0, 3), methods
)
conversations = st.lists(any_frames | publish_frames(), min_size=1, max_size=6).map(b"".join)

AMQP091_INPUTS: dict[str, st.SearchStrategy[bytes]] = {
    "amqp091-methods": methods.map(lambda method: choose(encode_method(method))[0]),
    "amqp091-tables": tables.map(encode_table),
    "amqp091-properties": property_sets.map(encode_properties),
    "amqp091-frames": method_frames | publish_frames(),
    "amqp091-publish-scan": publish_frames(),
    "amqp091-server": st.builds(bytes.__add__, octets, conversations),
    "amqp091-handshake": st.builds(bytes.__add__, octets, conversations),
}
