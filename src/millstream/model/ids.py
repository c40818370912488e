"""Identities as types of their own, so that a client id is never mistaken for a user or an account."""

from __future__ import annotations

from typing import NewType

ClientId = NewType("ClientId", str)
AccountName = NewType("AccountName", str)
UserName = NewType("UserName", str)
