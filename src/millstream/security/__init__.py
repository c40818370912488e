"""Who are you, may you, how fast."""
