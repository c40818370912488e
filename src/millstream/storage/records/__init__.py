"""What the records of the log say, kind by kind, and what survives of it when they are folded."""
