"""Who may come in, and with which password."""

from __future__ import annotations

PASSWORDS = {"alice": "wonder land", "bob": "b/u+i#l:d"}
GUESSED_AT = (
    "paho",
    "aiomqtt",
    "gmqtt",
    "mqttjs",
)  # a name with ten wrong passwords is shut out for a minute
