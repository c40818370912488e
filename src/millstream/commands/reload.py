"""SIGHUP: read the configuration again, apply what can be applied, and say what needs a restart."""

from __future__ import annotations

import signal
from collections.abc import Callable

import structlog

from millstream.config.difference import difference
from millstream.config.faults import ConfigFault
from millstream.config.load import Loaded
from millstream.runtime.logs import Logs


class Reload:
    """Keeps the configuration in force. One that is refused changes nothing."""

    def __init__(self, loaded: Loaded, load_again: Callable[[], Loaded], logs: Logs) -> None:
        self._config = loaded.config
        self._load_again = load_again
        self._logs = logs
        self._log = structlog.get_logger("millstream")

    def install(self) -> None:
        signal.signal(signal.SIGHUP, self._on_signal)

    def _on_signal(self, _number: int, _frame: object) -> None:
        self.reload()

    def reload(self) -> None:
        try:
            new = self._load_again().config
        except ConfigFault as refused:
            for fault in refused.faults:
                self._log.error("config_not_reloaded", reason=fault.sentence())
            return
        changes = difference(self._config, new)
        self._logs.set_level(new.log.level)
        live = self._config.log.model_copy(update={"level": new.log.level})
        self._config = self._config.model_copy(update={"log": live})
        self._log.info(
            "config_reloaded",
            applied=[change.key for change in changes if not change.needs_restart],
            needs_restart=[change.key for change in changes if change.needs_restart],
        )
