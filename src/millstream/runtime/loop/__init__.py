"""The event loop: the end of a turn, waking up, its clock and timers."""
