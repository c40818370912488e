"""Users and rules from their files, read at start and again when the files change.

A file that cannot be used later on changes nothing: the rules in force stay, and the log says why.
"""

from __future__ import annotations

import secrets
import time
from pathlib import Path
from typing import Final

import structlog

from millstream.broker.broker import Broker
from millstream.broker.conditions import RULES_STALE, USERS_STALE
from millstream.broker.line import Ending
from millstream.config.contents import make_token_verifier, read_acl, read_users
from millstream.config.faults import ConfigFault
from millstream.config.listeners import is_anonymous_allowed
from millstream.config.schema import Config
from millstream.protocols.amqp091.context import AmqpContext
from millstream.runtime.file_watch import FileWatch
from millstream.security.acl import Authorizer
from millstream.security.authentication import Authenticator
from millstream.security.users import UserTable

KEY_LENGTH: Final = 32


def find_scram_key(data_dir: Path, users: UserTable) -> bytes:
    """The key from which salts for unknown users are made. It is kept, because a salt that changes with a
    restart would tell unknown users from known ones."""
    if not any(user.scram is not None for user in users.users()):
        return secrets.token_bytes(KEY_LENGTH)
    path = data_dir / "scram.key"
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        key = path.read_bytes()
        if len(key) == KEY_LENGTH:
            return key
    except FileNotFoundError:
        pass
    key = secrets.token_bytes(KEY_LENGTH)
    unfinished = path.with_suffix(".new")
    unfinished.touch(mode=0o600)
    unfinished.write_bytes(key)
    unfinished.replace(path)
    return key


class Rights:
    def __init__(self, config: Config) -> None:
        auth = config.auth
        # watched before they are read: a change in between is seen, at worst twice
        self._user_watch = None if auth.password_file is None else FileWatch(auth.password_file)
        self._acl_watch = None if auth.acl_file is None else FileWatch(auth.acl_file)
        self._log = structlog.get_logger("millstream")
        users = UserTable({}) if auth.password_file is None else read_users(auth.password_file)
        self.tokens = make_token_verifier(auth.jwt)
        self.authenticator = Authenticator(
            users,
            is_anonymous_allowed(config),
            auth.anonymous_account,
            self.tokens,
            auth.certificates_as_users,
            secrets.token_bytes(32),
        )
        self.scram_key = find_scram_key(config.data_dir, users)
        self.authorizer = Authorizer(None if auth.acl_file is None else read_acl(auth.acl_file))

    def refresh(self, broker: Broker, amqp: AmqpContext | None = None) -> None:
        """Called about once a second."""
        users = self._user_watch
        acl = self._acl_watch
        recheck = self.tokens is not None
        has_changed = False
        if users is not None and users.has_changed():
            try:
                self.authenticator.replace_users(read_users(users.path))
                recheck = has_changed = True
                self._log.info("users_reloaded", file=str(users.path))
                broker.health.end(USERS_STALE)
            except ConfigFault as fault:
                self._log.error("users_not_reloaded", file=str(users.path), reason=str(fault))
                broker.health.begin(USERS_STALE, str(fault))
        if acl is not None and acl.has_changed():
            try:
                self.authorizer.replace(read_acl(acl.path))
                has_changed = True
                self._log.info("rules_reloaded", file=str(acl.path))
                broker.health.end(RULES_STALE)
            except ConfigFault as fault:
                self._log.error("rules_not_reloaded", file=str(acl.path), reason=str(fault))
                broker.health.begin(RULES_STALE, str(fault))
        if has_changed:
            for account in broker.accounts.values():
                account.on_rights_changed()
            if amqp is not None:
                amqp.on_rights_changed()
        if recheck:
            self._end_invalid(broker)
            if amqp is not None:
                amqp.end_invalid(int(time.time()))

    def _end_invalid(self, broker: Broker) -> None:
        now_s = int(time.time())
        for account in broker.accounts.values():
            for session in list(account.sessions.values()):
                line = session.line
                if line is not None and not self.authenticator.is_still_valid(session.principal, now_s):
                    line.end(Ending.NOT_AUTHORIZED)
