from __future__ import annotations

from fakes import FakeOutlet

from millstream.model.topic import split_share
from millstream.routing.subscription import Subscription


def test_the_name_is_the_filter_as_the_client_wrote_it() -> None:
    assert Subscription(FakeOutlet(), b"a/+", b"", 0, False, False, 0).name() == b"a/+"
    shared = Subscription(FakeOutlet(), b"/a", b"g", 0, False, False, 0)
    assert shared.name() == b"$share/g//a"
    assert split_share(shared.name()) == (shared.group, shared.filter)
