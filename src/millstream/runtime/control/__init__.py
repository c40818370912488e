"""The control socket, both sides of it."""
