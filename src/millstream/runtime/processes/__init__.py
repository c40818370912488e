"""Child processes of the broker."""
