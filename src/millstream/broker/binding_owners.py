"""Whose the bindings of an account are: by whose right each stands, and for whom it counts.

Invariants
- A binding counts once: for the first of those who made it; that of a queue of one connection for the queue's user; the account's
  own for the account alone.
- A binding between exchanges is narrow unless one of its owners may publish everything to its target.
"""

from __future__ import annotations

from typing import Final, final

from millstream.model.owner import Owner
from millstream.queues.queue import Queue
from millstream.routing.binding import Binding
from millstream.routing.exchange import DIRECT
from millstream.security.quota import SUBSCRIPTIONS, Usage
from millstream.security.quotas import ANYBODY, Quotas
from millstream.storage.records import exchange_records
from millstream.storage.records.exchange_records import BINDING_OWNED, BINDING_REMOVED, BINDING_SAVED
from millstream.storage.store import Store


@final
class BindingOwners:
    def __init__(self, account: str, store: Store, quotas: Quotas) -> None:
        self._account: Final = account
        self._store = store
        self._quotas = quotas

    def admit(self, binding: Binding, owner: Owner | None) -> None:
        """Refused when whoever it would count for has as many as it may."""
        name = ANYBODY if owner is None else owner.name
        self._quotas.admit(SUBSCRIPTIONS, self._find_usage(binding, name))

    def begin(self, binding: Binding, owner: Owner | None, is_narrow: bool) -> None:
        """It is new."""
        binding.is_narrow = is_narrow
        self._note(binding, owner)
        self._usage_of(binding).add(SUBSCRIPTIONS, 1)

    def add(self, binding: Binding, owner: Owner | None, is_narrow: bool) -> None:
        """Somebody else makes it too. Of one that is suspended nobody else has the right."""
        before = self._usage_of(binding)
        binding.is_narrow = is_narrow and (binding.is_narrow or binding.is_suspended)
        self._note(binding, owner)
        after = self._usage_of(binding)
        if after is not before:
            before.add(SUBSCRIPTIONS, -1)
            after.add(SUBSCRIPTIONS, 1)

    def restore(self, binding: Binding, owners: list[Owner]) -> None:
        """As the store kept it. Which rights its owners have is looked at before anybody is served."""
        binding.owners = owners
        binding.is_narrow = bool(owners) and binding.exchange is not None and binding.source.kind == DIRECT
        self._usage_of(binding).add(SUBSCRIPTIONS, 1)

    def end(self, binding: Binding) -> None:
        """It is gone."""
        self._usage_of(binding).add(SUBSCRIPTIONS, -1)
        self._save(BINDING_REMOVED, binding)

    def _note(self, binding: Binding, owner: Owner | None) -> None:
        if owner is None:
            binding.owners = []
            self._save(BINDING_SAVED, binding)
            return
        exchange_records.add_owner(binding.owners, owner)
        if binding.is_durable:
            body = exchange_records.encode_binding(self._account, binding.source.name, binding.identity)
            self._store.exchange_fact(BINDING_OWNED, exchange_records.encode_owners([owner], body))

    def _save(self, kind: int, binding: Binding) -> None:
        if binding.is_durable:
            body = exchange_records.encode_binding(self._account, binding.source.name, binding.identity)
            self._store.exchange_fact(kind, body)

    def _usage_of(self, binding: Binding) -> Usage:
        return self._find_usage(binding, binding.owners[0].name if binding.owners else ANYBODY)

    def _find_usage(self, binding: Binding, owner: str) -> Usage:
        queue = binding.queue
        if owner == ANYBODY and isinstance(queue, Queue) and queue.definition.exclusive:
            return queue.usage
        return self._quotas.of(owner)
