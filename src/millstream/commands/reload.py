"""SIGHUP: read the configuration again, apply what can be applied, and say what needs a restart.

Until the broker runs the signal is handled between two steps of the interpreter; then it is the broker's loop that does it.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

import structlog

from millstream.broker.conditions import CONFIG_STALE
from millstream.broker.health import Health
from millstream.config.difference import difference
from millstream.config.faults import ConfigFault
from millstream.config.load import Loaded
from millstream.config.schema import Config
from millstream.runtime.logs import Logs


class Reload:
    """Keeps the configuration in force. One that is refused changes nothing."""

    def __init__(self, loaded: Loaded, load_again: Callable[[], Loaded], logs: Logs) -> None:
        self._config = loaded.config
        self._load_again = load_again
        self._logs = logs
        self._log = structlog.get_logger("millstream")
        self._apply: Callable[[Config], None] | None = None
        self._health: Health | None = None

    def install(self) -> None:
        signal.signal(signal.SIGHUP, self._on_signal)

    def connect(self, apply: Callable[[Config], None], health: Health | None = None) -> None:
        """The broker runs with the configuration that was loaded first: from now on it is told of others, in its loop."""
        self._apply = apply
        self._health = health
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self.reload)
        apply(self._config)

    def _on_signal(self, _number: int, _frame: object) -> None:
        self.reload()

    def reload(self) -> None:
        try:
            new = self._load_again().config
        except ConfigFault as refused:
            for fault in refused.faults:
                self._log.error("config_not_reloaded", reason=fault.sentence())
            if self._health is not None:
                more = len(refused.faults) - 1
                end = f" (and {more} more)" if more else ""
                self._health.begin(CONFIG_STALE, refused.faults[0].sentence() + end)
            return
        if self._health is not None:
            self._health.end(CONFIG_STALE)
        changes = difference(self._config, new)
        self._logs.set_level(new.log.level)
        self._config = self._config.model_copy(
            update={
                "log": self._config.log.model_copy(update={"level": new.log.level}),
                "amqp": self._config.amqp.model_copy(update={"policies": new.amqp.policies}),
            }
        )
        if self._apply is not None:
            self._apply(self._config)
        self._log.info(
            "config_reloaded",
            applied=[change.key for change in changes if not change.needs_restart],
            needs_restart=[change.key for change in changes if change.needs_restart],
        )
