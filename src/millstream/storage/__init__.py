"""Ports to what must survive a restart, and their in-memory twin."""
