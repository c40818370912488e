"""Work on a data directory beside the broker: backup, restore, verify and repair."""
