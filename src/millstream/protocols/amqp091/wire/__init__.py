"""Bytes to methods and back: pure functions, no state."""
