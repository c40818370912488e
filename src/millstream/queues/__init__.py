"""Queues: named logs of messages with groups of consumers; what must not be lost waits here."""
