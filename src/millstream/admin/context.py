"""Where operations meet the broker: its accounts and queues, its time, and when an answer may go out."""

from __future__ import annotations

from millstream.broker.account import Account
from millstream.broker.broker import DEFAULT_ACCOUNT, Broker
from millstream.protocols.amqp091.policies import Policies
from millstream.queues.queue import Queue
from millstream.runtime.control.server import ControlRefusal, Fields
from millstream.runtime.loop.durable_wait import DurableWait


class AdminContext(DurableWait):
    def __init__(self, broker: Broker, policies: Policies | None = None) -> None:
        super().__init__(broker)
        self.policies = policies or Policies([])  # for what is declared here as by an AMQP client

    def get_account(self, fields: Fields) -> Account:
        name = read_text(fields, "account", DEFAULT_ACCOUNT)
        account = self.broker.accounts.get(name)
        if account is None:
            raise ControlRefusal(
                f"there is no account {name!r}; there are {', '.join(sorted(self.broker.accounts))}"
            )
        return account

    def get_queue(self, fields: Fields, field: str = "name") -> Queue:
        name = read_text(fields, field)
        queue = self.get_account(fields).queues.catalog.find(name)
        if queue is None:
            raise ControlRefusal(f"there is no queue {name!r}", "millstream queue list")
        return queue


# ---------------------------------------------------------------------- fields


def read_text(fields: Fields, name: str, default: str | None = None) -> str:
    value = fields.get(name, default)
    if not isinstance(value, str):
        raise ControlRefusal(f"{name} must be a text, not {value!r}")
    if to_utf8(value) is None:
        raise ControlRefusal(f"{name} is not well-formed text: {value!r}")
    return value


def to_utf8(text: str) -> bytes | None:
    """None: JSON let half a character through."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return None


def read_whole(fields: Fields, name: str, default: int, low: int, high: int) -> int:
    value = fields.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ControlRefusal(f"{name} must be a whole number from {low} to {high}, not {value!r}")
    return value


def read_flag(fields: Fields, name: str) -> bool:
    value = fields.get(name, False)
    if not isinstance(value, bool):
        raise ControlRefusal(f"{name} must be true or false, not {value!r}")
    return value


def read_list(fields: Fields, name: str, count_max: int) -> list[object]:
    value = fields.get(name)
    if not isinstance(value, list) or len(value) > count_max:
        raise ControlRefusal(f"{name} must be a list of at most {count_max}")
    return value


def read_object(fields: Fields, name: str) -> dict[str, object]:
    value = fields.get(name, {})
    if not isinstance(value, dict):
        raise ControlRefusal(f"{name} must be an object, not {value!r}")
    return value
