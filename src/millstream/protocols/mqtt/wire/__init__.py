"""Bytes to packets and back: pure functions, no state."""
