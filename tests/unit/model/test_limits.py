from __future__ import annotations

import dataclasses

import pytest

from millstream.model.limits import Limits


def test_limits_cannot_be_changed_behind_the_back_of_those_who_read_them() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Limits().sessions_max = 1  # type: ignore[misc]


def test_the_defaults_fit_together() -> None:
    limits = Limits()
    assert limits.unsent_bytes_low < limits.unsent_bytes_high < limits.unsent_bytes_max
    assert limits.message_size_max < limits.packet_size_max
    assert limits.connect_packet_size_max <= limits.packet_size_max
    assert limits.inflight_max <= 65_535
    assert limits.receive_maximum <= 65_535
    assert limits.unauthenticated_per_address_max <= limits.unauthenticated_max <= limits.connections_max
