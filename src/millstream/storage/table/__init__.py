"""The table of small state, the checkpoints that fold the log into it, and how both are checked."""
